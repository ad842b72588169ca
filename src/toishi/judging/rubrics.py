"""Rubrics: weighted criteria as data, what is wrong with them, and what verdicts on them are worth.

Decisions:
1. A reward by criteria is  sum_j w_j c_j / sum of the positive w_j,  c_j = 1 where criterion j is met. All merits and no fault
   give 1. Negative weights are faults; an answer that has them and few merits is worth less than 0, and is left there: clipping
   would make bad and worse answers equal.
2. A merit or fault that is met has to be shown by a quotation. What can only be seen by its absence ("names no price") cannot
   be quoted: word it as a fault with a negative weight, or set `quote: false`.
3. What makes a rubric meaningless (no positive weight, a weight of 0, two criteria of one title) is an error. What is only
   likely to judge badly is said as a warning. Titles that look the same are the same.
4. A weight is at least MIN_WEIGHT and at most MAX_WEIGHT in size: sums and quotients of such weights are finite, and none is
   lost beside another. A key that stands twice in one criterion is an error, in YAML and in JSON.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from toishi.config.yaml_text import read_yaml
from toishi.errors import ConfigError, nearest
from toishi.judging.quoting import has_text, visible
from toishi.judging.verdicts import Verdict

KEYS = ("title", "check", "weight", "quote")
MAX_CRITERIA = 20
MIN_WEIGHT, MAX_WEIGHT = 1e-6, 1e6
_VAGUE = re.compile(
    r"\b(?:good|nice|appropriate(?:ly)?|adequate(?:ly)?|proper(?:ly)?|high[- ]quality|well[- ]written|reasonabl[ey]|"
    r"suitabl[ey]|relevant|helpful|clear(?:ly)?|sufficient(?:ly)?|as needed|etc)\b",
    re.IGNORECASE,
)
_TWO_IN_ONE = re.compile(r"\b(?:and also|as well as|and|or)\b|;", re.IGNORECASE)
_ABSENCE = re.compile(
    r"\b(?:does not|do not|doesn['’]t|avoids?|without|never|no|refrains? from|contains no|free of)\b", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """One thing to check.

    title   a few words that name it
    check   a sentence that is true or false of an answer
    weight  what it adds when it is met; negative for a fault
    quote   whether "met" has to be shown by words of the answer
    """

    title: str
    check: str
    weight: float = 1.0
    quote: bool = True


@dataclass(frozen=True, slots=True)
class Rubric:
    """Criteria in their order, at least one of them with a positive weight.

    >>> rubric = Rubric((Criterion(title="city", check="Names Paris."), Criterion(title="doubt", check="Hedges.", weight=-0.5)))
    >>> rubric.reward([Verdict(met=True), Verdict(met=True)]), rubric.lowest
    (0.5, -0.5)
    """

    criteria: tuple[Criterion, ...]

    @property
    def positive(self) -> float:
        """Sum of the positive weights."""
        return math.fsum(one.weight for one in self.criteria if one.weight > 0)

    @property
    def lowest(self) -> float:
        """What an answer with every fault and no merit is worth."""
        return min(0.0, math.fsum(one.weight for one in self.criteria if one.weight < 0) / self.positive)

    def reward(self, verdicts: Sequence[Verdict]) -> float:
        """sum_j w_j c_j / sum of the positive w_j."""
        met = [one.weight for one, verdict in zip(self.criteria, verdicts, strict=True) if verdict.met]
        return math.fsum(met) / self.positive

    def listed(self, *, weights: bool = False) -> str:
        """The criteria as a numbered list, for the judge."""
        shown = [f"{one.check} (weight {one.weight:g})" if weights else one.check for one in self.criteria]
        return "\n".join(f"{place}. {text}" for place, text in enumerate(shown, start=1))

    def lines(self, verdicts: Sequence[Verdict]) -> str:
        """One JSON object a line for each criterion: title, weight, met, evidence. `verdict_lines` reads them back."""
        rows = [
            {"criterion": one.title, "weight": one.weight, "met": verdict.met, "evidence": verdict.evidence}
            for one, verdict in zip(self.criteria, verdicts, strict=True)
        ]
        return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)


def verdict_lines(reason: str) -> list[dict[str, Any]]:
    """The per-criterion verdicts in the reason of a rubric's score, in their order; all replies' where there were several.

    They stand right below the first line. What the judge wrote comes after them and is not looked at: it could look alike.
    Empty where the lines are none of `Rubric.lines`.

    >>> rubric = Rubric((Criterion(title="city", check="Names Paris."),))
    >>> verdict_lines("1 of 1\\n" + rubric.lines([Verdict(met=True, evidence="Paris")]))
    [{'criterion': 'city', 'weight': 1.0, 'met': True, 'evidence': 'Paris'}]
    """
    lines = takewhile(lambda line: line.startswith('{"criterion": '), reason.split("\n")[1:])
    try:
        return [json.loads(line) for line in lines]
    except ValueError:
        return []  # not written by `Rubric.lines`, so no verdict of it


def load_rubric(path: str, *, where: str) -> Rubric:
    """A rubric from a YAML file: a list of criteria, or {criteria: [...]}. Raises ConfigError."""
    try:
        read = read_yaml(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: {path} cannot be read: {error}") from None
    except ValueError as error:
        raise ConfigError(f"{where}: {path} is not readable as YAML: {str(error).splitlines()[0]}") from None
    return read_rubric(read, where=f"{where} {path}")


def read_rubric(value: Any, *, where: str) -> Rubric:
    """A rubric from plain values: a list of {title, check, weight, quote}, {criteria: [...]}, or either as JSON text.

    Raises ConfigError.

    >>> read_rubric([{"title": "city", "check": "Names Paris."}], where="rubric").criteria[0].weight
    1.0
    """
    if isinstance(value, str):
        try:
            value = json.loads(value, object_pairs_hook=_each_key_once)
        except RecursionError:
            raise ConfigError(f"{where}: a rubric given as text has to be a JSON list; this one is nested too deeply") from None
        except ValueError as error:
            raise ConfigError(f"{where}: a rubric given as text has to be JSON: {error}") from None
    if isinstance(value, Mapping) and value.keys() == {"criteria"}:
        value = value["criteria"]
    if not isinstance(value, Sequence) or isinstance(value, str | bytes) or not value:
        raise ConfigError(f"{where}: expected a list of criteria, each with title, check and weight, got {value!r:.80}")
    rubric = Rubric(tuple(_criterion(one, f"{where}, criterion {place}") for place, one in enumerate(value, start=1)))
    _check(rubric, where)
    return rubric


def lint_rubric(rubric: Rubric) -> list[str]:
    """What is likely to judge badly, in words: vague or double questions, absence that cannot be quoted, too many, no balance.

    >>> rubric = Rubric((Criterion(title="style", check="The answer is good and polite."),))
    >>> for line in lint_rubric(rubric): print(line)
    criterion 'style' may be vague ('good'): say what can be seen in the answer
    criterion 'style' may ask two things at once ('and'): split it, or a half-met one has no right verdict
    """
    return list(_doubts(rubric))


def _doubts(rubric: Rubric) -> Iterator[str]:
    if len(rubric.criteria) > MAX_CRITERIA:
        yield f"{len(rubric.criteria)} criteria: judges lose track of more than {MAX_CRITERIA}; keep what matters most"
    checks = [" ".join(one.check.casefold().split()) for one in rubric.criteria]
    for one, check in zip(rubric.criteria, checks, strict=True):
        called = f"criterion '{one.title}'"
        if vague := _VAGUE.search(one.check):
            yield f"{called} may be vague ('{vague[0]}'): say what can be seen in the answer"
        if double := _TWO_IN_ONE.search(one.check):
            yield f"{called} may ask two things at once ('{double[0]}'): split it, or a half-met one has no right verdict"
        if one.quote and one.weight > 0 and (absent := _ABSENCE.search(one.check)):
            yield (
                f"{called} may ask for an absence ('{absent[0]}'), which no quotation can show: word it as a fault with a "
                "negative weight, or set quote: false"
            )
        if checks.count(check) > 1:
            yield f"{called} asks the same as another one"
    heaviest = max(abs(one.weight) for one in rubric.criteria)
    if len(rubric.criteria) > 2 and 2 * heaviest > math.fsum(abs(one.weight) for one in rubric.criteria):
        yield "one criterion weighs more than all others together: the rest can hardly change the order of answers"


def _check(rubric: Rubric, where: str) -> None:
    titles = [_looks(one.title) for one in rubric.criteria]
    for one in rubric.criteria:
        count = titles.count(_looks(one.title))
        if count > 1:
            raise ConfigError(f"{where}: {count} criteria are called '{one.title}'; give each a title of its own")
        if one.weight == 0:
            raise ConfigError(f"{where}: criterion '{one.title}' has weight 0, so it changes nothing; remove it or weigh it")
    if rubric.positive <= 0:
        raise ConfigError(
            f"{where}: every weight is negative, so nothing that an answer does can be worth more than 0; add a merit"
        )


def _looks(title: str) -> str:
    """A title as a person tells it from others."""
    return " ".join(visible(unicodedata.normalize("NFKC", title)).casefold().split())


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    twice = next((key for place, (key, _) in enumerate(pairs) if key in dict(pairs[:place])), None)
    if twice is not None:
        raise ValueError(f"the key '{twice}' stands twice in one object; remove one")
    return dict(pairs)


def _weight(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or (isinstance(value, float) and not math.isfinite(value)):
        raise ConfigError(f"{where}: expected a finite number, got {value!r:.60}")
    if value != 0 and not MIN_WEIGHT <= abs(value) <= MAX_WEIGHT:
        raise ConfigError(
            f"{where}: expected a weight between {MIN_WEIGHT:g} and {MAX_WEIGHT:g} in size, got {_number(value)}; weights "
            "count in relation to one another, so 1 and -0.5 say as much as larger ones"
        )
    return float(value)


def _number(value: int | float) -> str:
    """A number for a message, also where it has more digits than anyone reads."""
    if isinstance(value, int) and value.bit_length() > 200:
        return "an integer of more than 60 digits"
    return f"{value:g}"


def _criterion(value: Any, where: str) -> Criterion:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: expected title, check and weight, got {value!r:.80}")
    for key in value:
        if key not in KEYS:
            raise ConfigError(f"{where}.{key}: unknown key; {nearest(str(key), KEYS)}")
    for key in ("title", "check"):
        if not isinstance(value.get(key), str) or not has_text(value[key]):
            raise ConfigError(f"{where}.{key}: expected a text, got {value.get(key)!r:.60}")
    weight, quote = _weight(value.get("weight", 1.0), f"{where}.weight"), value.get("quote", True)
    if not isinstance(quote, bool):
        raise ConfigError(f"{where}.quote: expected true or false, got {quote!r:.60}")
    return Criterion(title=value["title"].strip(), check=" ".join(value["check"].split()), weight=weight, quote=quote)

"""Golds and answers read by type. A gold is read once, before training, and shown as it was read; or it is refused.

Decisions:
1. The whole text is read or none of it: there is no reading that leaves a part of a gold out.
2. A gold that is words and no maths is text. A gold with maths in it that cannot be read is refused, not guessed at.
3. Of a solution that marks its own answer (a last `\\boxed{}`, a last `####` line), the marked answer is the gold.
4. A list of one is that one; a list of several is a set: all are needed, in any order.
5. Maths beyond this package's own grammar (integrals, sums, limits) is read by math-verify's LaTeX parser, in a child process.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

from toishi.answers.ambiguous import ambiguity
from toishi.answers.beyond import BEYOND, is_plain_latex
from toishi.answers.exact import canonical
from toishi.answers.extracting import last_box
from toishi.answers.grammar import number_node
from toishi.answers.inequalities import as_open_interval
from toishi.answers.plain import read_choice, read_text, read_time
from toishi.answers.structures import read_formulas
from toishi.answers.tidy import tidied, unwrapped
from toishi.answers.tokens import TooLarge, Unreadable, tokens_of
from toishi.answers.values import Value, shown
from toishi.errors import DataError

AnswerType = Literal[
    "auto", "number", "percent", "quantity", "set", "tuple", "interval", "equation", "expression", "choice", "time", "text"
]
MAX_ANSWER_CHARS = 8_000
_PLAIN_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d{1,300})(?:\.\d{1,300})?")
_LETTER_GOLD = re.compile(r"[(\[]?[A-J][)\]]?\.?")
_MATHS = re.compile(r"[\\^_{}=<>|+*]")
_HASHES = re.compile(r"^[ \t]*####[ \t]*(\S.*)$", re.MULTILINE)
_NAME_OR_DATE = re.compile(r"[^\W\d_]{3,}|[^\W\d_a-z]{2}|\d{4}-\d\d-\d\d|\d{1,2}/\d{1,2}/\d{4}")
_SENTENCE = re.compile(r"\b(?:answer|solution|result)\b.{0,40}?(?:\bis\b|[:=])", re.IGNORECASE)
_MISSING = frozenset(("nan", "none", "null", "inf", "-inf", "n/a"))


@dataclass(frozen=True, slots=True)
class Gold:
    """A gold as it was read. `source` is the raw value as JSON, `text` what was read of it."""

    source: str
    text: str
    type: AnswerType
    value: Value

    @property
    def shown(self) -> str:
        """The reading as a person would type it."""
        return shown(self.value)


def read_gold(raw: Any, type: AnswerType = "auto") -> Gold:
    """The gold of a data row, read by `type` ("auto": by what it looks like). Raises DataError for what cannot be read whole.

    >>> [(gold.value.kind, gold.shown) for gold in map(read_gold, (7, "7\\\\sqrt{3}", ["2", 7], "08:30", "No", "C"))]
    [('number', '7'), ('expression', '7*sqrt(3)'), ('set', '{2, 7}'), ('time', '08:30'), ('text', 'no'), ('choice', 'C')]
    >>> read_gold("3x + ")
    Traceback (most recent call last):
    ...
    toishi.errors.DataError: the gold '3x + ' cannot be read: the formula ends too early; for words, use type: text
    """
    source = _as_json(raw)
    try:
        return _gold(source, type)
    except (TooLarge, RecursionError) as error:
        raise DataError(f"the gold {_short(raw)} is too large to compare with: {error}") from None
    except ValueError as error:  # Unreadable, or numbers that Python does not write out
        remedy = "" if type == "text" or not isinstance(raw, str) or not raw.strip() else "; for words, use type: text"
        raise DataError(
            f"the gold {_short(raw)} cannot be read{'' if type == 'auto' else f' as {type}'}: {error}{remedy}"
        ) from None


@lru_cache(maxsize=4096)
def gold_from_json(source: str, type: AnswerType) -> Gold:
    """The gold that `read_gold` read in another process."""
    return _gold(source, type)


def read_answer(text: str, gold: Gold, *, letters: str = "", things: frozenset[str] = frozenset()) -> Value:
    """An answer's text, read as the gold's type asks. Raises Unreadable or TooLarge.

    letters  the choices that exist, if the gold is one
    things   words of the question that may count things (see `things.words_of`)

    >>> shown(read_answer("6m", read_gold("6 m"))), shown(read_answer(r"\\text{Yes}", read_gold("No")))
    ('6 m', 'yes')
    """
    kind = gold.value.kind
    if len(text) > MAX_ANSWER_CHARS:
        raise TooLarge(f"{len(text):,} characters")
    if kind == "text":
        return read_text(text)
    if kind == "choice":
        found = read_choice(text, letters)
        if found is None:
            raise Unreadable("not one choice letter")
        return found
    time = read_time(text) if kind == "time" else None
    if time is not None:
        return time
    value = _maths(text, loose_units=kind == "quantity", things=things | nouns_of(gold.value))
    try:
        return value if gold.type == "auto" else _as_type(value, gold.type)
    except Unreadable:  # of another type than the gold, so wrong unless the comparison knows better
        return value


def _gold(source: str, type: AnswerType) -> Gold:
    raw = json.loads(source)
    if isinstance(raw, list):
        return _listed(source, raw, type)
    text = _marked(str(raw)) if isinstance(raw, str) else repr(raw)
    if not text.strip():
        raise Unreadable("it is empty")
    return Gold(source, text, type, _typed(text, type))


def _listed(source: str, raw: Sequence[Any], type: AnswerType) -> Gold:
    if not raw:
        raise Unreadable("it is an empty list")
    inner: AnswerType = "auto" if type in ("set", "tuple") else type
    golds = [_gold(_as_json(item), inner) for item in raw]
    if len(golds) == 1 and type not in ("set", "tuple"):
        return replace(golds[0], source=source)
    values = tuple(gold.value for gold in golds)
    text = "; ".join(gold.text for gold in golds)
    return Gold(
        source, text, type, Value("tuple" if type == "tuple" else "set", values, bare="" if type == "tuple" else "list")
    )


def _typed(text: str, type: AnswerType) -> Value:
    if type == "text":
        return _words(text)
    if type == "choice":
        choice = read_choice(text)
        if choice is None:
            raise Unreadable("not one choice letter")
        return choice
    if type == "time":
        time = read_time(text)
        if time is None:
            raise Unreadable("no time of day")
        return time
    if type == "auto":
        return _guessed(text)
    return _as_type(_maths(text, loose_units=type == "quantity"), type)


def _guessed(text: str) -> Value:
    """By what it looks like: number, choice letter, time of day, maths, and words where there is no maths."""
    plain = unwrapped(text)
    if _PLAIN_NUMBER.fullmatch(plain):
        return _plain_number(plain)
    letter = read_choice(plain)
    if letter is not None and _LETTER_GOLD.fullmatch(re.sub(r"\\[a-z]+|[{}]", "", plain).strip()):
        return letter
    time = read_time(plain)
    if time is not None:
        return time
    if plain.casefold() in _MISSING:
        raise Unreadable("it stands for a missing value")
    if _SENTENCE.search(plain):
        raise Unreadable("it is a sentence about the answer")
    if _NAME_OR_DATE.fullmatch(plain):
        return _words(text)
    try:
        return _maths(text)
    except Unreadable:
        words = re.sub(r"\\(?:text\w*|mathrm|mathbf|emph)\s*\{([^{}]*)\}", r"\1", plain)
        if _MATHS.search(words) or not re.search(r"[^\W\d_]{2}", words):
            raise
        return _words(text)


def _words(text: str) -> Value:
    value = read_text(text)
    if not re.search(r"\w", value.data) or any(
        unicodedata.category(sign) in ("Cs", "Cc") for sign in text if sign not in "\t\r\n"
    ):
        raise Unreadable("no letters or digits, or signs that cannot be written")
    return value


def nouns_of(value: Value) -> frozenset[str]:
    """The words that count things in a gold, singular and in small letters.

    >>> sorted(nouns_of(read_gold("5 red gizmos").value))
    ['gizmo', 'red']
    """
    if value.kind in ("set", "tuple", "assignment"):
        return frozenset().union(*map(nouns_of, value.data))
    return frozenset(word for name, _ in value.unit.dimensions for word in name.split()[1:]) if value.unit else frozenset()


def _as_type(value: Value, type: AnswerType) -> Value:
    """`value` as `type`, where it can be that. Raises Unreadable where it cannot."""
    if type == "percent" and value.kind == "number":
        return Value("percent", canonical(("mul", value.data, ("num", 1, 100))))
    if type == "expression" and value.kind == "number":
        return value
    if type == "set" and value.kind != "set" and value.kind != "interval":
        return Value("set", (value,))
    if type == "interval" and value.kind == "tuple":
        pieces = as_open_interval(value)
        if pieces is not None:
            return Value("interval", pieces)
    if type == "tuple" and value.kind == "interval" and len(value.data) == 1:
        return Value("tuple", tuple(_guess_kind(end) for end in (value.data[0].low, value.data[0].high)))
    if type == "equation" and (value.kind == "equation" or value.name):
        return value
    if type != value.kind:
        raise Unreadable(f"it reads as {value.kind}: {shown(value)}")
    return value


def _guess_kind(node: Any) -> Value:
    return Value("number" if node[0] == "num" else "expression", node)


def _maths(text: str, *, loose_units: bool = False, things: frozenset[str] | None = None) -> Value:
    plain = unwrapped(text)
    if _PLAIN_NUMBER.fullmatch(plain):
        return _plain_number(plain)
    if len(plain) > MAX_ANSWER_CHARS:
        raise TooLarge(f"{len(plain):,} characters")
    tidy = unwrapped(tidied(plain))
    meant = ambiguity(tidy if "–" not in plain and "—" not in plain else plain, is_gold=things is None)
    if meant is not None:
        raise Unreadable(meant)
    if tidy.count("$") >= 2 and tidy.count("$") % 2 == 0 and "\\$" not in tidy and not _are_prices(tidy):
        tidy = tidy.replace("$", " ")
    try:
        return read_formulas(tokens_of(tidy), loose_units=loose_units, things=things)
    except Unreadable:
        if BEYOND.search(tidy) and is_plain_latex(tidy):
            return Value("expression", ("latex", tidy))
        raise
    except RecursionError:
        raise TooLarge("nested too deep") from None


def _are_prices(text: str) -> bool:
    """Whether the dollar signs of `$18 and $5` are money and not the marks around formulas."""
    return any(re.search(r"\b(?:and|or)\b|, ", inside) for inside in text.split("$")[1::2])


def _plain_number(text: str) -> Value:
    return Value("number", number_node(Fraction(text.replace(",", ""))))


def _marked(text: str) -> str:
    """The answer that a solution marks, or the text itself."""
    boxed = last_box(text)
    if boxed:
        return boxed
    hashes = _HASHES.findall(text)
    return hashes[-1] if hashes else text


def _as_json(raw: Any) -> str:
    if raw is None:
        raise DataError("the row has no gold")
    if isinstance(raw, tuple):
        raw = list(raw)
    if isinstance(raw, Decimal) and raw.is_finite():
        raw = str(raw)
    numbers = isinstance(raw, float | int | Decimal) and not isinstance(raw, bool)
    if (numbers and raw != raw) or (numbers and abs(raw) == float("inf")):
        raise DataError(f"the gold is {raw!r}, which is no number")
    if not isinstance(raw, str | list) and not numbers:
        if isinstance(raw, bool):
            return json.dumps(str(raw))
        raise DataError(f"the gold is a {type(raw).__name__}, expected a number, a text or a list: {_short(raw)}")
    try:
        return json.dumps(raw)
    except (ValueError, TypeError) as error:
        raise DataError(f"the gold {_short(raw)} cannot be read: {error}") from None


def _short(raw: Any) -> str:
    try:
        text = repr(raw)
    except ValueError:  # a number of more digits than Python writes out
        return f"of the kind {type(raw).__name__}"
    return text if len(text) <= 120 else text[:117] + "..."

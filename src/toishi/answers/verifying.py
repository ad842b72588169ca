"""A whole completion against a gold: extract, read, compare; one of four verdicts with both readings and a reason.

Decisions:
1. `wrong`, `no_answer` and `undecided` are three things: another value, nothing to compare, and a comparison that could not be
   made (too large, too slow, not provable). Only the last is a failed judgement.
2. What numbers, letters, words and equal formulas decide is decided here, in well under a millisecond. The rest goes to a child
   process (`isolation.pool`) with a limit in seconds and memory, whatever the thread, and is remembered by gold and answer.
3. An answer that cannot be read as its gold's type is wrong. Only a whole completion that cannot be read is no answer.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from toishi.answers.comparing import Comparison, NeedsSymbolic, Quick, UnitRule
from toishi.answers.extracting import Extracted, Where, extract
from toishi.answers.reading import Gold, read_answer
from toishi.answers.things import words_of
from toishi.answers.tokens import TooLarge, Unreadable
from toishi.answers.values import Value, shown
from toishi.errors import MissingExtraError
from toishi.isolation.limits import Killed, Limits, NotStarted, Raised
from toishi.isolation.pool import call_each

Outcome = Literal["right", "wrong", "no_answer", "undecided"]
REMEMBERED = 20_000
REMEMBERED_CHARS = 1_000
SHOWN_CHARS = 400
SYMBOLIC = "toishi.answers.symbolic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How answers are found and compared.

    where      where an answer may stand (see `extracting`)
    unit       "required": a gold with a unit of measure or a percent sign needs one; "optional": it may be left out
    tolerance  how far off a number still counts, relative to the gold (0.01 is one per cent); 0 is exact
    letters    the letters of the choices that exist; empty: all
    things     words of the question that may stand behind a number (see `things.words_of`)
    limit_s    seconds that one comparison of formulas may take
    memory_mb  MB that it may use
    """

    where: Where = "marked"
    unit: UnitRule = "required"
    tolerance: float = 0.0
    letters: str = ""
    things: frozenset[str] = frozenset()
    limit_s: float = 5.0
    memory_mb: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of one completion.

    extracted    the answer's text as it stands in the completion; None where there is none
    answer_read  how it was read; None where it could not be
    """

    verdict: Outcome
    gold_read: str
    extracted: str | None = None
    answer_read: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """An answer that only a symbolic comparison can judge."""

    text: str
    read: str | None


def verify(gold: Gold, completion: str, rules: Rules = Rules(), *, prefill: str = "") -> Verdict:
    """The verdict on one completion.

    >>> from toishi.answers.reading import read_gold
    >>> verify(read_gold("12500"), r"Total: \\boxed{12\\,500}")
    Verdict(verdict='right', gold_read='12500', extracted='12\\\\,500', answer_read='12500', reason='')
    >>> verify(read_gold("6 cm"), r"\\boxed{6\\text{ m}}").reason
    '6 m is not 6 cm'
    """
    (verdict,) = verify_group(gold, [completion], rules, prefill=prefill)
    return verdict


def verify_group(gold: Gold, completions: Sequence[str], rules: Rules = Rules(), *, prefill: str = "") -> list[Verdict]:
    """One verdict for each completion. Formulas of all of them are compared in one child process, one after another.

    Raises MissingExtraError when formulas have to be compared and math-verify is not installed.
    """
    found = [_found(gold, completion, rules, prefill) for completion in completions]
    waiting = list(dict.fromkeys(one.text for one in found if isinstance(one, _Waiting)))
    decided = _symbolic(gold, waiting, rules) if waiting else {}
    return [
        Verdict(
            gold_read=gold.shown,
            extracted=_short(one.text),
            answer_read=one.read,
            verdict=decided[one.text][0],
            reason=decided[one.text][1],
        )
        if isinstance(one, _Waiting)
        else one
        for one in found
    ]


def _found(gold: Gold, completion: str, rules: Rules, prefill: str) -> Verdict | _Waiting:
    """What is known of one completion. Whatever goes wrong in it leaves the others of the group alone."""
    try:
        return _quick(gold, extract(completion, where=rules.where, prefill=prefill), rules)
    except Exception as error:
        reason = f"could not compare: {type(error).__name__}: {_short(str(error))}"
        return Verdict(verdict="undecided", gold_read=gold.shown, reason=reason)


def _quick(gold: Gold, extracted: Extracted | None, rules: Rules) -> Verdict | _Waiting:
    if extracted is None:
        return Verdict(verdict="no_answer", gold_read=gold.shown, reason="no answer found")
    judge = _judged if len(extracted.text) <= REMEMBERED_CHARS else _judged.__wrapped__
    return judge(gold, extracted, rules)


@lru_cache(maxsize=REMEMBERED)
def _judged(gold: Gold, extracted: Extracted, rules: Rules) -> Verdict | _Waiting:
    text = extracted.text
    kept = _short(text)
    try:
        answer = read_answer(text, gold, letters=rules.letters, things=rules.things)
    except TooLarge as error:
        reason = f"too large to compare: {error}"
        return Verdict(verdict="undecided", gold_read=gold.shown, extracted=kept, reason=reason)
    except Unreadable as error:
        outcome: Outcome = "no_answer" if extracted.place == "whole" else "wrong"
        return Verdict(verdict=outcome, gold_read=gold.shown, extracted=kept, reason=f"cannot be read: {error}")
    read = _short(shown(answer))
    try:
        wrong = Comparison(Quick(rules.tolerance), rules.unit).reason(gold.value, answer)
    except NeedsSymbolic:
        return _Waiting(text, read)
    except TooLarge as error:
        return Verdict(
            verdict="undecided", gold_read=gold.shown, extracted=kept, answer_read=read, reason=f"too large to compare: {error}"
        )
    return Verdict(
        verdict="wrong" if wrong else "right",
        gold_read=gold.shown,
        extracted=kept,
        answer_read=read,
        reason=_short(wrong or ""),
    )


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 3] + "..."


_remembered: dict[tuple[Any, ...], tuple[Outcome, str]] = {}
_lock = threading.Lock()


def _symbolic(gold: Gold, texts: Sequence[str], rules: Rules) -> dict[str, tuple[Outcome, str]]:
    things = {text: sorted(rules.things & words_of(text)) for text in texts}
    keys = {text: (gold.source, gold.type, text, rules.unit, rules.tolerance, rules.limit_s, *things[text]) for text in texts}
    with _lock:
        known = {text: _remembered[key] for text, key in keys.items() if key in _remembered}
    new = [text for text in texts if text not in known]
    if not new:
        return known
    if importlib.util.find_spec("math_verify") is None:
        raise MissingExtraError("math_verify", extra="math", purpose="comparing formulas")
    common = {"gold": gold.source, "type": gold.type, "unit": rules.unit, "tolerance": rules.tolerance}
    limits = Limits(wall_s=rules.limit_s, cpu_s=rules.limit_s + 1, memory_mb=rules.memory_mb)
    try:
        answers = call_each(
            f"{SYMBOLIC}:compare", [common | {"answer": text, "things": things[text]} for text in new], limits=limits
        )
    except NotStarted as error:
        return known | {text: ("undecided", str(error)) for text in new}
    fresh = {text: _outcome(answer) for text, answer in zip(new, answers, strict=True)}
    with _lock:
        if len(_remembered) > REMEMBERED:
            _remembered.clear()
        _remembered.update({keys[text]: outcome for text, outcome in fresh.items()})
    return known | fresh


def _outcome(answer: Any) -> tuple[Outcome, str]:
    if isinstance(answer, Killed):
        return "undecided", f"could not compare: {answer}"
    if isinstance(answer, Raised):
        return "undecided", f"could not compare: {str(answer)[:300]}"
    return answer["verdict"], _short(answer["reason"])


def check_gold(gold: Gold) -> str | None:
    """Why a gold could not be used, or None: it must be read whole, and the gold itself must be right.

    >>> from toishi.answers.reading import read_gold
    >>> check_gold(read_gold("7\\\\sqrt{3}"))
    """
    if _is_beyond(gold.value):
        try:
            (found,) = call_each(f"{SYMBOLIC}:read_latex", [gold.text], limits=Limits(wall_s=10.0))
        except NotStarted as error:
            return str(error)
        if isinstance(found, Killed | Raised):
            return f"the gold {gold.text!r} cannot be read: {found}"
    try:
        own = read_answer(gold.text, gold)
        wrong = Comparison(Quick()).reason(gold.value, own)
    except (ValueError, NeedsSymbolic, RecursionError) as error:
        return f"the gold {gold.text!r} is not right when it is the answer: {error or 'not readable as itself'}"
    return None if wrong is None else f"the gold {gold.text!r} is not right when it is the answer: {wrong}"


def _is_beyond(value: Any) -> bool:
    """Whether a formula that only math-verify reads is anywhere in a value."""
    if isinstance(value, Value):
        return _is_beyond(value.data)
    return isinstance(value, tuple) and (value[:1] == ("latex",) or any(map(_is_beyond, value)))

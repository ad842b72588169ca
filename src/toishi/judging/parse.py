"""Reading a judge's reply: a score that was said clearly, or a code for why there is none. Nothing is guessed or clamped.

Decisions:
1. Which words of the reply are the verdict is decided in `objects` (JSON) and here for the other forms, which are read only
   when the caller asks for them: a last line of its own, `Rating: [[7]]` for `rating`, and for `last_line` the number alone
   or behind a word for a score. "Number of mistakes: 10" is none.
2. A number is a JSON number, or a string that is one plain decimal numeral ("7"). "7/10", "0.8x", true and null are no numbers.
3. A reply that was cut at its token limit counts only when nothing had begun after the verdict.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Literal

from toishi.judging.objects import Unreadable, declines, last_object, short, speaks_for_itself, spoken
from toishi.judging.scale import Scale
from toishi.types import FinishReason

Form = Literal["json", "rating", "last_line"]

_NUMERAL = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")
_MARK = re.compile(r"\[\[([^\[\]]*)\]\]")
_LABEL = r"(?:(?:my|the|final|overall|total)\s+){0,2}(?:score|rating|grade)\s*[:=]"
_RATED = re.compile(rf"{_LABEL}[\s*]*\[\[([^\[\]]*)\]\]", re.IGNORECASE)
_SCORED = re.compile(rf"(?:{_LABEL}[\s*]*)?(\S+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What was read in a reply: `scores` (one, or one for each candidate), or an `error` code.

    error  "" or one of empty, refused, no_json, bad_json, truncated, missing, ambiguous, trailing_text, not_a_number,
           not_a_list, not_finite, out_of_range, expected_N_got_M, no_rating, too_long
    why    the same in words, for a person
    """

    scores: tuple[float, ...] = ()
    error: str = ""
    why: str = ""

    @property
    def score(self) -> float | None:
        """The one score; None when there is none."""
        return self.scores[0] if self.scores else None


def read_reply(
    text: str,
    scale: Scale,
    *,
    candidates: int | None = None,
    form: Form = "json",
    finish_reason: FinishReason = "stop",
) -> Reading:
    """The score in a judge's reply, or the scores of a group when `candidates` says how many there are.

    >>> scale = Scale.read("1-10")
    >>> read_reply('<think>a 9?</think> {"reason": "two slips", "score": 4}', scale).score
    4.0
    >>> read_reply('{"score": 15}', scale).error, read_reply('{"scores": [7]}', scale, candidates=2).error
    ('out_of_range', 'expected_2_got_1')
    """
    try:
        if form == "json":
            return Reading(scores=_json_scores(last_object(text, _key(candidates), finish_reason), scale, candidates))
        if candidates is not None:
            raise ValueError("the scores of a group are read as JSON only")
        said = spoken(text)
        read = _rating(said) if form == "rating" else _last_line(said, finish_reason)
        return Reading(scores=(_in_range(_number(read, ""), scale, ""),))
    except Unreadable as error:
        return Reading(error=error.code, why=error.why)


def _key(candidates: int | None) -> str:
    return "score" if candidates is None else "scores"


def _json_scores(said: dict[str, Any], scale: Scale, candidates: int | None) -> tuple[float, ...]:
    value = said[_key(candidates)]
    if candidates is None:
        return (_in_range(_number(value, ""), scale, ""),)
    if not isinstance(value, list):
        raise Unreadable("not_a_list", f"scores: expected a list of {candidates} numbers, got {short(value)}")
    if len(value) != candidates:
        raise Unreadable(f"expected_{candidates}_got_{len(value)}", f"scores: expected {candidates} numbers, got {len(value)}")
    places = [f" of candidate {place}" for place in range(1, candidates + 1)]
    numbers = [_number(one, place) for one, place in zip(value, places, strict=True)]
    return tuple(_in_range(one, scale, place) for one, place in zip(numbers, places, strict=True))


def _number(value: Any, place: str) -> float:
    if isinstance(value, str) and _NUMERAL.fullmatch(value.strip(" ")):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unreadable("not_a_number", f"the score{place} is no number: {short(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Unreadable("not_finite", f"the score{place} is not finite: {short(value)}")
    return number


def _in_range(number: float, scale: Scale, place: str) -> float:
    if not scale.low <= number <= scale.high:
        raise Unreadable("out_of_range", f"the score{place} is {number:g}, outside {scale}")
    return number


def _rating(said: str) -> str:
    marks = [mark.strip() for mark in _MARK.findall(said)]
    if len(set(marks)) > 1:
        raise Unreadable("ambiguous", f"several ratings: {', '.join(f'[[{mark}]]' for mark in marks)[:80]}")
    line = _last_said(said)
    found = _RATED.fullmatch(line)
    if found is None:
        raise Unreadable(_no_mark(said), f"the last line is no Rating: [[...]]: {short(line)}")
    return found[1].strip()


def _last_line(said: str, finish_reason: FinishReason) -> str:
    if finish_reason == "length":
        raise Unreadable("truncated", "the reply was cut at its token limit; its last line may be unfinished")
    line = _last_said(said)
    found = _SCORED.fullmatch(line)
    if found is None:
        raise Unreadable(_no_mark(said), f"the last line is no score: {short(line)}")
    return found[1].strip("*").removesuffix(".")


def _last_said(said: str) -> str:
    """The last line without bold and full stop, of a reply whose words before do not take it back."""
    *before, line = said.splitlines()
    speaks_for_itself("\n".join(before))
    return line.strip().strip("*").strip().removesuffix(".")


def _no_mark(said: str) -> str:
    return "refused" if declines(said) else "no_rating"

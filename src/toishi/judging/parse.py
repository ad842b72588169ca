"""Reading a judge's reply: a score that was said clearly, or a code for why there is none. Nothing is guessed or clamped.

Decisions:
1. The reply's last JSON object outside the reasoning counts, and every other object that has the key has to say the same:
   an answer that quotes {"score": 10} at the judge must never be able to speak for it.
2. What begins like an object and is none ends the reading (`bad_json`, `truncated`), even when a readable object follows or
   lies inside: nobody knows then which of them the judge meant.
3. Reasoning ends at the first </think>; what stands before a </think> without an opening tag is reasoning too, since chat
   templates write the opening one. A reasoning that never ends leaves no reply.
4. A number is a JSON number, or a string that is one plain decimal numeral ("7"). "7/10", "0.8x", true and null are no numbers.
5. A reply that was cut at its token limit counts only when nothing had begun after the object.
6. Other forms (Rating: [[7]], a last line with nothing but the number) are read only when the caller asks for them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from toishi.judging.scale import Scale
from toishi.types import FinishReason

Form = Literal["json", "rating", "last_line"]
MAX_REPLY_CHARS = 100_000

_REASONING = re.compile(r"<(/?)(?:think|thinking|reasoning)>", re.IGNORECASE)
_OBJECT_START = re.compile(r"\{\s*(?:[\"'“”‘’}]|\w+\s*:)")
_NUMERAL = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?")
_MARK = re.compile(r"\[\[([^\[\]]*)\]\]")
_LABELLED = re.compile(r"(?:[A-Za-z][A-Za-z ]{0,30}[:=]\s*)?(\S+)")
_REFUSAL = re.compile(
    r"\b(?:i(?:['’]m| am) (?:sorry|unable|not able)|i (?:can(?:no|['’])t|cannot|won['’]t|will not|must decline)"
    r"|unable to (?:evaluate|assess|judge|rate|score|comply))\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What was read in a reply: `scores` (one, or one for each candidate), or an `error` code.

    error  "" or one of empty, refused, no_json, bad_json, truncated, missing, ambiguous, not_a_number, not_a_list, not_finite,
           out_of_range, expected_N_got_M, no_rating, too_long
    why    the same in words, for a person
    """

    scores: tuple[float, ...] = ()
    error: str = ""
    why: str = ""

    @property
    def score(self) -> float | None:
        """The one score; None when there is none."""
        return self.scores[0] if self.scores else None


class Unreadable(Exception):
    """Why a reply says nothing: `code` for counting, `why` for a person."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.code, self.why = code, why


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


def last_object(text: str, key: str, finish_reason: FinishReason = "stop") -> dict[str, Any]:
    """The last JSON object outside the reasoning, which must have `key`. Raises Unreadable.

    >>> last_object('{"winner": "A"} and again {"winner": "A"}', "winner")
    {'winner': 'A'}
    """
    said = spoken(text)
    found = list(_objects(said))
    if not found:
        if _REFUSAL.search(said[:400]):
            raise Unreadable("refused", f"the judge declined: {short(said)}")
        if finish_reason == "length":
            raise Unreadable("truncated", "the reply was cut at its token limit before any JSON object")
        raise Unreadable("no_json", f"no JSON object in the reply: {short(said)}")
    last, end = found[-1]
    if finish_reason == "length" and said[end:].strip(" \t\r\n`"):
        raise Unreadable("truncated", "the reply was cut at its token limit while the judge was still writing")
    if key not in last:
        raise Unreadable("missing", f"the last JSON object has no '{key}': {short(json.dumps(last, default=str))}")
    others = [one[key] for one, _ in found[:-1] if key in one and not _same(one[key], last[key])]
    if others:
        raise Unreadable("ambiguous", f"two objects say different things: {key} {short(others[0])} and {short(last[key])}")
    return last


def spoken(text: str) -> str:
    """`text` without its reasoning. Raises Unreadable when it is too long, empty, or never leaves the reasoning."""
    if len(text) > MAX_REPLY_CHARS:
        raise Unreadable("too_long", f"the reply has {len(text):,} characters; at most {MAX_REPLY_CHARS:,} are read")
    said = "".join(_outside_reasoning(text)).strip()
    if not said:
        raise Unreadable("empty", "the reply is empty" if not text.strip() else "the reply ends with its reasoning")
    return said


def _outside_reasoning(text: str) -> list[str]:
    """Pieces of text outside <think>; a tag inside a JSON object is text of the judge's and no tag."""
    pieces: list[str] = []
    place, inside = 0, False
    while (tag := _next_tag(text, place, inside)) is not None:
        if tag[1]:  # a closing tag: without an opening one, all before it was reasoning
            pieces = [] if not inside else pieces
            inside = False
        else:
            pieces.append(text[place : tag.start()])
            inside = True
        place = tag.end()
    if inside:
        raise Unreadable("truncated", "the reply never leaves its reasoning")
    return [*pieces, text[place:]]


def _next_tag(text: str, place: int, inside: bool) -> re.Match[str] | None:
    while (tag := _REASONING.search(text, place)) is not None:
        if inside:
            if tag[1]:
                return tag
            place = tag.end()
            continue
        start = _OBJECT_START.search(text, place, tag.start())
        end = None if start is None else _end_of_object(text, start.start())
        if end is None:
            return tag
        place = end
    return None


def _end_of_object(text: str, start: int) -> int | None:
    try:
        return _decode(text, start)[1]
    except Unreadable:
        return None


def _objects(text: str) -> Iterator[tuple[dict[str, Any], int]]:
    """Every outermost JSON object of `text` and where it ends. Raises Unreadable at what begins like one and is none."""
    place = 0
    while (start := _OBJECT_START.search(text, place)) is not None:
        value, place = _decode(text, start.start())
        yield value, place


def _decode(text: str, start: int) -> tuple[dict[str, Any], int]:
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        if error.msg.startswith("Unterminated string") or not text[error.pos :].strip(" \t\r\n`"):
            raise Unreadable("truncated", f"the reply ends inside a JSON object: ...{short(text[-60:])}") from None
        raise Unreadable("bad_json", f"not valid JSON: {error.msg} at {short(text[error.pos : error.pos + 40])}") from None
    except RecursionError:
        raise Unreadable("bad_json", "not readable as JSON: nested too deeply") from None
    assert isinstance(value, dict)
    return value, end


def _no_double_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read: dict[str, Any] = {}
    for key, value in pairs:
        if key in read and not _same(read[key], value):
            raise Unreadable("ambiguous", f"one object says '{key}' twice: {short(read[key])} and {short(value)}")
        read[key] = value
    return read


def _whole_number(text: str) -> int | float:
    return int(text) if len(text) < 400 else float(text)


# strict=False takes a line break inside a string, which changes no value. NaN and Infinity are read, to be refused by name.
_DECODER = json.JSONDecoder(object_pairs_hook=_no_double_keys, parse_int=_whole_number, strict=False)


def _same(one: Any, other: Any) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and one == other


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
    if not marks:
        raise Unreadable(_no_mark(said), f"no [[rating]] in the reply: {short(said)}")
    if len(set(marks)) > 1:
        raise Unreadable("ambiguous", f"several ratings: {', '.join(f'[[{mark}]]' for mark in marks)[:80]}")
    return str(marks[-1])


def _last_line(said: str, finish_reason: FinishReason) -> str:
    if finish_reason == "length":
        raise Unreadable("truncated", "the reply was cut at its token limit; its last line may be unfinished")
    line = said.splitlines()[-1].strip().strip("*").strip()
    found = _LABELLED.fullmatch(line)
    if found is None:
        raise Unreadable(_no_mark(said), f"the last line is no score: {short(line)}")
    return str(found[1]).strip("*").removesuffix(".")


def _no_mark(said: str) -> str:
    return "refused" if _REFUSAL.search(said[:400]) else "no_rating"


def short(value: object) -> str:
    """A value for a message: on one line, at most 60 characters, text in quotes."""
    flat = " ".join(value.split()) if isinstance(value, str) else repr(value)
    short = flat if len(flat) <= 60 else flat[:57] + "..."
    return f"'{short}'" if isinstance(value, str) else short

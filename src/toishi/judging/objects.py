"""The JSON object in a judge's reply: found outside the reasoning, read strictly, and taken only where it stands alone.

Decisions:
1. The object is the reply's last thing, on lines of its own or in a code fence. Words after it (`trailing_text`) may take it
   back; words on its line (`ambiguous`) may quote or deny it. Reasons go on earlier lines. An end-of-turn mark and an
   <answer> around the object are no words.
2. Every other object that has the key has to say the same, and so has every other spelling of the key ("Score",
   "final_score"): an answer that quotes {"score": 10} at the judge must never be able to speak for it.
3. A judge that declines, or whose last line before the object gives it to somebody else ("The answer says:"), said no score.
4. What begins like an object and is none ends the reading (`bad_json`, `truncated`), even when a readable object follows or
   lies inside: nobody knows then which of them the judge meant.
5. A backslash that JSON does not know is kept as a backslash: "\\(x\\)" in a reason about mathematics is the judge's LaTeX.
   Only strings have backslashes, and a score with one is no number, so nothing but words is mended.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

from toishi.answers.reasoning import REASONING_MARK
from toishi.types import FinishReason

MAX_REPLY_CHARS = 100_000

_OBJECT_START = re.compile(r"\{\s*(?:[\"'“”‘’}]|\w+\s*:)")
_ESCAPE = re.compile(r"\\(?:[\"\\/bfnrt]|u[0-9a-fA-F]{4})|\\")
_AFTER = re.compile(r"(?:\s|`{3,}|</answer>|<\|\w+\|>|</s>|<end_of_turn>)*", re.IGNORECASE)
_BEFORE = re.compile(r"(?:`{3,} ?\w{0,20}\s?)?(?:<answer>)?", re.IGNORECASE)
_BESIDE_THE_KEY = re.compile(r"(?:my|the|final|overall|total|true|actual|real|corrected|revised|new)+")
_DECLINES = re.compile(
    r"\b(?:i(?:['’]m| am) (?:sorry|unable|not able)|i (?:can(?:no|['’])t|cannot|won['’]t|will not|must decline|refuse|decline)"
    r"|unable to (?:evaluate|assess|judge|grade|rate|score|comply))\b",
    re.IGNORECASE,
)
_TO_JUDGE = (
    r"(?:\w{1,20}ly\s{1,20})?(?:(?:grade|score|rate|judge|evaluate|assess|comply|continue|abstain)\b"
    r"|(?:help|assist)\b(?! but)|do (?:this|that)\b"
    r"|(?:give|provide|assign|output)\s+(?:(?:you|this|it|a|an|any|that|the|such|one)\s+){0,3}"
    r"(?:scores?|ratings?|grades?|marks?|verdicts?|judg\w+|evaluation|assessment)\b)"
    r"(?![^.\n]{0,40}\b(?:higher|above|more|over|better|beyond|full|highly|as)\b)"
)
# Said before an object, only these are a refusal: "I cannot fault this" and "I cannot rate this higher" are reasons.
_REFUSES = re.compile(
    r"\bi(?:['’]m| am) sorry\b(?! to (?:say|see|note))"
    r"|\bi (?:can(?:no|['’])t|cannot|won['’]t|will not|must (?:decline|refuse)|abstain|refuse|decline)\s*(?:[.!,;]|$)"
    rf"|\b(?:i (?:can(?:no|['’])t|cannot|won['’]t|will not))\s{{1,20}}{_TO_JUDGE}"
    rf"|(?:\bi(?:['’]m| am)? |^[^\w\n]{{0,20}}|[.!?]\s{{1,20}})(?:unable|not able|refuse|decline) to\s{{1,20}}{_TO_JUDGE}"
    r"|(?:評価|採点|判定|回答|お答え|対応)(?:は|を|することは)?(?:でき(?:ません|ない)|いたしかね|しかね|お断り)",
    re.IGNORECASE | re.MULTILINE,
)
_QUOTED = re.compile(r"\"[^\"\n]{0,400}\"|“[^”\n]{0,400}”|(?<!\w)'[^\n]{0,400}?'(?!\w)|^[ \t]{0,20}>[^\n]*", re.MULTILINE)
_SAYS = (
    r"(?:says?|said|writes?|wrote|written|claims?|claimed|contains?|contained|reads?|states?|stated|quot\w+|asks?|asked|outputs?"
    r"|tries|tried|demands?|wants?|includes?|gives?|gave|ends? with|plant\w+)"
)
_OTHERS = re.compile(
    rf"(?:\b(?:answer|candidate|response|reply|student|author|user|text|completion|submission|solution|it|he|she|they)\b"
    rf"[^:\n]{{0,60}}\b{_SAYS}[^:\n]{{0,15}}|\bexample\b[^:\n]{{0,30}}|^\W*(?:candidate|student|user|quot\w+)[^:\n]{{0,20}}"
    rf"|^\W*(?:not|never|do not|don['’]t|if|instead of)\b[^:\n]{{0,60}}):[\s*_\"'”’]*$",
    re.IGNORECASE,
)


class Unreadable(Exception):
    """Why a reply says nothing: `code` for counting, `why` for a person."""

    def __init__(self, code: str, why: str) -> None:
        super().__init__(why)
        self.code, self.why = code, why


def last_object(text: str, key: str, finish_reason: FinishReason = "stop") -> dict[str, Any]:
    """The JSON object that ends a reply, which must have `key`. Raises Unreadable.

    >>> last_object('It is {1, 2}, not {3}.\\n{"reason": "\\\\(x\\\\) is right", "winner": "A"}', "winner")
    {'reason': '\\\\(x\\\\) is right', 'winner': 'A'}
    """
    said = spoken(text)
    found = list(_objects(said))
    if not found:
        if declines(said):
            raise Unreadable("refused", f"the judge declined: {short(said)}")
        if finish_reason == "length":
            raise Unreadable("truncated", "the reply was cut at its token limit before any JSON object")
        raise Unreadable("no_json", f"no JSON object in the reply: {short(said)}")
    last, start, end = found[-1]
    if finish_reason == "length" and said[end:].strip(" \t\r\n`"):
        raise Unreadable("truncated", "the reply was cut at its token limit while the judge was still writing")
    if key not in last:
        raise Unreadable("missing", f"the last JSON object has no '{key}': {short(json.dumps(last, default=str))}")
    for one, *_ in found:
        for name, value in one.items():
            if value is not last[key] and _is_key(name, key) and not _same(value, last[key]):
                why = f"the reply says different things: {key} {short(last[key])}, and {name} {short(value)}"
                raise Unreadable("ambiguous", why)
    _stands_alone(said, start, end)
    return last


def _stands_alone(said: str, start: int, end: int) -> None:
    _refuses_nothing(said[:start])
    after = said[_AFTER.match(said, end).end() :]  # type: ignore[union-attr]
    if after:
        raise Unreadable("trailing_text", f"words follow the JSON object, which they may take back: {short(after)}")
    begin = max(said.rfind("\n", 0, start), said.rfind("\r", 0, start)) + 1
    line = said[begin:start]
    if _BEFORE.fullmatch(line.strip()) is None:
        raise Unreadable("ambiguous", f"words stand on the JSON object's line, which may quote or deny it: {short(line)}")
    speaks_for_itself(said[:begin])


def speaks_for_itself(before: str) -> None:
    """Raises Unreadable where what stands before a verdict declines to judge, or gives the verdict to somebody else.

    >>> speaks_for_itself("I cannot fault this.")
    """
    _refuses_nothing(before)
    lines = [line for line in before.splitlines() if _BEFORE.fullmatch(line.strip()) is None]
    if lines and _OTHERS.search(lines[-1][-200:]):
        raise Unreadable("ambiguous", f"the words before the verdict give it to somebody else: {short(lines[-1])}")


def _refuses_nothing(before: str) -> None:
    own = _QUOTED.sub('""', before)  # a judge of harm quotes refusals, and does not refuse by it
    if refusal := _REFUSES.search(own):
        raise Unreadable("refused", f"the judge declined: {short(own[refusal.start() :])}")


def declines(said: str) -> bool:
    """Whether a reply without a verdict begins with a refusal."""
    return _DECLINES.search(said[:400]) is not None or _REFUSES.search(said[:400]) is not None


def spoken(text: str) -> str:
    """`text` without its reasoning. Raises Unreadable when it is too long, empty, or never leaves the reasoning."""
    if len(text) > MAX_REPLY_CHARS:
        raise Unreadable("too_long", f"the reply has {len(text):,} characters; at most {MAX_REPLY_CHARS:,} are read")
    escaped = _ESCAPE.sub(lambda found: found[0] if len(found[0]) > 1 else "\\\\", text)
    said = "".join(_outside_reasoning(escaped)).strip(" \t\r\n\f\v\ufeff\u200b")
    if not said:
        raise Unreadable("empty", "the reply is empty" if not text.strip() else "the reply ends with its reasoning")
    return said


def _outside_reasoning(text: str) -> list[str]:
    """Pieces of text outside the marks; a mark inside a JSON object is text of the judge's and no mark."""
    pieces: list[str] = []
    place, inside = 0, False
    while (mark := _next_mark(text, place, inside)) is not None:
        if mark["closing"] is not None:  # without an opening one, all before it was reasoning
            pieces = [] if not inside else pieces
            inside = False
        else:
            pieces.append(text[place : mark.start()])
            inside = True
        place = mark.end()
    if inside:
        raise Unreadable("truncated", "the reply never leaves its reasoning")
    return [*pieces, text[place:]]


def _next_mark(text: str, place: int, inside: bool) -> re.Match[str] | None:
    """The next mark that matters: inside the reasoning a closing one; outside any that is not in an object or ends the turn."""
    while (mark := REASONING_MARK.search(text, place)) is not None:
        if inside:
            if mark["closing"] is not None:
                return mark
            place = mark.end()
            continue
        start = _OBJECT_START.search(text, place, mark.start())
        end = None if start is None else _end_of_object(text, start.start())
        if end is None and mark[0].lower() != "<|end|>":
            return mark
        place = mark.end() if end is None else end
    return None


def _end_of_object(text: str, start: int) -> int | None:
    try:
        return _decode(text, start)[1]
    except Unreadable:
        return None


def _objects(text: str) -> Iterator[tuple[dict[str, Any], int, int]]:
    """Every outermost JSON object, where it begins and ends. Raises Unreadable at what begins like one and is none."""
    place = 0
    while (start := _OBJECT_START.search(text, place)) is not None:
        value, place = _decode(text, start.start())
        yield value, start.start(), place


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


def _is_key(name: str, key: str) -> bool:
    """Whether `name` is `key` in another spelling, or says to be the last word on it."""
    plain = re.sub(r"[\W_]+", "", unicodedata.normalize("NFKC", name).casefold())
    return plain == key or (plain.endswith(key) and _BESIDE_THE_KEY.fullmatch(plain.removesuffix(key)) is not None)


def _same(one: Any, other: Any) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def short(value: object) -> str:
    """A value for a message: on one line, at most 60 characters, text in quotes."""
    flat = " ".join(value.split()) if isinstance(value, str) else repr(value)
    short = flat if len(flat) <= 60 else flat[:57] + "..."
    return f"'{short}'" if isinstance(value, str) else short

"""Reading verdicts that are no score: which of two answers wins, and which criteria are met and where that can be seen.

Decisions:
1. A criterion that is said to be met needs evidence that stands in the answer, word for word. Space, case and the shape of
   quotation marks do not matter, and "..." may stand for left-out words. Without it the whole reply is unreadable
   (`no_evidence`): a judge that makes up a quotation may have made up its verdict.
2. Evidence is made of whole words and has at least MIN_EVIDENCE letters or digits in all, since "a" or "." stands in every
   answer. A whole number may be shorter, and so may the whole answer. Scripts without spaces have no word ends to hold to, and
   two of their characters are a word.
3. The judge saw the answer with spaces in what looks like control marks, and may write LaTeX with single backslashes
   ("\\theta" is then a tab and "heta"): evidence that stands in the answer as shown, or as meant, counts.
4. The verdicts have to be complete: each number from 1 to K once, in any order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from toishi.judging.objects import Unreadable, last_object, short
from toishi.judging.quoting import harmless, visible
from toishi.types import FinishReason

Winner = Literal["A", "B", "tie"]
_QUOTES = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "\u00a0": " "})
MIN_EVIDENCE = 3
_NUMBER = re.compile(r"[+-]?[0-9]+(?:[.,][0-9]+)*%?")
_NO_SPACES = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
)
_READ_AS = {"\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_LEFT_OUT = re.compile(r"\s*(?:\.\.\.|…|\[\.\.\.\]|\[…\])\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether one criterion is met, and the words of the answer that show it."""

    met: bool
    evidence: str = ""


def read_winner(text: str, finish_reason: FinishReason = "stop") -> Winner:
    """The winner in {"reason": ..., "winner": "A" | "B" | "tie"}. Raises Unreadable.

    >>> read_winner('{"reason": "A is right", "winner": "A"}')
    'A'
    """
    said = last_object(text, "winner", finish_reason)["winner"]
    plain = said.strip().lower() if isinstance(said, str) else said
    winners: tuple[Winner, ...] = ("A", "B", "tie")
    for winner in winners:
        if plain == winner.lower():
            return winner
    raise Unreadable("not_a_choice", f"winner: expected A, B or tie, got {short(said)}")


def read_verdicts(
    text: str, answer: str, needs_evidence: Sequence[bool], finish_reason: FinishReason = "stop"
) -> tuple[Verdict, ...]:
    """The verdicts on all criteria, in their order; `needs_evidence` says for each whether "met" has to be shown.

    Raises Unreadable.

    >>> reply = '{"verdicts": [{"criterion": 1, "evidence": "it is Paris", "met": true}]}'
    >>> read_verdicts(reply, "I think it is  Paris.", [True])[0].met
    True
    """
    said = last_object(text, "verdicts", finish_reason)["verdicts"]
    count = len(needs_evidence)
    if not isinstance(said, list):
        raise Unreadable("not_a_list", f"verdicts: expected a list of {count}, got {short(said)}")
    if len(said) != count:
        raise Unreadable(f"expected_{count}_got_{len(said)}", f"verdicts: expected {count}, got {len(said)}")
    by_number = dict(_verdict(one) for one in said)
    if sorted(by_number) != list(range(1, count + 1)):
        raise Unreadable("wrong_numbers", f"verdicts: expected each criterion from 1 to {count} once, got {sorted(by_number)}")
    for number, needed in enumerate(needs_evidence, start=1):
        verdict = by_number[number]
        if verdict.met and needed and not occurs(verdict.evidence, answer):
            why = f"criterion {number} is said to be met, but its evidence {short(verdict.evidence)} is not in the answer"
            raise Unreadable("no_evidence", why)
    return tuple(by_number[number] for number in range(1, count + 1))


def occurs(evidence: str, answer: str) -> bool:
    """Whether `evidence` stands in `answer` in whole words, enough of them, pieces around "..." one after the other.

    >>> occurs('“the Capital”', 'It is the capital.'), occurs("it ... capital", "It is the capital"), occurs("...", "a")
    (True, True, False)
    >>> occurs("cap", "It is the capital"), occurs("is", "It is 4"), occurs("4", "It is 4"), occurs("It", "It")
    (False, False, True, True)
    """
    meant = "".join(_READ_AS.get(sign, sign) for sign in evidence)
    shown = harmless(answer)
    return any(_occurs(said, text) for said in dict.fromkeys((evidence, meant)) for text in dict.fromkeys((answer, shown)))


def _occurs(evidence: str, answer: str) -> bool:
    text, place = _plain(answer), 0
    pieces = [piece for part in _LEFT_OUT.split(evidence) if (piece := _plain(part).strip("\"' "))]
    if not _is_enough(pieces, text):
        return False
    for piece in pieces:
        place = _end_of_words(piece, text, place)
        if place < 0:
            return False
    return True


def _is_enough(pieces: Sequence[str], text: str) -> bool:
    said = "".join(pieces)
    length = sum(sign.isalnum() for sign in said) + sum(1 for _ in _NO_SPACES.finditer(said))
    return length >= MIN_EVIDENCE or (length > 0 and (_NUMBER.fullmatch(said) is not None or said == text.strip("\"' .")))


def _end_of_words(piece: str, text: str, place: int) -> int:
    """Where the first occurrence of `piece` that cuts no word or number in two ends; -1 when there is none."""
    while (found := text.find(piece, place)) >= 0:
        end = found + len(piece)
        if not _cuts(text, found) and not _cuts(text, end):
            return end
        place = found + 1
    return -1


def _cuts(text: str, place: int) -> bool:
    """Whether a word or a number goes on across `place`."""
    if not 0 < place < len(text):
        return False
    before, after = text[place - 1], text[place]
    if _NO_SPACES.match(before) or _NO_SPACES.match(after):
        return False
    near = text[max(0, place - 2) : place + 2]
    return (before.isalnum() and after.isalnum()) or re.search(r"[0-9][.,][0-9]", near) is not None


def _plain(text: str) -> str:
    return " ".join(visible(text).translate(_QUOTES).casefold().split())


def _verdict(one: Any) -> tuple[int, Verdict]:
    if not isinstance(one, dict) or not {"criterion", "evidence", "met"} <= one.keys():
        raise Unreadable("missing", f"verdicts: expected criterion, evidence and met in each, got {short(one)}")
    number, evidence, met = one["criterion"], one["evidence"], one["met"]
    if isinstance(number, bool) or not isinstance(number, int):
        raise Unreadable("wrong_numbers", f"verdicts: expected the number of a criterion, got {short(number)}")
    if not isinstance(met, bool):
        raise Unreadable("not_a_choice", f"criterion {number}: expected met to be true or false, got {short(met)}")
    if evidence is not None and not isinstance(evidence, str):
        raise Unreadable("not_a_choice", f"criterion {number}: expected the evidence as text, got {short(evidence)}")
    return number, Verdict(met=met, evidence=evidence or "")

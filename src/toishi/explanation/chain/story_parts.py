"""What several sections share: a check as a line, an answer in a cell, the followed answer marked."""

from __future__ import annotations

from collections.abc import Sequence

from toishi.explanation.chain.model import AnswerEffect, Chain, Check
from toishi.explanation.chain.voice import Voice, one_line, tone
from toishi.explanation.page.blocks import Block, Section, Tone, Verdict
from toishi.explanation.page.markup import code, literal


def section(key: str, headline: str, blocks: Sequence[Block], check: Check, voice: Voice) -> Section:
    """A link's section, closed by its check."""
    return Section(key, voice.say(f"{key}.title"), headline, (*blocks, verdict(check, voice)))


def verdict(check: Check, voice: Voice) -> Verdict:
    """A check in words: that it passed, and for those who ask how, or which number it failed at."""
    if not check.ok:
        return Verdict(False, verdict_text(check, voice))
    key = "empty" if not check.compared else "passed"
    return Verdict(True, voice.say(f"check.{key}", compared=f"{check.compared:,}"), verdict_text(check, voice))


def verdict_text(check: Check, voice: Voice) -> str:
    """How a check was made, and the worst of its comparisons."""
    numbers = {
        "how": voice.say(f"how.{check.name}"),
        "where": literal(check.where),
        "recorded": voice.number(check.recorded),
        "recomputed": voice.number(check.recomputed),
        "difference": voice.number(check.difference),
        "bound": voice.number(check.bound),
    }
    if not check.ok:
        return voice.say("check.broken", link=voice.say(f"link.{check.name}"), **numbers)
    if not check.compared:
        return voice.say("check.how", **numbers)
    return voice.say("check.equal" if not check.difference else "check.near", **numbers)


def answer_cell(text: str, limit: int) -> str:
    """An answer in a table."""
    return code(one_line(text, limit)) or "∅"


def followed(chain: Chain, member: int, cells: Sequence[str]) -> tuple[str, ...]:
    """The line of the followed answer begins in bold."""
    first = f"**{cells[0]}**" if member == chain.member else cells[0]
    return (first, *cells[1:])


def effect_tone(answer: AnswerEffect | None) -> Tone:
    """A line's tone by what became of the answer: that it went against its score is more than up or down."""
    if answer is None:
        return ""
    return "against" if answer.agreed is False else tone(answer.change)

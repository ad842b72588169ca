"""What several sections share: a check as a line, an answer in a cell, the followed answer marked."""

from __future__ import annotations

from collections.abc import Sequence

from toishi.explanation.chain.model import Chain, Check
from toishi.explanation.chain.voice import Voice, one_line
from toishi.explanation.page.blocks import Block, Section, Verdict
from toishi.explanation.page.markup import code, literal


def section(key: str, headline: str, blocks: Sequence[Block], check: Check, voice: Voice) -> Section:
    """A link's section, closed by its check."""
    return Section(key, voice.say(f"{key}.title"), headline, (*blocks, Verdict(check.ok, verdict_text(check, voice))))


def verdict_text(check: Check, voice: Voice) -> str:
    """A check in words: how, how many numbers, and the worst of them."""
    numbers = {
        "how": voice.say(f"how.{check.name}"),
        "compared": f"{check.compared:,}",
        "where": literal(check.where),
        "recorded": voice.number(check.recorded),
        "recomputed": voice.number(check.recomputed),
        "difference": voice.number(check.difference),
        "bound": voice.number(check.bound),
    }
    if not check.ok:
        return voice.say("check.broken", link=voice.say(f"link.{check.name}"), **numbers)
    if not check.compared:
        return voice.say("check.empty", **numbers)
    return voice.say("check.equal" if not check.difference else "check.near", **numbers)


def answer_cell(text: str, limit: int) -> str:
    """An answer in a table."""
    return code(one_line(text, limit)) or "∅"


def followed(chain: Chain, member: int, cells: Sequence[str]) -> tuple[str, ...]:
    """The line of the followed answer begins in bold."""
    first = f"**{cells[0]}**" if member == chain.member else cells[0]
    return (first, *cells[1:])

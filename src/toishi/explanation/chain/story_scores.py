"""Links 1 to 4 as sections: from the judge's words to the advantages."""

from __future__ import annotations

from toishi.explanation.chain.headlines import advantage_of
from toishi.explanation.chain.model import Chain, MemberAdvantage, MemberReward, ScoreLine, SumTerm
from toishi.explanation.chain.story_critic import surprised
from toishi.explanation.chain.story_parts import answer_cell, followed, section
from toishi.explanation.chain.voice import NOTHING, Voice, one_line, tone
from toishi.explanation.page.blocks import Block, Formula, Line, Paragraph, Section, Table, Tone
from toishi.explanation.page.markup import literal

REASON, ANSWER = 300, 160
UNREAD = "cut off at the token limit"
"""The reason of every reward that does not read an answer which never ended."""


def scores(chain: Chain, voice: Voice, rows: int) -> Section:
    """Every answer with what each reward said of it."""
    lines = []
    for member in chain.scores.members:
        for index, score in enumerate(member.scores):
            name = f"#{member.member}" if index == 0 else ""
            answer = answer_cell(member.answer, ANSWER) if index == 0 else ""
            cells = (name, answer, literal(score.reward), _value(score, voice), literal(one_line(score.reason, REASON)) or "–")
            lines.append(Line(followed(chain, member.member, cells) if index == 0 else cells, _tone(score)))
    failed = [m for m in chain.scores.members if any(_fails(score) for score in m.scores)]
    headline = voice.say("scores.headline", count=len(chain.scores.members))
    blocks: list[Block] = [Paragraph(voice.say("scores.what"))]
    blocks.append(Table(voice.columns("number", "answer", "reward_name", "score", "reason"), tuple(lines)))
    blocks += [Paragraph(voice.say("scores.failed", answer=f"#{member.member}")) for member in failed]
    blocks += [Paragraph(text) for text in _cut_off(chain, voice)]
    return section("scores", headline, blocks, chain.scores.check, voice)


def _cut_off(chain: Chain, voice: Voice) -> list[str]:
    """Who was cut off by the token limit, and whether anybody read them all the same."""
    cut = [member for member in chain.scores.members if member.cut]
    unread = [member for member in cut if member.scores and all(score.reason == UNREAD for score in member.scores)]
    told = []
    for key, members in (("unread", unread), ("truncated", [member for member in cut if member not in unread])):
        if members:
            limit = max(member.num_tokens for member in members)
            told.append(voice.say(f"scores.{key}", answers=voice.members(m.member for m in members), limit=limit))
    return told


def reward(chain: Chain, voice: Voice, rows: int) -> Section:
    """The weighted sum of each answer, spelled out."""
    lines = tuple(
        Line(
            followed(chain, member.member, (f"#{member.member}", _sum(member, voice), _reward(member.recorded, voice))),
            "held" if member.recorded is None else "",
        )
        for member in chain.reward.members
    )
    names = list(dict.fromkeys(name for member in chain.reward.members for name in (term.reward for term in member.terms)))
    key = "headline_one" if len(names) == 1 else "headline"
    headline = voice.say(f"reward.{key}", rewards=literal(" + ".join(names)))
    return section("reward", headline, [Table(voice.columns("number", "sum", "reward"), lines)], chain.reward.check, voice)


def baseline(chain: Chain, voice: Voice, rows: int) -> Section:
    """What the answers are compared with, and who was left out of it."""
    link, kind = chain.baseline, chain.advantage.baseline
    blocks: list[Block] = [Paragraph(voice.say("baseline.why_critic" if kind == "critic" else "baseline.why"))]
    counting = [member for member in link.members if member.counts and member.earned is not None]
    if link.mean is not None and counting:
        total = " + ".join(voice.number(member.earned) for member in counting).replace("+ −", "− ")
        blocks.append(Formula(voice.say("baseline.mean", sum=total, count=link.count, mean=voice.number(link.mean))))
        blocks.append(Paragraph(voice.say(f"baseline.spread_{link.std_ddof}", std=voice.fine(link.std))))
    if chain.advantage.combine == "normalise_each":
        blocks.append(Paragraph(voice.say("baseline.normalise_each")))
    elif kind != "group_mean":
        blocks.append(Paragraph(voice.say(f"baseline.{kind}", step=chain.step)))
    for member in link.members:
        if not member.counts:
            values = {"answer": f"#{member.member}", "why": literal(member.left_out)}
            blocks.append(Paragraph(voice.say("baseline.left_out", **values)))
    if not link.kept:
        blocks.append(Paragraph(voice.say("baseline.dropped", why=literal(link.why))))
    elif link.why:
        blocks.append(Paragraph(voice.say("baseline.noted", why=literal(link.why))))
    elif link.tied:
        blocks.append(Paragraph(voice.say("baseline.tied")))
    if link.mean is None:
        headline = voice.say("baseline.headline_none")
    else:
        who = voice.say("baseline.all" if link.count == link.size else "baseline.some", count=link.count, size=link.size)
        headline = voice.say(f"baseline.headline_{kind}", mean=voice.number(link.mean), who=who)
    return section("baseline", headline, blocks, link.check, voice)


def advantage(chain: Chain, voice: Voice, rows: int) -> Section:
    """The row's formula, its numbers for each answer, and why one of them is negative."""
    link = chain.advantage
    each = link.combine == "normalise_each"
    blocks: list[Block] = [Formula(link.formula), (_table_of_each if each else _advantage_table)(chain, voice)]
    blocks += _comparisons(chain, voice) if link.critic is None else surprised(chain, voice, rows)
    values = [advantage_of(chain, found.member) for found in link.members]
    up, down = sum(value > NOTHING for value in values), sum(value < -NOTHING for value in values)
    key = "headline" if up or down else "headline_none"
    headline = voice.say(f"advantage.{key}", up=up, down=down, all=len(values))
    return section("advantage", headline, blocks, link.check, voice)


def _comparisons(chain: Chain, voice: Voice) -> list[Block]:
    """Why the asked answers have the sign that they have, and why there is a division."""
    blocks: list[Block] = []
    for found in _asked(chain):
        blocks.append(Paragraph(_why(chain, found, voice)))
        if found.worked:
            blocks.append(Formula(found.worked.replace(f"member {found.member}:", f"#{found.member}:", 1)))
    return blocks + [Paragraph(text) for text in _scaled(chain, voice)]


def _scaled(chain: Chain, voice: Voice) -> list[str]:
    """Why there is a division, where there is one."""
    link = chain.advantage
    texts = [voice.say(f"advantage.scale_{link.scale}")]
    if link.scale != "none" and link.epsilon:
        texts.append(voice.say("advantage.epsilon", epsilon=f"{link.epsilon:g}"))
    return [" ".join(texts)]


def _advantage_table(chain: Chain, voice: Voice) -> Table:
    lines = []
    for standing, found in zip(chain.baseline.members, chain.advantage.members, strict=True):
        value = advantage_of(chain, found.member)
        earned, subtracted = standing.earned, found.subtracted
        distance = None if earned is None else earned - (subtracted or 0.0)
        cells = (
            f"#{found.member}",
            voice.say("left_out") if earned is None else voice.number(earned),
            voice.number(subtracted),
            voice.signed(distance),
            _divisor(chain, found.divisor, voice),
            voice.signed(value),
        )
        lines.append(Line(followed(chain, found.member, cells), "held" if not standing.counts else tone(value)))
    names = ("number", "reward", "baseline", "distance", "divisor", "advantage")
    return Table(voice.columns(*names), tuple(lines))


def _divisor(chain: Chain, divisor: float | None, voice: Voice) -> str:
    """What is really divided by, the added epsilon included, with so many digits that the advantage follows from it."""
    return voice.fine(None if divisor is None else divisor + chain.advantage.epsilon)


def _table_of_each(chain: Chain, voice: Voice) -> Table:
    """A line for each reward of an answer, compared by itself, and one for their sum."""
    lines = []
    for standing, found in zip(chain.baseline.members, chain.advantage.members, strict=True):
        value, name = advantage_of(chain, found.member), f"#{found.member}"
        for one in found.rewards:
            numbers = (voice.number(one.value), voice.number(one.subtracted), voice.signed(one.value - one.subtracted))
            lines.append(
                Line((name, literal(one.reward), *numbers, _divisor(chain, one.divisor, voice), voice.signed(one.part)))
            )
        total = voice.signed(sum(one.part for one in found.rewards)) if standing.counts else voice.say("left_out")
        cells = (name, "Σ", "", "", total, _divisor(chain, found.divisor, voice), voice.signed(value))
        lines.append(Line(followed(chain, found.member, cells), "held" if not standing.counts else tone(value)))
    names = ("number", "reward_name", "reward", "baseline", "distance", "divisor", "advantage")
    return Table(voice.columns(*names), tuple(lines))


def _asked(chain: Chain) -> list[MemberAdvantage]:
    """The answers whose sign is explained: the followed one, and the one furthest below (else furthest above) its baseline."""
    counting = {found.member for found in chain.baseline.members if found.counts}
    able = [
        found
        for found in chain.advantage.members
        if found.member in counting and found.subtracted is not None and abs(advantage_of(chain, found.member)) > NOTHING
    ]
    lowest = min(able, key=lambda item: advantage_of(chain, item.member), default=None)
    return [found for found in able if found is lowest or found.member == chain.member]


def _why(chain: Chain, found: MemberAdvantage, voice: Voice) -> str:
    earned = next(item.earned for item in chain.baseline.members if item.member == found.member)
    value = advantage_of(chain, found.member)
    distance = (earned or 0.0) - (found.subtracted or 0.0)
    words = {
        "answer": f"#{found.member}",
        "reward": voice.number(earned),
        "against": voice.say(f"baseline.name_{chain.advantage.baseline}"),
        "mean": voice.number(found.subtracted),
        "distance": voice.number(abs(distance)),
        "advantage": voice.signed(value),
    }
    return voice.say("advantage.why_negative" if value < 0 else "advantage.why_positive", **words)


def _fails(score: ScoreLine) -> bool:
    """Whether it leaves its answer out; one that is left out of the whole group does not."""
    return score.status == "failed" and score.use != "left_out"


def _value(score: ScoreLine, voice: Voice) -> str:
    if score.value is None:
        return voice.say(f"status.{score.status}")
    return voice.number(score.value) + (f" (× {voice.number(score.weight)})" if score.weight != 1 else "")


def _tone(score: ScoreLine) -> Tone:
    return "held" if score.value is None else ""


def _sum(member: MemberReward, voice: Voice) -> str:
    if member.recorded is None and not member.terms:
        return voice.say("reward.no_score")
    terms = " + ".join(_term(term, voice) for term in member.terms)
    return terms if member.recorded is not None else voice.say("reward.incomplete", terms=terms)


def _term(term: SumTerm, voice: Voice) -> str:
    """weight × value, or what is paid in its place and why."""
    if term.use == "counted":
        return f"{voice.number(term.weight)} × {voice.number(term.value)}"
    return f"{voice.number(term.paid)} ({voice.say(f'use.{term.use}')})"


def _reward(value: float | None, voice: Voice) -> str:
    return voice.say("left_out") if value is None else voice.number(value)

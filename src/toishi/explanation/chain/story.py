"""The chain as a page: which sections, in which order."""

from __future__ import annotations

from toishi import __version__
from toishi.explanation.chain import story_change, story_effect, story_influence, story_scores, story_sft, story_weights
from toishi.explanation.chain.headlines import advantage_of, effect_of, weights_of
from toishi.explanation.chain.model import LINKS, AnswerEffect, Chain, Check
from toishi.explanation.chain.model_whatif import WhatIfs
from toishi.explanation.chain.story_parts import answer_cell, effect_tone, followed, verdict_text
from toishi.explanation.chain.story_whatif import whatif
from toishi.explanation.chain.story_words import words
from toishi.explanation.chain.voice import Voice, one_line
from toishi.explanation.page.blocks import Block, Folded, Line, Page, Paragraph, Section, Table, Verdict
from toishi.explanation.page.markup import code, literal

HTML_ROWS, TERMINAL_ROWS = 400, 24
MUCH_LONGER = 1.5
LINK_SECTIONS = (
    story_scores.scores,
    story_scores.reward,
    story_scores.baseline,
    story_scores.advantage,
    story_weights.weights,
    story_change.gradient,
    story_change.change,
    story_effect.effect,
    story_sft.sft,
)


def page(chain: Chain, language: str = "en", rows: int = HTML_ROWS, asked: WhatIfs | None = None) -> Page:
    """The chain told in one language.

    rows   the most that a table of tokens shows
    asked  what-ifs for a section in which a reader moves a score
    Raises ConfigError for a language without a catalogue.
    """
    voice = Voice.of(language)
    found = (
        not_on_record(chain, name, voice) if name in chain.absent else section(chain, voice, rows)
        for name, section in zip(LINKS, LINK_SECTIONS, strict=True)
    )
    links = [section for section in found if section is not None]
    moved = (story_influence.influence(chain, voice), None if asked is None else whatif(chain, asked, voice))
    after = 1 + max((place for place, link in enumerate(links) if link.key == "effect"), default=-2 + len(links))
    links[after:after] = [section for section in moved if section is not None]
    sections = [overview(chain, voice), *links, checks(chain, voice)]
    who = f"#{chain.member}" if chain.member is not None else voice.say("all_answers")
    return Page(
        language=language,
        title=voice.say("title", step=chain.step, group=chain.group, who=who),
        lead=_lead(chain, voice),
        contents=voice.say("contents"),
        legend=voice.say("before_after"),
        footer=voice.say("footer", version=__version__, folder=literal(chain.folder), step=chain.step, group=chain.group),
        sections=tuple(sections),
    )


def not_on_record(chain: Chain, name: str, voice: Voice) -> Section | None:
    """In the place of a link that the program that trained did not write down: why, and nothing that would be made up."""
    why = Paragraph(literal(chain.absent[name]))
    return Section(name, voice.say(f"{name}.title"), voice.say("missing.headline"), (why,))


def _lead(chain: Chain, voice: Voice) -> str:
    counts = {"prompts": chain.num_prompts, "answers": chain.num_answers, "size": len(chain.scores.members)}
    return voice.say("lead", prompt=code(one_line(chain.prompt, 300)), row=chain.algorithm, group=chain.group, **counts)


def overview(chain: Chain, voice: Voice) -> Section:
    """Score to probability, one line for each answer, and what can be said of it."""
    read = voice.say("overview.read", divided=voice.say(f"words.divided_{chain.advantage.scale}"))
    blocks: list[Block] = [Paragraph(read), _overview_table(chain, voice), words(chain, voice)]
    blocks += [Paragraph(text) for text in chain.headlines[1:]]
    if chain.gold:
        blocks.append(Paragraph(_gold(chain, voice)))
    same = _as_good(chain, voice)
    blocks += [Paragraph(same)] if same else []
    if chain.chosen:
        blocks.append(Paragraph(voice.say("overview.chosen", group=chain.group, member=chain.member)))
    blocks += [Paragraph(text) for text in chain.missing]
    blocks += [_all(chain, voice), Paragraph(voice.say("checks.numbers_only"))]
    headline = chain.headlines[0] if chain.headlines else voice.say("overview.title")
    return Section("overview", voice.say("overview.title"), headline, tuple(blocks))


def _gold(chain: Chain, voice: Voice) -> str:
    """The recorded right answer; how likely the model was to write just that, and who was right in other words."""
    text = voice.say("overview.gold", gold=code(one_line(chain.gold, 200)))
    found = next((answer for answer in chain.effect.answers if answer.kind == "reference"), None) if chain.effect else None
    if found is None:
        return text
    text += " " + voice.say("overview.gold_chance", text=answer_cell(found.text, 60), chance=voice.probability(found.before))
    earned = [member.recorded for member in chain.reward.members if member.recorded is not None]
    best = [member.member for member in chain.reward.members if earned and member.recorded == max(earned) > min(earned)]
    answers = {member.member: member.answer.strip() for member in chain.scores.members}
    others = [member for member in best if answers[member] != found.text.strip()]
    return f"{text} {voice.say('overview.gold_others', others=voice.members(others))}" if others else text


def _as_good(chain: Chain, voice: Voice) -> str:
    """That an answer got as much as one half as long: training hears the reward and nothing else."""
    rewards = {member.member: member.recorded for member in chain.reward.members if member.recorded is not None}
    best = max(rewards.values(), default=0.0)
    paid = [m for m in chain.scores.members if rewards.get(m.member) == best and best > min(rewards.values())]
    if len(paid) < 2:
        return ""
    short, long = min(paid, key=lambda m: m.num_tokens), max(paid, key=lambda m: m.num_tokens)
    if long.num_tokens < MUCH_LONGER * short.num_tokens:
        return ""
    counts = {"more": long.num_tokens - short.num_tokens, "reward": voice.number(best)}
    return voice.say("overview.as_good", long=f"#{long.member}", short=f"#{short.member}", **counts)


def summary(chain: Chain, language: str = "en") -> Section:
    """The sentences alone, and where to read on: what a step's own tables are followed by."""
    voice = Voice.of(language)
    blocks: list[Block] = [Paragraph(text) for text in chain.headlines[1:]]
    place = {"folder": literal(chain.folder), "step": chain.step, "group": chain.group, "member": chain.member}
    blocks += [_all(chain, voice), Paragraph(voice.say("overview.more", **place))]
    headline = chain.headlines[0] if chain.headlines else voice.say("overview.title")
    return Section("summary", voice.say("overview.summary", **place), headline, tuple(blocks))


def _overview_table(chain: Chain, voice: Voice) -> Table:
    lines = []
    for scored, rewarded in zip(chain.scores.members, chain.reward.members, strict=True):
        member = scored.member
        pushes, effect = weights_of(chain, member), effect_of(chain, member)
        cells = [
            f"#{member}",
            answer_cell(scored.answer, 60),
            voice.say("left_out") if rewarded.recorded is None else voice.number(rewarded.recorded),
            _advantage(chain, member, voice),
            "–" if pushes is None else voice.signed(-pushes.total),
        ]
        if chain.effect is not None:
            cells += [voice.with_chance(effect.before), _moved(effect, voice)] if effect else ["–", "–"]
        lines.append(Line(followed(chain, member, cells), "held" if rewarded.recorded is None else effect_tone(effect)))
    measured = ("logprob_before", "moved") if chain.effect is not None else ()
    return Table(voice.columns("number", "answer", "reward", "advantage", "push_sum", *measured), tuple(lines))


def _advantage(chain: Chain, member: int, voice: Voice) -> str:
    recorded = next(found for found in chain.advantage.members if found.member == member).recorded
    return "–" if recorded is None and "advantage" in chain.absent else voice.signed(advantage_of(chain, member))


def _moved(effect: AnswerEffect, voice: Voice) -> str:
    text = voice.times(effect.change)
    return voice.say("overview.against", moved=text) if effect.agreed is False else text


def _all(chain: Chain, voice: Voice) -> Verdict:
    if chain.broken is not None:
        return Verdict(False, voice.say("checks.broken", link=voice.say(f"link.{chain.broken}")))
    compared = sum(check.compared for check in chain.checks)
    return Verdict(True, voice.say("checks.passed", links=len(chain.checks), compared=compared))


def checks(chain: Chain, voice: Voice) -> Section:
    """All links and how each was recomputed."""
    lines = tuple(_check_line(check, voice) for check in chain.checks)
    table = Table(voice.columns("link", "how", "compared", "difference", "bound", "verdict"), lines)
    broken = next((check for check in chain.checks if not check.ok), None)
    what = "checks.what_elsewhere" if chain.absent else "checks.what"
    texts = [Paragraph(voice.say(what)), Paragraph(voice.say("checks.numbers_only"))]
    blocks: list[Block] = [*texts, Folded(voice.say("checks.table"), (table,))]
    if broken is not None:
        blocks.insert(0, Verdict(False, verdict_text(broken, voice)))
    return Section("checks", voice.say("checks.title"), _all(chain, voice).text, tuple(blocks))


def _check_line(check: Check, voice: Voice) -> Line:
    cells = (
        voice.say(f"link.{check.name}"),
        voice.say(f"how.{check.name}"),
        f"{check.compared:,}",
        voice.number(check.difference),
        voice.number(check.bound),
        voice.say("passed" if check.ok else "failed"),
    )
    return Line(cells, "" if check.ok else "down")

"""The chain as a page: which sections, in which order."""

from __future__ import annotations

from toishi import __version__
from toishi.explanation.chain import story_effect, story_scores, story_weights
from toishi.explanation.chain.headlines import advantage_of, effect_of, weights_of
from toishi.explanation.chain.model import AnswerEffect, Chain, Check
from toishi.explanation.chain.story_parts import answer_cell, followed, verdict_text
from toishi.explanation.chain.voice import Voice, one_line, tone
from toishi.explanation.page.blocks import Block, Line, Page, Paragraph, Section, Table, Verdict
from toishi.explanation.page.markup import code, literal

HTML_ROWS, TERMINAL_ROWS = 400, 24
LINK_SECTIONS = (
    story_scores.scores,
    story_scores.reward,
    story_scores.baseline,
    story_scores.advantage,
    story_weights.weights,
    story_weights.gradient,
    story_weights.change,
    story_effect.effect,
    story_effect.sft,
)


def page(chain: Chain, language: str = "en", rows: int = HTML_ROWS) -> Page:
    """The chain told in one language; `rows` is the most that a table of tokens shows.

    Raises ConfigError for a language without a catalogue.
    """
    voice = Voice.of(language)
    found = (section(chain, voice, rows) for section in LINK_SECTIONS)
    sections = [overview(chain, voice), *(section for section in found if section is not None), checks(chain, voice)]
    who = f"#{chain.member}" if chain.member is not None else voice.say("all_answers")
    return Page(
        language=language,
        title=voice.say("title", step=chain.step, group=chain.group, who=who),
        lead=voice.say("lead", prompt=code(one_line(chain.prompt, 300)), row=chain.algorithm),
        contents=voice.say("contents"),
        legend=voice.say("before_after"),
        footer=voice.say("footer", version=__version__, folder=literal(chain.folder), step=chain.step, group=chain.group),
        sections=tuple(sections),
    )


def overview(chain: Chain, voice: Voice) -> Section:
    """Score to probability, one line for each answer, and what can be said of it."""
    blocks: list[Block] = [Paragraph(text) for text in chain.headlines[1:]]
    if chain.gold:
        blocks.insert(0, Paragraph(voice.say("overview.gold", gold=code(one_line(chain.gold, 200)))))
    blocks.append(_overview_table(chain, voice))
    blocks.append(Paragraph(voice.say("overview.read")))
    if chain.chosen:
        blocks.append(Paragraph(voice.say("overview.chosen", group=chain.group, member=chain.member)))
    blocks += [Paragraph(text) for text in chain.missing]
    blocks.append(_all(chain, voice))
    headline = chain.headlines[0] if chain.headlines else voice.say("overview.title")
    return Section("overview", voice.say("overview.title"), headline, tuple(blocks))


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
            voice.signed(advantage_of(chain, member)),
            "–" if pushes is None else voice.signed(-pushes.total),
        ]
        change = 0.0
        if chain.effect is not None:
            change = effect.change if effect else 0.0
            cells += [voice.number(effect.before), _moved(effect, voice)] if effect else ["–", "–"]
        lines.append(Line(followed(chain, member, cells), "held" if rewarded.recorded is None else tone(change)))
    measured = ("logprob_before", "moved") if chain.effect is not None else ()
    return Table(voice.columns("number", "answer", "reward", "advantage", "push_sum", *measured), tuple(lines))


def _moved(effect: AnswerEffect, voice: Voice) -> str:
    text = voice.likelier(effect.change)
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
    blocks: list[Block] = [Paragraph(voice.say("checks.what")), table]
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

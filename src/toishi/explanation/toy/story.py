"""The walk as a page: which sections, in which order."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from toishi import __version__
from toishi.explanation.page.blocks import Folded, Page, Section
from toishi.explanation.toy import story_advantages, story_more, story_pairs, story_start, story_step, story_valued
from toishi.explanation.toy.messages import Catalogue
from toishi.explanation.toy.voice import Voice
from toishi.explanation.toy.walk import Walk

Told = Callable[[Walk, Voice], Section]
START: tuple[Told, ...] = (
    story_start.overview,
    story_more.words,
    story_start.model,
    story_start.supervised,
    story_start.answers,
)
COMPARED: tuple[Told, ...] = (story_advantages.advantages, story_advantages.weights, story_step.loss, story_step.gradient)
TO_PUSHES: Mapping[str, tuple[Told, ...]] = {
    "gae": (story_valued.advantages, story_advantages.weights, story_step.loss, story_step.gradient, story_valued.critic),
    "preference": (story_pairs.advantages, story_advantages.weights, story_step.gradient),
}
"""By a row's credit: how answers become pushes and a gradient. Every other row compares the answers of the group."""
AFTER: tuple[Told, ...] = (story_step.step, story_more.identity, story_step.surprise, story_step.effect)
OPTIONAL = (story_more.kl, story_more.rows, story_more.adam, story_more.neighbours)
"""What stands beside the step: folded, the step is understood without it."""


def page(walk: Walk, language: str = "en", digits: int = 4) -> Page:
    """The walk told in one language.

    digits  after the point, in tables
    Raises ConfigError for a language without a catalogue.
    """
    say = Catalogue(language)
    voice = Voice(say, digits)
    told = (*START, *TO_PUSHES.get(str(walk.row["credit"]), COMPARED), *AFTER)
    sections = [section(walk, voice) for section in told]
    sections += story_more.later(walk, voice)
    sections += [optional(section(walk, voice), voice) for section in OPTIONAL]
    return Page(
        language=language,
        title=say("title", row=story_start.row_title(walk)),
        lead=_lead(walk, voice),
        contents=say("contents"),
        legend=say("before_after"),
        footer=say("footer", version=__version__),
        sections=tuple(sections),
    )


def _lead(walk: Walk, voice: Voice) -> str:
    text = voice.say("lead", vocabulary=len(walk.world.words), group=len(walk.answers))
    return f"{text} {voice.say('lead_again', count=len(walk.updates) - 1)}" if len(walk.updates) > 1 else text


def optional(section: Section, voice: Voice) -> Section:
    """The section with all but its headline folded away."""
    title = voice.say("optional.title", title=section.title)
    return Section(section.key, title, section.headline, (Folded(voice.say("optional.show"), section.blocks),))

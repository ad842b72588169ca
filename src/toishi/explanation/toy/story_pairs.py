"""A preference loss in the walk: the pair, the reward that the model gives without saying so, and how hard the pair pulls."""

from __future__ import annotations

import math

from toishi.explanation.page.blocks import Block, Formula, Line, Paragraph, Section, Table, Tone
from toishi.explanation.page.markup import code
from toishi.explanation.toy.story_start import signed_bars
from toishi.explanation.toy.story_step import agreed
from toishi.explanation.toy.voice import Voice, tone
from toishi.explanation.toy.walk import Walk
from toishi.explanation.toy.walk_beyond import Numbers, PairStep


def advantages(walk: Walk, voice: Voice) -> Section:
    """From the judge's best and worst answer to the pull of the pair."""
    say = voice.say
    if not walk.pairs:
        return Section("advantages", say("pairs.title"), say("pairs.headline_none"), (Paragraph(say("pairs.none")),))
    pair = walk.pairs[0]
    names = {"chosen": f"#{pair.chosen}", "rejected": f"#{pair.rejected}"}
    blocks: list[Block] = [
        Paragraph(say("pairs.body", **names)),
        Formula(say(f"pairs.formula_{_form(walk)}", beta=voice.short(pair.beta))),
        Paragraph(say("pairs.in_words", beta=voice.short(pair.beta))),
        *pulling(walk, pair, voice),
        Paragraph(say("pairs.as_advantage")),
        Formula(say("pairs.gradient")),
        _gradient(walk, pair, voice),
        agreed(voice, "pairs.checked", pair.max_difference),
        signed_bars(walk, voice),
    ]
    headline = say("pairs.headline", loss=voice.number(pair.loss), weight=voice.short(pair.weight), **names)
    return Section("advantages", say("pairs.title"), headline, tuple(blocks))


def pulling(walk: Walk, pair: PairStep, voice: Voice) -> list[Block]:
    """Log-probs of both answers, their implicit rewards, loss and pull, where the model stands."""
    sides = (
        (pair.chosen, pair.chosen_logprob, pair.chosen_ref, pair.chosen_reward),
        (pair.rejected, pair.rejected_logprob, pair.rejected_ref, pair.rejected_reward),
    )
    lines = [
        Line(
            (
                f"#{number} {code(walk.answers[number - 1].text)}",
                voice.number(logprob),
                voice.number(ref),
                voice.signed(logprob - ref),
                f"{voice.short(pair.beta)} × {voice.signed(logprob - ref)} = {voice.signed(reward)}",
            ),
            tone(reward),
        )
        for number, logprob, ref, reward in sides
    ]
    table = Table(voice.columns("answer", "logprob", "logprob_ref", "distance", "implicit"), tuple(lines))
    numbers = {
        "chosen": voice.signed(pair.chosen_reward),
        "rejected": voice.signed(pair.rejected_reward),
        "apart": voice.signed(pair.apart),
        "sure": voice.number(1 / (1 + math.exp(-pair.apart))),
        "doubt": voice.number(1 / (1 + math.exp(pair.apart))),
        "beta": voice.short(pair.beta),
        "loss": voice.number(pair.loss),
        "weight": voice.short(pair.weight),
    }
    return [table, Paragraph(voice.say(f"pairs.worked_{_form(walk)}", **numbers))]


def _form(walk: Walk) -> str:
    """Which formula: the row's, or the one with doubtful labels."""
    return "smoothed" if walk.row["preference"] == "sigmoid" and walk.row["label_smoothing"] else str(walk.row["preference"])


def _gradient(walk: Walk, pair: PairStep, voice: Voice) -> Table:
    """First words: the slopes of both answers, the closed form, and autograd of the loss itself."""
    say = voice.say
    rows: tuple[tuple[str, Numbers, Tone], ...] = (
        (say("pairs.slope", answer=f"#{pair.chosen}"), pair.chosen_slope[0], ""),
        (say("pairs.slope", answer=f"#{pair.rejected}"), pair.rejected_slope[0], ""),
        (say("gradient.line"), pair.gradient[0], "total"),
        (say("col.autograd"), pair.autograd[0], ""),
    )
    lines = [Line((label, *(voice.signed(value) for value in values)), kind) for label, values, kind in rows]
    return voice.by_word(say("first_position"), "quantity", walk.world.words, lines)

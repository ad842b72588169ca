"""A critic's part of the walk: guesses, surprises, advantages of words, and what the critic learns."""

from __future__ import annotations

from toishi.explanation.page.blocks import Block, Column, Formula, Line, Paragraph, Section, Table
from toishi.explanation.page.markup import code
from toishi.explanation.toy.model import World, place_of
from toishi.explanation.toy.story_start import NOTHING, signed_bars
from toishi.explanation.toy.story_step import agreed
from toishi.explanation.toy.voice import Voice, tone
from toishi.explanation.toy.walk import Walk
from toishi.explanation.toy.walk_beyond import CriticStep, Valued, ValuedToken


def advantages(walk: Walk, voice: Voice) -> Section:
    """From the critic's guesses to an advantage for each word, every one spelled out."""
    found, say = _valued(walk), voice.say
    numbers = {"gamma": voice.short(found.gamma), "lam": voice.short(found.lam)}
    blocks: list[Block] = [
        Paragraph(say("valued.body")),
        _guesses(walk, voice),
        Formula(say("valued.formula", **numbers)),
        Paragraph(say("valued.in_words", **numbers)),
        Table(voice.columns("number", "word", "surprise_sum", "advantage_sum"), _spelled(found, voice)),
    ]
    if found.mean is not None and found.std is not None and found.tokens:
        blocks.append(Paragraph(_whitened(found, found.mean, found.std, voice)))
    first = next(iter(found.tokens), None)
    if first is not None and len(found.ends[0]) > 1:
        ends = {"lam_0": _several(found.ends[0], voice), "lam_1": _several(found.ends[1], voice)}
        blocks.append(Paragraph(say("valued.ends", answer=f"#{first.answer}", **ends, **numbers)))
    blocks.append(signed_bars(walk, voice))
    return Section("advantages", say("valued.title"), _headline(found, voice), tuple(blocks))


def critic(walk: Walk, voice: Voice) -> Section:
    """What the critic is taught by the same answers, update by update."""
    found, say = _valued(walk), voice.say
    first = found.steps[0]
    coef = voice.short(found.coef)
    blocks: list[Block] = [
        Paragraph(say("critic.body", coef=coef)),
        Table(voice.columns("number", "word", "value", "returns", "distance"), _targets(found, voice)),
        Paragraph(say("critic.loss", loss=voice.number(first.loss), count=len(found.tokens))),
    ]
    if worked := _worked(walk, found, voice):
        blocks.append(Paragraph(worked))
    blocks.append(_lessons(walk, found, voice))
    if found.clip is not None:
        held = sum(sum(step.held) for step in found.steps)
        blocks.append(Paragraph(say("critic.clip", clip=voice.short(found.clip), held=held)))
    blocks.append(agreed(voice, "critic.checked", max(step.max_difference for step in found.steps)))
    return Section("critic", say("critic.title"), say("critic.headline"), tuple(blocks))


def _valued(walk: Walk) -> Valued:
    assert walk.valued is not None, "told of rows with a critic only"
    return walk.valued


def _places(world: World, voice: Voice) -> list[str]:
    """The texts that the critic knows: none yet, and each first word after which another follows."""
    return [voice.say("valued.start"), *map(code, world.words[:-1])]


def _guesses(walk: Walk, voice: Voice) -> Table:
    pairs = zip(_places(walk.world, voice), walk.world.guesses, strict=True)
    return Table(voice.columns("so_far", "guess"), tuple(Line((text, voice.short(guess))) for text, guess in pairs))


def _spelled(found: Valued, voice: Voice) -> tuple[Line, ...]:
    return tuple(
        Line(
            (f"#{token.answer}", code(token.word), _surprise(found, token, voice), _advantage(found, token, voice)),
            tone(token.estimated),
        )
        for token in found.tokens
    )


def _surprise(found: Valued, token: ValuedToken, voice: Voice) -> str:
    """0 + 1 × 0.7 − 0.5 = +0.2"""
    ahead = f"{voice.short(found.gamma)} × {voice.short(token.following)}"
    return f"{voice.short(token.reward)} + {ahead} − {voice.short(token.value)} = {_plus(token.surprise, voice)}"


def _advantage(found: Valued, token: ValuedToken, voice: Voice) -> str:
    """+0.2 + 1 × 0.95 × (+0.1) = +0.295"""
    ahead = f"{voice.short(found.gamma)} × {voice.short(found.lam)} × ({_plus(token.ahead, voice)})"
    return f"{_plus(token.surprise, voice)} + {ahead} = {_plus(token.estimated, voice)}"


def _plus(value: float, voice: Voice) -> str:
    """With its sign, and without trailing zeros."""
    text = voice.short(value)
    return f"+{text}" if value > 0 and text != "0" else text


def _whitened(found: Valued, mean: float, std: float, voice: Voice) -> str:
    token = found.tokens[0]
    return voice.say(
        "valued.whiten",
        mean=voice.short(mean),
        std=voice.number(std),
        epsilon=f"{found.epsilon:g}",
        word=code(token.word),
        answer=f"#{token.answer}",
        estimated=_plus(token.estimated, voice),
        advantage=voice.signed(token.advantage),
    )


def _several(numbers: tuple[float, ...], voice: Voice) -> str:
    return voice.listed(_plus(number, voice) for number in numbers)


def _headline(found: Valued, voice: Voice) -> str:
    most = max(found.tokens, key=lambda token: abs(token.surprise), default=None)
    if most is None or abs(most.surprise) < NOTHING:
        return voice.say("valued.headline_none")
    key = "valued.headline" if most.surprise > 0 else "valued.headline_worse"
    size = voice.short(abs(most.surprise))
    return voice.say(key, word=code(most.word), answer=f"#{most.answer}", surprise=size)


def _targets(found: Valued, voice: Voice) -> tuple[Line, ...]:
    return tuple(
        Line(
            (
                f"#{token.answer}",
                code(token.word),
                voice.short(token.value),
                f"{_plus(token.estimated, voice)} + {voice.short(token.value)} = {voice.short(token.target)}",
                voice.signed(token.value - token.target),
            )
        )
        for token in found.tokens
    )


def _worked(walk: Walk, found: Valued, voice: Voice) -> str:
    """The slope of the guess that moves most, by hand."""
    step = found.steps[0]
    place = max(range(len(step.slopes)), key=lambda index: abs(step.slopes[index]))
    if abs(step.slopes[place]) < NOTHING:
        return ""
    answers = {answer.number: answer.tokens for answer in walk.answers}
    taught = [token for token in found.tokens if place_of(answers[token.answer], token.position - 1) == place]
    terms = " + ".join(f"({voice.short(token.value)} − {voice.short(token.target)})" for token in taught)
    return voice.say(
        "critic.worked",
        text=_places(walk.world, voice)[place],
        coef=voice.short(found.coef),
        count=len(found.tokens),
        terms=terms,
        slope=voice.signed(step.slopes[place]),
    )


def _lessons(walk: Walk, found: Valued, voice: Voice) -> Table:
    """Each guess before and after each update."""
    columns = [*voice.columns("so_far", "guess"), *(Column(_after(step, voice)) for step in found.steps)]
    guesses = zip(*(step.after for step in found.steps), strict=True)
    lines = [
        Line((text, voice.number(before), *(voice.number(after) for after in afters)), tone(afters[-1] - before))
        for text, before, afters in zip(_places(walk.world, voice), found.steps[0].before, guesses, strict=True)
    ]
    return Table(tuple(columns), tuple(lines))


def _after(step: CriticStep, voice: Voice) -> str:
    return voice.say("critic.after", index=step.index)

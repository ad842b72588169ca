"""Links 8 and 9 as sections: probabilities before and after, and SFT beside it."""

from __future__ import annotations

from toishi.explanation.chain.headlines import effect_of, target_name
from toishi.explanation.chain.model import AnswerEffect, Chain
from toishi.explanation.chain.story_parts import answer_cell, section
from toishi.explanation.chain.voice import NOTHING, Voice, one_line, shown, tone, visible
from toishi.explanation.page.blocks import Bars, Block, Line, Paragraph, Section, Signed, Table, Token, Tokens
from toishi.explanation.page.markup import code
from toishi.record.trace import Contrast, TracedPosition

MAX_POSITIONS = 3
NOISY = 1e-3
Changes = dict[str, dict[str, float]]


def effect(chain: Chain, voice: Voice, rows: int) -> Section | None:
    """Every watched answer before and after, the followed one token by token."""
    link = chain.effect
    if link is None:
        return None
    blocks: list[Block] = [Paragraph(voice.say("effect.what", temperature=voice.number(link.temperature)))]
    if link.noise > NOISY:
        blocks.append(Paragraph(voice.say("effect.noise", dtype=link.dtype, nats=voice.number(link.noise))))
    blocks.append(_table(chain, voice))
    items = tuple((_who(answer, voice), answer.change, voice.signed(answer.change)) for answer in link.answers)
    blocks.append(Signed(voice.say("effect.chart"), items))
    blocks.append(Paragraph(voice.say("effect.why_against")))
    own = effect_of(chain, chain.member) if chain.member is not None else None
    if own is not None:
        blocks += [_strip(own, voice), _tokens(own, voice, rows)]
    blocks += [_bars(place, voice) for place in _positions(chain)]
    asked = [answer for answer in link.answers if answer.agreed is not None]
    right = sum(bool(answer.agreed) for answer in asked)
    key = "none" if not asked else "all" if right == len(asked) else "some"
    return section("effect", voice.say(f"effect.headline_{key}", right=right, all=len(asked)), blocks, link.check, voice)


def sft(chain: Chain, voice: Voice, rows: int) -> Section | None:
    """What one SFT step of equal length would have done, and the part of GRPO that SFT cannot use."""
    if chain.sft is None:
        return None
    contrast = chain.sft.contrast
    target = target_name(contrast.target, voice)
    by_name = {direction.name: direction for direction in contrast.directions}
    changes: Changes = {
        name: dict(zip(contrast.answers, direction.changes, strict=True)) for name, direction in by_name.items()
    }
    values = {
        "target": target,
        "text": code(one_line(contrast.target_text, 160)) or "∅",
        "cosine": voice.number(by_name["grpo"].cosine_with_sft),
        "negative": voice.number(by_name["grpo_negative"].cosine_with_sft),
        "share": voice.percent(_share(by_name["grpo_negative"].gradient_norm, by_name["grpo"].gradient_norm)),
        "precision": contrast.precision,
        "length": voice.number(contrast.step_norm),
    }
    blocks: list[Block] = [Paragraph(voice.say("sft.what", **values)), _changes(contrast, changes, voice)]
    blocks += [
        Paragraph(voice.say("sft.cosine", **values)),
        Paragraph(voice.say("sft.negative", **values)),
        _layers(contrast, voice),
    ]
    mine = contrast.target if contrast.target in changes["sft"] else contrast.answers[-1]
    headline = voice.say(
        "sft.headline",
        target=target,
        sft=voice.likelier(changes["sft"][mine]),
        grpo=voice.likelier(changes["grpo"][mine]),
    )
    return section("sft", headline, blocks, chain.sft.check, voice)


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _who(answer: AnswerEffect, voice: Voice) -> str:
    return f"#{answer.member}" if answer.kind == "rollout" else voice.say(f"who.{answer.kind}")


def _table(chain: Chain, voice: Voice) -> Table:
    assert chain.effect is not None, "effect() has looked"
    lines = []
    for answer in chain.effect.answers:
        asked = "–" if answer.agreed is None else voice.say("yes" if answer.agreed else "no")
        cells = (
            _who(answer, voice),
            answer_cell(answer.text, 40),
            voice.number(answer.before),
            voice.number(answer.after),
            voice.likelier(answer.change),
            voice.signed(answer.advantage),
            asked,
        )
        bold = answer.kind == "rollout" and answer.member == chain.member
        lines.append(Line((f"**{cells[0]}**" if bold else cells[0], *cells[1:]), "down" if answer.agreed is False else ""))
    names = ("who", "answer", "logprob_before", "logprob_after", "moved", "advantage", "asked")
    return Table(voice.columns(*names), tuple(lines))


def _strip(answer: AnswerEffect, voice: Voice) -> Tokens:
    largest = max((abs(token.after - token.before) for token in answer.tokens), default=0.0)
    items = tuple(
        Token(
            visible(token.text),
            (token.after - token.before) / largest if largest > NOTHING else 0.0,
            voice.say("effect.token", change=voice.signed(token.after - token.before)),
        )
        for token in answer.tokens
    )
    return Tokens(voice.say("effect.strip", answer=_who(answer, voice)), items)


def _tokens(answer: AnswerEffect, voice: Voice, rows: int) -> Table:
    numbered = list(enumerate(answer.tokens, start=1))
    if len(numbered) > rows:
        kept = sorted(numbered, key=lambda pair: -abs(pair[1].after - pair[1].before))[:rows]
        numbered = [pair for pair in numbered if pair in kept]
    lines = []
    for place, token in numbered:
        change = token.after - token.before
        numbers = (voice.probability(token.before), voice.probability(token.after), voice.likelier(change))
        lines.append(Line((str(place), shown(token.text), *numbers), tone(change)))
    columns = voice.columns("place", "token", "probability_before", "probability_after", "moved")
    key = "effect.tokens_cut" if len(lines) < len(answer.tokens) else "effect.tokens"
    return Table(columns, tuple(lines), voice.say(key, answer=_who(answer, voice), shown=len(lines), all=len(answer.tokens)))


def _positions(chain: Chain) -> list[TracedPosition]:
    """The followed answer's positions, or the heaviest positions of the group."""
    places = chain.effect.positions if chain.effect else ()
    if chain.member is not None:
        return [place for place in places if place.member == chain.member]
    return sorted(places, key=lambda place: -abs(place.token_weight))[:MAX_POSITIONS]


def _bars(place: TracedPosition, voice: Voice) -> Bars:
    values = {"answer": f"#{place.member}", "place": place.token + 1}
    own = place.alternatives[0].token_id
    others = sorted(place.alternatives, key=lambda item: -item.before)
    mark = voice.say("effect.own_mark")
    items = tuple((visible(item.text) + (mark if item.token_id == own else ""), item.before, item.after) for item in others)
    return Bars(voice.say(f"effect.position_{place.why}", **values), items)


def _changes(contrast: Contrast, changes: Changes, voice: Voice) -> Table:
    lines = []
    for answer in contrast.answers:
        cells = [target_name(answer, voice)]
        for name in ("sft", "grpo", "grpo_negative"):
            change = changes[name][answer]
            cells.append(f"{voice.signed(change)} ({voice.likelier(change)})")
        lines.append(Line(tuple(cells)))
    return Table(voice.columns("who", "sft", "grpo", "grpo_negative"), tuple(lines), voice.say("sft.table"))


def _layers(contrast: Contrast, voice: Voice) -> Table:
    lines = tuple(
        Line(
            (
                code(layer.layer),
                voice.number(layer.sft_norm),
                voice.number(layer.grpo_norm),
                voice.number(layer.grpo_with_sft),
                voice.number(layer.negative_with_sft),
            )
        )
        for layer in contrast.layers
    )
    columns = voice.columns("layer", "sft_norm", "grpo_norm", "cosine", "negative_cosine")
    return Table(columns, lines, voice.say("sft.layers"))

"""Link 9 as a section: the same prompt by SFT, beside this prompt's gradient alone and beside the real step."""

from __future__ import annotations

import math
from collections.abc import Sequence

from toishi.explanation.chain.beside import TARGET_NATS
from toishi.explanation.chain.headlines import advantage_of, measured_change, target_name
from toishi.explanation.chain.model import Chain
from toishi.explanation.chain.story_parts import answer_cell, section
from toishi.explanation.chain.voice import NOTHING, SMALL_FACTOR, Voice, one_line, shown, tone
from toishi.explanation.page.blocks import Block, Folded, Line, Paragraph, Section, Table
from toishi.explanation.page.markup import code
from toishi.record.trace import Contrast

Changes = dict[str, dict[str, float]]
MAX_TOKENS = 8
DIRECTIONS = ("sft", "grpo", "grpo_negative")


def sft(chain: Chain, voice: Voice, rows: int) -> Section | None:
    """What one short SFT step would have done, and the part of the gradient that SFT cannot use."""
    if chain.sft is None:
        return None
    contrast = chain.sft.contrast
    by_name = {direction.name: direction for direction in contrast.directions}
    changes: Changes = {
        name: dict(zip(contrast.answers, direction.changes, strict=True)) for name, direction in by_name.items()
    }
    values = {
        "target": target_name(contrast.target, voice),
        "text": code(one_line(contrast.target_text, 160)) or "∅",
        "cosine": voice.number(by_name["grpo"].cosine_with_sft),
        "negative": voice.number(by_name["grpo_negative"].cosine_with_sft),
        "share": voice.percent(_share(by_name["grpo_negative"].gradient_norm, by_name["grpo"].gradient_norm)),
        "precision": contrast.precision,
        "length": voice.number(contrast.step_norm),
        "nats": voice.number(TARGET_NATS),
        "factor": voice.times(TARGET_NATS),
        "row": code(chain.algorithm),
    }
    texts = [voice.say("sft.what", **values)]
    if chain.change is not None:
        real = chain.change.totals.change_norm
        longer = f"{real / contrast.step_norm:.2g}" if contrast.step_norm > 0 else "–"
        texts.append(voice.say("sft.real", real=voice.number(real), longer=longer, **values))
    blocks: list[Block] = [*map(Paragraph, texts), _changes(chain, contrast, changes, voice)]
    blocks += [
        Paragraph(text) for text in (_turned(chain, contrast, changes, voice), voice.say("sft.cosine", **values)) if text
    ]
    blocks.append(Paragraph(voice.say("sft.negative", **values)))
    blocks.append(Folded(voice.say("sft.layers"), (Paragraph(voice.say("sft.sizes")), _layers(contrast, voice))))
    return section("sft", _headline(chain, contrast, changes, voice), blocks, chain.sft.check, voice)


def _headline(chain: Chain, contrast: Contrast, changes: Changes, voice: Voice) -> str:
    """Which tokens SFT trains, and what its short step does to the answers that the scores preferred."""
    target = {"target": target_name(contrast.target, voice)}
    tokens = target_tokens(chain, contrast)
    if tokens:
        trains = voice.say("sft.trains", count=len(tokens), tokens=" ".join(map(shown, tokens[:MAX_TOKENS])), **target)
        if len(tokens) > MAX_TOKENS:
            trains = voice.say("sft.trains_many", count=len(tokens), **target)
    else:
        trains = voice.say("sft.trains_unknown", **target)
    names = [f"member {found.member}" for found in chain.advantage.members if advantage_of(chain, found.member) > NOTHING]
    liked = [name for name in names if name in changes["sft"] and name != contrast.target]
    if not liked:
        return trains

    def listed(direction: str) -> str:
        pairs = ((target_name(name, voice), voice.times(changes[direction][name])) for name in liked)
        return ", ".join(f"{name} {factor}" for name, factor in pairs)

    way = way_of([changes["sft"][name] for name in liked])
    result = voice.say(f"sft.way_{way}", answers=voice.members(int(name.removeprefix("member ")) for name in liked))
    return f"{trains} {voice.say('sft.result', result=result, sft=listed('sft'), grpo=listed('grpo'))}"


def target_tokens(chain: Chain, contrast: Contrast) -> tuple[str, ...]:
    """The target, token by token; empty where it was not measured."""
    for answer in chain.effect.answers if chain.effect else ():
        if contrast.target == ("reference" if answer.kind == "reference" else f"member {answer.member}"):
            return tuple(token.text for token in answer.tokens)
    return ()


def way_of(changes: Sequence[float]) -> str:
    """Where some changes point: `up`, `down`, `slightly_up`, `slightly_down` (no factor beyond a tenth), or `mixed`.

    >>> way_of([-0.01, -0.05]), way_of([0.2, 0.01]), way_of([0.2, -0.1])
    ('slightly_down', 'up', 'mixed')
    """
    if min(changes) * max(changes) <= 0:
        return "mixed"
    side = "up" if changes[0] > 0 else "down"
    return f"slightly_{side}" if max(map(abs, changes)) < math.log(SMALL_FACTOR) else side


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _changes(chain: Chain, contrast: Contrast, changes: Changes, voice: Voice) -> Table:
    texts = {f"member {member.member}": member for member in chain.scores.members}
    real = chain.effect is not None
    lines = []
    for name in contrast.answers:
        member = texts.get(name)
        measured = measured_change(chain, name)
        cells = [
            target_name(name, voice),
            answer_cell(contrast.target_text if member is None else member.answer, 30),
            "–" if member is None else voice.signed(advantage_of(chain, member.member)),
            *(voice.times(changes[direction][name]) for direction in DIRECTIONS),
            *([voice.times(measured)] if real else []),
        ]
        lines.append(Line(tuple(cells), tone(measured or 0.0) if real else ""))
    columns = voice.columns("who", "answer", "advantage", *DIRECTIONS, *(("real_step",) if real else ()))
    return Table(columns, tuple(lines), voice.say("sft.table"))


def _turned(chain: Chain, contrast: Contrast, changes: Changes, voice: Voice) -> str:
    """The answers that the real step moved another way than this prompt's gradient alone."""
    turned = []
    for name in contrast.answers:
        measured = measured_change(chain, name)
        if measured is not None and measured * changes["grpo"][name] < -NOTHING:
            turned.append(target_name(name, voice))
    return voice.say("sft.turned", answers=", ".join(turned)) if turned else ""


def _layers(contrast: Contrast, voice: Voice) -> Table:
    lines = []
    for layer in contrast.layers:
        numbers = (layer.sft_norm, layer.grpo_norm, layer.grpo_with_sft, layer.negative_with_sft)
        lines.append(Line((code(layer.layer), *map(voice.number, numbers))))
    return Table(voice.columns("layer", "sft_norm", "grpo_norm", "cosine", "negative_cosine"), tuple(lines))

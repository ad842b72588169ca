"""Who moved what, as a section: shares of the push, what moved each answer, and where in the model it happened.

Decisions:
1. The measured change is the total, and its parts add up to it; what a straight line cannot hold is one of the parts.
2. Names of other answers are given as causes only from the products between gradients.
3. Where an account would be chance (lost in rounding), none is given, and the reason is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from toishi.explanation.chain.model import Chain
from toishi.explanation.chain.model_influence import InfluenceLink, MatrixEffect, MovedText, Pull
from toishi.explanation.chain.voice import Voice, tone, visible
from toishi.explanation.page.blocks import (
    Block,
    Folded,
    Heat,
    Line,
    Paragraph,
    Section,
    Signed,
    Table,
    Token,
    Tokens,
    Verdict,
)
from toishi.explanation.page.markup import code, literal
from toishi.record.influence import TextInfluence

ADDS_UP = 1e-9
NAMED = 4
"""So many pulls of others are named one by one."""
HEAVIEST = 5
"""So many tokens are shown with their shares."""
MOST = 0.5
MUCH_ROUNDING = 0.25
"""Share of the changes beyond which rounding is named as a cause."""


def influence(chain: Chain, voice: Voice) -> Section | None:
    """Own push, others' pull, optimizer, curvature: whose doing was each answer's change."""
    link = chain.influence
    if link is None:
        return None
    title = voice.say("influence.title")
    what = Paragraph(voice.say("influence.what"))
    if link.refused:
        text = voice.say("influence.refused", why=literal(link.refused))
        return Section("influence", title, voice.say("influence.headline_refused"), (Paragraph(text), _numbers(link, voice)))
    blocks: list[Block] = [what, *map(Paragraph, _trust(link, voice)), _shares(link, voice)]
    blocks += [*_tokens(chain, link, voice), _table(link, voice)]
    blocks += [Paragraph(text) for text in _disagreements(link, voice)]
    blocks += [Paragraph(voice.say("influence.divides"))] if link.divides else []
    shown = _shown(chain, link)
    if shown is not None:
        blocks.append(_waterfall(link, shown, voice))
    blocks += _by_reward(link, voice)
    if len(link.members) > 1:
        blocks.append(_heat(link, voice))
    blocks += _where(link, voice)
    blocks += [_numbers(link, voice), _adds_up(link, voice)]
    return Section("influence", title, _headline(link, voice), tuple(blocks))


def _headline(link: InfluenceLink, voice: Voice) -> str:
    """The fewest answers of the group that did most of its pushing."""
    answers = [moved.text for moved in link.moved if moved.text.member is not None]
    mine = sum(max(0.0, text.share) for text in answers)
    if mine <= 0:
        return voice.say("influence.headline_none")
    named, share, last = [], 0.0, 0.0
    for text in sorted(answers, key=lambda text: -text.share):
        if share >= MOST * mine and text.share < last:
            break
        named.append(text.member)
        share += text.share
        last = text.share * (1 - 1e-6)  # an answer that did as much as the last one is named with it
    numbers = voice.members(member for member in named if member is not None)
    return voice.say("influence.headline", answers=numbers, share=voice.percent(share))


def _trust(link: InfluenceLink, voice: Voice) -> list[str]:
    """How far the account goes, and that rounding did more than the answers, where it did."""
    values = {
        "explained": voice.percent(max(0.0, link.explained)),
        "largest": voice.number(link.largest),
        "bend": voice.signed(link.bend),
    }
    texts = [voice.say("influence.first_of_several", count=link.num_updates)] if link.num_updates > 1 else []
    texts.append(voice.say(f"influence.trust_{link.trust}", **values))
    rounded = sum(abs(moved.text.rounding) for moved in link.moved)
    if rounded > MUCH_ROUNDING * sum(abs(moved.text.measured) for moved in link.moved):
        texts.append(voice.say("influence.rounding_most", precision=link.precision))
    return texts


def _name(moved: MovedText, voice: Voice) -> str:
    text = moved.text
    return f"#{text.member}" if text.member is not None else voice.say(f"who.{text.kind}")


def _shares(link: InfluenceLink, voice: Voice) -> Signed:
    items = [
        (f"#{moved.text.member}", moved.text.share, _share(moved.text.share, voice))
        for moved in link.moved
        if moved.text.member is not None
    ]
    for key, share in (("elsewhere", link.elsewhere), ("fixed", link.fixed_share)):
        if share:
            items.append((voice.say(f"influence.{key}"), share, _share(share, voice)))
    return Signed(voice.say("influence.shares"), tuple(items))


def _share(share: float, voice: Voice) -> str:
    return f"−{voice.percent(-share)}" if share < 0 else voice.percent(share)


def _tokens(chain: Chain, link: InfluenceLink, voice: Voice) -> list[Block]:
    """The followed answer's share, token by token, where it was measured."""
    answers = () if chain.effect is None else chain.effect.answers
    pieces = next((answer.tokens for answer in answers if answer.kind == "rollout" and answer.member == chain.member), ())
    found = next((moved for moved in link.moved if moved.text.kind == "rollout" and moved.text.member == chain.member), None)
    if found is None or not found.text.tokens or not pieces:
        return []
    shares = found.text.tokens
    largest = max(map(abs, shares)) or 1.0
    items = [
        Token(visible(piece.text), share / largest, voice.say("influence.token", share=_share(share, voice)))
        for piece, share in zip(pieces, shares, strict=True)
    ]
    caption = voice.say("influence.tokens", answer=_name(found, voice), share=_share(found.text.share, voice))
    heaviest = sorted(zip(pieces, shares, strict=True), key=lambda each: -abs(each[1]))[:HEAVIEST]
    named = tuple((visible(piece.text), share, _share(share, voice)) for piece, share in heaviest)
    return [Tokens(caption, tuple(items)), Signed(voice.say("influence.heaviest"), named)]


_CAUSES: Mapping[str, Callable[[TextInfluence], float]] = {
    "own": lambda text: text.own,
    "others": lambda text: text.others,
    "fixed_terms": lambda text: text.fixed,
    "history": lambda text: text.history,
    "decay": lambda text: text.decay,
    "rounding": lambda text: text.rounding,
    "bend": lambda text: text.rest,
}


def _table(link: InfluenceLink, voice: Voice) -> Table:
    """One line a text; columns that are 0 for all are left out, but not own, others and total."""
    least = 1e-4 * link.largest
    always = ("own", "others", "bend")
    kept = [
        name for name, value in _CAUSES.items() if name in always or any(abs(value(moved.text)) > least for moved in link.moved)
    ]
    lines = []
    for moved in link.moved:
        text = moved.text
        cells = [_name(moved, voice), voice.signed(text.advantage) if text.source is not None else "–"]
        cells += [_brief(_CAUSES[name](text), voice) for name in kept]
        cells += [_brief(text.measured, voice), voice.times(text.measured)]
        against = text.advantage * text.measured < 0
        lines.append(Line(tuple(cells), "against" if against else tone(text.measured)))
    columns = voice.columns("who", "advantage", *kept, "measured", "moved")
    return Table(columns, tuple(lines), voice.say("influence.table"))


def _brief(value: float, voice: Voice) -> str:
    return Voice(voice.say, 2).signed(round(value, 4))


def _shown(chain: Chain, link: InfluenceLink) -> MovedText | None:
    """The followed answer; else the one that went most against its advantage; else the one that moved most."""
    answers = [moved for moved in link.moved if moved.text.member is not None]
    followed = next((moved for moved in answers if moved.text.member == chain.member), None)
    if followed is not None:
        return followed
    return min(
        answers,
        key=lambda moved: (min(0.0, moved.text.advantage * moved.text.measured), -abs(moved.text.measured)),
        default=None,
    )


def _waterfall(link: InfluenceLink, moved: MovedText, voice: Voice) -> Signed:
    """From the answer's own push to its measured change."""
    text = moved.text
    others = [pull for pull in moved.pulls if not _is_own(pull, moved)]
    named = [pull for pull in others[:NAMED] if abs(pull.nats) > 0.01 * abs(text.measured)]
    items = [(voice.say("influence.own"), text.own)]
    items += [(_pull_name(pull, moved, voice), pull.nats) for pull in named]
    items.append(
        (voice.say("influence.other_pulls" if named else "influence.others"), text.others - sum(p.nats for p in named))
    )
    rest = (("fixed", text.fixed), ("history", text.history), ("decay", text.decay), ("rounding", text.rounding))
    items += [(voice.say(f"influence.{key}"), value) for key, value in rest if abs(value) > 1e-4 * link.largest]
    items += [(voice.say("influence.bend"), text.rest), (voice.say("influence.total"), text.measured)]
    shown = tuple((label, value, _brief(value, voice)) for label, value in items)
    return Signed(voice.say("influence.waterfall", answer=_name(moved, voice)), shown)


def _is_own(pull: Pull, moved: MovedText) -> bool:
    return (pull.group, pull.member) == (moved.text.group, moved.text.member)


def _pull_name(pull: Pull, moved: MovedText, voice: Voice) -> str:
    if pull.group == moved.text.group:
        return voice.say("influence.pull_of", answer=f"#{pull.member}")
    return voice.say("influence.pull_of_other", answer=f"#{pull.member}", group=pull.group)


def _disagreements(link: InfluenceLink, voice: Voice) -> list[str]:
    """Answers that moved against their advantage: outweighed by others, or by what bends."""
    found = []
    for moved in link.moved:
        text = moved.text
        if text.member is None or text.advantage * text.measured >= 0:
            continue
        values = {
            "answer": f"#{text.member}",
            "side": voice.say("influence.above" if text.advantage > 0 else "influence.below"),
            "moved": voice.likelier(text.measured),
            "own": voice.signed(text.own),
            "others": voice.signed(text.others),
            "bend": voice.signed(text.rest),
        }
        against = [pull for pull in moved.pulls if pull.nats * text.measured > 0 and not _is_own(pull, moved)][:3]
        names = ", ".join(f"{_pull_name(pull, moved, voice)} ({voice.signed(pull.nats)})" for pull in against)
        bends = abs(text.rest) > abs(text.others) and text.rest * text.measured > 0
        key = "against_bend" if bends or not names else "against_others"
        found.append(voice.say(f"influence.{key}", names=names, **values))
    return found


def _by_reward(link: InfluenceLink, voice: Voice) -> list[Block]:
    """Shares by reward, where there is more than one."""
    names = list(dict.fromkeys(part.reward for moved in link.moved for part in moved.text.parts))
    if len(names) < 2:
        return []
    lines = []
    for moved in link.moved:
        if moved.text.member is not None:
            by_name = {part.reward: part.share for part in moved.text.parts}
            cells = [_share(by_name[name], voice) if name in by_name else "–" for name in names]
            lines.append(Line((_name(moved, voice), *cells, _share(moved.text.share, voice))))
    who, whole = voice.columns("who", "share")
    columns = (who, *(type(whole)(code(name)) for name in names), whole)
    rule = Paragraph(voice.say("influence.by_reward"))
    return [Folded(voice.say("influence.by_reward_title"), (rule, Table(columns, tuple(lines))))]


def _heat(link: InfluenceLink, voice: Voice) -> Heat:
    names = tuple(f"#{member}" for member in link.members)
    texts = tuple(tuple(Voice(voice.say, 2).number(round(value, 2)) for value in row) for row in link.cosines)
    caption = voice.say("influence.heat") + (voice.say("influence.heat_divided") if link.divides else "")
    return Heat(caption, names, names, link.cosines, texts)


def _where(link: InfluenceLink, voice: Voice) -> list[Block]:
    """Shares of the effect by kind of matrix, and by layer and kind."""
    if not link.effects:
        return []
    kinds = list(dict.fromkeys(effect.kind for effect in link.effects))
    layers = list(dict.fromkeys(effect.layer for effect in link.effects if effect.layer))
    by_kind = tuple((kind, total, _share(total, voice)) for kind in kinds for total in [_total(link.effects, kind=kind)])
    blocks: list[Block] = [Signed(voice.say("influence.by_kind"), by_kind)]
    if len(layers) > 1:
        inside = [kind for kind in kinds if any(effect.layer and effect.kind == kind for effect in link.effects)]
        values = tuple(tuple(_total(link.effects, layer=layer, kind=kind) for kind in inside) for layer in layers)
        texts = tuple(tuple(f"{value * 100:.1f}".replace("-", "−") for value in row) for row in values)
        largest = max((abs(value) for row in values for value in row), default=0.0) or 1.0
        levels = tuple(tuple(value / largest for value in row) for row in values)
        heat = Heat(voice.say("influence.by_layer"), tuple(layers), tuple(inside), levels, texts)
        blocks.append(Folded(voice.say("influence.by_layer_title"), (heat,)))
    return blocks


def _total(effects: Sequence[MatrixEffect], *, kind: str, layer: str | None = None) -> float:
    return sum(effect.share for effect in effects if effect.kind == kind and layer in (None, effect.layer))


def _numbers(link: InfluenceLink, voice: Voice) -> Folded:
    values = {
        "norm": voice.number(link.gradient_norm),
        "products": voice.number(link.norm_from_products),
        "scale": voice.number(link.clip_factor),
        "changed": voice.percent(link.changed_share),
        "survived": "–" if link.survived is None else voice.percent(link.survived),
        "error": voice.number(link.sum_error),
        "explained": voice.percent(max(0.0, link.explained)),
        "precision": link.precision,
    }
    return Folded(voice.say("influence.numbers_title"), (Paragraph(voice.say("influence.numbers", **values)),))


def _adds_up(link: InfluenceLink, voice: Voice) -> Verdict:
    ok = link.sums_off <= ADDS_UP
    key = "adds_up" if ok else "adds_up_not"
    return Verdict(ok, voice.say(f"influence.{key}", count=len(link.moved), off=voice.number(link.sums_off)))

"""Link 8 as a section: probabilities before and after the step."""

from __future__ import annotations

from toishi.explanation.chain.headlines import alike, effect_of, sampled_twin, weights_of
from toishi.explanation.chain.model import AnswerEffect, Chain
from toishi.explanation.chain.net import along, net_pushes, starts_of
from toishi.explanation.chain.reasons import reason
from toishi.explanation.chain.story_parts import answer_cell, effect_tone, section
from toishi.explanation.chain.story_shared import partings
from toishi.explanation.chain.voice import NOTHING, Voice, shown, tone, visible
from toishi.explanation.page.blocks import Bars, Block, Folded, Line, Paragraph, Section, Signed, Table, Token, Tokens
from toishi.record.trace import TracedPosition

NOISY = 1e-3
MUCH = 0.2
"""Nats between two changes that are worth a sentence."""


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
    texts = (_token_by_token(chain, voice), voice.say("effect.why_against"), _unequal(chain, voice))
    blocks += [Paragraph(text) for text in texts if text]
    for answer in link.answers:
        if answer.agreed is False and answer.member is not None:
            why = voice.say("effect.why_one", answer=f"#{answer.member}")
            blocks += [Paragraph(f"{why} {reason(chain, answer.member, voice)}"), *_own_tokens(chain, answer, voice, rows)]
    own = effect_of(chain, chain.member) if chain.member is not None else None
    if own is not None:
        blocks += [_strip(own, voice), Folded(voice.say("effect.every_token"), (_tokens(own, voice, rows),))]
    blocks += partings(chain, voice)
    blocks += [_bars(place, voice) for place in _positions(chain)]
    asked = [answer for answer in link.answers if answer.agreed is not None]
    right = sum(bool(answer.agreed) for answer in asked)
    key = "none" if not asked else "all" if right == len(asked) else "some"
    return section("effect", voice.say(f"effect.headline_{key}", right=right, all=len(asked)), blocks, link.check, voice)


def _token_by_token(chain: Chain, voice: Voice) -> str:
    """How many single tokens moved the way of their net push; the count above is about whole answers."""
    right, moved, small = along(chain)
    if not moved:
        return ""
    return voice.say("effect.along_noise" if small else "effect.along", right=right, all=moved, small=small)


def _own_tokens(chain: Chain, answer: AnswerEffect, voice: Voice, rows: int) -> list[Block]:
    """The tokens of an answer that no other answer shares, before and after; the followed one is shown whole."""
    if answer.member is None or answer.member == chain.member:
        return []
    shared = sum(len(start.texts) for start in starts_of(chain, answer.member) if len(start.members) > 1)
    pushes = net_pushes(chain, answer.member)
    lines = []
    for place, token in list(enumerate(answer.tokens))[shared:][:rows]:
        change = token.after - token.before
        cells = (
            str(place),
            shown(token.text),
            voice.signed(pushes[place]) if place < len(pushes) else "–",
            voice.probability(token.before),
            voice.probability(token.after),
            voice.times(change),
        )
        lines.append(Line(cells, tone(change)))
    columns = voice.columns("place", "token", "push", "probability_before", "probability_after", "moved")
    title = voice.say("effect.own_tokens", answer=f"#{answer.member}")
    return [Folded(title, (Table(columns, tuple(lines)),))] if lines else []


def _who(answer: AnswerEffect, voice: Voice) -> str:
    return f"#{answer.member}" if answer.kind == "rollout" else voice.say(f"who.{answer.kind}")


def _named(chain: Chain, answer: AnswerEffect, voice: Voice) -> str:
    twin = sampled_twin(chain, answer)
    return _who(answer, voice) if twin is None else voice.say("effect.twin", who=_who(answer, voice), answer=f"#{twin}")


def _unequal(chain: Chain, voice: Voice) -> str:
    """Two answers that were pushed alike and moved unlike, the most unlike ones; nothing where there are none."""
    found = (
        [(answer, weights_of(chain, answer.member)) for answer in chain.effect.answers if answer.member is not None]
        if (chain.effect)
        else []
    )
    pushed = [(answer, item.total) for answer, item in found if answer.kind == "rollout" and item and abs(item.total) > NOTHING]
    pairs = [(one, two) for one, push in pushed for two, other in pushed if alike(push, other) and push * other > 0]
    one, two = max(pairs, key=lambda pair: pair[0].change - pair[1].change, default=(None, None))
    if one is None or two is None or one.change - two.change < MUCH:
        return ""
    names = {"one": f"#{one.member}", "two": f"#{two.member}"}
    return voice.say("effect.unequal", first=voice.times(one.change), second=voice.times(two.change), **names)


def _table(chain: Chain, voice: Voice) -> Table:
    assert chain.effect is not None, "effect() has looked"
    lines = []
    for answer in chain.effect.answers:
        asked = "–" if answer.agreed is None else voice.say("yes" if answer.agreed else "no")
        cells = (
            _named(chain, answer, voice),
            answer_cell(answer.text, 40),
            voice.signed(answer.advantage),
            voice.with_chance(answer.before),
            voice.with_chance(answer.after),
            asked,
            voice.times(answer.change),
        )
        bold = answer.kind == "rollout" and answer.member == chain.member
        lines.append(Line((f"**{cells[0]}**" if bold else cells[0], *cells[1:]), effect_tone(answer)))
    names = ("who", "answer", "advantage", "logprob_before", "logprob_after", "asked", "moved")
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
    numbered = list(enumerate(answer.tokens))
    if len(numbered) > rows:
        kept = sorted(numbered, key=lambda pair: -abs(pair[1].after - pair[1].before))[:rows]
        numbered = [pair for pair in numbered if pair in kept]
    lines = []
    for place, token in numbered:
        change = token.after - token.before
        numbers = (voice.probability(token.before), voice.probability(token.after), voice.times(change))
        lines.append(Line((str(place), shown(token.text), *numbers), tone(change)))
    columns = voice.columns("place", "token", "probability_before", "probability_after", "moved")
    key = "effect.tokens_cut" if len(lines) < len(answer.tokens) else "effect.tokens"
    return Table(columns, tuple(lines), voice.say(key, answer=_who(answer, voice), shown=len(lines), all=len(answer.tokens)))


def _positions(chain: Chain) -> list[TracedPosition]:
    """The followed answer's positions: what else could stand there, whoever wrote it."""
    places = chain.effect.positions if chain.effect else ()
    return [place for place in places if place.member == chain.member]


def _bars(place: TracedPosition, voice: Voice) -> Bars:
    values = {"answer": f"#{place.member}", "place": place.token}
    own = place.alternatives[0].token_id
    others = sorted(place.alternatives, key=lambda item: -item.before)
    mark = voice.say("effect.own_mark")
    items = tuple((visible(item.text) + (mark if item.token_id == own else ""), item.before, item.after) for item in others)
    return Bars(voice.say(f"effect.position_{place.why}", **values), items)

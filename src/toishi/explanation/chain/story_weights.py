"""Link 5 as a section: the push on every token, and what answers that begin alike push together."""

from __future__ import annotations

from collections.abc import Sequence

from toishi.explanation.chain.headlines import against_siblings, alike, all_alike, heaviest, heaviest_net
from toishi.explanation.chain.model import Chain, MemberWeights, TokenPush, WeightsLink
from toishi.explanation.chain.net import net_pushes
from toishi.explanation.chain.story_parts import answer_cell, followed, section
from toishi.explanation.chain.story_shared import each, tree, turned
from toishi.explanation.chain.voice import NOTHING, Voice, shown, tone, visible
from toishi.explanation.page.blocks import Block, Folded, Formula, Line, Paragraph, Section, Table, Token, Tokens

UNMOVED_RATIO = 5e-5
"""A ratio that is shown as 1."""


def weights(chain: Chain, voice: Voice, rows: int) -> Section | None:
    """Every answer's push and what it is made of, the pushes that add up on shared beginnings, every token folded away."""
    link = chain.weights
    if link is None:
        return None
    even = all(all_alike(chain, found.member) or len(_trained(found)) < 2 for found in link.members)
    what = voice.say("weights.what_even" if even else "weights.what")
    blocks: list[Block] = [Paragraph(what), Formula(_formula(link, voice)), *_terms(link, voice), _answers(chain, link, voice)]
    for found in link.members:
        if not found.computed:
            blocks.append(Paragraph(voice.say(f"weights.{found.why_not}", answer=f"#{found.member}")))
    most = heaviest(chain)
    if most is not None:
        blocks.append(Paragraph(_why_most(chain, link, most, voice)))
    strips = _strips(chain, link, voice)
    blocks += [*tree(chain, voice), *map(Paragraph, turned(chain, voice)), *_outweighed(chain, link, voice)]
    blocks += [*([Paragraph(voice.say("weights.strips"))] if strips else []), *strips]
    if link.num_updates > 1:
        blocks.append(Paragraph(voice.say("weights.updates", shown=link.update, count=link.num_updates)))
    blocks += _every_token(chain, link, voice, rows)
    headline = voice.say("weights.headline_none")
    if most is not None:
        values = {"token": shown(most[1].text), "answer": f"#{most[0]}", "push": voice.signed(-most[1].weight)}
        count = all_alike(chain, most[0])
        own = voice.say("weights.headline_all" if count else "weights.headline", count=count, **values)
        headline = f"{own} {heaviest_net(chain, voice)}".strip()
    return section("weights", headline, blocks, link.check, voice)


def _outweighed(chain: Chain, link: WeightsLink, voice: Voice) -> list[Paragraph]:
    """Answers whose colours below are not those of their own pushes, and why."""
    told = [(found.member, against_siblings(chain, found.member, voice)) for found in link.members]
    return [Paragraph(voice.say("shared.colours", answer=f"#{member}", text=text)) for member, text in told if text]


def _trained(found: MemberWeights) -> list[TokenPush]:
    return [token for token in found.tokens if token.has_loss]


def _answers(chain: Chain, link: WeightsLink, voice: Voice) -> Table:
    """A line for each answer that took part."""
    answers = {member.member: member.answer for member in chain.scores.members}
    lines = []
    for found in link.members:
        trained = _trained(found)
        if not trained:
            continue
        cells = (
            f"#{found.member}",
            answer_cell(answers.get(found.member, ""), 30),
            each([token.advantage for token in trained], voice.signed, voice),
            each([token.ratio for token in trained], voice.number, voice),
            str(len(trained)),
            each([token.share for token in trained], voice.number, voice),
            each([-token.weight for token in trained], voice.signed, voice),
            voice.signed(-found.total),
        )
        lines.append(Line(followed(chain, found.member, cells), tone(-found.total)))
    names = ("number", "answer", "advantage", "ratio", "tokens", "share", "push_each", "push_sum")
    return Table(voice.columns(*names), tuple(lines))


def _strips(chain: Chain, link: WeightsLink, voice: Voice) -> list[Tokens]:
    """Each answer's text with the net push on each token."""
    nets = {found.member: net_pushes(chain, found.member) for found in link.members if found.computed}
    largest = max((abs(push) for pushes in nets.values() for push in pushes), default=0.0)
    return [_strip(found, nets[found.member], largest, voice) for found in link.members if found.computed]


def _every_token(chain: Chain, link: WeightsLink, voice: Voice, rows: int) -> list[Folded]:
    members = [found for found in link.members if chain.member in (None, found.member)]
    table = _table(link, members, voice, rows)
    if not table.lines:
        return []
    cut = _cut(sum(len(_trained(found)) for found in members), len(table.lines), voice)
    return [Folded(voice.say("weights.tokens"), (table, *cut))]


def _formula(link: WeightsLink, voice: Voice) -> str:
    parts = ["advantage"]
    parts += [] if link.surrogate == "score_function" else ["ratio"]
    parts += ["correction"] if _corrected(link) else []
    parts += ["share"] + (
        [] if link.ratio_level == "token" or link.surrogate in ("score_function", "stop_gradient") else ["pooling"]
    )
    text = "push = " + " × ".join(voice.say(f"col.{part}") for part in parts)
    return text + (
        f" − {link.kl_coef:g} × {voice.say('col.share')} × {voice.say('col.kl')}" if link.kl_coef and link.kl != "none" else ""
    )


def _corrected(link: WeightsLink) -> bool:
    return any(token.correction != 1.0 for found in link.members for token in found.tokens)


def _terms(link: WeightsLink, voice: Voice) -> list[Block]:
    """What each factor is, in this row."""
    counts = {"tokens": link.num_tokens, "sequences": link.num_sequences, "limit": link.max_length}
    texts = [voice.say(f"weights.share_{link.reduction}", **counts)]
    if link.surrogate != "score_function":
        texts.append(_ratio(link, voice))
    if link.kl != "none" and link.kl != "k1_in_reward":
        texts.append(voice.say("weights.kl", kl=link.kl, coef=voice.number(link.kl_coef)))
    if link.entropy_slope:
        texts.append(voice.say("weights.entropy", slope=voice.signed(-link.entropy_slope)))
    if link.through_logits is not None:
        key = "through_logits" if link.through_logits else "through_logits_equal"
        texts.append(voice.say(f"weights.{key}", relative=voice.number(link.through_logits)))
    return [Paragraph(text) for text in texts]


def _ratio(link: WeightsLink, voice: Voice) -> str:
    """What the ratio is; what a bound would do is told apart from what one did."""
    tokens = [token for found in link.members for token in _trained(found)]
    level = voice.say(f"weights.level_{'token' if link.ratio_level == 'token' else 'answer'}")
    bounds = {"low": voice.number(1 - link.clip_low), "high": voice.number(1 + link.clip_high)}
    if all(abs(token.ratio - 1) < UNMOVED_RATIO and not token.clip for token in tokens):
        return voice.say(f"weights.ratio_still_{link.surrogate}", level=level, **bounds)
    held = sum(bool(token.clip) for token in tokens)
    return voice.say(f"weights.ratio_{link.surrogate}", level=level, held=held, all=len(tokens), **bounds)


def _strip(found: MemberWeights, net: Sequence[float], largest: float, voice: Voice) -> Tokens:
    items = []
    for token, push in zip(found.tokens, net, strict=True):
        level = push / largest if largest > 0 and token.has_loss else 0.0
        own = {"place": token.token, "push": voice.signed(-token.weight), "net": voice.signed(push)}
        items.append(Token(visible(token.text), level, voice.say("weights.token", **own)))
    return Tokens(voice.say("weights.strip", answer=f"#{found.member}", push=voice.signed(-found.total)), tuple(items))


def _table(link: WeightsLink, members: Sequence[MemberWeights], voice: Voice, rows: int) -> Table:
    has_kl = link.kl not in ("none", "k1_in_reward") and link.kl_coef > 0
    clips = any(token.clip or abs(token.ratio - 1) >= UNMOVED_RATIO for found in link.members for token in _trained(found))
    tokens = [(found.member, token) for found in members for token in found.tokens if token.has_loss]
    if len(tokens) > rows:
        kept = sorted(tokens, key=lambda pair: -abs(pair[1].weight))[:rows]
        tokens = [pair for pair in tokens if pair in kept]
    lines = []
    for member, token in tokens:
        cells = [
            f"#{member}",
            str(token.token),
            shown(token.text),
            voice.signed(token.advantage),
            voice.number(token.ratio),
        ]
        cells += [*([voice.say(f"clip.{token.clip}")] if clips else []), voice.number(token.share)]
        cells += [voice.signed(-token.kl_part)] if has_kl else []
        cells += [voice.signed(-token.weight), voice.signed(None if token.autograd is None else -token.autograd)]
        lines.append(Line(tuple(cells), "held" if abs(token.weight) < NOTHING else tone(-token.weight)))
    names = ["number", "place", "token", "advantage", "ratio", *(["clip"] if clips else []), "share"]
    names += ["kl_part"] if has_kl else []
    caption = voice.say("weights.table") + (f" {voice.say('weights.table_clip')}" if clips else "")
    return Table(voice.columns(*names, "push", "autograd"), tuple(lines), caption)


def _cut(there: int, shown_lines: int, voice: Voice) -> list[Paragraph]:
    return [Paragraph(voice.say("weights.cut", shown=shown_lines, all=there))] if there > shown_lines else []


def _why_most(chain: Chain, link: WeightsLink, most: tuple[int, TokenPush], voice: Voice) -> str:
    member, token = most
    factors = [f"({voice.signed(token.advantage)})"]
    factors += [] if link.surrogate == "score_function" else [voice.number(token.ratio_factor)]
    factors += [voice.number(token.correction)] if token.correction != 1 else []
    factors += [voice.number(token.share)] + ([voice.number(token.pooling)] if token.pooling != 1 else [])
    product = " × ".join(factors) + (f" + ({voice.signed(-token.kl_part)})" if token.kl_part else "")
    values = {"token": shown(token.text), "answer": f"#{member}", "product": product, "push": voice.signed(-token.weight)}
    text = voice.say("weights.why", **values)
    count = all_alike(chain, member)
    trained = [other for found in link.members for other in found.tokens if other.has_loss]
    same = sum(alike(other.weight, token.weight) for other in trained)
    if count:
        text += " " + voice.say("weights.whole_answer", count=count, answer=f"#{member}")
    if same > max(1, count):
        text += " " + voice.say("weights.equals", count=same - max(1, count))
    length = round(1 / (token.share * link.num_sequences)) if link.reduction == "sequence_mean_token_mean" else 0
    return text + " " + voice.say(f"weights.because_{link.reduction}", count=length)

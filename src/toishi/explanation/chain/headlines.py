"""Sentences that a person can repeat, each made from the step's own numbers.

Decisions:
1. Said is what was measured about this step, never what the model "learned" or "will do".
2. What went against expectation is said as plainly as what did not: an answer that was pushed up and lost, an update lost in
   rounding, a step that moved against the scores.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from toishi.explanation.chain.advantages import as_number
from toishi.explanation.chain.beside import TARGET_NATS
from toishi.explanation.chain.model import AnswerEffect, Chain, MemberWeights, TokenPush
from toishi.explanation.chain.net import largest_net, outweighed
from toishi.explanation.chain.reasons import reason, short
from toishi.explanation.chain.voice import LIKELY, NOTHING, Voice, shown, visible
from toishi.explanation.page.markup import code, literal

MUCH_LOST = 0.05
ALIKE = 1e-6
BASELINES = {"group_mean", "leave_one_out", "batch_mean"}


def headlines(chain: Chain, voice: Voice) -> tuple[str, ...]:
    """All sentences that apply, the most telling first."""
    parts = (_about_answers, _heaviest, _directions, _unsampled, _left_out, _weights, _sft)
    return tuple(sentence for part in parts for sentence in part(chain, voice))


def effect_of(chain: Chain, member: int) -> AnswerEffect | None:
    """What became of a sampled answer; None without a trace."""
    if chain.effect is None:
        return None
    return next((answer for answer in chain.effect.answers if answer.member == member), None)


def weights_of(chain: Chain, member: int) -> MemberWeights | None:
    """An answer's tokens in the shown update; None when they are not on record."""
    if chain.weights is None:
        return None
    return next((found for found in chain.weights.members if found.member == member), None)


def heaviest(chain: Chain) -> tuple[int, TokenPush] | None:
    """The token of the group with the largest push, and its answer; the first of them when several are pushed alike."""
    members = chain.weights.members if chain.weights else ()
    pushed = [(found.member, token) for found in members for token in found.tokens if abs(token.weight) > 0]
    most = max((abs(token.weight) for _, token in pushed), default=0.0)
    return next(((member, token) for member, token in pushed if alike(token.weight, most)), None)


def alike(weight: float, other: float) -> bool:
    """Equally strong, up to the rounding of a float32 number."""
    return abs(abs(weight) - abs(other)) <= ALIKE * abs(other)


def all_alike(chain: Chain, member: int) -> int:
    """How many tokens an answer has, when it has several and all are pushed alike; else 0."""
    found = weights_of(chain, member)
    trained = [token for token in found.tokens if token.has_loss] if found else []
    same = len(trained) > 1 and all(alike(token.weight, trained[0].weight) for token in trained)
    return len(trained) if same else 0


def advantage_of(chain: Chain, member: int) -> float:
    """An answer's recorded advantage as one number."""
    return as_number(next(found for found in chain.advantage.members if found.member == member).recorded)


def _about_answers(chain: Chain, voice: Voice) -> Iterator[str]:
    if not chain.baseline.kept:
        yield voice.say("headline.dropped", why=literal(chain.baseline.why))
        return
    counting = [found.member for found in chain.baseline.members if found.counts]
    if not counting:
        yield voice.say("headline.nobody")
        return
    if all(found.recorded is None for found in chain.advantage.members):
        yield voice.say("headline.advantage_absent", count=len(counting))
        return
    if all(abs(advantage_of(chain, member)) < NOTHING for member in counting):
        yield voice.say("headline.tied" if chain.baseline.tied else "headline.no_advantage", count=len(counting))
        return
    if chain.member is not None:
        yield from _about(chain, chain.member, voice)
        return
    for member in leading(chain, counting):
        yield from _about(chain, member, voice)


def leading(chain: Chain, members: Sequence[int]) -> list[int]:
    """Of those above and of those below their baseline the one whose probability changed most, the larger change first.

    Without a trace the ones with the largest advantages, up before down.
    """
    sides = [[m for m in members if sign * advantage_of(chain, m) > NOTHING] for sign in (1, -1)]
    chosen = [max(side, key=lambda m: (_moved(chain, m), abs(advantage_of(chain, m)))) for side in sides if side]
    return sorted(chosen, key=lambda m: -_moved(chain, m))


def _moved(chain: Chain, member: int) -> float:
    """Change of an answer's probability, up or down; 0 where it was not measured."""
    effect = effect_of(chain, member)
    return abs(math.exp(effect.after) - math.exp(effect.before)) if effect else 0.0


def _about(chain: Chain, member: int, voice: Voice) -> Iterator[str]:
    standing = next(found for found in chain.baseline.members if found.member == member)
    if not standing.counts or standing.earned is None:
        yield voice.say("headline.member_out", answer=f"#{member}", why=literal(standing.left_out))
        return
    subtracted = next(found for found in chain.advantage.members if found.member == member).subtracted
    if chain.advantage.baseline in BASELINES and subtracted is not None:
        distance = standing.earned - subtracted
        side = "same" if abs(distance) < NOTHING else "above" if distance > 0 else "below"
        against = voice.say(f"baseline.name_{chain.advantage.baseline}")
        numbers = {"distance": voice.number(abs(distance)), "mean": voice.number(subtracted), "against": against}
        scored = voice.say(f"headline.{side}", answer=f"#{member}", **numbers)
    else:
        scored = voice.say("headline.earned", answer=f"#{member}", reward=voice.number(standing.earned))
    yield voice.say("join", one=scored, two=_pushed(chain, member, voice)) + _after(chain, member, voice)


def _pushed(chain: Chain, member: int, voice: Voice) -> str:
    found = weights_of(chain, member)
    if found is None:
        return voice.say("headline.push_unknown", advantage=voice.signed(advantage_of(chain, member)))
    trained = [token for token in found.tokens if token.has_loss]
    side = -found.total
    along = [token for token in trained if -token.weight * side > 0]
    if not along:
        return voice.say("headline.push_none")
    key = "push_all" if len(along) == len(trained) else "push_some"
    return voice.say(f"headline.{key}", some=len(along), all=len(trained), direction=voice.direction(side))


def _after(chain: Chain, member: int, voice: Voice) -> str:
    effect, siblings = effect_of(chain, member), against_siblings(chain, member, voice)
    if effect is None:
        return f"{voice.say('headline.after_unknown')} {siblings}".strip()
    numbers = {"before": voice.number(effect.before), "after": voice.number(effect.after)}
    against = effect.agreed is False
    chance = {"before": voice.probability(effect.before), "after": voice.probability(effect.after)}
    likely = max(effect.before, effect.after) > LIKELY
    text = voice.say(
        "headline.after_against" if against else "headline.after",
        likelier=voice.likelier(effect.change),
        chance=voice.say("headline.chance", **chance) if likely else "",
        **numbers,
    )
    return " ".join(part for part in (text, siblings, reason(chain, member, voice) if against else "") if part)


def against_siblings(chain: Chain, member: int, voice: Voice) -> str:
    """Where an answer's own pushes are outweighed by those of siblings that begin alike; nothing where they are not."""
    lost, found = outweighed(chain, member), weights_of(chain, member)
    if lost is None or found is None:
        return ""
    counts = {"answer": f"#{member}", "count": lost.count, "all": lost.total, "others": voice.members(lost.others)}
    own, net = voice.direction(-found.total), voice.direction(found.total)
    kept = code(short(visible("".join(lost.kept))))
    key = "outweighed" if lost.kept else "outweighed_all"
    return voice.say(f"shared.{key}", own=own, net=net, kept=kept, **counts)


def _heaviest(chain: Chain, voice: Voice) -> Iterator[str]:
    found = heaviest(chain)
    if found is None:
        return
    member, token = found
    values = {"token": shown(token.text), "answer": f"#{member}", "place": token.token, "push": voice.signed(-token.weight)}
    count = all_alike(chain, member)
    key = "heaviest_all" if count else "heaviest"
    own = voice.say(f"headline.{key}", direction=voice.direction(-token.weight), count=count, **values)
    yield f"{own} {heaviest_net(chain, voice)}".strip()


def heaviest_net(chain: Chain, voice: Voice) -> str:
    """The token, or tokens, that all answers together push most; nothing where they are no one's but one answer's."""
    found = largest_net(chain)
    if not found or len(found[0].members) < 2:
        return ""
    first, every = found[0], "_all" if len(found) > 1 else ""
    items = (weights_of(chain, member) for member in first.members)
    own = [item.tokens[first.token].weight for item in items if item is not None and item.computed]
    values = {
        "token": code(short(visible("".join(place.text for place in found)))),
        "count": len(found),
        "place": first.token,
        "members": voice.members(first.members),
        "sum": " ".join(voice.signed(-weight) for weight in own),
        "net": voice.signed(first.push),
    }
    text = voice.say(f"headline.heaviest_net{every}", **values)
    before, after = [place.before for place in found], [place.after for place in found]
    if None in before or None in after:
        return text
    chance = {
        "before": voice.probability(math.fsum(filter(None, before))),
        "after": voice.probability(math.fsum(filter(None, after))),
    }
    return f"{text} {voice.say(f'headline.heaviest_net_moved{every}', count=len(found), **chance)}"


def _directions(chain: Chain, voice: Voice) -> Iterator[str]:
    if chain.effect is None:
        return
    asked = [answer for answer in chain.effect.answers if answer.agreed is not None]
    if not asked:
        return
    right = sum(bool(answer.agreed) for answer in asked)
    key = "all_agreed" if right == len(asked) else "some_agreed" if right else "none_agreed"
    yield voice.say(f"headline.{key}", right=right, all=len(asked))
    for answer in asked:
        if not answer.agreed and answer.member != chain.member:
            values = {"answer": f"#{answer.member}", "advantage": voice.signed(answer.advantage)}
            text = voice.say("headline.against", likelier=voice.likelier(answer.change), **values)
            yield f"{text} {reason(chain, answer.member or 0, voice)}"
            return


def sampled_twin(chain: Chain, answer: AnswerEffect) -> int | None:
    """The sampled answer that is token by token the same as another one, such as the greedy one."""
    texts = [token.text for token in answer.tokens]
    sampled = [other for other in chain.effect.answers if other.kind == "rollout"] if chain.effect else []
    twins = (other.member for other in sampled if [token.text for token in other.tokens] == texts)
    return next(twins, None) if answer.kind == "greedy" and texts else None


def _unsampled(chain: Chain, voice: Voice) -> Iterator[str]:
    others = [answer for answer in chain.effect.answers if answer.kind != "rollout"] if chain.effect else []
    unseen = [answer for answer in others if sampled_twin(chain, answer) is None]
    if any(abs(answer.change) > NOTHING for answer in unseen):
        said = [voice.say(f"headline.{answer.kind}", likelier=voice.likelier(answer.change)) for answer in unseen]
        yield voice.say("headline.unsampled", answers=voice.say("list_joiner").join(said))
    for answer in others:
        twin = sampled_twin(chain, answer)
        if twin is not None:
            yield voice.say("headline.greedy_sampled", answer=f"#{twin}", likelier=voice.likelier(answer.change))


def _left_out(chain: Chain, voice: Voice) -> Iterator[str]:
    for found in chain.baseline.members:
        if not found.counts and found.member != chain.member:
            yield voice.say("headline.member_out", answer=f"#{found.member}", why=literal(found.left_out))


def _weights(chain: Chain, voice: Voice) -> Iterator[str]:
    if chain.change is None:
        return
    totals = chain.change.totals
    relative = totals.change_norm / chain.change.weight_norm if chain.change.weight_norm > 0 else 0.0
    yield voice.say("headline.change", share=voice.percent(totals.changed_share), relative=voice.percent(relative))
    if totals.lost_share > MUCH_LOST:
        yield voice.say("headline.lost", share=voice.percent(totals.lost_share))


def _sft(chain: Chain, voice: Voice) -> Iterator[str]:
    if chain.sft is None:
        return
    contrast = chain.sft.contrast
    directions = {
        direction.name: dict(zip(contrast.answers, direction.changes, strict=True)) for direction in contrast.directions
    }
    cosine = next(direction.cosine_with_sft for direction in contrast.directions if direction.name == "grpo")
    target = contrast.target
    if target in directions["sft"]:
        yield voice.say(
            "headline.sft",
            target=target_name(target, voice),
            sft=voice.likelier(directions["sft"][target]),
            nats=voice.number(TARGET_NATS),
            grpo=voice.likelier(directions["grpo"][target]),
            cosine=voice.number(cosine),
        )


def measured_change(chain: Chain, target: str) -> float | None:
    """What the real step did to an answer of the contrast, `reference` or `member 2`; None when it was not measured."""
    for answer in chain.effect.answers if chain.effect else ():
        if target == ("reference" if answer.kind == "reference" else f"member {answer.member}"):
            return answer.change if answer.kind in ("reference", "rollout") else None
    return None


def target_name(target: str, voice: Voice) -> str:
    """`reference` or `member 2` in words."""
    if target == "reference":
        return voice.say("who.reference")
    return f"#{target.removeprefix('member ')}"

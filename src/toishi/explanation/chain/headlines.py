"""Sentences that a person can repeat, each made from the step's own numbers.

Decisions:
1. Said is what was measured about this step, never what the model "learned" or "will do".
2. What went against expectation is said as plainly as what did not: an answer that was pushed up and lost, an update lost in
   rounding, a step that moved against the scores.
"""

from __future__ import annotations

from collections.abc import Iterator

from toishi.explanation.chain.advantages import as_number
from toishi.explanation.chain.model import AnswerEffect, Chain, MemberWeights, TokenPush
from toishi.explanation.chain.reasons import reason
from toishi.explanation.chain.voice import NOTHING, Voice, shown
from toishi.explanation.page.markup import literal

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
    if all(abs(advantage_of(chain, member)) < NOTHING for member in counting):
        yield voice.say("headline.tied" if chain.baseline.tied else "headline.no_advantage", count=len(counting))
        return
    if chain.member is not None:
        yield from _about(chain, chain.member, voice)
        return
    ordered = sorted(counting, key=lambda member: advantage_of(chain, member))
    for member in dict.fromkeys((ordered[-1], ordered[0])):
        yield from _about(chain, member, voice)


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
    effect = effect_of(chain, member)
    if effect is None:
        return voice.say("headline.after_unknown")
    numbers = {"before": voice.number(effect.before), "after": voice.number(effect.after)}
    against = effect.agreed is False
    key = "after_against" if against else "after"
    text = voice.say(f"headline.{key}", likelier=voice.likelier(effect.change), **numbers)
    return f"{text} {reason(chain, member, voice)}" if against else text


def _heaviest(chain: Chain, voice: Voice) -> Iterator[str]:
    found = heaviest(chain)
    if found is None:
        return
    member, token = found
    values = {"token": shown(token.text), "answer": f"#{member}", "place": token.token, "push": voice.signed(-token.weight)}
    count = all_alike(chain, member)
    key = "heaviest_all" if count else "heaviest"
    yield voice.say(f"headline.{key}", direction=voice.direction(-token.weight), count=count, **values)


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
        values = {
            "target": target_name(target, voice),
            "sft": voice.likelier(directions["sft"][target]),
            "grpo": voice.likelier(directions["grpo"][target]),
            "cosine": voice.number(cosine),
        }
        measured = measured_change(chain, target)
        if measured is None:
            yield voice.say("headline.sft", **values)
        else:
            yield voice.say("headline.sft_measured", measured=voice.likelier(measured), **values)


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

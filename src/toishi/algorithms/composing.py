"""From what each reward said of a group's answers to one reward for each answer. The record is checked with the same code.

    reward_i = Σ_k contribution_ik        contribution_ik = weight_k · value_ik, unless one of these applies:

    gated     0: the reward that its gate looks at is below the gate's limit
    capped    the nearer bound of the cap; where the reward scores parts of an answer, its share of that bound
    levelled  the group's mean: the contributions differ by no more than the reward's own noise explains
    left_out  none: the reward failed in this group (on_failure drop_reward), or its gate could not be decided

Decisions:
1. A part that failed makes the rollout failed (drop_answer): a sum over fewer parts would compare unlike things, and 0 would be
   a lie. With drop_reward the reward is left out of the sums of the whole group, so that like is compared with like.
2. An abstained part is left out of the sum. A rollout that no reward says anything of has no reward, and is not failed.
3. A closed gate pays 0, and what the reward said stays on record. Where the gate's own reward abstained, the gated one is left
   out for that answer; where it is left out of the group, so is the gated one. A failed gated reward is failed behind a closed
   gate too. A reward behind a closed gate counts as closed for those that look at it.
4. Noise: with a spread (sample standard deviation of the group's contributions) up to NOISE_SPREADS times |weight| · noise, the
   differences count as the judge's, not the answers'. Equally good answers exceed it in 4.6% of groups of two, 0.7% of groups
   of four, 0.02% of groups of eight. The mean, not 0, is paid, so the mean reward stays what was judged.
   A reward of intermediate steps (token spans) is not levelled.
5. A cap holds the sum of a reward's parts for one answer (steps, token spans), or many small parts would escape it. A sum that
   is held nearer to 0 shrinks each part by the same factor, so that a step that earned nothing pays nothing. Where the bound
   lies farther from 0 than the sum, or on its other side, no factor leads there: the parts pay equal shares of the bound.
6. Values and contributions above MAX_SIZE are refused: squares and sums of them would be infinite, and the rewards no numbers.
7. Only rollouts that are not failed take part in levelling: a failed one changes its siblings' numbers in nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial

from toishi.algorithms.terms import Term, in_order
from toishi.errors import RewardError
from toishi.types import Group, Rollout, RolloutId, Score, ScoreUse

NOISE_SPREADS = 2.0
MAX_SIZE = 1e100
Parts = tuple[Score, ...]
Scores = dict[RolloutId, Parts]


def composed(group: Group, terms: Sequence[Term]) -> Group:
    """`group` with use and contribution of every score, and reward, status and failure of every rollout.

    Rollouts without scores (they failed before they were judged) stay as they are. A reward without a term is a plain summand.
    Raises RewardError for numbers too large to be compared.

    >>> from toishi.rewards.scripted import answered
    >>> from toishi.algorithms.terms import Gate
    >>> from toishi.types import Prompt
    >>> prompt = Prompt(id="a", text="2 + 2?")
    >>> scores = [(Score(reward="right", value=right), Score(reward="style", value=3.0, weight=0.5)) for right in (1.0, 0.0)]
    >>> rollouts = [Rollout(id=RolloutId(0, 0, i), prompt=prompt, completion=answered("4"), scores=scores[i]) for i in (0, 1)]
    >>> found = composed(Group(prompt=prompt, rollouts=tuple(rollouts)), [
    ...     Term(name="right"), Term(name="style", weight=0.5, gate=Gate(reward="right"))])
    >>> found.rewards, found.rollouts[1].scores[1].reason
    ((2.5, 0.0), 'gate closed: right is 0, needs at least 1')
    """
    for rollout in group.rollouts:
        _check_size(rollout)
    scores = {rollout.id: _plain(rollout.scores) for rollout in group.rollouts if rollout.scores}
    broken = {rollout.id for rollout in group.rollouts if rollout.status == "failed"}
    lost = broken | {key for key, parts in scores.items() if _is_lost(parts, terms)}
    for term in in_order(terms):
        scores = {key: _capped(_gated(parts, term), term) for key, parts in _left_out(scores, term, lost).items()}
    living = {key: parts for key, parts in scores.items() if key not in broken and _failure(parts) is None}
    for term in terms:
        living = _levelled(living, term)
    scores |= living
    rollouts = (_summed(rollout, scores[rollout.id]) if rollout.id in scores else rollout for rollout in group.rollouts)
    return replace(group, rollouts=tuple(rollouts))


def noise_note(rollouts: Sequence[Rollout]) -> str:
    """Which rewards' differences count as noise in the group of these rollouts, in words; empty when none do."""
    levelled = {score.reward for rollout in rollouts for score in rollout.scores if score.use == "levelled"}
    names = ", ".join(f"'{name}'" for name in sorted(levelled))
    return f"within the noise of {names}: the differences are no larger than judging again would make them" if names else ""


def _check_size(rollout: Rollout) -> None:
    for score in rollout.scores:
        if score.value is not None:
            sum_of([score.value, score.weight * score.value], f"rollout {rollout.id}: reward '{score.reward}' (weight × value)")


def _plain(scores: Parts) -> Parts:
    """As judged, whatever an earlier composition made of it."""
    return tuple(replace(score, use="counted", paid=None) for score in scores)


def _is_lost(parts: Parts, terms: Sequence[Term]) -> bool:
    """Whether a reward failed on the answer whose failure costs the answer."""
    spared = {term.name for term in terms if term.on_failure == "drop_reward"}
    return any(score.status == "failed" and score.reward not in spared for score in parts)


def _left_out(scores: Scores, term: Term, lost: Collection[RolloutId]) -> Scores:
    """With drop_reward, a reward that failed on one answer (that is not lost anyway) is left out of the whole group."""
    mine = [score for key, parts in scores.items() if key not in lost for score in _of(parts, term.name)]
    if term.on_failure != "drop_reward" or not any(score.status == "failed" for score in mine):
        return scores
    words = "left out of the whole group: it failed on one of its answers"
    return {key: _each(parts, term.name, lambda score: _used(score, "left_out", None, words)) for key, parts in scores.items()}


def _gated(parts: Parts, term: Term) -> Parts:
    """A closed gate pays 0; one that cannot be decided leaves the reward out."""
    if term.gate is None:
        return parts
    name, least = term.gate.reward, term.gate.at_least
    deciding = _of(parts, name)
    if any(score.status == "failed" and score.use != "left_out" for score in deciding):
        return parts  # the answer is failed
    values = [score.value for score in deciding if score.value is not None and score.use != "left_out"]
    if not values:
        words = f"left out: its gate '{name}' says nothing of this answer"
        return _each(parts, term.name, lambda score: _used(score, "left_out", None, words))
    value = sum_of(values, f"the parts of reward '{name}'")
    if any(score.use == "gated" for score in deciding):
        words = f"gate closed: the gate of {name} is closed"
    elif value < least:
        words = f"gate closed: {name} is {value:g}, needs at least {least:g}"
    else:
        return parts
    return _each(parts, term.name, lambda score: score if score.value is None else _used(score, "gated", 0.0, words))


def _capped(parts: Parts, term: Term) -> Parts:
    if term.cap is None:
        return parts
    low, high = term.cap
    held = [score.contribution for score in _of(parts, term.name) if score.use == "counted" and score.contribution is not None]
    total = sum_of(held, f"the parts of reward '{term.name}'")
    if not held or low <= total <= high:
        return parts
    bound = low if total < low else high
    factor = bound / total if total and 0 <= bound / total < 1 else None
    words = f"capped at {bound:g} (weight × value is {total:g})"
    if len(held) > 1:
        words = f"capped: its {len(held)} parts add up to {total:g}, held at {bound:g}"

    def capped(score: Score) -> Score:
        part = score.contribution
        if score.use != "counted" or part is None:
            return score
        share = bound if len(held) == 1 else bound / len(held) if factor is None else part * factor
        return _used(score, "capped", share, words)

    return _each(parts, term.name, capped)


def sum_of(parts: Sequence[float], what: str) -> float:
    """The sum of values or contributions; `what` names them in a message. Raises RewardError for one above MAX_SIZE.

    >>> sum_of([1.0, -0.25], "rewards")
    0.75
    """
    largest = max(parts, key=abs, default=0.0)
    if not abs(largest) <= MAX_SIZE:
        raise RewardError(
            f"{what}: got {largest:g}, and numbers of that size have no mean and no spread; expected at most {MAX_SIZE:g} in "
            "size: lower the reward's values or its weight"
        )
    return math.fsum(parts)


def _levelled(scores: Scores, term: Term) -> Scores:
    """The group's mean for each answer that the reward is paid for, when its differences are within the noise."""
    paid = {key: [s for s in _of(parts, term.name) if _is_paid(s)] for key, parts in scores.items()}
    paid = {key: parts for key, parts in paid.items() if parts}
    what = f"the parts of reward '{term.name}'"
    totals = [sum_of([score.contribution or 0.0 for score in parts], what) for parts in paid.values()]
    if term.noise == 0 or len(totals) < 2 or any(score.span for parts in paid.values() for score in parts):
        return scores
    weight = next(score.weight for parts in paid.values() for score in parts)
    spread, floor = statistics.stdev(totals), NOISE_SPREADS * abs(weight) * term.noise
    if max(totals) == min(totals) or spread > floor:
        return scores
    mean = statistics.fmean(totals)
    words = f"within its noise: spread {spread:.3g}, told apart above {floor:.3g}; the group's mean counts"

    def levelled(count: int, score: Score) -> Score:
        return _used(score, "levelled", mean / count, words) if _is_paid(score) else score

    return scores | {key: _each(scores[key], term.name, partial(levelled, len(parts))) for key, parts in paid.items()}


def _summed(rollout: Rollout, scores: Parts) -> Rollout:
    failed = _failure(scores)
    if failed is not None:
        failure = f"reward {failed.reward}: {failed.reason}"
        return replace(rollout, scores=scores, reward=None, status="failed", failure=failure)
    parts = [score.contribution for score in scores if score.contribution is not None]
    paid = bool(parts) and rollout.status != "failed"
    return replace(rollout, scores=scores, reward=sum_of(parts, f"rollout {rollout.id}: its rewards") if paid else None)


def _failure(parts: Parts) -> Score | None:
    return next((score for score in parts if score.status == "failed" and score.use != "left_out"), None)


def _is_paid(score: Score) -> bool:
    return score.use in ("counted", "capped") and score.contribution is not None


def _of(parts: Parts, name: str) -> list[Score]:
    return [score for score in parts if score.reward == name]


def _each(parts: Parts, name: str, change: Callable[[Score], Score]) -> Parts:
    """`parts` with those of one reward changed."""
    return tuple(change(score) if score.reward == name else score for score in parts)


def _used(score: Score, use: ScoreUse, paid: float | None, words: str) -> Score:
    """The score with what it pays in place of weight × value, and why, once."""
    reason = score.reason if words in score.reason else "; ".join(filter(None, (words, score.reason)))
    return replace(score, use=use, paid=paid, reason=reason)

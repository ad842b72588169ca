"""Advantages of pairs: which two answers of a group are compared, and what a preference loss makes of them.

Decisions:
1. A preference loss is a policy gradient. Its derivative by a token's log-prob is the same for all tokens of an answer, so it
   is an advantage: 2 · (- d loss / d log-prob). The 2 is there since the loss is a mean over pairs and the denominators count
   answers, two to a pair.
2. The advantage holds at the weights that its log-probs were taken with, so a step has one update.
3. The chosen answer is the group's best, the rejected its worst (the first of several). Others, and tied groups, teach nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toishi.algorithms.rows import Algorithm
from toishi.algorithms.shaping import Shaped, shaped
from toishi.ops.preference import PREFERENCES, PairLoss, centred
from toishi.types import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two answers of a group, by member.

    chosen_ratio, rejected_ratio  log π - log π_ref of the whole answer, or its score
    """

    chosen: int
    rejected: int
    chosen_ratio: float
    rejected_ratio: float
    loss: PairLoss


def pair_of(answers: Sequence[Shaped], row: Algorithm) -> Pair | None:
    """The pair of a group; None when fewer than two answers count or all are worth the same."""
    counting = [member for member, answer in enumerate(answers) if answer.counts]
    if len(counting) < 2:
        return None
    chosen = max(counting, key=lambda member: answers[member].total)
    rejected = min(counting, key=lambda member: answers[member].total)
    if answers[chosen].total == answers[rejected].total:
        return None
    c, r = (math.fsum(answers[member].log_ratio_T) for member in (chosen, rejected))
    num_chosen, num_rejected = answers[chosen].num_tokens, answers[rejected].num_tokens
    margin = answers[chosen].margin
    loss = PREFERENCES[row.preference](c, r, num_chosen, num_rejected, row.beta, row.label_smoothing, margin)
    whole = centred(loss, c, r, row.centring) if row.centring else loss
    return Pair(chosen=chosen, rejected=rejected, chosen_ratio=c, rejected_ratio=r, loss=whole)


def pair_advantages(answers: Sequence[Shaped], row: Algorithm) -> list[float]:
    """The advantage of each answer of a group; 0 outside the pair."""
    pair, found = pair_of(answers, row), [0.0] * len(answers)
    if pair is not None:
        found[pair.chosen] = -2 * pair.loss.by_chosen
        found[pair.rejected] = -2 * pair.loss.by_rejected
    return found


def pair_members(group: Group, row: Algorithm) -> frozenset[int]:
    """The two places of the group that the loss averages over."""
    pair = pair_of([shaped(rollout, row, 0) for rollout in group.rollouts], row)
    return frozenset() if pair is None else frozenset((pair.chosen, pair.rejected))


PAIR_METRICS: Mapping[str, tuple[str, str, str]] = {
    "preference/loss": ("loss", "mean loss of the pairs, before the update; null without pairs", "starts at 0.693 (sigmoid)"),
    "preference/margin": (
        "nats", "mean of β (log π/π_ref of the chosen - of the rejected answer); of a reward model: of their scores", "rises",
    ),
    "preference/accuracy": (
        "share", "pairs whose chosen answer gained more on the reference, or has the higher score", "rises to 1",
    ),
    "preference/logps_chosen": (
        "nats", "mean log-prob of the chosen answers, or their mean score",
        "falling: both answers lose, and something else gains",
    ),
    "preference/logps_rejected": ("nats", "mean log-prob of the rejected answers, or their mean score", "falls"),
}  # fmt: skip
"""Name -> unit, meaning, what to look for."""


def pair_metrics(groups: Sequence[Group], row: Algorithm) -> dict[str, float | None]:
    """The numbers of `PAIR_METRICS` of a step; null where the row compares no pairs."""
    found: list[tuple[float, ...]] = []
    for group in groups if row.credit == "preference" else ():
        pair = pair_of([shaped(rollout, row, 0) for rollout in group.rollouts], row)
        if pair is None:
            continue
        apart = pair.chosen_ratio - pair.rejected_ratio
        logprobs = (_logprob(group, member) for member in (pair.chosen, pair.rejected))
        found.append((pair.loss.loss, row.beta * apart, float(apart > 0), *logprobs))
    columns = list(zip(*found, strict=True)) or [()] * len(PAIR_METRICS)
    means = (math.fsum(column) / len(column) if column else None for column in columns)
    return dict(zip(PAIR_METRICS, means, strict=True))


def _logprob(group: Group, member: int) -> float:
    rollout = group.rollouts[member]
    return math.fsum(
        value for value, trained in zip(rollout.own_logprobs, rollout.completion.loss_mask, strict=True) if trained
    )

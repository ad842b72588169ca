"""Whether each optimizer update's token weights follow from its log-probs and advantages, and a step's metrics from its rows.

Decisions:
1. The loss is formed again by the library's own objective and differentiated by autograd, over all rollouts of an update at
   once: how the run split it into micro-batches cannot matter.
2. It is done in float32 when every recorded log-prob is a float32 number, otherwise in float64: the same precision as the run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from toishi.algorithms.apply import counted, token_objective
from toishi.algorithms.rows import Algorithm
from toishi.explanation.ledger import Ledger, weight_tolerance
from toishi.types import Completion, Rollout, RolloutId, StepReport, TokenStreams, Update

Rollouts = Mapping[RolloutId, Rollout]
UNFINISHED = "source/unfinished"
"""A metric of 1: training ended before the step's samples were used as often as they should have been."""


def check_updates(
    report: StepReport,
    row: Algorithm,
    max_new_tokens: int,
    epochs: int,
    shard: str,
    ledger: Ledger,
    *,
    everyone: bool = False,
) -> None:
    """Who took part in which update, and every number of it that can be formed again.

    everyone  answers without a reward are averaged over as well, as other programs do
    """
    rollouts: Rollouts = {rollout.id: rollout for rollout in report.rollouts}
    unfinished = bool(report.metrics.get(UNFINISHED))
    if not unfinished:
        taking_part = report.rollouts if everyone else counted(report.groups, row)
        _check_participants(report, taking_part, epochs, f"tokens/{shard}", ledger)
    old: dict[RolloutId, tuple[float, ...]] = {}
    for update in report.updates:
        num_updates = len(report.updates) + unfinished
        _check_inputs(update, rollouts, row, num_updates, old, f"tokens/{shard}", ledger)
        _check_weights(update, rollouts, row, max_new_tokens, shard, ledger)


def _check_participants(report: StepReport, taking_part: Sequence[Rollout], epochs: int, file: str, ledger: Ledger) -> None:
    """In each inner epoch, every rollout that the loss averages over takes part exactly once, and no other."""
    expected = sorted(rollout.id for rollout in taking_part)
    per_epoch = max(1, len(report.updates) // epochs)
    for start in range(0, len(report.updates), per_epoch):
        updates = report.updates[start : start + per_epoch]
        got = sorted(stream.rollout for update in updates for stream in update.streams)
        name = f"step {report.step}, updates {start} to {start + len(updates) - 1}"
        ledger.equal(file, name, "rollouts that took part", _listed(got), _listed(expected))


def _listed(ids: Sequence[RolloutId]) -> str:
    return " ".join(map(str, ids))


def _check_inputs(
    update: Update,
    rollouts: Rollouts,
    row: Algorithm,
    num_updates: int,
    old: dict[RolloutId, tuple[float, ...]],
    file: str,
    ledger: Ledger,
) -> None:
    """Advantages are the rollouts', old log-probs are those from before the first update, denominators count everyone."""
    for stream in update.streams:
        rollout, name = rollouts[stream.rollout], f"{stream.rollout}, update {update.index}"
        moves = can_move(rollout, row)
        ledger.equal(file, name, "computed, as every answer that moves is", stream.computed or not moves, True)
        ledger.each_close(file, name, "advantage", stream.advantage, rollout.advantage_per_token)
        before = stream.logprob if num_updates == 1 else old.setdefault(stream.rollout, stream.old_logprob)
        ledger.equal(file, name, "old_logprob, as before the first update", stream.old_logprob, before)
    taking_part = [rollouts[stream.rollout].completion for stream in update.streams]
    counts = {"update/tokens": sum(sum(item.loss_mask) for item in taking_part), "update/rollouts": len(taking_part)}
    for key, expected in counts.items():
        if key in update.scalars:
            ledger.close(
                "metrics.jsonl", f"step {update.step}", f"{key} of update {update.index}", update.scalars[key], expected
            )


def can_move(rollout: Rollout, row: Algorithm) -> bool:
    """Whether some token of the answer has a loss that a gradient could come of."""
    trained = [
        value for value, has_loss in zip(rollout.advantage_per_token, rollout.completion.loss_mask, strict=True) if has_loss
    ]
    return bool(trained) and (row.moves_without_advantage or any(trained))


def _check_weights(update: Update, rollouts: Rollouts, row: Algorithm, max_new_tokens: int, shard: str, ledger: Ledger) -> None:
    computed = [stream for stream in update.streams if stream.computed]
    loss = 0.0
    if computed:
        loss, columns = recompute(update, computed, rollouts, row, max_new_tokens)
        for name, values_N in columns.items():
            tolerance = weight_tolerance(values_N.tolist())
            for stream, expected in zip(computed, _per_rollout(values_N, computed, rollouts), strict=True):
                where = f"{stream.rollout}, update {update.index}"
                ledger.each_close(f"tokens/{shard}", where, name, getattr(stream, name), expected, tolerance)
    if "update/loss" in update.scalars:
        tolerance = weight_tolerance([loss, *(abs(value) for stream in computed for value in stream.advantage)])
        got = update.scalars["update/loss"]
        ledger.close("metrics.jsonl", f"step {update.step}", f"loss of update {update.index}", got, loss, tolerance)


def recompute(
    update: Update, streams: Sequence[TokenStreams], rollouts: Rollouts, row: Algorithm, max_new_tokens: int
) -> tuple[float, dict[str, Tensor]]:
    """The update's loss and, over its N tokens with loss, ratio, clip, KL and token weight, from what was recorded."""
    completions = [rollouts[stream.rollout].completion for stream in streams]
    dtype = precision(value for stream in streams for value in (*stream.logprob, *stream.old_logprob))

    def flat(values: Iterable[Sequence[float]]) -> Tensor:
        return torch.tensor(_with_loss(values, completions), dtype=dtype)

    everyone = [rollouts[stream.rollout].completion for stream in update.streams]
    lengths_B = torch.tensor([sum(completion.loss_mask) for completion in completions])
    logprobs_N = flat(stream.logprob for stream in streams).requires_grad_()
    objective = token_objective(
        row,
        logprobs_N=logprobs_N,
        entropy_N=flat(stream.entropy for stream in streams),
        old_logprobs_N=flat(stream.old_logprob for stream in streams),
        advantages_N=flat(stream.advantage for stream in streams),
        sequence_N=torch.repeat_interleave(torch.arange(len(streams)), lengths_B),
        lengths_B=lengths_B,
        num_tokens=sum(sum(completion.loss_mask) for completion in everyone),
        num_sequences=len(everyone),
        max_length=max_new_tokens,
        ref_logprobs_N=flat(stream.ref_logprob for stream in streams)
        if any(stream.ref_logprob for stream in streams)
        else None,
        divergence_N=flat(stream.divergence for stream in streams) if row.divergence_coef else None,
        sampled_logprobs_N=flat(completion.sampled_logprobs for completion in completions)
        if all(completion.sampled_logprobs for completion in completions)
        else None,
    )
    columns = {"ratio": objective.ratio_N, "clip": objective.clip_N, "token_weight": _gradient(objective.loss, logprobs_N)}
    if objective.kl_N is not None:
        columns["kl_policy_ref"] = objective.kl_N
    return float(objective.loss.detach()), columns


def precision(values: Iterable[float]) -> torch.dtype:
    """float32 when every value is a float32 number, else float64.

    >>> precision([-0.5, -1.25]), precision([-0.1])
    (torch.float32, torch.float64)
    """
    numbers = np.fromiter(values, dtype=np.float64)
    return torch.float32 if np.array_equal(numbers.astype(np.float32), numbers, equal_nan=True) else torch.float64


def _gradient(loss: Tensor, logprobs_N: Tensor) -> Tensor:
    if not loss.requires_grad:
        return torch.zeros_like(logprobs_N)
    return torch.autograd.grad(loss, logprobs_N, allow_unused=True, materialize_grads=True)[0]


def _with_loss(values: Iterable[Sequence[float]], completions: Sequence[Completion]) -> list[float]:
    return [
        value
        for numbers, completion in zip(values, completions, strict=True)
        for value, trained in zip(numbers, completion.loss_mask, strict=True)
        if trained
    ]


def _per_rollout(values_N: Tensor, streams: Sequence[TokenStreams], rollouts: Rollouts) -> list[list[float]]:
    """Flat values put back at their tokens, 0 where a token carries no loss."""
    numbers = iter(values_N.tolist())
    return [
        [next(numbers) if trained else 0 for trained in rollouts[stream.rollout].completion.loss_mask] for stream in streams
    ]


def check_metrics(report: StepReport, ledger: Ledger, *, whole_support: bool = True) -> None:
    """The step's scalars that are plain sums and means of its rows.

    whole_support  every token could be sampled; with top-p and the like the sampler gap is no difference of recorded numbers
    """
    for key, expected in _expected_metrics(report).items():
        if key in report.metrics and (whole_support or not key.startswith("sampler_gap/")):
            ledger.close("metrics.jsonl", f"step {report.step}", key, report.metrics[key], expected)


def _expected_metrics(report: StepReport) -> dict[str, float | None]:
    rewards = [rollout.reward for rollout in report.rollouts if rollout.reward is not None]
    lengths = [rollout.completion.num_tokens for rollout in report.rollouts]
    gaps = _sampler_gaps(report)
    expected = {
        "reward/mean": _mean(rewards),
        "answers/count": len(lengths),
        "answers/unscored": len(lengths) - len(rewards),
        "answers/mean_tokens": _mean(lengths),
        "tokens/sampled": sum(lengths),
        "groups/count": len(report.groups),
        "groups/dropped": sum(group.baseline is not None and not group.baseline.kept for group in report.groups),
        "entropy/mean_nats": _mean([value for rollout in report.rollouts for value in rollout.completion.entropies]),
        "update/loss": _mean([update.scalars["update/loss"] for update in report.updates if "update/loss" in update.scalars]),
    }
    if gaps:
        expected |= {"sampler_gap/mean_abs": _mean(gaps), "sampler_gap/max_abs": max(gaps)}
    return expected


def _sampler_gaps(report: StepReport) -> list[float]:
    """|log-prob as sampled - log-prob as trained| over the tokens with loss of a step with one update.

    With several, what the step's metric covers depends on which update ran which answer, so nothing is compared.
    """
    completions = {rollout.id: rollout.completion for rollout in report.rollouts}
    updates = report.updates if len(report.updates) == 1 else ()
    computed = [stream for update in updates for stream in update.streams if stream.computed]
    mine = [completions[stream.rollout] for stream in computed]
    if not all(completion.sampled_logprobs for completion in mine) or not all(stream.logprob for stream in computed):
        return []
    sampled = _with_loss((completion.sampled_logprobs for completion in mine), mine)
    trained = _with_loss((stream.logprob for stream in computed), mine)
    return [abs(left - right) for left, right in zip(sampled, trained, strict=True)]


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None

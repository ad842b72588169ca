"""Advantages become a gradient, a gradient becomes changed weights: one or several optimizer updates on a step's samples.

Decisions:
1. The loss is differentiated in two hops. First d loss / d log-prob (and d loss / d entropy) for every token: that number, the
   token weight, is recorded, so what the record shows is what was back-propagated. Then from there into the model.
2. Denominators count the whole update before its first micro-batch runs, so any split gives the same gradient.
3. With a single update the old log-probs are the current ones (ratio exactly 1) and cost nothing. With several, they are
   computed once before the first.
4. An answer that cannot contribute (advantage 0, no KL or entropy term) counts in the denominators but is not run again.
   If nothing contributes, no optimizer step is made: a zero gradient is not evidence, and Adam's momentum would still move
   weights.
5. A critic sees every answer that counts. Where it shares the policy's trunk one pass and one way back serve both losses; where
   it has its own, that model's pass comes after the policy's graph is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from toishi.algorithms.apply import counted, token_objective
from toishi.algorithms.rows import Algorithm
from toishi.errors import NumericsError
from toishi.observing import Denominators, Observer, SeenRow
from toishi.ops.random import permutation
from toishi.packing import PackedRow
from toishi.passes import (
    UpdateSettings,
    packed_rows,
    policy_logprobs,
    predict,
    reference_logprobs,
    with_reference,
    with_values,
)
from toishi.policy.head import Predictions
from toishi.policy.optimizer import learning_rate
from toishi.types import Group, Rollout, RolloutId, TokenStreams, Update
from toishi.valuing import ValuedRow, prepare_step, value_row

if TYPE_CHECKING:
    from toishi.policy.critic import Critic
    from toishi.policy.policy import Policy

__all__ = [
    "UpdateSettings", "packed_rows", "policy_logprobs", "predict", "reference_logprobs", "update_policy", "with_reference",
    "with_values",
]  # fmt: skip

SKIPPED = {"update/grad_norm": 0.0, "update/grad_norm_clipped": 0.0, "update/skipped": 1.0}
"""Scalars of an update without any contribution: nothing moved."""


@dataclass(frozen=True)
class _Learning:
    """Who learns in a step, and by which settings. `old`: log-probs from before its first update, where it has several."""

    policy: Policy
    critic: Critic | None
    settings: UpdateSettings
    old: Mapping[RolloutId, tuple[float, ...]]
    observer: Observer | None

    @property
    def shares_trunk(self) -> bool:
        return self.critic is not None and not self.critic.owns_trunk


def update_policy(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    groups: Sequence[Group],
    settings: UpdateSettings,
    *,
    step: int,
    observer: Observer | None = None,
    critic: Critic | None = None,
) -> tuple[Update, ...]:
    """All optimizer updates of one step, each with its scalars and per-token streams.

    critic  learns beside the policy, where the row has one; the groups' rollouts have values and returns then
    Raises NumericsError when a loss or gradient is not finite; no weight of that update has changed then.
    """
    train, settings = settings.train, settings.at(step)
    old = policy_logprobs(policy, counted(groups, settings.algorithm), settings) if train.num_updates > 1 else {}
    lr = learning_rate(settings.optimizer, step, train.steps)
    for parameter_group in optimizer.param_groups:
        parameter_group["lr"] = lr
    learning = _Learning(policy, critic, settings, old, observer)
    updates = []
    for index in range(train.num_updates):
        minibatch = counted(groups_of_update(groups, index, settings, step), settings.algorithm)
        streams, scalars = _accumulate(learning, minibatch, index)
        taught = None
        if critic is not None and any(stream.computed for stream in streams):
            taught = prepare_step(critic, settings.critic, step, train.steps)
        scalars |= _step(learning, optimizer, index) if _teaches(minibatch, streams, learning) else SKIPPED
        if critic is not None and taught is not None:
            critic.step()
            scalars |= taught
        scalars |= {"update/lr": lr}
        updates.append(Update(step=step, index=index, scalars=scalars, streams=tuple(streams)))
    return tuple(updates)


def _teaches(rollouts: Sequence[Rollout], streams: Sequence[TokenStreams], learning: _Learning) -> bool:
    """Whether the update has a gradient for the policy's weights."""
    row = learning.settings.algorithm
    if not row.moves_policy:
        return False
    computed = any(stream.computed for stream in streams)
    return computed and (learning.shares_trunk or any(_contributes(rollout, row) for rollout in rollouts))


def groups_of_update(groups: Sequence[Group], index: int, settings: UpdateSettings, step: int) -> list[Group]:
    """The groups that update number `index` averages over: they are shuffled per inner epoch and dealt out, never split."""
    train = settings.train
    epoch, part = divmod(index, train.minibatches)
    order = permutation((settings.seed, step, epoch), len(groups)) if train.minibatches > 1 else range(len(groups))
    return [groups[int(number)] for position, number in enumerate(order) if position % train.minibatches == part]


def _accumulate(learning: _Learning, rollouts: Sequence[Rollout], index: int) -> tuple[list[TokenStreams], dict[str, float]]:
    """Sum the gradient of one update over its rows; streams of all its rollouts, and the update's scalars."""
    policy, critic, settings = learning.policy, learning.critic, learning.settings
    policy.zero_grad()
    if critic is not None:
        critic.zero_grad()
    counts = Denominators(
        num_tokens=sum(sum(rollout.completion.loss_mask) for rollout in rollouts), num_sequences=len(rollouts)
    )
    needed = [rollout for rollout in rollouts if critic is not None or _contributes(rollout, settings.algorithm)]
    streams = {
        rollout.id: TokenStreams(rollout=rollout.id, computed=False, advantage=rollout.advantage_per_token)
        for rollout in rollouts
    }
    scalars = {
        "update/loss": 0.0,
        "update/tokens": float(counts.num_tokens),
        "update/rollouts": float(counts.num_sequences),
    }
    if critic is not None:
        scalars |= {"update/value_loss": 0.0, "update/value_clip_share": 0.0}
    for row in packed_rows(policy, needed, settings):
        row_loss, valued, row_streams = _backward(learning, row, counts, index)
        scalars["update/loss"] += row_loss
        if valued is not None:
            scalars["update/value_loss"] += valued.loss
            scalars["update/value_clip_share"] += valued.held
        streams |= {stream.rollout: stream for stream in row_streams}
    return list(streams.values()), scalars


def _contributes(rollout: Rollout, row: Algorithm) -> bool:
    return row.moves_without_advantage or any(advantage != 0.0 for advantage in rollout.advantage_per_token)


def _backward(
    learning: _Learning, row: PackedRow, counts: Denominators, index: int
) -> tuple[float, ValuedRow | None, list[TokenStreams]]:
    """Forward and backward through one packed row: its share of the loss, its values, and its streams."""
    policy, settings = learning.policy, learning.settings
    moves = settings.algorithm.moves_policy
    with torch.set_grad_enabled(moves):
        predicted = predict(policy, row)
        logprobs_N, entropy_N = predicted.logprobs_and_entropy(row.targets_N, settings.temperature)
    divergence_N = _divergence(policy, row, predicted, settings)
    outputs = [logprobs_N, entropy_N] + ([] if divergence_N is None else [divergence_N])
    leaves = [output_N.detach().requires_grad_() for output_N in outputs]
    leaf_logprobs_N, leaf_entropy_N = leaves[:2]
    leaf_divergence_N = None if divergence_N is None else leaves[2]
    dtype = leaf_logprobs_N.dtype
    old_logprobs_N = row.stream((learning.old[r.id] for r in row.rollouts), dtype) if learning.old else leaf_logprobs_N.detach()
    ref = [r.ref_logprobs for r in row.rollouts]
    ref_logprobs_N = None if ref[0] is None else row.stream((values for values in ref if values is not None), dtype)
    objective = token_objective(
        settings.algorithm,
        logprobs_N=leaf_logprobs_N,
        entropy_N=leaf_entropy_N,
        old_logprobs_N=old_logprobs_N,
        advantages_N=row.stream((r.advantage_per_token for r in row.rollouts), dtype),
        sequence_N=row.sequence_N,
        lengths_B=row.lengths_B,
        num_tokens=counts.num_tokens,
        num_sequences=counts.num_sequences,
        max_length=settings.max_new_tokens,
        ref_logprobs_N=ref_logprobs_N,
        sampled_logprobs_N=row.sampled_logprobs(dtype),
        divergence_N=leaf_divergence_N,
    )
    loss = float(objective.loss.detach())
    if loss != loss or abs(loss) == float("inf"):
        raise NumericsError(_bad_rows(row, logprobs_N, loss))
    weights = _slopes(objective.loss, leaves)
    if learning.observer is not None and moves:
        seen = SeenRow(
            row=row, predicted=predicted, logprobs_N=logprobs_N, entropy_N=entropy_N, old_logprobs_N=old_logprobs_N,
            ref_logprobs_N=ref_logprobs_N, divergence_N=divergence_N, token_weights_N=weights[0], counts=counts,
        )  # fmt: skip
        learning.observer.row(index, seen)
    valued = _back(learning, row, predicted, outputs, weights, counts.num_tokens)
    columns: dict[str, Tensor | None] = {
        "old_logprob": old_logprobs_N,
        "logprob": leaf_logprobs_N,
        "entropy": leaf_entropy_N,
        "ratio": objective.ratio_N,
        "clip": objective.clip_N,
        "token_weight": weights[0],
        "ref_logprob": ref_logprobs_N,
        "kl_policy_ref": objective.kl_N,
        "divergence": leaf_divergence_N,
        "value": None if valued is None else valued.values_N,
        "value_weight": None if valued is None else valued.weights_N,
    }
    return loss, valued, [_streams(row, number, columns) for number in range(len(row.rollouts))]


def _slopes(loss: Tensor, leaves: Sequence[Tensor]) -> list[Tensor]:
    """d loss / d each leaf; 0 where nothing of the loss depends on it."""
    if not loss.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    return list(torch.autograd.grad(loss, list(leaves), allow_unused=True, materialize_grads=True))


def _back(
    learning: _Learning,
    row: PackedRow,
    predicted: Predictions,
    outputs: Sequence[Tensor],
    weights: Sequence[Tensor],
    num_tokens: int,
) -> ValuedRow | None:
    """From the slopes into the models. A shared trunk goes back once, from both; the critic's own follows by itself."""
    critic, settings = learning.critic, learning.settings
    ways = list(zip(outputs, weights, strict=True)) if settings.algorithm.moves_policy else []
    valued = None
    if critic is not None and not critic.owns_trunk:
        valued = value_row(critic, predicted, row, settings, num_tokens)
        ways.append((valued.values_N, valued.weights_N))
    if ways:
        torch.autograd.backward([output for output, _ in ways], [weight for _, weight in ways])
    if critic is not None and critic.owns_trunk:
        valued = value_row(critic, predict(critic.trunk, row), row, settings, num_tokens)
        torch.autograd.backward([valued.values_N], [valued.weights_N])
    return valued


def _divergence(policy: Policy, row: PackedRow, predicted: Predictions, settings: UpdateSettings) -> Tensor | None:
    """From the teacher at each token with loss, where the row's loss has such a term."""
    if settings.algorithm.divergence_coef == 0:
        return None
    beta, temperature = settings.algorithm.divergence_beta, settings.temperature
    return policy.taught().divergence(predicted, row, lambda asked: predict(asked, row), temperature=temperature, beta=beta)


def _streams(row: PackedRow, number: int, columns: dict[str, Tensor | None]) -> TokenStreams:
    """One answer's share of the row's columns; a column that does not exist (no reference) stays empty."""
    rollout = row.rollouts[number]
    spread: dict[str, Any] = {
        name: row.spread(number, values_N.detach()) for name, values_N in columns.items() if values_N is not None
    }
    spread["clip"] = tuple(int(code) for code in spread["clip"])
    return TokenStreams(rollout=rollout.id, computed=True, advantage=rollout.advantage_per_token, **spread)


def _bad_rows(row: PackedRow, logprobs_N: Tensor, loss: float) -> str:
    bad = [
        str(rollout.id)
        for number, rollout in enumerate(row.rollouts)
        if not bool(torch.isfinite(logprobs_N[row.sequence_N == number]).all())
    ]
    named = ", ".join(bad) or ", ".join(str(rollout.id) for rollout in row.rollouts)
    return f"the loss is {loss} in the rows of rollouts (step/group/member) {named}; no weight was changed by this update"


def _step(learning: _Learning, optimizer: torch.optim.Optimizer, index: int) -> dict[str, float]:
    """Clip, step, publish: gradient norms before and after clipping."""
    policy, settings, observer = learning.policy, learning.settings, learning.observer
    norm = policy.grad_norm()
    limit = settings.optimizer.max_grad_norm
    factor = 1.0 if limit is None or norm <= limit else limit / norm
    if factor < 1.0:
        for master in policy.masters.values():
            if master.grad is not None:
                master.grad.mul_(factor)
    if observer is not None:
        observer.before(index, factor)
    optimizer.step()
    policy.publish()
    if observer is not None:
        observer.after(index)
    return {"update/grad_norm": norm, "update/grad_norm_clipped": norm * factor, "update/skipped": 0.0}

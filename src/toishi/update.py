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
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from toishi.algorithms.apply import counted, token_objective
from toishi.algorithms.rows import Algorithm
from toishi.config import Config, OptimizerConfig, TrainConfig
from toishi.errors import NumericsError
from toishi.observing import Denominators, Observer, SeenRow
from toishi.ops.random import permutation
from toishi.packing import PackedRow, pack
from toishi.policy.head import Predictions
from toishi.policy.optimizer import learning_rate
from toishi.types import Group, Rollout, RolloutId, TokenStreams, Update

if TYPE_CHECKING:
    from toishi.policy.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSettings:
    """What an update needs to know besides the groups."""

    algorithm: Algorithm
    train: TrainConfig
    optimizer: OptimizerConfig
    temperature: float
    max_new_tokens: int
    shared_prompt: bool
    token_budget: int
    seed: int

    @classmethod
    def of(cls, config: Config, *, shared_prompt: bool, token_budget: int) -> UpdateSettings:
        """Those of a run: what its configuration says, and what was decided for its model and machine."""
        return cls(
            algorithm=config.algorithm,
            train=config.train,
            optimizer=config.optimizer,
            temperature=config.sampling.temperature,
            max_new_tokens=config.sampling.max_new_tokens,
            shared_prompt=shared_prompt,
            token_budget=token_budget,
            seed=config.seed,
        )


SKIPPED = {"update/grad_norm": 0.0, "update/grad_norm_clipped": 0.0, "update/skipped": 1.0}
"""Scalars of an update without any contribution: nothing moved."""


def with_reference(policy: Policy, groups: Sequence[Group], settings: UpdateSettings) -> tuple[Group, ...]:
    """The groups with log-probs under the model of step 0, where KL or advantages need them, and the policy's, if unknown."""
    row, everyone = settings.algorithm, [rollout for group in groups for rollout in group.rollouts]
    if row.needs_teacher:
        policy.taught().look_at(everyone)
    if not (row.needs_reference or row.needs_policy_before):
        return tuple(groups)
    reference = reference_logprobs(policy, everyone, settings) if row.needs_reference else {}
    unknown = [one for one in everyone if row.needs_policy_before and not one.completion.sampled_logprobs]
    own = policy_logprobs(policy, unknown, settings)
    known = {one.id: replace(one, ref_logprobs=reference.get(one.id), policy_logprobs=own.get(one.id)) for one in everyone}
    return tuple(replace(group, rollouts=tuple(known[one.id] for one in group.rollouts)) for group in groups)


@torch.no_grad()
def reference_logprobs(
    policy: Policy, rollouts: Sequence[Rollout], settings: UpdateSettings
) -> dict[RolloutId, tuple[float, ...]]:
    """Log-prob of every token under the reference: the model of step 0, or the teacher; 0 at positions without loss."""
    if settings.algorithm.reference == "teacher":
        return policy.taught().logprobs(rollouts, lambda asked: policy_logprobs(asked, rollouts, settings))
    with policy.as_reference():
        return policy_logprobs(policy, rollouts, settings)


def predict(policy: Policy, row: PackedRow) -> Predictions:
    """What the policy predicts at the row's positions with loss."""
    return policy.predict(row.input_ids_L, row.position_ids_L, row.keep_N, row.layout)


def update_policy(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    groups: Sequence[Group],
    settings: UpdateSettings,
    *,
    step: int,
    observer: Observer | None = None,
) -> tuple[Update, ...]:
    """All optimizer updates of one step, each with its scalars and per-token streams.

    Raises NumericsError when a loss or gradient is not finite; no weight of that update has changed then.
    """
    train = settings.train
    old = policy_logprobs(policy, counted(groups, settings.algorithm), settings) if train.num_updates > 1 else {}
    lr = learning_rate(settings.optimizer, step, train.steps)
    for parameter_group in optimizer.param_groups:
        parameter_group["lr"] = lr
    updates = []
    for index in range(train.num_updates):
        minibatch = counted(groups_of_update(groups, index, settings, step), settings.algorithm)
        streams, scalars = _accumulate(policy, minibatch, old, settings, index, observer)
        learned = any(stream.computed for stream in streams)
        scalars |= _step(policy, optimizer, settings, index, observer) if learned else SKIPPED
        scalars |= {"update/lr": lr}
        updates.append(Update(step=step, index=index, scalars=scalars, streams=tuple(streams)))
    return tuple(updates)


def groups_of_update(groups: Sequence[Group], index: int, settings: UpdateSettings, step: int) -> list[Group]:
    """The groups that update number `index` averages over: they are shuffled per inner epoch and dealt out, never split."""
    train = settings.train
    epoch, part = divmod(index, train.minibatches)
    order = permutation((settings.seed, step, epoch), len(groups)) if train.minibatches > 1 else range(len(groups))
    return [groups[int(number)] for position, number in enumerate(order) if position % train.minibatches == part]


def policy_logprobs(
    policy: Policy, rollouts: Sequence[Rollout], settings: UpdateSettings
) -> dict[RolloutId, tuple[float, ...]]:
    """Log-prob of every token under the policy as it is (or the score, on an answer's last token); 0 where there is no loss."""
    found: dict[RolloutId, tuple[float, ...]] = {}
    with torch.no_grad():
        for row in packed_rows(policy, rollouts, settings):
            logprobs_N, _ = predict(policy, row).logprobs_and_entropy(row.targets_N, settings.temperature)
            for number, rollout in enumerate(row.rollouts):
                found[rollout.id] = row.spread(number, logprobs_N)
    return found


def packed_rows(policy: Policy, rollouts: Sequence[Rollout], settings: UpdateSettings) -> list[PackedRow]:
    """The answers in rows, as an update runs them."""
    return pack(
        rollouts,
        shared_prompt=settings.shared_prompt,
        token_budget=settings.token_budget,
        mix_groups=policy.mixes_groups,
        whole=policy.scores_answers,
        device=policy.device,
    )


def _accumulate(
    policy: Policy,
    rollouts: Sequence[Rollout],
    old: dict[RolloutId, tuple[float, ...]],
    settings: UpdateSettings,
    index: int,
    observer: Observer | None,
) -> tuple[list[TokenStreams], dict[str, float]]:
    """Sum the gradient of one update over its rows; streams of all its rollouts, and the update's scalars."""
    policy.zero_grad()
    counts = Denominators(
        num_tokens=sum(sum(rollout.completion.loss_mask) for rollout in rollouts), num_sequences=len(rollouts)
    )
    needed = [rollout for rollout in rollouts if _contributes(rollout, settings.algorithm)]
    streams = {
        rollout.id: TokenStreams(rollout=rollout.id, computed=False, advantage=rollout.advantage_per_token)
        for rollout in rollouts
    }
    loss = 0.0
    for row in packed_rows(policy, needed, settings):
        row_loss, row_streams = _backward(policy, row, old, settings, counts, index, observer)
        loss += row_loss
        streams |= {stream.rollout: stream for stream in row_streams}
    scalars = {"update/loss": loss, "update/tokens": float(counts.num_tokens), "update/rollouts": float(counts.num_sequences)}
    return list(streams.values()), scalars


def _contributes(rollout: Rollout, row: Algorithm) -> bool:
    return row.moves_without_advantage or any(advantage != 0.0 for advantage in rollout.advantage_per_token)


def _backward(
    policy: Policy,
    row: PackedRow,
    old: dict[RolloutId, tuple[float, ...]],
    settings: UpdateSettings,
    counts: Denominators,
    index: int,
    observer: Observer | None,
) -> tuple[float, list[TokenStreams]]:
    """Forward and backward through one packed row: its share of the loss, and its streams."""
    predicted = predict(policy, row)
    logprobs_N, entropy_N = predicted.logprobs_and_entropy(row.targets_N, settings.temperature)
    leaf_logprobs_N = logprobs_N.detach().requires_grad_()
    leaf_entropy_N = entropy_N.detach().requires_grad_()
    dtype = leaf_logprobs_N.dtype
    old_logprobs_N = row.stream((old[r.id] for r in row.rollouts), dtype) if old else leaf_logprobs_N.detach()
    divergence_N = _divergence(policy, row, predicted, settings)
    leaf_divergence_N = None if divergence_N is None else divergence_N.detach().requires_grad_()
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
    leaves = [leaf_logprobs_N, leaf_entropy_N] + ([] if leaf_divergence_N is None else [leaf_divergence_N])
    weights = torch.autograd.grad(objective.loss, leaves, allow_unused=True, materialize_grads=True)
    if observer is not None:
        seen = SeenRow(
            row=row, predicted=predicted, logprobs_N=logprobs_N, entropy_N=entropy_N, old_logprobs_N=old_logprobs_N,
            ref_logprobs_N=ref_logprobs_N, divergence_N=divergence_N, token_weights_N=weights[0], counts=counts,
        )  # fmt: skip
        observer.row(index, seen)
    torch.autograd.backward([logprobs_N, entropy_N] + ([] if divergence_N is None else [divergence_N]), list(weights))
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
    }
    return loss, [_streams(row, number, columns) for number in range(len(row.rollouts))]


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


def _step(
    policy: Policy, optimizer: torch.optim.Optimizer, settings: UpdateSettings, index: int, observer: Observer | None
) -> dict[str, float]:
    """Clip, step, publish: gradient norms before and after clipping."""
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

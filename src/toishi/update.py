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
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from toishi.algorithms.apply import counted, token_objective
from toishi.algorithms.rows import Algorithm
from toishi.config import OptimizerConfig, TrainConfig
from toishi.errors import NumericsError
from toishi.ops.logprobs import logprobs_and_entropy
from toishi.ops.random import permutation
from toishi.packing import PackedRow, pack
from toishi.policy.policy import Policy
from toishi.types import Group, Rollout, RolloutId, TokenStreams, Update


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateSettings:
    """What an update needs to know besides the groups."""

    algorithm: Algorithm
    train: TrainConfig
    optimizer: OptimizerConfig
    temperature: float
    max_new_tokens: int
    shared_prompt: bool
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Denominators:
    """Counts over one whole optimizer update."""

    num_tokens: int
    num_sequences: int


def make_optimizer(policy: Policy, config: OptimizerConfig) -> torch.optim.Optimizer:
    """The optimizer over the policy's masters, by the configuration."""
    weights = list(policy.masters.values())
    if config.name == "sgd":
        return torch.optim.SGD(weights, lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay)
    return torch.optim.AdamW(weights, lr=config.lr, betas=config.betas, eps=config.eps, weight_decay=config.weight_decay)


def learning_rate(config: OptimizerConfig, step: int, total_steps: int) -> float:
    """Learning rate of step 1, 2, ...: linear warm-up, then constant, linear or cosine decay to 0 after the last step.

    >>> config = OptimizerConfig(lr=1.0, warmup_steps=2, decay="linear")
    >>> [learning_rate(config, step, 6) for step in (1, 2, 3, 6)]
    [0.5, 1.0, 1.0, 0.25]
    """
    if step <= config.warmup_steps:
        return config.lr * step / config.warmup_steps
    left = 1 - (step - 1 - config.warmup_steps) / max(1, total_steps - config.warmup_steps)
    left = min(1.0, max(0.0, left))
    if config.decay == "linear":
        return config.lr * left
    if config.decay == "cosine":
        return config.lr * 0.5 * (1 - float(torch.cos(torch.tensor(torch.pi * left, dtype=torch.float64))))
    return config.lr


@torch.no_grad()
def reference_logprobs(
    policy: Policy, rollouts: Sequence[Rollout], settings: UpdateSettings
) -> dict[RolloutId, tuple[float, ...]]:
    """Log-prob of every token under the model of step 0; 0 at positions without loss."""
    with policy.as_reference():
        return _logprobs(policy, rollouts, settings)


def measure_gap(policy: Policy, groups: Sequence[Group], settings: UpdateSettings) -> tuple[float, float]:
    """(mean, max) |log-prob as sampled - log-prob as trained| on the first group, for steps in which nothing was trained on."""
    rollouts = groups[0].rollouts
    trained = _logprobs(policy, rollouts, settings)
    gaps = [
        abs(mine - sampled)
        for rollout in rollouts
        for mine, sampled, has_loss in zip(
            trained[rollout.id], rollout.completion.sampled_logprobs, rollout.completion.loss_mask, strict=True
        )
        if has_loss
    ]
    return sum(gaps) / len(gaps), max(gaps)


def update_policy(
    policy: Policy, optimizer: torch.optim.Optimizer, groups: Sequence[Group], settings: UpdateSettings, *, step: int
) -> tuple[Update, ...]:
    """All optimizer updates of one step, each with its scalars and per-token streams.

    Raises NumericsError when a loss or gradient is not finite; no weight of that update has changed then.
    """
    train = settings.train
    num_updates = train.inner_epochs * train.minibatches
    old = _logprobs(policy, counted(groups, settings.algorithm), settings) if num_updates > 1 else {}
    lr = learning_rate(settings.optimizer, step, train.steps)
    for parameter_group in optimizer.param_groups:
        parameter_group["lr"] = lr
    updates = []
    for index in range(num_updates):
        minibatch = _minibatch(groups, index, settings, step)
        streams, scalars = _accumulate(policy, minibatch, old, settings)
        scalars |= _step(policy, optimizer, settings, any(stream.computed for stream in streams)) | {"update/lr": lr}
        updates.append(Update(step=step, index=index, scalars=scalars, streams=tuple(streams)))
    return tuple(updates)


def _minibatch(groups: Sequence[Group], index: int, settings: UpdateSettings, step: int) -> tuple[Rollout, ...]:
    """The rollouts that update number `index` averages over: groups are shuffled per inner epoch and dealt out, never split."""
    train = settings.train
    epoch, part = divmod(index, train.minibatches)
    order = permutation((settings.seed, step, epoch), len(groups)) if train.minibatches > 1 else range(len(groups))
    chosen = [groups[int(number)] for position, number in enumerate(order) if position % train.minibatches == part]
    return counted(chosen, settings.algorithm)


def _logprobs(policy: Policy, rollouts: Sequence[Rollout], settings: UpdateSettings) -> dict[RolloutId, tuple[float, ...]]:
    found: dict[RolloutId, tuple[float, ...]] = {}
    with torch.no_grad():
        for row in _rows(policy, rollouts, settings):
            logprobs_N, _ = _row_logprobs(policy, row, settings.temperature)
            for number, rollout in enumerate(row.rollouts):
                found[rollout.id] = tuple(_spread(logprobs_N[row.sequence_N == number], rollout.completion.loss_mask))
    return found


def _rows(policy: Policy, rollouts: Sequence[Rollout], settings: UpdateSettings) -> list[PackedRow]:
    return pack(
        rollouts,
        shared_prompt=settings.shared_prompt,
        token_budget=settings.train.micro_batch_tokens,
        device=policy.device,
    )


def _row_logprobs(policy: Policy, row: PackedRow, temperature: float) -> tuple[Tensor, Tensor]:
    logits_NV = policy.logits(row.input_ids_L, row.position_ids_L, row.keep_N, row.mask_LL)
    return logprobs_and_entropy(logits_NV, row.targets_N, temperature)


def _accumulate(
    policy: Policy, rollouts: Sequence[Rollout], old: dict[RolloutId, tuple[float, ...]], settings: UpdateSettings
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
    for row in _rows(policy, needed, settings):
        row_loss, row_streams = _backward(policy, row, old, settings, counts)
        loss += row_loss
        streams |= {stream.rollout: stream for stream in row_streams}
    scalars = {"update/loss": loss, "update/tokens": float(counts.num_tokens), "update/rollouts": float(counts.num_sequences)}
    return list(streams.values()), scalars


def _contributes(rollout: Rollout, row: Algorithm) -> bool:
    return row.moves_without_advantage or any(advantage != 0.0 for advantage in rollout.advantage_per_token)


def _backward(
    policy: Policy, row: PackedRow, old: dict[RolloutId, tuple[float, ...]], settings: UpdateSettings, counts: Denominators
) -> tuple[float, list[TokenStreams]]:
    """Forward and backward through one packed row: its share of the loss, and its streams."""
    logprobs_N, entropy_N = _row_logprobs(policy, row, settings.temperature)
    leaf_logprobs_N = logprobs_N.detach().requires_grad_()
    leaf_entropy_N = entropy_N.detach().requires_grad_()
    dtype = leaf_logprobs_N.dtype
    old_logprobs_N = row.stream((old[r.id] for r in row.rollouts), dtype) if old else leaf_logprobs_N.detach()
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
        sampled_logprobs_N=row.stream((r.completion.sampled_logprobs for r in row.rollouts), dtype),
    )
    loss = float(objective.loss.detach())
    if loss != loss or abs(loss) == float("inf"):
        raise NumericsError(_bad_rows(row, logprobs_N, loss))
    weights = torch.autograd.grad(objective.loss, [leaf_logprobs_N, leaf_entropy_N], allow_unused=True, materialize_grads=True)
    torch.autograd.backward([logprobs_N, entropy_N], list(weights))
    columns: dict[str, Tensor | None] = {
        "old_logprob": old_logprobs_N,
        "logprob": leaf_logprobs_N,
        "entropy": leaf_entropy_N,
        "ratio": objective.ratio_N,
        "clip": objective.clip_N,
        "token_weight": weights[0],
        "ref_logprob": ref_logprobs_N,
        "kl_policy_ref": objective.kl_N,
    }
    return loss, [_streams(row, number, columns) for number in range(len(row.rollouts))]


def _streams(row: PackedRow, number: int, columns: dict[str, Tensor | None]) -> TokenStreams:
    """One answer's share of the row's columns; a column that does not exist (no reference) stays empty."""
    rollout = row.rollouts[number]
    mine_N = row.sequence_N == number
    spread: dict[str, Any] = {
        name: tuple(_spread(values_N.detach()[mine_N], rollout.completion.loss_mask))
        for name, values_N in columns.items()
        if values_N is not None
    }
    spread["clip"] = tuple(int(code) for code in spread["clip"])
    return TokenStreams(rollout=rollout.id, computed=True, advantage=rollout.advantage_per_token, **spread)


def _spread(values_n: Tensor, loss_mask: Sequence[int]) -> list[float]:
    """Values of the tokens with loss, put back at their places among all tokens of the answer; 0 elsewhere."""
    values = iter(values_n.tolist())
    return [next(values) if trained else 0.0 for trained in loss_mask]


def _bad_rows(row: PackedRow, logprobs_N: Tensor, loss: float) -> str:
    bad = [
        str(rollout.id)
        for number, rollout in enumerate(row.rollouts)
        if not bool(torch.isfinite(logprobs_N[row.sequence_N == number]).all())
    ]
    named = ", ".join(bad) or ", ".join(str(rollout.id) for rollout in row.rollouts)
    return f"the loss is {loss} in the rows of rollouts (step/group/member) {named}; no weight was changed by this update"


def _step(policy: Policy, optimizer: torch.optim.Optimizer, settings: UpdateSettings, learned: bool) -> dict[str, float]:
    """Clip, step, publish: gradient norms before and after clipping. Without any contribution nothing moves."""
    if not learned:
        return {"update/grad_norm": 0.0, "update/grad_norm_clipped": 0.0, "update/skipped": 1.0}
    norm = policy.grad_norm()
    limit = settings.optimizer.max_grad_norm
    factor = 1.0 if limit is None or norm <= limit else limit / norm
    if factor < 1.0:
        for master in policy.masters.values():
            if master.grad is not None:
                master.grad.mul_(factor)
    optimizer.step()
    policy.publish()
    return {"update/grad_norm": norm, "update/grad_norm_clipped": norm * factor, "update/skipped": 0.0}

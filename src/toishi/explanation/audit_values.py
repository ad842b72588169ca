"""Whether a critic's value weights and losses follow from its recorded values and the returns.

Decision: the loss is formed again by the library's own function and differentiated by autograd, over all answers of an update
at once, in the precision that the values were recorded in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from toishi.algorithms.critic import critic_metrics
from toishi.algorithms.rows import Algorithm
from toishi.explanation.audit_updates import per_rollout, precision, with_loss
from toishi.explanation.ledger import Ledger, weight_tolerance
from toishi.ops.values import value_loss
from toishi.types import Rollout, StepReport, TokenStreams, Update


def check_values(report: StepReport, row: Algorithm, shard: str, ledger: Ledger) -> None:
    """Every value weight, the value loss of each update, and the step's metrics about the critic; nothing without one."""
    if not row.needs_critic:
        return
    rollouts = {rollout.id: rollout for rollout in report.rollouts}
    for update in report.updates:
        computed = [stream for stream in update.streams if stream.computed]
        mine = [rollouts[stream.rollout] for stream in computed]
        unknown = [one.id for one in mine if one.values is None or one.returns is None]
        ledger.equal(f"tokens/{shard}", f"update {update.index}", "answers without values", len(unknown), 0)
        if computed and not unknown:
            _check_update(update, computed, mine, row, shard, ledger)
    for name, expected in critic_metrics(report.groups, report.updates).items():
        if name in report.metrics and expected is not None:
            ledger.close("metrics.jsonl", f"step {report.step}", name, report.metrics[name], expected)


def _check_update(
    update: Update, computed: Sequence[TokenStreams], mine: Sequence[Rollout], row: Algorithm, shard: str, ledger: Ledger
) -> None:
    loss, held, weights_N = recompute_values(update, computed, mine, row)
    tolerance = weight_tolerance(weights_N.tolist())
    completions = [rollout.completion for rollout in mine]
    for stream, expected in zip(computed, per_rollout(weights_N, completions), strict=True):
        where = f"{stream.rollout}, update {update.index}"
        ledger.each_close(f"tokens/{shard}", where, "value_weight", stream.value_weight, expected, tolerance)
    for name, expected_scalar in (("update/value_loss", loss), ("update/value_clip_share", held)):
        got = update.scalars.get(name)
        what = f"{name} of update {update.index}"
        ledger.close("metrics.jsonl", f"step {update.step}", what, got, expected_scalar, weight_tolerance([1.0, loss]))


def recompute_values(
    update: Update, computed: Sequence[TokenStreams], mine: Sequence[Rollout], row: Algorithm
) -> tuple[float, float, Tensor]:
    """(value loss, share of held tokens, d loss / d value of the N tokens with loss) of an update, from what was recorded."""
    completions = [rollout.completion for rollout in mine]
    dtype = precision(value for stream in computed for value in stream.value)

    def flat(values: Iterable[Sequence[float]]) -> Tensor:
        return torch.tensor(with_loss(values, completions), dtype=dtype)

    values_N = flat(stream.value for stream in computed).requires_grad_()
    old_N, returns_N = flat(one.values or () for one in mine), flat(one.returns or () for one in mine)
    loss_N, clip_N = value_loss(values_N, old_N, returns_N, row.value_clip)
    num_tokens = len(loss_N)
    loss = loss_N.sum() / num_tokens
    (weights_N,) = torch.autograd.grad(row.value_coef * loss, [values_N])
    return float(loss.detach()), float((clip_N != 0).sum()) / num_tokens, weights_N

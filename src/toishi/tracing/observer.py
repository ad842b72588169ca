"""What a trace sees of a step's updates while they run."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from toishi.observing import SeenRow
from toishi.record.trace import WeightCheck
from toishi.session import Learner
from toishi.tracing.checking import autograd_weights
from toishi.tracing.matrices import MatrixObserver
from toishi.tracing.probing import Place, next_token_probabilities


class StepObserver(MatrixObserver):
    """Watches rows of the first update as well: next-token probabilities at the places that a trace shows, and token weights.

    probs   place -> probability of every token (V,), under the weights before the step
    checks  group -> its token weights against autograd

    after_first  is called after the first update, with its gradients and the optimizer's state still there
    """

    def __init__(self, learner: Learner, after_first: Callable[[StepObserver], None] | None = None) -> None:
        super().__init__(learner.policy, learner.optimizer)
        self.settings, self.after_first = learner.settings, after_first
        self.probs: dict[Place, Tensor] = {}
        self.checks: dict[int, WeightCheck] = {}
        self._largest: dict[int, float] = {}
        self._apart: dict[int, float] = {}

    def row(self, index: int, seen: SeenRow) -> None:
        """Looks at a row; only those of the first update still have the weights before the step."""
        if index == 0:
            self._check(seen)
            self._keep(seen)

    def after(self, index: int) -> None:
        """Compares with the copy, and calls `after_first`."""
        super().after(index)
        if index == 0 and self.after_first is not None:
            self.after_first(self)

    def _check(self, seen: SeenRow) -> None:
        compared = zip(
            seen.row.sequence_N.tolist(), seen.token_weights_N.tolist(), autograd_weights(seen, self.settings), strict=True
        )
        counts: dict[int, int] = {}
        for sequence, recorded, found in compared:
            group = seen.row.rollouts[sequence].id.group
            self._largest[group] = max(self._largest.get(group, 0.0), abs(recorded))
            self._apart[group] = max(self._apart.get(group, 0.0), abs(recorded - found))
            counts[group] = counts.get(group, 0) + 1
        for group, count in counts.items():
            earlier = self.checks[group].compared if group in self.checks else 0
            apart, largest = self._apart[group], self._largest[group]
            self.checks[group] = WeightCheck(
                group=group, compared=earlier + count, largest_relative=apart / largest if largest > 0 else apart
            )

    @torch.no_grad()
    def _keep(self, seen: SeenRow) -> None:
        weights = seen.token_weights_N.tolist()
        for number, rollout in enumerate(seen.row.rollouts):
            mine = (seen.row.sequence_N == number).nonzero()[:, 0].tolist()
            places = [token for token, trained in enumerate(rollout.completion.loss_mask) if trained]
            heaviest = max(range(len(mine)), key=lambda place: abs(weights[mine[place]]), default=None)
            for place in {0, heaviest} if heaviest is not None else ():
                logits_V = seen.predicted.logits(torch.tensor([mine[place]], device=seen.row.targets_N.device))[0]
                self.probs[rollout.id, places[place]] = next_token_probabilities(logits_V, self.settings.temperature)

"""The model that is trained: fp32 masters, a compute copy that samples and differentiates, and the model of step 0.

Decisions:
1. One module serves sampling and training, so both see the same weights without any transfer.
2. Masters are fp32 (fp64 in tests). When the compute precision is lower, gradients are added up in the master's
   precision, micro-batch by micro-batch, so a split never loses bits that a single pass would keep.
3. The reference model is the trained part as it was at step 0, whatever adapters that was; for LoRA it costs the
   adapter's size only.
4. The module stays in eval mode: with dropout, sampler and trainer would disagree about the same answer.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from toishi.errors import NumericsError
from toishi.policy.capabilities import model_mask


class Policy:
    """A causal language model in training.

    module      transformers model (or PeftModel) whose trained parameters are in `compute_dtype`
    masters     name -> parameter that the optimizer steps on; the module's own parameter when precisions agree
    """

    def __init__(self, module: Any, *, compute_dtype: torch.dtype, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self.compute_dtype = compute_dtype
        self.module = module.to(self.device).eval()
        trained = {name: weight for name, weight in self.module.named_parameters() if weight.requires_grad}
        master_dtype = torch.float64 if compute_dtype == torch.float64 else torch.float32
        self.masters: dict[str, Tensor] = {
            name: weight.detach().to(master_dtype, copy=compute_dtype != master_dtype) for name, weight in trained.items()
        }
        self.module.to(compute_dtype)
        self._trained = {name: weight for name, weight in self.module.named_parameters() if weight.requires_grad}
        self.has_separate_masters = compute_dtype != master_dtype
        if self.has_separate_masters:
            for name, weight in self._trained.items():
                weight.register_post_accumulate_grad_hook(self._move_gradient(name))
        else:
            self.masters = dict(self._trained)
        self._reference: dict[str, Tensor] | None = None

    def _move_gradient(self, name: str) -> Any:
        # A hook lives in the weight, where Python's garbage collector cannot see it: if it held the policy, neither would ever
        # be freed, and every run in a process would keep its model.
        policy = weakref.ref(self)

        def move(weight: Tensor) -> None:
            owner = policy()
            assert owner is not None
            assert weight.grad is not None
            master = owner.masters[name]
            gradient = weight.grad.to(master.dtype)
            master.grad = gradient if master.grad is None else master.grad.add_(gradient)
            weight.grad = None

        return move

    @property
    def num_trained(self) -> int:
        return sum(master.numel() for master in self.masters.values())

    @property
    def num_parameters(self) -> int:
        return sum(weight.numel() for weight in self.module.parameters())

    def logits(self, input_ids_L: Tensor, position_ids_L: Tensor, keep_N: Tensor, mask_LL: Tensor | None = None) -> Tensor:
        """Next-token logits (N, V) at the positions `keep_N` of one packed row.

        mask_LL is True where a query (row) may look at a key (column); None is plain causal attention. Only the kept
        positions reach the vocabulary head, which is larger than the rest of a small model.
        """
        mask = None if mask_LL is None else model_mask(mask_LL[None, None], self.module)
        output = self.module(
            input_ids=input_ids_L[None],
            position_ids=position_ids_L[None],
            attention_mask=mask,
            logits_to_keep=keep_N,
            use_cache=False,
        )
        return output.logits[0]  # type: ignore[no-any-return]

    def zero_grad(self) -> None:
        for master in self.masters.values():
            master.grad = None

    def grad_norm(self) -> float:
        """Euclidean norm of the whole gradient, before clipping.

        Raises NumericsError when it is not finite: no weight has changed then.
        """
        gradients = [master.grad for master in self.masters.values() if master.grad is not None]
        norm = float(torch.nn.utils.get_total_norm(gradients)) if gradients else 0.0
        if norm != norm or norm == float("inf"):
            bad = [name for name, master in self.masters.items() if _not_finite(master.grad)]
            raise NumericsError(
                f"the gradient is not finite (norm {norm}) in {len(bad)} of {len(self.masters)} weights, first {bad[:1]}; "
                "no weight was changed. Lower optimizer.lr, check the rewards for huge values, or set model.dtype=float32"
            )
        return norm

    @torch.no_grad()
    def publish(self) -> None:
        """Copy the masters into the compute weights after an optimizer step."""
        if self.has_separate_masters:
            for name, weight in self._trained.items():
                weight.copy_(self.masters[name])

    def keep_reference(self) -> None:
        """Remember the weights as they are now as the reference model."""
        self._reference = {name: weight.detach().clone() for name, weight in self._trained.items()}

    @contextmanager
    def as_reference(self) -> Iterator[None]:
        """Inside, the module is the reference model."""
        assert self._reference is not None, "keep_reference() comes first"
        with self.with_weights(self._reference):
            yield

    @contextmanager
    def with_weights(self, weights: Mapping[str, Tensor]) -> Iterator[None]:
        """Inside, the trained weights are these, by name and in the compute precision. They are swapped by pointer: nothing is
        copied, and afterwards every weight is the very tensor it was."""
        current = {name: weight.data for name, weight in self._trained.items()}
        try:
            for name, weight in self._trained.items():
                weight.data = weights[name]
            yield
        finally:
            for name, weight in self._trained.items():
                weight.data = current[name]

    @torch.no_grad()
    def load_masters(self, state: Mapping[str, Tensor]) -> None:
        """Put saved masters back, bit for bit. `state` has every trained weight by name; others in it are not looked at."""
        for name, master in self.masters.items():
            master.copy_(state[name])
        self.publish()


def _not_finite(gradient: Tensor | None) -> bool:
    return gradient is not None and not bool(torch.isfinite(gradient).all())

"""The model that is trained: fp32 masters, a compute copy that samples and differentiates, and the model of step 0.

Decisions:
1. One module serves sampling and training, so both see the same weights without any transfer.
2. Masters are fp32 (fp64 in tests). When the compute precision is lower, gradients are added up in the master's
   precision, micro-batch by micro-batch, so a split never loses bits that a single pass would keep.
3. The reference model is the trained part as it was at step 0 (or when it was last renewed), whatever adapters that was; for
   LoRA it costs the adapter's size only.
4. The module stays in eval mode: with dropout, sampler and trainer would disagree about the same answer.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from toishi.errors import NumericsError
from toishi.policy.attention import attending, attends_in_parts
from toishi.policy.fused import fuse
from toishi.policy.head import FromHidden, FromLogits, FromScores, Predictions, choose_head
from toishi.policy.layout import Layout
from toishi.policy.recomputing import recompute_layers, within
from toishi.policy.remaking import remaking

if TYPE_CHECKING:
    from toishi.policy.teacher import Teacher

_ADDED_AT_ONCE = 1 << 18
"""Numbers of a gradient that are widened at a time: 1 MB of fp32."""


class Policy:
    """A causal language model in training.

    module      transformers model (or PeftModel) whose trained parameters are in `compute_dtype`
    masters     name -> parameter that the optimizer steps on; the module's own parameter when precisions agree
    head        how log-probs are reached, and why so
    teacher     a frozen model that it learns from; None for most methods
    """

    def __init__(
        self,
        module: Any,
        *,
        compute_dtype: torch.dtype,
        device: torch.device | str = "cpu",
        gradient_checkpointing: bool = False,
    ) -> None:
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
        self._gradients: dict[str, Tensor] = {}
        self._reference: dict[str, Tensor] | None = None
        self.teacher: Teacher | None = None
        fuse(self.module)
        self.head = choose_head(self.module)
        if gradient_checkpointing:
            recompute_layers(self.module)

    def _move_gradient(self, name: str) -> Any:
        # A hook lives in the weight, where Python's garbage collector cannot see it: if it held the policy, neither would ever
        # be freed, and every run in a process would keep its model.
        policy = weakref.ref(self)

        def move(weight: Tensor) -> None:
            owner = policy()
            assert owner is not None
            if weight.grad is None:
                return  # a head has handed its gradient over
            master = owner.masters[name]
            if master.grad is None:
                master.grad = owner._widened(name, weight.grad)
            else:
                _add(master.grad, weight.grad)
            weight.grad = None

        return move

    def _taking(self, weight: Tensor) -> Callable[[slice, Tensor], None] | None:
        """Adds a slice of the head's gradient to its master's at once; None where the head itself is the master, or frozen."""
        name = next((name for name, trained in self._trained.items() if trained is weight), None)
        if name is None or not self.has_separate_masters:
            return None
        master = self.masters[name]

        def take(part: slice, gradient: Tensor) -> None:
            if master.grad is None:
                master.grad = self._room(name).zero_()
            master.grad[part].add_(gradient)

        return take

    def _widened(self, name: str, gradient: Tensor) -> Tensor:
        """A gradient in the master's precision."""
        return self._room(name).copy_(gradient)

    def _room(self, name: str) -> Tensor:
        """Memory for a master's gradient; on a CPU it is kept: fresh pages cost more there than what is written to them."""
        if self.device.type != "cpu":
            return torch.empty_like(self.masters[name])
        if name not in self._gradients:
            self._gradients[name] = torch.empty_like(self.masters[name])
        return self._gradients[name]

    @property
    def num_trained(self) -> int:
        return sum(master.numel() for master in self.masters.values())

    @property
    def num_parameters(self) -> int:
        return sum(weight.numel() for weight in self.module.parameters())

    @property
    def scores_answers(self) -> bool:
        """Whether the model gives a number to a whole answer (a reward model) instead of predicting its tokens."""
        return self.head.score is not None

    @property
    def mixes_groups(self) -> bool:
        """Whether answers to several prompts in one row cost no more than in rows of their own."""
        return attends_in_parts(self.module)

    def predict(self, input_ids_L: Tensor, position_ids_L: Tensor, keep_N: Tensor, layout: Layout | None = None) -> Predictions:
        """What the model predicts at the positions `keep_N` of one packed row; `layout` None is plain causal attention.

        Only the kept positions reach the vocabulary head, which is larger than the rest of a small model. Siblings keep the
        last position of a shared prompt: its gradient is added up in their order (`index_select`), where plain indexing lets
        threads race, and no two passes end in the same bits.
        """
        if self.head.score is not None:
            output = self._run(self.module.base_model, input_ids_L, position_ids_L, layout)
            score_N1 = self.head.score(output.last_hidden_state[0].index_select(0, keep_N))
            return FromScores(score_N=score_N1[:, 0].to(torch.promote_types(score_N1.dtype, torch.float32)))
        fast = self.head.fast
        if fast is None:
            with _last_hidden_of(self.head.base) as found:
                once_U, place_N = torch.unique(keep_N, return_inverse=True)
                logits_NV = self.logits(input_ids_L, position_ids_L, once_U, layout).index_select(0, place_N)
            return FromLogits(logits_NV=logits_NV, hidden_ND=found[-1][0].index_select(0, keep_N) if found else None)
        output = self._run(fast.base, input_ids_L, position_ids_L, layout)
        head = replace(fast.head, take=self._taking(fast.linear.weight))
        return FromHidden(hidden_ND=output.last_hidden_state[0].index_select(0, keep_N), head=head)

    def logits(self, input_ids_L: Tensor, position_ids_L: Tensor, keep_N: Tensor, layout: Layout | None = None) -> Tensor:
        """The module's own logits (N, V) at the same positions: the plain way, correct for every model."""
        return self._run(self.module, input_ids_L, position_ids_L, layout, logits_to_keep=keep_N).logits[0]  # type: ignore[no-any-return]

    def _run(self, part: Any, input_ids_L: Tensor, position_ids_L: Tensor, layout: Layout | None, **options: Tensor) -> Any:
        with within(partial(attending, self.module, layout)) as mask, remaking():
            return part(
                input_ids=input_ids_L[None],
                position_ids=position_ids_L[None],
                attention_mask=mask,
                use_cache=False,
                **options,
            )

    def zero_grad(self) -> None:
        """Forget the gradient. On a CPU the next one may be written into the same memory: keep a copy, not the tensor."""
        for master in self.masters.values():
            master.grad = None

    def grad_norm(self) -> float:
        """Euclidean norm of the whole gradient, before clipping.

        Raises NumericsError when it is not finite: no weight has changed then.
        """
        return gradient_norm(self.masters)

    @torch.no_grad()
    def publish(self) -> None:
        """Copy the masters into the compute weights after an optimizer step."""
        if self.has_separate_masters:
            for name, weight in self._trained.items():
                weight.copy_(self.masters[name])

    def keep_reference(self, state: Mapping[str, Tensor] | None = None) -> None:
        """Remember the weights as they are now, or saved ones, as the reference model; an earlier one is forgotten."""
        self._reference = None
        known = {name: weight.data for name, weight in self._trained.items()} if state is None else state
        self._reference = {name: known[name].detach().clone() for name in self._trained}

    def reference_state(self) -> Mapping[str, Tensor]:
        """The reference model's trained weights by name, in the compute precision."""
        assert self._reference is not None, "keep_reference() comes first"
        return self._reference

    @contextmanager
    def as_reference(self) -> Iterator[None]:
        """Inside, the module is the reference model."""
        assert self._reference is not None, "keep_reference() comes first"
        with self.with_weights(self._reference):
            yield

    def taught(self) -> Teacher:
        """The teacher."""
        assert self.teacher is not None, "a row that needs a teacher gets one before the first step"
        return self.teacher

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


def gradient_norm(masters: Mapping[str, Tensor]) -> float:
    """Euclidean norm of all gradients together. Raises NumericsError when it is not finite."""
    gradients = [master.grad for master in masters.values() if master.grad is not None]
    norm = float(torch.nn.utils.get_total_norm(gradients)) if gradients else 0.0
    if norm != norm or norm == float("inf"):
        bad = [name for name, master in masters.items() if _not_finite(master.grad)]
        raise NumericsError(
            f"the gradient is not finite (norm {norm}) in {len(bad)} of {len(masters)} weights, first {bad[:1]}; "
            "no weight was changed. Lower optimizer.lr, check the rewards for huge values, or set model.dtype=float32"
        )
    return norm


@contextmanager
def _last_hidden_of(base: nn.Module | None) -> Iterator[list[Tensor]]:
    """Inside, last hidden states (1, L, D) of passes through `base`, one a pass; none where it has no such output."""
    found: list[Tensor] = []

    def note(_part: nn.Module, _given: Any, output: Any) -> None:
        hidden_1LD = getattr(output, "last_hidden_state", None)
        if hidden_1LD is not None:
            found.append(hidden_1LD)

    if base is None:
        yield found
        return
    with base.register_forward_hook(note):
        yield found


def _add(total: Tensor, more: Tensor) -> None:
    """In place, some rows at a time: torch makes a copy of `more` in the precision of `total` before it adds."""
    if total.dim() == 0:
        total.add_(more)
        return
    rows = max(1, _ADDED_AT_ONCE // max(1, more.shape[1:].numel()))
    for start in range(0, len(total), rows):
        total[start : start + rows].add_(more[start : start + rows])


def _not_finite(gradient: Tensor | None) -> bool:
    return gradient is not None and not bool(torch.isfinite(gradient).all())

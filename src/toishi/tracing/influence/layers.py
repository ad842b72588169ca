"""The pass: all texts forward once, then backward layer by layer. Memory holds one layer's activations and no whole gradient.

Decisions:
1. The model's blocks are its largest list of layers. Each is called again with the very arguments of the forward pass, so
   nothing is known of an architecture but that each block turns the hidden states of the one before it into its own.
2. What lies around the blocks (embedding, last norm, head) is run with the blocks stepped over. What comes after them works
   position by position, so it is shown the predicted positions alone.
3. A model without such a list is one layer. Whether the assumption holds is not believed but measured: the texts' gradients
   must add up to the update's.
4. Vectors (norms, biases) act on every position; texts that run side by side each get a copy of their own (`told_apart`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from toishi.policy.fused import plain
from toishi.tracing.influence.batches import Batch, Predicted
from toishi.tracing.influence.factors import NOTHING_SHARED, CatchFactors, Factors, NotApartError, SharesBeginning


@dataclass
class Uses:
    """What the batches left of one weight's gradient, each with the row of its first text: factors, and whole gradients
    (texts, *shape) where the weight was used otherwise."""

    factors: list[tuple[int, Factors]] = field(default_factory=list)
    whole: list[tuple[int, Tensor]] = field(default_factory=list)


Finished = Callable[[str, Uses], None]
_Instead = Callable[[int, Callable[..., Any]], Callable[..., Any]]


@dataclass
class _Call:
    """A block's call for one batch: hidden states in, and the rest of its arguments."""

    hidden: Tensor
    by_name: bool
    rest: tuple[Any, ...]
    named: dict[str, Any]

    def again(self, block: Callable[..., Any], hidden: Tensor) -> Any:
        if self.by_name:
            return block(*self.rest, hidden_states=hidden, **self.named)
        return block(hidden, *self.rest, **self.named)


class _EnoughError(Exception):
    """The part of the model that was wanted has run."""


def blocks_of(module: nn.Module) -> tuple[nn.Module, ...]:
    """The layers of a model, in order: the list of modules with the most weights; empty when there is none."""
    lists = [found for found in module.modules() if isinstance(found, nn.ModuleList) and len(found) > 1]
    best = max(lists, key=lambda found: sum(weight.numel() for weight in found.parameters()), default=None)
    return () if best is None else tuple(best)


def backward_by_layer(module: nn.Module, batches: Sequence[Batch], finished: Finished) -> None:
    """Every trained weight's gradient for every row, one layer after the other, from the last to the first.

    finished  is called once for each trained weight with all that the batches left of its gradient, which is then dropped
    Raises NotApartError when the texts of a batch cannot be told apart in this model.
    """
    with plain(module):
        _Backward(module, batches, finished).run()


class _Backward:
    def __init__(self, module: nn.Module, batches: Sequence[Batch], finished: Finished) -> None:
        self.module, self.batches, self.finished = module, batches, finished
        self.trained = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
        self.names = {id(weight): name for name, weight in self.trained.items()}
        self.blocks = blocks_of(module)
        self.uses: dict[str, Uses] = {}
        self.anchor = torch.zeros((), device=next(module.parameters()).device, requires_grad=True)
        homes: dict[str, set[int]] = {name: set() for name in self.trained}
        for place, block in enumerate(self.blocks):
            for weight in block.parameters():
                if id(weight) in self.names:
                    homes[self.names[id(weight)]].add(place)
        self.homes = {name: next(iter(places)) if len(places) == 1 else -1 for name, places in homes.items()}
        self.asked = {place: [name for name, places in homes.items() if place in places] for place in range(len(self.blocks))}
        self.asked[-1] = [name for name, home in self.homes.items() if home == -1]

    def run(self) -> None:
        calls, outputs = self._forward() if self.blocks else ([], [None] * len(self.batches))
        gradients = [self._head(batch, output) for batch, output in zip(self.batches, outputs, strict=True)]
        outputs.clear()
        for place in reversed(range(len(self.blocks))):
            for number, batch in enumerate(self.batches):
                gradients[number] = self._block(batch, place, calls[number].pop(), gradients[number])
            self._finish(place)
        if self.blocks:
            for batch, gradient in zip(self.batches, gradients, strict=True):
                self._embed(batch, gradient)
        self._finish(-1)

    @torch.no_grad()
    def _forward(self) -> tuple[list[list[_Call]], list[Any]]:
        """Each block's call for each batch, and the last block's output."""
        calls: list[list[_Call]] = [[] for _ in self.batches]
        outputs: list[Any] = []
        for seen, batch in zip(calls, self.batches, strict=True):

            def watched(place: int, block: Callable[..., Any], seen: list[_Call] = seen) -> Callable[..., Any]:
                def forward(*args: Any, **kwargs: Any) -> Any:
                    seen.append(_call(args, kwargs))
                    output = block(*args, **kwargs)
                    if place == len(self.blocks) - 1:
                        outputs.append(output)
                        raise _EnoughError
                    return output

                return forward

            with self._with_blocks(watched), SharesBeginning(batch.beginning):
                self._run_until(batch.input_ids_BT)
        return calls, outputs

    def _head(self, batch: Batch, output: Any) -> Tensor | None:
        """From the last block's output to the loss; the gradient at that output. Without blocks: the whole model."""
        if output is None:
            for asked in batch.predicted():
                run = partial(self._value, asked, batch.input_ids_BT[asked.texts], (*asked.index, slice(None)))
                self._differentiate(batch, asked.texts, -1, run, None, None)
            return None
        hidden_BTD = _hidden(output)
        gradient_BTD = torch.zeros_like(hidden_BTD)
        for asked in batch.predicted():
            leaf_bKD = hidden_BTD[asked.texts][asked.index].detach().requires_grad_()
            with self._with_blocks(self._stepping_over(leaf_bKD, output)):
                run = partial(self._value, asked, batch.input_ids_BT[asked.texts, : leaf_bKD.shape[1]], slice(None))
                found_bKD = self._differentiate(batch, asked.texts, -1, run, None, leaf_bKD)
            assert found_bKD is not None, "the loss hangs on the last hidden states"
            gradient_BTD[asked.texts].index_put_(asked.index, found_bKD, accumulate=True)
        return gradient_BTD

    def _value(self, asked: Predicted, ids_bT: Tensor, where: Any) -> Tensor:
        return asked.value(self.module(input_ids=ids_bT, use_cache=False).logits[where])

    def _stepping_over(self, leaf: Tensor, output: Any) -> _Instead:
        """The blocks pass on what they get, and the last one gives `leaf` in the form of `output`."""

        def instead(place: int, block: Callable[..., Any]) -> Callable[..., Any]:
            def forward(*args: Any, **kwargs: Any) -> Any:
                hidden = leaf if place == len(self.blocks) - 1 else _call(args, kwargs).hidden
                return (hidden, *output[1:]) if isinstance(output, tuple) else hidden

            return forward

        return instead

    def _block(self, batch: Batch, place: int, call: _Call, gradient: Tensor | None) -> Tensor | None:
        leaf = call.hidden.detach().requires_grad_()
        return self._differentiate(
            batch, slice(None), place, lambda: _hidden(call.again(self.blocks[place], leaf)), gradient, leaf
        )

    def _embed(self, batch: Batch, gradient: Tensor | None) -> None:
        found: list[Tensor] = []

        def stopping(place: int, block: Callable[..., Any]) -> Callable[..., Any]:
            def forward(*args: Any, **kwargs: Any) -> Any:
                found.append(_call(args, kwargs).hidden)
                raise _EnoughError

            return forward

        def run() -> Tensor:
            self._run_until(batch.input_ids_BT)
            return found[0]

        with self._with_blocks(stopping):
            self._differentiate(batch, slice(None), -1, run, gradient, None)

    @torch.enable_grad()
    def _differentiate(
        self,
        batch: Batch,
        part: slice,
        place: int,
        run: Callable[[], Tensor],
        gradient: Tensor | None,
        leaf: Tensor | None,
    ) -> Tensor | None:
        """Runs a `part` of the batch's texts; gradient at the leaf. Kept is what it leaves of the gradients of the weights that
        are used at `place`."""
        first, last, _ = part.indices(len(batch.passes))
        row, texts = (batch.first_row + first, last - first) if batch.apart else (batch.first_row, 1)
        homes = self.blocks[place : place + 1] if place >= 0 else (self.module,)
        names = self.asked[place]

        def keep(weight: Tensor, factors: Factors) -> None:
            self.uses.setdefault(self.names[id(weight)], Uses()).factors.append((row, factors))

        trained = {id(weight): weight for weight in self.trained.values()}
        beginning = batch.beginning if place >= 0 else NOTHING_SHARED
        catching = CatchFactors(trained, self.anchor, texts, keep, beginning)
        with told_apart(homes, {name: self.trained[name] for name in names}, texts) as copies, catching:
            value = run()
            if not value.requires_grad:
                return None
            inputs = [self.anchor, *(copies.get(name, self.trained[name]) for name in names), *([] if leaf is None else [leaf])]
            found = list(torch.autograd.grad(value, inputs, grad_outputs=gradient, allow_unused=True))[1:]
        at_leaf = None if leaf is None else found.pop()
        for name, whole in zip(names, found, strict=True):
            if whole is not None and name not in copies:
                if texts > 1:
                    raise NotApartError(f"{name} is used otherwise than in a linear map, an embedding or a norm")
                whole = whole[None]
            if whole is not None:
                self.uses.setdefault(name, Uses()).whole.append((row, whole.detach()))
        return at_leaf

    def _finish(self, place: int) -> None:
        for name in [name for name, home in self.homes.items() if home == place]:
            self.finished(name, self.uses.pop(name, Uses()))

    def _run_until(self, input_ids_BT: Tensor) -> None:
        try:
            self.module(input_ids=input_ids_BT, use_cache=False)
        except _EnoughError:
            return

    @contextmanager
    def _with_blocks(self, instead: _Instead) -> Iterator[None]:
        kept = [(block, block.__dict__.get("forward")) for block in self.blocks]
        for place, block in enumerate(self.blocks):
            block.forward = instead(place, block.forward)
        try:
            yield
        finally:
            for block, own in kept:
                if own is None:
                    del block.forward
                else:
                    block.forward = own


@contextmanager
def told_apart(parts: Sequence[nn.Module], trained: Mapping[str, Tensor], texts: int) -> Iterator[dict[str, Tensor]]:
    """Inside, each trained vector of a linear map or a norm in `parts` is as many vectors as there are texts, (texts, size), by
    its name; where it is used it has a dimension for each of the input's. With one text nothing is changed."""
    names = {id(weight): name for name, weight in trained.items() if weight.dim() == 1}
    copies: dict[str, Tensor] = {}
    undo: list[Callable[[], None]] = []

    def stand_in(owner: nn.Module, own: str, weight: nn.Parameter) -> None:
        copy = copies.setdefault(names[id(weight)], weight.detach().repeat(texts, 1).requires_grad_())

        def shape(called: nn.Module, args: tuple[Any, ...]) -> None:
            if len(args[0]) != texts:
                raise NotApartError(f"{type(called).__name__} got an input of shape {tuple(args[0].shape)} for {texts} texts")
            called._parameters[own] = cast(nn.Parameter, copy.view(texts, *[1] * (args[0].dim() - 2), -1))

        handle = owner.register_forward_pre_hook(shape)
        undo.extend([handle.remove, lambda: owner._parameters.update({own: weight})])

    try:
        if texts > 1:
            for owner in (owner for part in parts for owner in part.modules()):
                for own, weight in list(owner.named_parameters(recurse=False)):
                    if id(weight) in names and ("Norm" in type(owner).__name__ or "weight" in owner._parameters):
                        stand_in(owner, own, weight)
        yield copies
    finally:
        for back in undo:
            back()


def _call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
    if args:
        return _Call(args[0], False, args[1:], dict(kwargs))
    rest = dict(kwargs)
    return _Call(rest.pop("hidden_states"), True, (), rest)


def _hidden(output: Any) -> Tensor:
    return output[0] if isinstance(output, tuple) else output  # type: ignore[no-any-return]

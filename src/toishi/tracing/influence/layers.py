"""The pass: all texts forward once, then backward layer by layer. Memory holds one layer's activations and no whole gradient.

Decisions:
1. The model's blocks are its largest list of layers. Each is called again with the very arguments of the forward pass, so
   nothing is known of an architecture but that each block turns the hidden states of the one before it into its own.
2. What lies around the blocks (embedding, last norm, head) is run with the blocks stepped over.
3. A model without such a list is one layer. Whether the assumption holds is not believed but measured: the texts' gradients
   must add up to the update's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from toishi.tracing.influence.factors import CatchFactors, Factors
from toishi.tracing.influence.rows import Pass


@dataclass
class Uses:
    """What the passes left of one weight's gradient: factors, and whole gradients where the weight was used otherwise."""

    factors: list[tuple[int, Factors]] = field(default_factory=list)
    whole: list[tuple[int, Tensor]] = field(default_factory=list)


Finished = Callable[[str, Uses], None]


@dataclass
class _Call:
    """A block's call for one text: hidden states in, and the rest of its arguments."""

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


def backward_by_layer(module: nn.Module, passes: Sequence[Pass], finished: Finished) -> None:
    """Every trained weight's gradient for every pass, one layer after the other, from the last to the first.

    finished  is called once for each trained weight with all that the passes left of its gradient, which is then dropped
    """
    _Backward(module, passes, finished).run()


class _Backward:
    def __init__(self, module: nn.Module, passes: Sequence[Pass], finished: Finished) -> None:
        self.module, self.passes, self.finished = module, passes, finished
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
        calls, outputs = self._forward() if self.blocks else ([], [])
        gradients: list[Tensor | None] = []
        for number, one in enumerate(self.passes):
            gradients.append(self._head(number, one, outputs[number] if outputs else None))
        outputs.clear()
        for place in reversed(range(len(self.blocks))):
            for number in range(len(self.passes)):
                gradients[number] = self._block(number, place, calls[number].pop(), gradients[number])
            self._finish(place)
        for number, one in enumerate(self.passes):
            if self.blocks:
                self._embed(number, one, gradients[number])
        self._finish(-1)

    @torch.no_grad()
    def _forward(self) -> tuple[list[list[_Call]], list[Any]]:
        """Each block's call for each text, and the last block's output."""
        calls: list[list[_Call]] = [[] for _ in self.passes]
        outputs: list[Any] = []
        for number, one in enumerate(self.passes):

            def seen(place: int, block: Callable[..., Any], number: int = number) -> Callable[..., Any]:
                def forward(*args: Any, **kwargs: Any) -> Any:
                    calls[number].append(_call(args, kwargs))
                    output = block(*args, **kwargs)
                    if place == len(self.blocks) - 1:
                        outputs.append(output)
                        raise _EnoughError
                    return output

                return forward

            with self._with_blocks(seen):
                _run_until(lambda one=one: one.logits(self.module))  # type: ignore[misc]
        return calls, outputs

    @torch.enable_grad()
    def _head(self, number: int, one: Pass, output: Any) -> Tensor | None:
        """From the last block's output to the loss; the gradient at that output. Without blocks: the whole model."""
        if output is None:
            with self._catching(number):
                self._differentiate(number, -1, one.value(one.logits(self.module)), None, None)
            return None
        leaf = _hidden(output).detach().requires_grad_()

        def stepped_over(place: int, block: Callable[..., Any]) -> Callable[..., Any]:
            def forward(*args: Any, **kwargs: Any) -> Any:
                hidden = leaf if place == len(self.blocks) - 1 else _call(args, kwargs).hidden
                return (hidden, *output[1:]) if isinstance(output, tuple) else hidden

            return forward

        with self._with_blocks(stepped_over), self._catching(number):
            return self._differentiate(number, -1, one.value(one.logits(self.module)), None, leaf)

    @torch.enable_grad()
    def _block(self, number: int, place: int, call: _Call, gradient: Tensor | None) -> Tensor | None:
        leaf = call.hidden.detach().requires_grad_()
        with self._catching(number):
            return self._differentiate(number, place, _hidden(call.again(self.blocks[place], leaf)), gradient, leaf)

    @torch.enable_grad()
    def _embed(self, number: int, one: Pass, gradient: Tensor | None) -> None:
        found: list[Tensor] = []

        def stopping(place: int, block: Callable[..., Any]) -> Callable[..., Any]:
            def forward(*args: Any, **kwargs: Any) -> Any:
                found.append(_call(args, kwargs).hidden)
                raise _EnoughError

            return forward

        with self._with_blocks(stopping), self._catching(number):
            _run_until(lambda: one.logits(self.module))
            if found[0].requires_grad:
                self._differentiate(number, -1, found[0], gradient, None)

    def _differentiate(
        self, number: int, place: int, value: Tensor, gradient: Tensor | None, leaf: Tensor | None
    ) -> Tensor | None:
        """Gradient at the leaf; whole gradients of the weights that are used at `place` are kept."""
        names = self.asked[place]
        inputs = [self.anchor, *(self.trained[name] for name in names), *([] if leaf is None else [leaf])]
        found = list(torch.autograd.grad(value, inputs, grad_outputs=gradient, allow_unused=True))[1:]
        at_leaf = None if leaf is None else found.pop()
        for name, whole in zip(names, found, strict=True):
            if whole is not None:
                self.uses.setdefault(name, Uses()).whole.append((number, whole.detach()))
        return at_leaf

    def _catching(self, number: int) -> CatchFactors:
        def keep(weight: Tensor, factors: Factors) -> None:
            self.uses.setdefault(self.names[id(weight)], Uses()).factors.append((number, factors))

        return CatchFactors({id(weight): weight for weight in self.trained.values()}, self.anchor, keep)

    def _finish(self, place: int) -> None:
        for name in [name for name, home in self.homes.items() if home == place]:
            self.finished(name, self.uses.pop(name, Uses()))

    @contextmanager
    def _with_blocks(self, instead: Callable[[int, Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
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


def _call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
    if args:
        return _Call(args[0], False, args[1:], dict(kwargs))
    rest = dict(kwargs)
    return _Call(rest.pop("hidden_states"), True, (), rest)


def _hidden(output: Any) -> Tensor:
    return output[0] if isinstance(output, tuple) else output  # type: ignore[no-any-return]


def _run_until(run: Callable[[], Any]) -> None:
    try:
        run()
    except _EnoughError:
        return

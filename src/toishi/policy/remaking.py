"""Tensors that a backward pass needs are made again from others that it keeps anyway, where that costs one elementwise pass.

A norm's output is kept by every linear layer behind it, silu(gate) · up by the one that leads down: a third of what a layer
keeps. Both follow from what the drop-ins (`fused`) keep for themselves.

Decisions:
1. A drop-in offers its output with the operations that made it; autograd keeps those instead, whoever saves the output (a
   linear layer, an adapter on it) and as whatever view. They run again on the same numbers: the gradient has the same bits.
2. An output is known by its memory, through a reference that does not keep it alive: memory that was freed and given to another
   tensor is never taken for it. An output that was changed in place since is kept as it is.
3. The last tensor made again stays until all that saved it have had it: q, k and v share one.
4. autograd does not check under hooks whether a saved tensor was changed in place since; here it is checked.
5. Hooks that stand around the forward pass (measuring, moving to a disk) get what is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

Hooks = tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]


class _Last:
    """The tensor that was made again last, of all outputs of one forward pass."""

    def __init__(self) -> None:
        self.output: _Output | None = None
        self.made: Tensor | None = None


class _Output:
    """How to make a drop-in's output again.

    times  how often autograd saved it
    taken  how often it was asked for since it was made again
    """

    def __init__(self, make: Callable[..., Tensor], inputs: tuple[Tensor, ...], version: int, last: _Last) -> None:
        self.make = make
        self.inputs = tuple(_Kept(tensor) for tensor in inputs)
        self.version = version
        self.last = last
        self.times = self.taken = 0

    def again(self) -> Tensor:
        last = self.last
        if last.output is not self or last.made is None:
            with torch.no_grad():
                last.output, last.made = self, self.make(*(kept.tensor() for kept in self.inputs))
            self.taken = 0
        made: Tensor = last.made
        self.taken += 1
        if self.taken >= self.times:
            last.output = last.made = None
        return made


class _Kept:
    """A tensor, detached: a node of the graph that held its own output would never be freed."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor.detach()
        self._version = tensor._version

    def tensor(self) -> Tensor:
        if self._tensor._version != self._version:
            raise RuntimeError(
                f"a tensor {tuple(self._tensor.shape)} that the backward pass needs was changed in place after the forward pass"
            )
        return self._tensor


class _View:
    """What autograd saved of an output: sizes and strides in its memory."""

    def __init__(self, output: _Output, saved: Tensor) -> None:
        self._output = output
        self._where = saved.size(), saved.stride(), saved.storage_offset()
        output.times += 1

    def tensor(self) -> Tensor:
        return self._output.again().as_strided(*self._where)


class _Offers:
    """The outputs of one forward pass that are still alive, by their memory."""

    def __init__(self, around: Hooks | None) -> None:
        self._around = around
        self._last = _Last()
        self._known: dict[int, tuple[StorageWeakRef, torch.dtype, _Output]] = {}

    def add(self, output: Tensor, make: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> None:
        self._known = {key: known for key, known in self._known.items() if not known[0].expired()}  # type: ignore[no-untyped-call]
        storage = output.untyped_storage()
        self._known[storage._cdata] = (
            StorageWeakRef(storage),  # type: ignore[no-untyped-call]
            output.dtype,
            _Output(make, inputs, output._version, self._last),
        )

    def pack(self, saved: Tensor) -> Any:
        known = self._known.get(saved.untyped_storage()._cdata)
        if known is not None and known[1] == saved.dtype and known[2].version == saved._version:
            return _View(known[2], saved)
        return _Kept(saved) if self._around is None else self._around[0](saved.detach())

    def unpack(self, packed: Any) -> Tensor:
        if isinstance(packed, _View | _Kept):
            return packed.tensor()
        assert self._around is not None
        return self._around[1](packed)


_OFFERS: ContextVar[_Offers | None] = ContextVar("outputs of the forward pass in progress", default=None)


@contextmanager
def remaking() -> Iterator[None]:
    """Inside a forward pass with gradients, what drop-ins offer is made again in the backward pass instead of kept."""
    if not torch.is_grad_enabled():
        yield
        return
    offers = _Offers(_hooks_around())
    token = _OFFERS.set(offers)
    try:
        with saved_tensors_hooks(offers.pack, offers.unpack):
            yield
    finally:
        _OFFERS.reset(token)


def offer(output: Tensor, make: Callable[..., Tensor], *inputs: Tensor) -> None:
    """`make(*inputs)` gives `output` again, with the same bits and strides, as long as no input is changed.

    Inputs are kept for as long as the output is needed: only tensors that the backward pass keeps anyway belong there.
    """
    offers = _OFFERS.get()
    if offers is not None and output.is_contiguous() and output.untyped_storage().nbytes() == output.nbytes:
        offers.add(output, make, inputs)


def _hooks_around() -> Hooks | None:
    # torch lets the innermost hooks alone act, and has no public way to ask for those around them.
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return None if top is None else top(True)

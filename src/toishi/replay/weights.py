"""The last link: the weights after a step, by checksum and, where the step's checkpoint was kept, one by one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from toishi.replay.links import Bounds, Difference, Item, LinkCheck, check

_ADAPTER_PARTS = (".default.weight", ".weight")


def check_checksum(step: int, recorded: str | None, found: str, bounds: Bounds, *, link: str = "weights checksum") -> LinkCheck:
    """The checksum of all trained weights. Where bits may differ, nothing is asked of it."""
    items: list[Item] = [] if recorded is None else [("all trained weights", None, recorded, found)]
    return check(step, None, link, items, 0.0 if bounds.exact else None)


def saved_weights(folder: Path, names: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The trained weights in a checkpoint's model folder, by the policy's names; those that it does not hold are left out."""
    saved: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        saved |= load_file(path)
    found = {}
    for name in names:
        for candidate in (name, name.replace(*_ADAPTER_PARTS)):
            if candidate in saved:
                found[name] = saved[candidate]
    return found


def check_weights(
    step: int, saved: Mapping[str, Tensor], found: Mapping[str, Tensor], start: Mapping[str, Tensor], bounds: Bounds
) -> LinkCheck:
    """Every weight that the checkpoint of the step holds; the first that differs is named.

    start  the same weights before the first step that was done again: the way they went is what distances are measured by
    """
    moved = math.sqrt(sum(_squared(saved[name], start[name]) for name in saved))
    apart = math.sqrt(sum(_squared(saved[name], found[name]) for name in saved))
    same = sum(int((saved[name] == found[name].cpu()).sum()) for name in saved)
    total = sum(weight.numel() for weight in saved.values())
    bound = 0.0 if bounds.exact else bounds.weights * moved
    first = _first_difference(step, saved, found) if apart > bound or (bounds.exact and same < total) else None
    return LinkCheck(
        step=step, update=None, link="weight", compared=total, same_bits=same, largest=apart, bound=bound, difference=first
    )


def _squared(one: Tensor, other: Tensor) -> float:
    return float(torch.linalg.vector_norm(one.double() - other.detach().cpu().double())) ** 2


def _first_difference(step: int, saved: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> Difference | None:
    for name, weight in saved.items():
        off = (weight != found[name].detach().cpu()).flatten().nonzero()
        if len(off):
            place = int(off[0])
            recorded, got = float(weight.flatten()[place]), float(found[name].detach().flatten()[place])
            where = f"{name}, element {place} ({len(off)} of {weight.numel()} differ)"
            return Difference(step=step, update=None, link="weight", place=where, token=None, recorded=recorded, found=got)
    return None

"""The fixed random sample of coordinates: positions in all trained weights laid end to end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

SEED = 20_240_917
SHARE = 1e-3
AT_LEAST = 1 << 17


@dataclass(frozen=True)
class Coordinates:
    """Which coordinates are kept.

    positions_I  (I,) in the order of drawing: any beginning is a sample as well
    complete     every coordinate, once
    offsets      weight's name -> position of its first element
    """

    positions_I: Tensor
    complete: bool
    offsets: Mapping[str, int]
    total: int
    _sorted: Tensor
    _order: Tensor

    @classmethod
    def draw(cls, weights: Mapping[str, Tensor]) -> Coordinates:
        """All coordinates of a small model; of a larger one a thousandth, at least 131,072, uniformly with replacement."""
        offsets, total = {}, 0
        for name, weight in weights.items():
            offsets[name], total = total, total + weight.numel()
        complete = total <= AT_LEAST
        count = total if complete else max(AT_LEAST, round(SHARE * total))
        generator = torch.Generator().manual_seed(SEED)
        drawn = torch.arange(total) if complete else torch.randint(total, (count,), generator=generator)
        ordered, order = torch.sort(drawn, stable=True)
        return cls(drawn, complete, offsets, total, ordered, order)

    def inside(self, name: str, size: int, each: int) -> list[tuple[slice, Tensor]]:
        """Of a weight's sampled elements, for pieces of `each` elements: (places among all sampled ones as they stand in the
        weights, positions in the piece).

        >>> found = Coordinates.draw({"a": torch.zeros(3), "b": torch.zeros(4)}).inside("b", 4, 3)
        >>> [(places.start, places.stop, positions.tolist()) for places, positions in found]
        [(3, 6, [0, 1, 2]), (6, 7, [0])]
        """
        offset = self.offsets[name]
        starts = [*range(offset, offset + size, each), offset + size]
        borders = torch.searchsorted(self._sorted, torch.tensor(starts)).tolist()
        return [
            (slice(low, high), self._sorted[low:high] - start)
            for start, low, high in zip(starts, borders, borders[1:], strict=False)
        ]

    def as_drawn(self, values_xI: Tensor) -> Tensor:
        """Values of the sampled elements as they stand in the weights, in the order of drawing."""
        return torch.empty_like(values_xI).index_copy_(-1, self._order.to(values_xI.device), values_xI)

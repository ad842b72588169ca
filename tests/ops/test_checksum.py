"""The checksum of the weights against plain integer arithmetic, and against every small change that it must notice."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from toishi.ops.checksum import bit_sums, weights_checksum

SIZES = (0, 1, 7, 65_535, 65_536, 65_537, 200_001)


def by_hand(weight: torch.Tensor) -> tuple[int, ...]:
    """The same sums in numpy's unsigned numbers, word by word."""
    words = weight.numpy().view(np.int32).reshape(weight.numel(), -1).astype(np.int64).astype(np.uint64)
    place = np.arange(weight.numel(), dtype=np.uint64)
    return tuple(int(total) for word in words.T for total in (word.sum(), (place * word).sum()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", SIZES)
def test_sums_are_those_of_the_bits(size: int, dtype: torch.dtype) -> None:
    weight = torch.randn(size, generator=torch.Generator().manual_seed(size), dtype=dtype)
    expected = by_hand(weight) if size else (0,) * (2 if dtype == torch.float32 else 4)
    assert bit_sums(weight) == expected


@settings(max_examples=60, deadline=None)
@given(place=st.integers(0, 70_000), bit=st.integers(0, 31))
def test_any_flipped_bit_changes_it(place: int, bit: int) -> None:
    weight = torch.linspace(-1, 1, 70_001)
    before = weights_checksum({"w": weight})
    weight.view(torch.int32)[place] ^= -(1 << 31) if bit == 31 else 1 << bit
    assert weights_checksum({"w": weight}) != before


@settings(max_examples=60, deadline=None)
@given(one=st.integers(0, 70_000), other=st.integers(0, 70_000), dtype=st.sampled_from([torch.float32, torch.float64]))
def test_any_two_exchanged_elements_change_it(one: int, other: int, dtype: torch.dtype) -> None:
    weight = torch.linspace(-1, 1, 70_001, dtype=dtype)
    before = weights_checksum({"w": weight})
    weight[[one, other]] = weight[[other, one]]
    assert (weights_checksum({"w": weight}) == before) == (one == other)


def test_signs_exchanged_at_a_distance_that_is_a_power_of_two() -> None:
    """The difference of the two bit patterns is 2^31: with 64-bit words it would vanish."""
    weight = torch.zeros(4096)
    weight[0], weight[2048] = 0.5, -0.5
    assert weights_checksum({"w": weight}) != weights_checksum({"w": weight.roll(2048)})


def test_name_shape_and_precision_belong_to_it() -> None:
    weight = torch.arange(6.0)
    found = {
        weights_checksum({"a": weight}),
        weights_checksum({"b": weight}),
        weights_checksum({"a": weight.view(2, 3)}),
        weights_checksum({"a": weight.view(torch.int32)}),
        weights_checksum({"a": weight[:3], "b": weight[3:]}),
    }
    assert len(found) == 5
    two = {"a": weight, "b": weight + 1}
    assert weights_checksum(two) == weights_checksum(dict(reversed(two.items())))


def test_a_view_counts_as_its_values() -> None:
    weight = torch.arange(12.0).view(3, 4)
    assert bit_sums(weight.T) == bit_sums(weight.T.contiguous())


def test_half_precision_is_refused() -> None:
    with pytest.raises(ValueError, match="float32 masters"):
        bit_sums(torch.zeros(3, dtype=torch.bfloat16))

"""The checksum of the weights against plain integer arithmetic, and against every small change that it must notice."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from toishi.ops.checksum import bit_sums, weights_checksum

COLUMNS = 4096
PRECISIONS = (torch.float32, torch.float64, torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [0, 1, 7, 8191, 8192, 8193, 65_537])
def test_sums_are_those_of_the_bits(size: int, dtype: torch.dtype) -> None:
    weight = torch.randn(size, generator=torch.Generator().manual_seed(size), dtype=dtype)
    raw = weight.numpy().tobytes()
    whole = len(raw) // (8 * COLUMNS) * COLUMNS
    table = np.frombuffer(raw, dtype=np.uint64, count=whole).reshape(-1, COLUMNS)
    rows_R, columns_C, rest = bit_sums(weight)
    assert [row % 2**64 for row in rows_R.tolist()] == table.sum(1, dtype=np.uint64).tolist()
    assert [column % 2**64 for column in columns_C.tolist()] == table.sum(0, dtype=np.uint64).tolist()
    assert bytes(rest.tolist()) == raw[8 * whole :]


@settings(max_examples=60, deadline=None)
@given(place=st.integers(0, 70_000), bit=st.integers(0, 31))
def test_any_flipped_bit_changes_it(place: int, bit: int) -> None:
    weight = torch.linspace(-1, 1, 70_001)
    before = weights_checksum({"w": weight})
    weight.view(torch.int32)[place] ^= -(1 << 31) if bit == 31 else 1 << bit
    assert weights_checksum({"w": weight}) != before


@settings(max_examples=90, deadline=None)
@given(one=st.integers(0, 70_000), other=st.integers(0, 70_000), dtype=st.sampled_from(PRECISIONS))
def test_any_two_exchanged_elements_change_it(one: int, other: int, dtype: torch.dtype) -> None:
    weight = torch.linspace(-1, 1, 70_001, dtype=dtype)
    before, same = weights_checksum({"w": weight}), bool(weight[one] == weight[other])
    weight[[one, other]] = weight[[other, one]]
    assert (weights_checksum({"w": weight}) == before) == same


@pytest.mark.parametrize("distance", [1, 2, 2048, 8192, 16_384])
def test_exchanged_signs_change_it(distance: int) -> None:
    """The two bit patterns differ in their highest bit alone, where sums wrap around."""
    weight = torch.zeros(32_768)
    weight[0], weight[distance] = 0.5, -0.5
    other = weight.clone()
    other[0], other[distance] = -0.5, 0.5
    assert weights_checksum({"w": weight}) != weights_checksum({"w": other})


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
    assert weights_checksum({"w": weight.T}) == weights_checksum({"w": weight.T.contiguous()})
    whole = torch.arange(40_001.0)  # the part begins in the middle of a 64-bit word
    assert weights_checksum({"w": whole[1:]}) == weights_checksum({"w": whole[1:].clone()})


def test_the_number_of_threads_does_not_matter() -> None:
    weight = torch.randn(300_000, generator=torch.Generator().manual_seed(0))
    threads = torch.get_num_threads()
    found = set()
    try:
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            found.add(weights_checksum({"w": weight}))
    finally:
        torch.set_num_threads(threads)
    assert len(found) == 1

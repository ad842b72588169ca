"""Key-derived random numbers: determined by the key, prefix-stable, distinct, uniform."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import kstest

from toishi.ops.random import permutation, uniforms


def test_numbers_do_not_change_between_versions() -> None:
    """The stream is part of what makes an old run repeatable: these are its first numbers for good."""
    assert uniforms((0, 1, 2, 3), 3).tolist() == FIRST_NUMBERS


FIRST_NUMBERS = [0.8614888865041522, 0.6398897494735799, 0.03291469678610126]


@pytest.mark.parametrize("n", [0, 1, 3, 4, 5, 17])
def test_prefix_stable(n: int) -> None:
    assert uniforms((9, 4), n).tolist() == uniforms((9, 4), 17)[:n].tolist()


def test_strictly_inside_the_unit_interval_and_uniform() -> None:
    numbers = uniforms((5,), 200_000)
    assert 0.0 < numbers.min() < numbers.max() < 1.0
    assert kstest(numbers, "uniform").pvalue > 1e-3


def test_keys_do_not_collide() -> None:
    keys = [(), (0,), (0, 0), (1,), (1, 0), (0, 1), (2**32,), (2**32, 0), (0, 0, 1), (1, 2, 3, 4, 5), (2**64 - 1,)]
    firsts = [uniforms(key, 1).item() for key in keys]
    assert len(set(firsts)) == len(keys)


def test_neighbouring_keys_are_independent() -> None:
    members = np.stack([uniforms((0, 3, 7, member), 2000) for member in range(8)])
    correlations = np.asarray(np.corrcoef(members))[~np.eye(8, dtype=bool)]
    assert np.abs(correlations).max() < 0.1


@pytest.mark.parametrize("key", [(-1,), (0, 2**64)])
def test_keys_outside_the_range_are_refused(key: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="every part must be in"):
        uniforms(key, 1)


def test_permutation_is_a_fair_order() -> None:
    assert permutation((1,), 0).tolist() == []
    assert permutation((1, 2), 6).tolist() == permutation((1, 2), 6).tolist()
    orders = [tuple(permutation((key,), 3).tolist()) for key in range(3000)]
    counts = [orders.count(order) for order in itertools.permutations(range(3))]
    assert sum(counts) == 3000
    assert all(400 < count < 600 for count in counts)

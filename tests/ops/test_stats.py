"""pass@k against brute force, intervals against known coverage and scipy."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binomtest

from toishi.ops.stats import Interval, calibration_error, mean_interval, paired_difference, pass_at_k, wilson


@pytest.mark.parametrize("correct", range(6))
@pytest.mark.parametrize("k", range(1, 6))
def test_pass_at_k_is_the_share_of_subsets_with_a_right_sample(correct: int, k: int) -> None:
    outcomes = [1] * correct + [0] * (5 - correct)
    subsets = list(itertools.combinations(outcomes, k))
    assert pass_at_k(5, correct, k) == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-12)


def test_pass_at_k_is_unbiased_where_the_plug_in_is_not() -> None:
    n = k = 64
    p = 0.03
    chances = [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    mean = math.fsum(chance * pass_at_k(n, c, k) for c, chance in enumerate(chances))
    plug_in = math.fsum(chance * (1 - (1 - c / n) ** k) for c, chance in enumerate(chances))
    assert mean == pytest.approx(1 - (1 - p) ** k, abs=1e-12)
    assert (mean, plug_in) == pytest.approx((0.8576, 0.7092), abs=1e-4)


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, -1, 1), (4, 2, 0), (4, 2, 5)])
def test_pass_at_k_refuses_what_cannot_be(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="needs 0 <= right <= samples and 1 <= k <= samples"):
        pass_at_k(n, c, k)


def test_mean_interval_has_the_width_of_the_normal_approximation() -> None:
    values = np.random.default_rng(1).normal(2.0, 1.0, size=400)
    found = mean_interval(values.tolist())
    half = 1.96 * values.std(ddof=1) / 20
    assert found.value == pytest.approx(values.mean(), abs=1e-12)
    assert (found.low, found.high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.01)


def test_intervals_are_functions_of_numbers_and_key() -> None:
    values = [0.1, 0.9, 0.4, 0.5, 0.6]
    assert mean_interval(values, key=(3, 1)) == mean_interval(values, key=(3, 1))
    assert mean_interval(values, key=(3, 1), resamples=1500) != mean_interval(values, key=(3, 2), resamples=1500)
    wide, narrow = mean_interval(values, confidence=0.99), mean_interval(values, confidence=0.5)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_paired_difference_uses_the_pairs() -> None:
    before = np.random.default_rng(2).uniform(size=200)
    after = before + 0.05
    found = paired_difference(after.tolist(), before.tolist())
    assert (found.value, found.low, found.high) == pytest.approx((0.05, 0.05, 0.05), abs=1e-12)


def test_no_values_and_unequal_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one value, got none"):
        mean_interval([])
    with pytest.raises(ValueError, match="got 2 after and 1 before"):
        paired_difference([1.0, 2.0], [1.0])


@pytest.mark.parametrize(("successes", "trials"), [(0, 10), (3, 10), (10, 10), (57, 200)])
def test_wilson_agrees_with_scipy(successes: int, trials: int) -> None:
    peer = binomtest(successes, trials).proportion_ci(method="wilson")
    found = wilson(successes, trials)
    assert (found.value, found.low, found.high) == pytest.approx((successes / trials, peer.low, peer.high), abs=1e-12)


@pytest.mark.parametrize(("successes", "trials"), [(1, 0), (-1, 4), (5, 4)])
def test_wilson_refuses_what_is_no_share(successes: int, trials: int) -> None:
    with pytest.raises(ValueError, match="needs 0 <= successes <= trials"):
        wilson(successes, trials)


def test_overlap_and_text() -> None:
    assert Interval(0.5, 0.4, 0.6).overlaps(Interval(0.7, 0.6, 0.8))
    assert not Interval(0.9, 0.8, 1.0).overlaps(Interval(0.5, 0.4, 0.6))
    assert str(Interval(0.5, 0.4, 0.6)) == "0.500 [0.400, 0.600]"


def test_calibration_of_honest_and_of_boastful_beliefs() -> None:
    # bin .8: three of four right at .8 -> gap .05; bin .5: one of two at .55 -> gap .05, so .05 whatever the counts
    beliefs, right = [0.8, 0.8, 0.8, 0.8, 0.55, 0.55], [1.0, 1.0, 1.0, 0.0, 1.0, 0.0]
    assert calibration_error(beliefs, right) == pytest.approx(0.05, abs=1e-12)
    assert calibration_error([1.0, 1.0], [1.0, 0.0]) == pytest.approx(0.5, abs=1e-12)
    assert calibration_error([0.75] * 4, [1.0, 1.0, 1.0, 0.0]) == 0.0

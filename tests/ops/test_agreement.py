"""Agreement against published examples, hand counts and scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize, stats

from toishi.ops.agreement import cohen_kappa, error_rates, krippendorff_alpha, raw_agreement
from toishi.ops.association import (
    auc,
    bootstrap,
    calibration_error,
    isotonic,
    kendall,
    partial_spearman,
    pearson,
    ranks,
    spearman,
)

# Krippendorff, "Computing Krippendorff's Alpha-Reliability" (2011): four observers, twelve units, missing data.
OBSERVERS = (
    (1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None),
    (1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3),
    (None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None),
    (1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None),
)


@pytest.mark.parametrize(("level", "alpha"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_alpha_of_the_published_example(level: str, alpha: float) -> None:
    assert krippendorff_alpha(list(zip(*OBSERVERS, strict=True)), level=level) == pytest.approx(alpha, abs=5e-4)  # type: ignore[arg-type]


def test_alpha_at_its_ends() -> None:
    assert math.isnan(krippendorff_alpha([(3, 3), (3, 3)], level="interval"))
    assert krippendorff_alpha([(1, 1), (2, 2), (7, 7)], level="interval") == 1.0
    assert krippendorff_alpha([(1, 2), (2, 1)]) == pytest.approx(1 - 1 / (4 * 2 / (4 * 3)))
    assert math.isnan(krippendorff_alpha([(1, 1), (1, 1)]))
    assert math.isnan(krippendorff_alpha([(1, 2), (None, 2)]))


def test_kappa_by_hand() -> None:
    # 20 yes-yes, 5 yes-no, 10 no-yes, 15 no-no: p_o = .7, p_e = .5 * .6 + .5 * .4
    first, second = [1] * 25 + [0] * 25, [1] * 20 + [0] * 5 + [1] * 10 + [0] * 15
    assert raw_agreement(first, second) == 0.7
    assert cohen_kappa(first, second) == pytest.approx((0.7 - 0.5) / (1 - 0.5))
    # high agreement, skewed base rate: p_o = .9, p_e = .95² + .05²
    first, second = [1] * 90 + [1] * 5 + [0] * 5, [1] * 90 + [0] * 5 + [1] * 5
    assert cohen_kappa(first, second) == pytest.approx((0.9 - 0.905) / (1 - 0.905))


def test_weighted_kappa_from_the_definition() -> None:
    rng = np.random.default_rng(3)
    first = rng.integers(1, 6, 60)
    second = np.clip(first + rng.integers(-2, 3, 60), 1, 5)
    weight = {(i, j): 1 - (i - j) ** 2 / (5 - 1) ** 2 for i in range(1, 6) for j in range(1, 6)}
    observed = np.mean([weight[a, b] for a, b in zip(first.tolist(), second.tolist(), strict=True)])
    expected = np.mean([weight[a, b] for a in first.tolist() for b in second.tolist()])
    found = cohen_kappa(first.astype(float), second.astype(float), weights="quadratic", categories=[1, 2, 3, 4, 5])
    assert found == pytest.approx((observed - expected) / (1 - expected), abs=1e-12)


def test_weighted_kappa_needs_the_categories_that_nobody_said() -> None:
    first, second = [1.0, 1.0, 10.0, 10.0, 9.0], [1.0, 9.0, 10.0, 10.0, 10.0]
    among_three = cohen_kappa(first, second, weights="quadratic")
    among_ten = cohen_kappa(first, second, weights="quadratic", categories=[float(i) for i in range(1, 11)])
    assert among_three > among_ten
    with pytest.raises(ValueError, match="none of the categories"):
        cohen_kappa(first, second, categories=[1.0, 9.0])


def test_what_is_not_defined_is_nan() -> None:
    assert math.isnan(cohen_kappa([1, 1], [1, 1]))
    assert math.isnan(pearson([1, 1, 1], [1, 2, 3]))
    assert math.isnan(kendall([1, 1], [1, 2]))
    assert math.isnan(auc([1, 2], [1, 1]))
    assert math.isnan(partial_spearman([1, 2, 3], [1, 2, 3], [3, 2, 1]))
    with pytest.raises(ValueError, match="got 2 and 1"):
        raw_agreement([1, 2], [1])
    with pytest.raises(ValueError, match="got 2 and 1"):
        pearson([1, 2], [1])


@pytest.mark.parametrize("seed", range(5))
def test_correlations_agree_with_scipy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.integers(0, 6, 40).astype(float), rng.integers(0, 9, 40).astype(float)
    y = y + x * (seed - 2)
    assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y)[0], abs=1e-12)
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y)[0], abs=1e-12)
    assert kendall(x, y) == pytest.approx(stats.kendalltau(x, y)[0], abs=1e-12)
    assert ranks(x).tolist() == stats.rankdata(x).tolist()


def test_partial_correlation_is_that_of_what_a_line_in_the_third_leaves() -> None:
    rng = np.random.default_rng(7)
    z = rng.permutation(50).astype(float)
    x, y = (stats.rankdata(z + rng.normal(0, 20, 50)) for _ in range(2))
    left = [values - np.polyval(np.polyfit(z, values, 1), z) for values in (x, y)]
    assert partial_spearman(x, y, z) == pytest.approx(np.corrcoef(*left)[0, 1], abs=1e-12)
    assert partial_spearman(x, y, np.ones(50)) == spearman(x, y)


def test_auc_counts_pairs() -> None:
    rng = np.random.default_rng(1)
    scores, truth = rng.integers(0, 5, 30).astype(float), rng.integers(0, 2, 30)
    pairs = [(a > b) + 0.5 * (a == b) for a in scores[truth == 1] for b in scores[truth == 0]]
    assert auc(scores, truth.astype(float)) == pytest.approx(np.mean(pairs), abs=1e-12)


def test_calibration_error_by_hand() -> None:
    # bins [.2, .3): means .25 against 1/2; [.9, 1]: .95 against 1
    assert calibration_error([0.2, 0.29, 0.9, 1.0], [1, 0, 1, 1]) == pytest.approx((2 * abs(0.245 - 0.5) + 2 * 0.05) / 4)
    with pytest.raises(ValueError, match="between 0 and 1"):
        calibration_error([7.0], [1])


@pytest.mark.parametrize("seed", range(4))
def test_isotonic_agrees_with_scipy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores, truth = rng.integers(0, 8, 40).astype(float), rng.integers(0, 2, 40).astype(float)
    values = np.unique(scores)
    means = np.array([truth[scores == value].mean() for value in values])
    weights = np.array([(scores == value).sum() for value in values])
    peer = optimize.isotonic_regression(means, weights=weights).x
    fitted = isotonic(scores, truth)
    assert [value for value, _ in fitted] == values.tolist()
    assert [fit for _, fit in fitted] == pytest.approx(peer.tolist())


def test_error_rates_by_hand() -> None:
    said = [True] * 8 + [False] * 2 + [True] * 3 + [False] * 7
    rates = error_rates(said, [True] * 10 + [False] * 10)
    assert rates.false_positive is not None
    assert rates.false_negative is not None
    assert rates.youden_j is not None
    assert (rates.false_positive.value, rates.false_negative.value) == pytest.approx((0.3, 0.2))
    assert rates.youden_j.value == pytest.approx(0.5)
    peer = stats.binomtest(3, 10).proportion_ci(method="wilson")
    assert (rates.false_positive.low, rates.false_positive.high) == pytest.approx((peer.low, peer.high))
    peer = stats.binomtest(2, 10).proportion_ci(method="wilson")
    assert (rates.false_negative.low, rates.false_negative.high) == pytest.approx((peer.low, peer.high))
    assert error_rates([True], [True]).false_positive is None
    assert error_rates([True], [True]).youden_j is None


def test_newcombes_published_interval() -> None:
    """56/70 - 48/80 = .2000, 95% interval .0524 to .3339 (Newcombe 1998, table II, method 10)."""
    said = [True] * 56 + [False] * 14 + [True] * 48 + [False] * 32
    found = error_rates(said, [True] * 70 + [False] * 80).youden_j
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)


def test_bootstrap_draws_clusters() -> None:
    rng = np.random.default_rng(5)
    means = rng.normal(0, 1, 40)
    values, clusters = np.repeat(means, 10), np.repeat(np.arange(40), 10).tolist()
    found = bootstrap(lambda items: float(values[items].mean()), clusters)
    half = 1.96 * means.std() / math.sqrt(40)
    assert (found.low, found.high) == pytest.approx((means.mean() - half, means.mean() + half), abs=0.05)
    lonely = bootstrap(lambda items: float(values[items].mean()), list(range(400)))
    assert found.high - found.low > 2.5 * (lonely.high - lonely.low)  # sqrt(10) as wide


def test_bootstrap_without_bounds() -> None:
    assert math.isnan(bootstrap(lambda items: 1.0, ["a", "a"]).low)
    assert math.isnan(bootstrap(lambda items: float("nan"), ["a", "b"]).high)
    with pytest.raises(ValueError, match="at least one item"):
        bootstrap(lambda items: 1.0, [])


def test_error_rates_need_a_verdict_for_each_truth() -> None:
    with pytest.raises(ValueError, match="got 2 and 1"):
        error_rates([True, False], [True])

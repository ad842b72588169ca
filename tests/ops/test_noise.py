"""Closed forms of noise against tables, exact counts and simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from toishi.ops.noise import (
    averaged_noise,
    expected_sign_change,
    flip_probabilities,
    flip_probability,
    normal_flip_share,
    repeat_noise,
    tied_advantage,
    verifier_gap,
    verifier_sign_errors,
)

GROUP = (8.0, 6.0, 3.0, 3.0)
# Group 8, 6, 3, 3: chance that noise of s points turns each sign; correlation of advantages; best answer not ranked first.
TABLE = {
    0.5: ((0.000, 0.010, 0.000, 0.000), 0.986, 0.002),
    1.0: ((0.000, 0.124, 0.010, 0.010), 0.945, 0.078),
    1.5: ((0.010, 0.221, 0.062, 0.062), 0.876, 0.177),
    2.0: ((0.042, 0.282, 0.124, 0.124), 0.791, 0.264),
    3.0: ((0.124, 0.350, 0.221, 0.221), 0.629, 0.393),
}
DRAWS = 200_000


@pytest.mark.parametrize("noise_sd", TABLE)
def test_sign_flips_equal_the_table_and_a_simulation(noise_sd: float) -> None:
    flips, correlation, not_first = TABLE[noise_sd]
    closed = flip_probabilities(GROUP, noise_sd)
    assert closed == pytest.approx(flips, abs=0.001)
    true = np.array(GROUP) - np.mean(GROUP)
    noisy = np.array(GROUP) + np.random.default_rng(11).normal(0, noise_sd, (DRAWS, 4))
    advantages = noisy - noisy.mean(1, keepdims=True)
    simulated = (np.sign(advantages) != np.sign(true)).mean(0)
    errors = [4 * math.sqrt(p * (1 - p) / DRAWS) + 1e-5 for p in closed]
    for got, expected, error in zip(simulated, closed, errors, strict=True):
        assert abs(got - expected) < error
    # the table's other columns belong to the same model: mean correlation within a group, and who comes first
    centred = advantages / np.linalg.norm(advantages, axis=1, keepdims=True)
    assert (centred @ (true / np.linalg.norm(true))).mean() == pytest.approx(correlation, abs=0.002)
    assert (noisy.argmax(1) != 0).mean() == pytest.approx(not_first, abs=0.004)


def test_dividing_by_the_std_changes_no_sign() -> None:
    noisy = np.array(GROUP) + np.random.default_rng(2).normal(0, 2.0, (1000, 4))
    centred = noisy - noisy.mean(1, keepdims=True)
    assert (np.sign(centred) == np.sign(centred / (noisy.std(1, ddof=1, keepdims=True) + 1e-4))).all()


def test_flips_at_the_ends() -> None:
    assert flip_probability(0.0, 1.0, 4) == 0.5
    assert flip_probability(0.0, 0.0, 4) == flip_probability(1.0, 0.0, 4) == 0.0
    assert flip_probability(1.0, 1.0, math.inf) == pytest.approx(0.158655, abs=1e-6)
    for noise_sd, size in ((-1.0, 4), (1.0, 1)):
        with pytest.raises(ValueError, match="a group of at least 2"):
            flip_probability(1.0, noise_sd, size)


@pytest.mark.parametrize(("repeats", "distance"), [(2, 0.8), (3, 0.3), (5, 0.0), (4, -0.5)])
def test_the_expectation_from_repeats_is_unbiased(repeats: int, distance: float) -> None:
    noise_sd, size, sets = 1.0, 4, 20_000
    rng = np.random.default_rng(repeats)
    means = distance + rng.normal(0, noise_sd * math.sqrt((1 - 1 / size) / repeats), sets)
    estimates = [expected_sign_change(1.0, mean, noise_sd, size, repeats) for mean in means.tolist()]
    truth = 0.5 * math.erfc(distance / (noise_sd * math.sqrt(1 - 1 / size)) / math.sqrt(2))
    assert np.mean(estimates) == pytest.approx(truth, abs=4 * float(np.std(estimates)) / math.sqrt(sets))


def test_expectation_needs_two_askings() -> None:
    with pytest.raises(ValueError, match="at least 2 askings, got 1"):
        expected_sign_change(1.0, 0.5, 1.0, 4, 1)
    assert expected_sign_change(1.0, 0.5, 0.0, 4, 2) == 0.0
    assert expected_sign_change(-1.0, 0.5, 0.0, 4, 2) == 1.0


@pytest.mark.parametrize(("spread", "noise_sd"), [(1.1, 0.9), (1.0, 1.0), (2.0, 0.5)])
@pytest.mark.parametrize("size", [2, 8])
def test_normal_scores_flip_by_the_arctangent(spread: float, noise_sd: float, size: int) -> None:
    rng = np.random.default_rng(size)
    true = rng.normal(0, spread, (50_000, size))
    noisy = true + rng.normal(0, noise_sd, true.shape)
    flips = np.sign(true - true.mean(1, keepdims=True)) != np.sign(noisy - noisy.mean(1, keepdims=True))
    assert flips.mean() == pytest.approx(normal_flip_share(spread, noise_sd), abs=0.005)


@pytest.mark.parametrize(
    ("calls", "correlation", "factor"),
    [(3, 0.0, 0.577), (5, 0.0, 0.447), (3, 0.3, 0.730), (5, 0.3, 0.663), (3, 0.6, 0.856), (5, 0.6, 0.825), (1, 0.6, 1.0)],
)
def test_averaged_noise_equals_the_table(calls: int, correlation: float, factor: float) -> None:
    assert averaged_noise(2.0, calls, correlation) == pytest.approx(2 * factor, abs=0.001)


def test_averaging_refuses_what_cannot_be() -> None:
    for calls, correlation in ((0, 0.0), (2, 1.5)):
        with pytest.raises(ValueError, match="at least one call"):
            averaged_noise(1.0, calls, correlation)


def test_tie_lottery_equals_the_table_and_a_simulation() -> None:
    assert tied_advantage(4, 0.03, divided_by_std=True) == pytest.approx(0.750, abs=0.001)
    assert tied_advantage(4, 0.03, divided_by_std=False) == pytest.approx(0.021, abs=0.001)
    assert tied_advantage(4, 0.0, divided_by_std=True) == 0.0
    noise = np.random.default_rng(3).normal(0, 0.3, (100_000, 8))
    centred = noise - noise.mean(1, keepdims=True)
    assert np.abs(centred).mean() == pytest.approx(tied_advantage(8, 0.3, divided_by_std=False), rel=0.01)
    divided = centred / noise.std(1, ddof=1, keepdims=True)
    assert np.abs(divided).mean() == pytest.approx(tied_advantage(8, 0.3, divided_by_std=True), rel=0.01)


@pytest.mark.parametrize(
    ("p", "a", "b", "share"),
    [(0.5, 0.1, 0.1, 0.104), (0.5, 0.2, 0.2, 0.205), (0.1, 0.1, 0.1, 0.129), (0.1, 0.2, 0.2, 0.228), (0.1, 0.3, 0.1, 0.270)],
)
def test_wrong_signs_of_a_verifier_equal_the_table(p: float, a: float, b: float, share: float) -> None:
    assert verifier_sign_errors(p, a, b, 8) == pytest.approx(share, abs=0.0015)


def test_a_verifier_by_enumeration() -> None:
    """All truths and verdicts of a group of 3: the gap is J (1 - 1/G) and the signs are counted."""
    p, a, b, size = 0.3, 0.2, 0.1, 3
    gaps = {0: 0.0, 1: 0.0}
    chances = {0: 0.0, 1: 0.0}
    wrong = mixed = 0.0
    for truth in itertools.product((0, 1), repeat=size):
        for verdict in itertools.product((0, 1), repeat=size):
            chance = math.prod(p if right else 1 - p for right in truth)
            yes = [1 - b if right else a for right in truth]
            chance *= math.prod(y if said else 1 - y for y, said in zip(yes, verdict, strict=True))
            for right, said in zip(truth, verdict, strict=True):
                advantage, true = said - sum(verdict) / size, right - sum(truth) / size
                gaps[right] += chance * advantage
                chances[right] += chance
                mixed += chance * (true != 0)
                wrong += chance * (true != 0 and advantage * true <= 0)
    assert gaps[1] / chances[1] - gaps[0] / chances[0] == pytest.approx(verifier_gap(a, b, size))
    assert verifier_sign_errors(p, a, b, size) == pytest.approx(wrong / mixed)


def test_repeat_noise_recovers_what_was_put_in() -> None:
    rng = np.random.default_rng(9)
    true = rng.normal(0, 1.1, (300, 6)) + rng.normal(0, 5, (300, 1))  # prompts differ much, siblings by 1.1
    asked = true[:, :, None] + rng.normal(0, 0.9, (300, 6, 3))
    found = repeat_noise(asked.tolist())
    assert found is not None
    assert (found.noise_sd, found.spread) == pytest.approx((0.9, 1.1), rel=0.04)
    centred = asked - asked.mean(1, keepdims=True)
    assert found.reliability == pytest.approx(np.corrcoef(centred[:, :, 0].ravel(), centred[:, :, 1].ravel())[0, 1], abs=0.04)


def test_repeat_noise_of_unequal_and_silent_askings() -> None:
    assert repeat_noise([[[1.0], [2.0]]]) is None
    lonely = repeat_noise([[[1.0, 3.0]], [[], [5.0, 5.0]]])
    assert lonely is not None
    assert lonely.noise_sd == 1.0
    assert math.isnan(lonely.reliability)
    steady = repeat_noise([[[0.1, 0.1, 0.1], [0.3, 0.3]]])
    assert steady is not None
    assert (steady.noise_sd, steady.reliability) == (0.0, 1.0)

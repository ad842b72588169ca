"""What a noisy score does to advantages: closed forms, and the estimates of the noise that they need.

The model: a score is r_i + e_i, with a true score r_i and noise e_i that is normal with mean 0 and the same standard deviation
s for every answer, independent between answers. An advantage is the score minus the mean of its group of G, whatever it is
then divided by.

Decisions:
1. Only what differs between siblings is noise here. What a judge adds to all answers of a prompt alike cancels in the
   advantage; what it adds to every reply about one answer (a bias) does not show in repeats, and is measured against labels.
2. Variances are pooled over all answers, so that two or three repeats of each are enough.
3. An answer whose true advantage is 0 has no sign to lose: its chance is .5, a coin toss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

_NORMAL = NormalDist()


def flip_probability(distance: float, noise_sd: float, group_size: float) -> float:
    """Chance that noise turns the sign of an advantage.

        P = Phi(-|r_i - mean| / (s · sqrt(1 - 1/G)))

    The noisy advantage is (r_i - mean) + (e_i - mean of e), and e_i - mean of e has variance s² (1 - 1/G).

    distance    r_i - mean: the advantage without noise, before it is divided by anything
    noise_sd    s, in the same units
    group_size  G; infinity where nothing noisy is subtracted
    Raises ValueError for a negative s or a group of fewer than two.

    A best answer 2 points above its nearest sibling and 3 above the group's mean, noise of 2 points, G = 4:

    >>> round(flip_probability(3.0, noise_sd=2.0, group_size=4), 3)
    0.042
    """
    _check(noise_sd, group_size)
    if distance == 0:
        return 0.5 if noise_sd else 0.0
    return _NORMAL.cdf(-abs(distance) / (noise_sd * math.sqrt(1 - 1 / group_size))) if noise_sd else 0.0


def flip_probabilities(rewards: Sequence[float], noise_sd: float) -> tuple[float, ...]:
    """`flip_probability` of each member of a group with these true rewards.

    >>> [round(chance, 3) for chance in flip_probabilities([8, 6, 3, 3], noise_sd=1.5)]
    [0.01, 0.221, 0.062, 0.062]
    """
    mean = math.fsum(rewards) / len(rewards)
    return tuple(flip_probability(reward - mean, noise_sd, len(rewards)) for reward in rewards)


def expected_sign_change(sign: float, mean_distance: float, noise_sd: float, group_size: float, repeats: int) -> float:
    """Chance that one more asking gives an advantage of the other sign than `sign`, estimated from `repeats` askings.

        Phi(-sign · d / (s · sqrt(1 - 1/G) · sqrt(1 - 1/M)))

    d is the mean over M askings of the answer's distance from its group's mean. The last root makes the estimate unbiased for
    known s: d itself scatters with s² (1 - 1/G) / M, and without the root that scatter would be counted twice.

    sign  +1 or -1: what is compared with; it must not come from the same askings
    Raises ValueError unless M is at least 2.

    >>> round(expected_sign_change(1.0, 3.0, noise_sd=2.0, group_size=4, repeats=10**9), 3)
    0.042
    """
    if repeats < 2:
        raise ValueError(f"an expectation needs at least 2 askings, got {repeats}: one cannot tell noise from difference")
    _check(noise_sd, group_size)
    if noise_sd == 0:
        return float(sign * mean_distance < 0)
    spread = noise_sd * math.sqrt((1 - 1 / group_size) * (1 - 1 / repeats))
    return _NORMAL.cdf(-sign * mean_distance / spread)


def normal_flip_share(spread: float, noise_sd: float) -> float:
    """Share of wrong signs when the true scores of siblings are normal too: arctan(s / σ) / π, for any group size.

    σ (`spread`) is the standard deviation of true scores between siblings. 0 without noise, .25 at s = σ, .5 without spread.

    >>> normal_flip_share(1.0, 1.0), normal_flip_share(0.0, 1.0), normal_flip_share(1.0, 0.0)
    (0.25, 0.5, 0.0)
    """
    return math.atan2(noise_sd, spread) / math.pi


def averaged_noise(noise_sd: float, calls: int, correlation: float = 0.0) -> float:
    """Noise of the mean of m calls whose noise correlates by rho: s · sqrt(rho + (1 - rho) / m).

    Repeats of one judge that draw anew have rho 0. Different judges share errors: measure rho, it is the floor.

    >>> round(averaged_noise(1.0, 3), 3), round(averaged_noise(1.0, 5, correlation=0.6), 3)
    (0.577, 0.825)
    """
    if calls < 1 or not 0 <= correlation <= 1:
        raise ValueError(f"averaging needs at least one call and 0 <= rho <= 1, got {calls} calls and rho {correlation}")
    return noise_sd * math.sqrt(correlation + (1 - correlation) / calls)


def tied_advantage(group_size: int, noise_sd: float, *, divided_by_std: bool) -> float:
    """Mean |advantage| of a group whose answers are all equally good: what noise alone pays, the tie lottery.

        not divided:                      s · sqrt(1 - 1/G) · sqrt(2/π)
        divided by the std (ddof 1):      (G - 1)/sqrt(G) · Γ((G-1)/2) / (sqrt(π) Γ(G/2)),  however small the noise is

    >>> round(tied_advantage(4, 0.3, divided_by_std=True), 6), round(tied_advantage(4, 0.03, divided_by_std=False), 3)
    (0.75, 0.021)
    """
    _check(noise_sd, group_size)
    if noise_sd == 0:
        return 0.0
    if not divided_by_std:
        return noise_sd * math.sqrt(1 - 1 / group_size) * math.sqrt(2 / math.pi)
    gammas = math.exp(math.lgamma((group_size - 1) / 2) - math.lgamma(group_size / 2))
    return (group_size - 1) / math.sqrt(group_size) * gammas / math.sqrt(math.pi)


def verifier_gap(false_positive: float, false_negative: float, group_size: int) -> float:
    """Expected advantage of a right answer minus that of a wrong one, rewards 1 and 0, not divided by the std: J · (1 - 1/G).

    >>> [round(verifier_gap(a, b, 8), 3) for a, b in ((0, 0), (0.1, 0.1), (0.2, 0.2))]
    [0.875, 0.7, 0.525]
    """
    return (1 - false_positive - false_negative) * (1 - 1 / group_size)


def verifier_sign_errors(success_rate: float, false_positive: float, false_negative: float, group_size: int) -> float:
    """Share of answers in truly mixed groups whose advantage gets the wrong sign, or none because the verdicts are all equal.

    Exact, by counting: each of G answers is right with chance `success_rate`, and each verdict errs on its own.

    >>> round(verifier_sign_errors(0.5, 0.1, 0.1, 8), 3)
    0.104
    """
    p, a, b = success_rate, false_positive, false_negative
    lost = total = 0.0
    for right in range(1, group_size):
        wrong = group_size - right
        chance = math.comb(group_size, right) * p**right * (1 - p) ** wrong
        all_yes, all_no = (1 - b) ** right * a**wrong, b**right * (1 - a) ** wrong
        # the sign is kept when the own verdict is true and the group is not tied
        lost += chance * (right * (b + all_yes) + wrong * (a + all_no))
        total += chance * group_size
    return lost / total if total else float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatNoise:
    """Noise and spread of scores, from asking about the same answers several times.

    noise_sd     standard deviation of one asking around the answer's own mean
    spread       standard deviation of true scores between siblings; 0 when noise explains all; nan without siblings
    reliability  spread² / (spread² + noise_sd²): the correlation between two askings within a prompt; nan without siblings
    """

    noise_sd: float
    spread: float
    reliability: float


def repeat_noise(groups: Sequence[Sequence[Sequence[float]]]) -> RepeatNoise | None:
    """Noise and spread from `groups[prompt][answer][asking]`; askings may differ in number. None when none was repeated.

        s² = Σ (x - answer's mean)² / Σ (askings - 1)
        σ² = Σ (answer's mean - prompt's mean)² / Σ (answers - 1)  -  s² · mean(1 / askings),   at least 0

    Two answers, 1 apart, each asked twice with values .2 apart:

    >>> found = repeat_noise([[[0.1, -0.1], [1.1, 0.9]]])
    >>> round(found.noise_sd**2, 6), round(found.spread**2, 6), round(found.reliability, 4)
    (0.02, 0.49, 0.9608)
    """
    return noise_from_sums([sum(part) for part in zip(*map(noise_sums, groups), strict=True)])


def noise_sums(answers: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """What one prompt adds to `repeat_noise`: numbers whose sums over prompts are all it needs, so that prompts can be redrawn.

    (squares within answers, their freedom, squares between answers, their freedom, sum of 1/askings, answers)

    >>> noise_sums([[1.0, 3.0], [4.0]])
    (2.0, 1, 2.0, 1, 1.5, 2)
    """
    asked = [askings for askings in answers if askings]
    within, freedom = math.fsum(map(_squares, asked)), sum(len(askings) - 1 for askings in asked)
    if len(asked) < 2:
        return within, freedom, 0.0, 0, 0.0, 0
    between = _squares([_mean(askings) for askings in asked])
    return within, freedom, between, len(asked) - 1, math.fsum(1 / len(askings) for askings in asked), len(asked)


def noise_from_sums(sums: Sequence[float]) -> RepeatNoise | None:
    """`repeat_noise` from the sums of `noise_sums`; None when nothing was repeated."""
    if not sums or not sums[1]:
        return None
    within, freedom, between, between_freedom, inverses, answers = sums
    noise = within / freedom
    if not between_freedom:
        return RepeatNoise(noise_sd=math.sqrt(noise), spread=math.nan, reliability=math.nan)
    true = max(0.0, between / between_freedom - noise * inverses / answers)
    reliability = true / (true + noise) if true + noise else math.nan
    return RepeatNoise(noise_sd=math.sqrt(noise), spread=math.sqrt(true), reliability=reliability)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _squares(values: Sequence[float]) -> float:
    """Sum of squared distances from the mean; exactly 0 for equal values."""
    if min(values) == max(values):
        return 0.0
    mean = _mean(values)
    return math.fsum((value - mean) ** 2 for value in values)


def _check(noise_sd: float, group_size: float) -> None:
    if noise_sd < 0 or group_size < 2:
        raise ValueError(f"noise needs a standard deviation >= 0 and a group of at least 2, got {noise_sd} and {group_size}")

"""Judges of known faults: the audit finds what was put in, within the error that its intervals state, and says it in words."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from toishi.judging.audit import AuditSettings, audit
from toishi.judging.audit_flips import flip_table
from toishi.judging.audit_parts import AuditItem, AuditReport, PairVerdict
from toishi.ops.noise import flip_probability, verifier_gap
from toishi.ops.stats import Interval

SETTINGS = AuditSettings(group_size=8)


def verdict(report: AuditReport, part: str) -> str:
    return next(found.word for found in report.findings if found.part == part)


def binary(prompts: int, answers: int, *, fpr: float, fnr: float, seed: int = 0) -> list[AuditItem]:
    """A judge of right and wrong with these error rates; half of the answers are right."""
    rng = np.random.default_rng(seed)
    items = []
    for prompt in range(prompts):
        for _ in range(answers):
            right = rng.random() < 0.5
            errs = rng.random() < (fnr if right else fpr)
            length, score = int(rng.integers(20, 400)), float(right != errs)
            items.append(AuditItem(prompt=str(prompt), length=length, scores=(score,), label=float(right)))
    return items


def noisy(prompts: int, answers: int, *, noise: float, spread: float, askings: int = 3, seed: int = 3) -> list[AuditItem]:
    """Siblings that differ by `spread`, judged with `noise`; prompts differ much more."""
    rng = np.random.default_rng(seed)
    items = []
    for prompt in range(prompts):
        level = rng.normal(0, 3)
        for _ in range(answers):
            true = level + rng.normal(0, spread)
            scores = tuple((true + rng.normal(0, noise, askings)).tolist())
            items.append(AuditItem(prompt=str(prompt), length=int(rng.integers(20, 400)), scores=scores))
    return items


def inside(seen: Interval | None, truth: float) -> bool:
    assert seen is not None
    return seen.low <= truth <= seen.high


@pytest.mark.parametrize(
    ("fpr", "fnr", "word"), [(0.02, 0.05, "good"), (0.25, 0.2, "usable"), (0.5, 0.5, "bad"), (0.45, 0.3, "bad")]
)
def test_error_rates_and_their_word(fpr: float, fnr: float, word: str) -> None:
    report = audit(binary(250, 2, fpr=fpr, fnr=fnr), SETTINGS, reward="judge")
    assert report.mistakes is not None
    assert inside(report.mistakes.false_positive, fpr)
    assert inside(report.mistakes.false_negative, fnr)
    assert inside(report.mistakes.youden_j, 1 - fpr - fnr)
    a, b = report.mistakes.false_positive.value, report.mistakes.false_negative.value
    assert report.mistakes.gap == pytest.approx((1 - a - b) * 7 / 8) == pytest.approx(verifier_gap(a, b, 8))
    assert verdict(report, "agreement") == word
    assert report.agreement is not None
    assert inside(report.agreement.kappa, 1 - fpr - fnr)  # at a base rate of one half kappa is J
    assert report.agreement.base_rate == pytest.approx(0.5, abs=0.06)


def test_few_labels_are_unclear_and_thirty_without_a_sign_are_bad() -> None:
    few = audit(binary(12, 1, fpr=0.5, fnr=0.5), SETTINGS, reward="judge")
    assert (verdict(few, "agreement"), few.word) == ("unclear", "unclear")
    assert "Label more answers" in few.advice
    enough = audit(binary(40, 1, fpr=0.5, fnr=0.5), SETTINGS, reward="judge")
    assert (verdict(enough, "agreement"), enough.word) == ("bad", "bad")
    assert "Do not train with it" in enough.advice


@pytest.mark.parametrize("constant", [0.0, 1.0, 0.5])
def test_a_judge_that_always_says_the_same_is_bad(constant: float) -> None:
    items = [replace(item, scores=(constant,)) for item in binary(60, 1, fpr=0, fnr=0)]
    report = audit(items, SETTINGS, reward="judge")
    assert report.mistakes is not None
    assert report.mistakes.youden_j.value == 0
    assert verdict(report, "agreement") == "bad"
    assert report.agreement is not None
    assert report.agreement.auc is not None
    assert report.agreement.auc.value == 0.5


def test_answers_to_one_prompt_widen_the_error_rates() -> None:
    """Ten copies of each item hold no more knowledge than one."""
    once = binary(40, 1, fpr=0.3, fnr=0.2)
    copied = [item for item in once for _ in range(10)]
    alone, together = (audit(items, SETTINGS, reward="judge").mistakes for items in (once, copied))
    assert alone is not None
    assert together is not None
    assert together.false_positive.value == alone.false_positive.value
    width = together.youden_j.high - together.youden_j.low
    assert width > 0.8 * (alone.youden_j.high - alone.youden_j.low)


def test_graded_labels_are_compared_by_rank() -> None:
    rng = np.random.default_rng(3)
    truth = rng.integers(1, 6, 150).astype(float)
    items = [
        AuditItem(prompt=str(place), length=int(rng.integers(9, 99)), scores=(value + rng.normal(0, 0.7),), label=value)
        for place, value in enumerate(truth.tolist())
    ]
    report = audit(items, SETTINGS, reward="judge")
    assert report.mistakes is None
    assert report.agreement is not None
    assert (report.agreement.base_rate, report.agreement.kappa, report.agreement.auc) == (None, None, None)
    assert inside(report.agreement.spearman, 0.88)
    assert verdict(report, "agreement") == "good"
    levels = [replace(item, scores=(float(np.clip(round(item.scores[0] or 0.0), 1, 5)),)) for item in items]
    weighted = audit(levels, SETTINGS, reward="judge").agreement
    assert weighted is not None
    assert inside(weighted.kappa, 0.88)


@pytest.mark.parametrize(("noise", "spread", "word"), [(0.9, 1.1, "usable"), (0.3, 1.2, "good"), (1.5, 0.7, "bad")])
def test_repeat_noise_is_recovered(noise: float, spread: float, word: str) -> None:
    report = audit(noisy(150, 4, noise=noise, spread=spread), SETTINGS, reward="judge")
    assert report.noise is not None
    assert inside(report.noise.sd, noise)
    assert report.noise.spread == pytest.approx(spread, rel=0.15)
    assert inside(report.noise.reliability, spread**2 / (spread**2 + noise**2))
    assert verdict(report, "noise") == word
    assert report.tied_advantage == pytest.approx(0.7734, abs=1e-4)  # G = 8, divided by the std: 7/√8 · Γ(3.5)/(√π Γ(4))


def test_the_table_of_signs_is_that_of_normal_noise() -> None:
    """Normal truths and noise: arctan(s / spread) / pi at any group size, in both columns, within simulation error."""
    items = noisy(400, 6, noise=0.9, spread=1.1)
    rows = audit(items, SETTINGS, reward="judge").sign_flips
    for row in rows:
        truth = math.atan(0.9 / math.sqrt(row.calls) / 1.1) / math.pi
        assert row.closed_form == pytest.approx(truth, abs=0.012)
        assert row.simulated == pytest.approx(row.closed_form, abs=0.01)
        assert row.noise_sd == pytest.approx(0.9 / math.sqrt(row.calls), rel=0.04)
    assert [row.calls for row in rows] == [1, 2, 3, 5, 8]


def test_the_table_of_signs_for_a_known_group() -> None:
    """Every prompt has the answers 8, 6, 3, 3 and normal noise of 1.5 points. The groups of 4 of the formula are not these, but
    draws of their deviations 3, 1, -2, -2: enumerated here."""
    rng = np.random.default_rng(4)
    groups = [[(true + rng.normal(0, 1.5, 3)).tolist() for true in (8, 6, 3, 3)] for _ in range(2000)]
    (row,) = flip_table(groups, 4, calls=(1,))
    pool = np.array([3.0, 1.0, -2.0, -2.0])
    drawn = np.random.default_rng(5).choice(pool, (20_000, 4))
    distances = (drawn - drawn.mean(1, keepdims=True)).ravel()
    truth = np.mean([flip_probability(d, 1.5, 4) for d in distances[np.abs(distances) > 1e-9].tolist()])
    # the audit knows noisy means, not the truth: their shape is rounder than the four values
    assert row.closed_form == pytest.approx(truth, abs=0.03)
    assert row.simulated == pytest.approx(row.closed_form, abs=0.015)


def test_noise_that_is_not_normal_shows_as_a_difference_of_the_columns() -> None:
    """Rare wild verdicts: the sd is the same, but few signs change."""
    rng = np.random.default_rng(6)

    def askings(true: float) -> list[float]:
        values: list[float] = (true + rng.normal(0, 0.02, 8) + 3.0 * (rng.random(8) < 0.02)).tolist()
        return values

    groups = [[askings(true) for true in rng.normal(0, 0.5, 4).tolist()] for _ in range(300)]
    row = flip_table(groups, 8)[0]
    assert row.closed_form > row.simulated + 0.05


def test_position_bias_is_recovered() -> None:
    """Two of three pairs are decided by merit; in the third the first is preferred."""
    rng = np.random.default_rng(7)
    pairs = []
    for number in range(600):
        better = "first" if rng.random() < 0.5 else "second"
        worse = "second" if better == "first" else "first"
        by_place = rng.random() < 1 / 3
        pairs.append(
            PairVerdict(prompt=str(number), forward="first" if by_place else better, backward="first" if by_place else worse)
        )
    report = audit(binary(20, 2, fpr=0, fnr=0), SETTINGS, reward="judge", pairs=pairs)
    assert report.position is not None
    assert inside(report.position.flips, 1 / 3)
    assert inside(report.position.first, 1 / 2 + 1 / 6)
    assert (verdict(report, "position"), report.word) == ("bad", "bad")
    assert "place" in report.advice


def test_pairs_without_bias_ties_and_unreadable_ones() -> None:
    fair = [PairVerdict(prompt=str(n), forward="first", backward="second") for n in range(100)]
    tied = [PairVerdict(prompt=str(n), forward="tie", backward="tie") for n in range(50)]
    broken = [PairVerdict(prompt=str(n), forward=None, backward="first") for n in range(5)]
    report = audit(binary(20, 2, fpr=0, fnr=0), SETTINGS, reward="judge", pairs=[*fair, *tied, *broken])
    assert report.position is not None
    assert (report.position.pairs, report.position.unreadable) == (155, 5)
    assert report.position.flips is not None
    assert report.position.flips.value == 0
    assert report.position.first is not None
    assert report.position.first.value == 0.5
    assert verdict(report, "position") == "good"


def test_length_bias_is_told_apart_from_merit() -> None:
    rng = np.random.default_rng(8)

    def items(paid: float) -> list[AuditItem]:
        """Right answers are longer anyway; `paid` is what length itself adds."""
        found = []
        for prompt in range(200):
            right = rng.random() < 0.5
            length = int(rng.integers(50, 100) + 60 * right)
            score = 0.6 * right + paid * (length - 100) / 100 + rng.normal(0, 0.1)
            found.append(AuditItem(prompt=str(prompt), length=length, scores=(score,), label=float(right)))
        return found

    fair, biased = (audit(items(paid), SETTINGS, reward="judge") for paid in (0.0, 1.0))
    assert fair.length is not None
    assert fair.length.at_equal_label is not None
    assert fair.length.correlation.low > 0.5  # merit
    assert inside(fair.length.at_equal_label, 0.0)
    assert verdict(fair, "length") == "good"
    assert biased.length is not None
    assert biased.length.at_equal_label is not None
    assert biased.length.at_equal_label.low > 0.3
    assert verdict(biased, "length") == "bad"


def test_self_preference_is_measured_at_equal_label() -> None:
    """Its own answers are right more often, which is no bias; .15 more for the same merit is."""
    rng = np.random.default_rng(9)
    items = []
    for prompt in range(200):
        own = rng.random() < 0.5
        right = rng.random() < (0.8 if own else 0.3)
        score = 0.5 * right + 0.15 * own + rng.normal(0, 0.1)
        source = "own" if own else "other"
        items.append(
            AuditItem(prompt=str(prompt), length=int(rng.integers(9, 99)), scores=(score,), label=float(right), source=source)
        )
    report = audit(items, SETTINGS, reward="judge")
    assert report.own_answers is not None
    assert inside(report.own_answers.difference, 0.15)
    assert verdict(report, "own answers") == "bad"
    assert audit([replace(item, source="") for item in items], SETTINGS, reward="judge").own_answers is None


def test_failures_are_counted_by_kind_and_left_out() -> None:
    items = binary(50, 2, fpr=0.1, fnr=0.1)
    broken = [
        replace(item, scores=(None,), failures=("no_json" if place % 3 else "timed_out",)) if place % 5 == 0 else item
        for place, item in enumerate(items)
    ]
    report = audit(broken, SETTINGS, reward="judge")
    assert (report.asked, report.no_score, sum(report.failures.values())) == (100, 20, 20)
    assert list(report.failures) == ["no_json", "timed_out"]
    assert report.agreement is not None
    assert report.agreement.count == 80
    assert (verdict(report, "replies"), report.word) == ("bad", "bad")


def test_what_cannot_be_measured_is_none_and_said() -> None:
    bare = [AuditItem(prompt=str(n), length=n, scores=(0.1 * n,)) for n in range(8)]
    report = audit(bare, SETTINGS, reward="judge")
    assert (report.agreement, report.mistakes, report.noise, report.position) == (None, None, None, None)
    assert report.sign_flips == ()
    assert report.word == "unclear"
    assert "--labels" in report.advice
    only_right = audit(binary(20, 1, fpr=0, fnr=0)[:1] * 5, SETTINGS, reward="judge")
    assert only_right.mistakes is None
    assert "right and wrong are needed" in next(one.why for one in only_right.findings if one.part == "agreement")
    with pytest.raises(ValueError, match="at least one answer"):
        audit([], SETTINGS, reward="judge")


def test_the_advice_about_noise_names_the_numbers() -> None:
    rng = np.random.default_rng(2)
    items = []
    for item in noisy(200, 4, noise=0.3, spread=0.15):
        mean = np.mean([score for score in item.scores if score is not None])
        items.append(replace(item, label=float(mean + rng.normal(0, 0.01))))
    report = audit(items, SETTINGS, reward="judge")
    assert report.word == "bad"  # reliability .15² / (.15² + .3²) = .2
    assert report.advice.startswith("Noise 0.3 against a spread of 0.1")
    assert "of the advantage signs at G=8 are wrong; average 5 calls" in report.advice
    assert "noise: 0.3" in report.advice


def test_a_steady_judge_has_no_noise() -> None:
    items = [replace(item, scores=item.scores * 3) for item in binary(60, 3, fpr=0.05, fnr=0.05)]
    report = audit(items, SETTINGS, reward="judge")
    assert report.noise is not None
    assert report.noise.sd.value == 0
    assert [row.closed_form for row in report.sign_flips] == [0.0] * 5
    assert verdict(report, "noise") == "good"
    assert report.tied_advantage == 0

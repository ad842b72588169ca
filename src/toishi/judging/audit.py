"""A judge measured: agreement with labels, error rates, biases, repeat noise and what it does to advantages.

Pure: it sees what the judge said (`toishi.rejudging` asks), and what is known of the answers.

Decisions:
1. Agreement and error rates use the first asking, which is what training uses. Noise uses all.
2. Intervals are bootstraps over prompts. The error rates have Wilson's interval, widened to the bootstrap's where prompts have
   several answers, since answers to one prompt are not independent.
3. What cannot be measured with the given answers is None, and the verdict says what would be needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from toishi.judging.audit_flips import flip_table
from toishi.judging.audit_parts import (
    Agreement,
    AuditItem,
    AuditReport,
    Length,
    Mistakes,
    Noise,
    OwnAnswers,
    PairVerdict,
    Position,
)
from toishi.judging.audit_words import advice, findings, worst
from toishi.ops.agreement import cohen_kappa, error_rates, krippendorff_alpha, raw_agreement
from toishi.ops.association import (
    auc,
    bootstrap,
    calibration_error,
    isotonic,
    kendall,
    partial_spearman,
    pearson,
    spearman,
)
from toishi.ops.noise import (
    RepeatNoise,
    noise_from_sums,
    noise_sums,
    repeat_noise,
    tied_advantage,
    verifier_gap,
    verifier_sign_errors,
)
from toishi.ops.stats import Interval

MAX_CATEGORIES = 11
T = TypeVar("T")
Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """How the numbers are read.

    group_size      G of the training run that the audit is for
    threshold       a score at or above it calls an answer right
    divided_by_std  the run divides advantages by the group's spread
    """

    group_size: int = 8
    threshold: float = 0.5
    divided_by_std: bool = True


def audit(
    items: Sequence[AuditItem],
    settings: AuditSettings,
    *,
    reward: str,
    pairs: Sequence[PairVerdict] = (),
    used: Mapping[str, float] | None = None,
) -> AuditReport:
    """Everything that can be said of a judge from these answers. Raises ValueError without any.

    >>> items = [AuditItem(prompt=str(p), length=p, scores=(float(p % 2),), label=float(p % 2)) for p in range(100)]
    >>> report = audit(items, AuditSettings(), reward="judge")
    >>> report.agreement.kappa.value, report.mistakes.youden_j.value, report.noise
    (1.0, 1.0, None)
    """
    if not items:
        raise ValueError("an audit needs at least one answer, got none")
    scores = [score for item in items for score in item.scores]
    labelled = [item for item in items if item.first is not None and item.label is not None]
    by_prompt = _by_prompt(items)
    asked_again = [[[score for score in item.scores if score is not None] for item in group] for group in by_prompt]
    noise = _noise(items, asked_again)
    measured = repeat_noise(asked_again)
    report = AuditReport(
        reward=reward,
        prompts=len(by_prompt),
        answers=len(items),
        group_size=settings.group_size,
        threshold=settings.threshold,
        asked=len(scores),
        no_score=sum(score is None for score in scores),
        failures=_counted(items),
        used=dict(used or {}),
        agreement=_agreement(labelled, settings.threshold) if labelled else None,
        mistakes=_mistakes(labelled, settings) if _is_binary(labelled) else None,
        position=_position(pairs) if pairs else None,
        length=_length([item for item in items if item.first is not None]),
        own_answers=_own_answers([item for item in items if item.first is not None]),
        noise=noise,
        sign_flips=flip_table(asked_again, settings.group_size),
        tied_advantage=_tied(measured, settings),
    )
    found = findings(report)
    return replace(report, findings=found, word=worst(found), advice=advice(report, found))


def _by_prompt(items: Sequence[AuditItem]) -> list[list[AuditItem]]:
    groups: dict[str, list[AuditItem]] = {}
    for item in items:
        groups.setdefault(item.prompt, []).append(item)
    return list(groups.values())


def _counted(items: Sequence[AuditItem]) -> dict[str, int]:
    kinds = [kind for item in items for kind in item.failures]
    return {kind: kinds.count(kind) for kind in sorted(set(kinds), key=lambda kind: (-kinds.count(kind), kind))}


def _arrays(items: Sequence[AuditItem]) -> tuple[NDArray[np.float64], NDArray[np.float64], list[str]]:
    """First scores, labels (nan = unknown) and prompts."""
    firsts = np.array([item.first for item in items], dtype=np.float64)
    labels = np.array([math.nan if item.label is None else item.label for item in items], dtype=np.float64)
    return firsts, labels, [item.prompt for item in items]


def _is_binary(labelled: Sequence[AuditItem]) -> bool:
    """Whether right and wrong answers are both there, and nothing else."""
    return {item.label for item in labelled} == {0.0, 1.0}


def _agreement(labelled: Sequence[AuditItem], threshold: float) -> Agreement:
    scores, labels, prompts = _arrays(labelled)
    binary = set(labels.tolist()) <= {0.0, 1.0}
    said = (scores >= threshold).astype(np.float64) if binary else scores
    values = np.unique(np.concatenate([said, labels]))
    comparable = binary or len(values) <= MAX_CATEGORIES

    def interval(statistic: Callable[[Indices], float], wanted: bool = True) -> Interval | None:
        return bootstrap(statistic, prompts) if wanted else None

    def kappa(chosen: Indices) -> float:
        return cohen_kappa(said[chosen], labels[chosen], weights="none" if binary else "quadratic", categories=values)

    in_range = bool(((labels >= 0) & (labels <= 1) & (scores >= 0) & (scores <= 1)).all())
    ratings = list(zip(scores.tolist(), labels.tolist(), strict=True))
    return Agreement(
        count=len(labelled),
        base_rate=float(labels.mean()) if binary else None,
        raw=interval(lambda chosen: raw_agreement(said[chosen], labels[chosen]), comparable),
        kappa=interval(kappa, comparable),
        auc=interval(lambda chosen: auc(scores[chosen], labels[chosen]), binary),
        spearman=bootstrap(lambda chosen: spearman(scores[chosen], labels[chosen]), prompts),
        kendall=kendall(scores, labels),
        pearson=pearson(scores, labels),
        alpha=krippendorff_alpha(ratings, level="interval") if in_range else None,
        calibration=calibration_error(scores, labels) if binary and in_range else None,
        map=isotonic(scores, labels),
    )


def _mistakes(labelled: Sequence[AuditItem], settings: AuditSettings) -> Mistakes:
    scores, labels, prompts = _arrays(labelled)
    said, right = scores >= settings.threshold, labels == 1
    rates = error_rates(said.tolist(), right.tolist())
    assert rates.false_positive is not None
    assert rates.false_negative is not None
    assert rates.youden_j is not None

    def false_positive(chosen: Indices) -> float:
        wrong = chosen[~right[chosen]]
        return float(said[wrong].mean()) if len(wrong) else math.nan

    def false_negative(chosen: Indices) -> float:
        true = chosen[right[chosen]]
        return float((~said[true]).mean()) if len(true) else math.nan

    clustered = len(set(prompts)) < len(prompts)

    def widened(found: Interval, statistic: Callable[[Indices], float]) -> Interval:
        drawn = bootstrap(statistic, prompts) if clustered else found
        bounds = [bound for bound in (drawn.low, drawn.high) if math.isfinite(bound)]
        return Interval(found.value, min([found.low, *bounds]), max([found.high, *bounds]))

    a, b = rates.false_positive.value, rates.false_negative.value
    return Mistakes(
        false_positive=widened(rates.false_positive, false_positive),
        false_negative=widened(rates.false_negative, false_negative),
        youden_j=widened(rates.youden_j, lambda chosen: 1 - false_positive(chosen) - false_negative(chosen)),
        gap=verifier_gap(a, b, settings.group_size),
        wrong_signs=verifier_sign_errors(float(right.mean()), a, b, settings.group_size),
    )


def _position(pairs: Sequence[PairVerdict]) -> Position:
    read = [pair for pair in pairs if pair.forward is not None and pair.backward is not None]
    swapped = {"first": "second", "second": "first", "tie": "tie"}
    flipped = np.array([pair.forward != swapped[str(pair.backward)] for pair in read], dtype=np.float64)
    preferences = [(said == "first", pair.prompt) for pair in read for said in (pair.forward, pair.backward) if said != "tie"]
    first = np.array([is_first for is_first, _ in preferences], dtype=np.float64)
    return Position(
        pairs=len(pairs),
        unreadable=len(pairs) - len(read),
        flips=bootstrap(lambda chosen: float(flipped[chosen].mean()), [pair.prompt for pair in read]) if read else None,
        first=(
            bootstrap(lambda chosen: float(first[chosen].mean()), [prompt for _, prompt in preferences])
            if preferences
            else None
        ),
    )


def _length(scored: Sequence[AuditItem]) -> Length | None:
    if len(scored) < 3:
        return None
    scores, labels, prompts = _arrays(scored)
    lengths = np.array([item.length for item in scored], dtype=np.float64)

    def at_equal_label(chosen: Indices) -> float:
        return partial_spearman(scores[chosen], lengths[chosen], labels[chosen])

    return Length(
        correlation=bootstrap(lambda chosen: spearman(scores[chosen], lengths[chosen]), prompts),
        at_equal_label=None if np.isnan(labels).any() else bootstrap(at_equal_label, prompts),
    )


def _own_answers(scored: Sequence[AuditItem]) -> OwnAnswers | None:
    marked = [item for item in scored if item.source in ("own", "other")]
    scores, labels, prompts = _arrays(marked)
    own = np.array([item.source == "own" for item in marked], dtype=bool)
    if not own.any() or own.all():
        return None
    strata = np.unique(np.nan_to_num(labels, nan=-1.0), return_inverse=True)[1]

    def difference(chosen: Indices) -> float:
        """Mean over labels of own minus other, weighted by the number of own answers."""
        parts = []
        for stratum in np.unique(strata[chosen]):
            inside = chosen[strata[chosen] == stratum]
            mine, others = inside[own[inside]], inside[~own[inside]]
            if len(mine) and len(others):
                parts.append((len(mine), float(scores[mine].mean() - scores[others].mean())))
        total = sum(count for count, _ in parts)
        return math.fsum(count * gap for count, gap in parts) / total if total else math.nan

    return OwnAnswers(own=int(own.sum()), other=int((~own).sum()), difference=bootstrap(difference, prompts))


def _noise(items: Sequence[AuditItem], groups: Sequence[Sequence[Sequence[float]]]) -> Noise | None:
    sums = np.array([noise_sums(answers) for answers in groups])
    found = noise_from_sums(sums.sum(0).tolist())
    if found is None:
        return None

    def of(chosen: Indices, part: Callable[[RepeatNoise], float]) -> float:
        drawn = noise_from_sums(sums[chosen].sum(0).tolist())
        return math.nan if drawn is None else part(drawn)

    prompts = list(range(len(groups)))
    siblings = not math.isnan(found.spread)
    return Noise(
        askings=max(len(item.scores) for item in items),
        sd=bootstrap(lambda chosen: of(chosen, lambda noise: noise.noise_sd), prompts),
        spread=found.spread if siblings else None,
        reliability=bootstrap(lambda chosen: of(chosen, lambda noise: noise.reliability), prompts) if siblings else None,
        alpha=krippendorff_alpha([item.scores for item in items], level="interval"),
    )


def _tied(noise: RepeatNoise | None, settings: AuditSettings) -> float | None:
    if noise is None or settings.group_size < 2:
        return None
    return tied_advantage(settings.group_size, noise.noise_sd, divided_by_std=settings.divided_by_std)

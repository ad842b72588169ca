"""How each reward of a step did: its values, its failures by kind, whether it is saturated, whether it likes length.

Decision: a completion's value is the sum of its parts as judged, without weight, gate, cap or levelling, so that a reward's own
health can be seen whatever is paid for it.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Sequence

from toishi.types import Group, Rollout, Score, ScoreUse

Value = float | int | None


def scoring_summary(groups: Sequence[Group]) -> dict[str, Value]:
    """The numbers `rewards/<name>/...` of a step. None where there is no number to report; see `toishi.metrics.METRICS`."""
    by_reward: dict[str, list[tuple[Rollout, list[Score]]]] = {}
    for rollout in (rollout for group in groups for rollout in group.rollouts):
        parts: dict[str, list[Score]] = {}
        for score in rollout.scores:
            parts.setdefault(score.reward, []).append(score)
        for name, scores in parts.items():
            by_reward.setdefault(name, []).append((rollout, scores))
    return {f"rewards/{name}/{key}": value for name, judged in by_reward.items() for key, value in _summary(judged).items()}


def scoring_keys() -> tuple[str, ...]:
    """The last parts of the names that every reward's numbers have: mean, std, ..."""
    return tuple(_summary([]))


def _summary(judged: Sequence[tuple[Rollout, Sequence[Score]]]) -> dict[str, Value]:
    broken = [scores for _, scores in judged if any(score.status == "failed" for score in scores)]
    whole = [(rollout, scores) for rollout, scores in judged if all(score.status != "failed" for score in scores)]
    valued = [(rollout, values) for rollout, scores in whole if (values := [s.value for s in scores if s.value is not None])]
    totals = [math.fsum(values) for _, values in valued]
    return {
        "mean": statistics.fmean(totals) if totals else None,
        "std": statistics.stdev(totals) if len(totals) > 1 else None,
        "at_max": _share_at(totals, max),
        "at_min": _share_at(totals, min),
        "length_correlation": _correlation([float(rollout.completion.num_tokens) for rollout, _ in valued], totals),
        "failed": len(broken),
        "abstained": len(whole) - len(totals),
        **_failure_kinds(broken),
        **_outcomes([scores for _, scores in whole]),
        **_uses([scores for _, scores in judged]),
    }


def _share_at(values: Sequence[float], extreme: Callable[[Sequence[float]], float]) -> float | None:
    """Share of the values that are the step's highest (or lowest)."""
    return sum(value == extreme(values) for value in values) / len(values) if values else None


def _correlation(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """Pearson's; None when one side is constant.

    >>> _correlation([1.0, 2.0, 3.0], [2.0, 4.0, 6.0]), _correlation([1.0, 2.0], [3.0, 3.0])
    (1.0, None)
    """
    if len(xs) < 2 or min(xs) == max(xs) or min(ys) == max(ys):
        return None
    return statistics.correlation(xs, ys)


def _failure_kinds(broken: Sequence[Sequence[Score]]) -> dict[str, Value]:
    """How many answers it failed on, by the kind of the first failure; failures without a kind are only in `failed`."""
    kinds = (next(score.kind for score in scores if score.status == "failed") for scores in broken)
    return {f"failed/{kind}": count for kind, count in sorted(Counter(filter(None, kinds)).items())}


def _outcomes(completions: Sequence[Sequence[Score]]) -> dict[str, Value]:
    """Right, wrong and no answer, for a reward that looks for an answer: one that could be read and is paid is right."""
    looked = [scores for scores in completions if any(score.readable is not None for score in scores)]
    if not looked:
        return dict.fromkeys(("right", "wrong", "no_answer"))
    read = [scores for scores in looked if all(score.readable is not False for score in scores)]
    right = sum(math.fsum(score.value for score in scores if score.value is not None) > 0 for scores in read)
    return {"right": right, "wrong": len(read) - right, "no_answer": len(looked) - len(read)}


def _uses(completions: Sequence[Sequence[Score]]) -> dict[str, Value]:
    """On how many answers a gate was closed, a cap held, the noise levelled, and on how many it was left out."""
    uses: tuple[ScoreUse, ...] = ("gated", "capped", "levelled", "left_out")
    return {use: sum(any(score.use == use for score in scores) for scores in completions) for use in uses}

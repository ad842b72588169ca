"""What the rewards used during a step: calls, tokens, cost, whatever they count."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from toishi.errors import RewardError
from toishi.rewards.base import Reward
from toishi.rewards.hooks import usage_of
from toishi.scoring.summary import scoring_keys


def usage_since(before: Mapping[str, float], rewards: Sequence[Reward]) -> dict[str, float]:
    """What was added to the rewards' totals since they were `before`, by metric: rewards/<name>/<key>.

    Raises RewardError for a total that is not a finite number, or that goes by the name of a number toishi itself logs.
    """
    after = usage_of(rewards)
    for metric, value in after.items():
        if not math.isfinite(value) or metric.rpartition("/")[2] in scoring_keys():
            raise RewardError(
                f"{metric} is {value!r}: usage() gives finite totals under names of its own, not {', '.join(scoring_keys())}"
            )
    return {metric: value - before.get(metric, 0.0) for metric, value in after.items()}

"""The critic's numbers of a step, counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.making import completion, group
from toishi.algorithms.critic import CRITIC_METRICS, critic_metrics
from toishi.types import TokenStreams, Update


def test_only_taught_tokens_count() -> None:
    """Values 1, 3 and returns 2, 6: their means are 2 and 4, and of the returns' variance, 4, the misses 1 and 3 leave 1."""
    made = group(0, (1,), ((5, 6, 7), (8, 9, 10)), (1.0, 0.0))
    first, second = made.rollouts
    seen = replace(first, completion=completion((5, 6, 7), (1, 0, 1)), values=(1.0, 0.0, 3.0), returns=(2.0, 0.0, 6.0))
    untaught = replace(second, values=(9.0,) * 3, returns=(9.0,) * 3)
    streams = (TokenStreams(rollout=first.id, computed=False),)
    updates = [
        Update(step=1, index=index, scalars={"update/value_loss": loss, "update/critic_lr": 0.5}, streams=streams)
        for index, loss in enumerate((1.0, 4.0))
    ]
    found = critic_metrics([replace(made, rollouts=(seen, untaught))], updates)
    assert set(found) == set(CRITIC_METRICS)
    assert {name: value for name, value in found.items() if value is not None} == pytest.approx(
        {
            "critic/value_loss": 2.5,
            "critic/lr": 0.5,
            "critic/explained_variance": 0.75,
            "critic/mean_value": 2.0,
            "critic/mean_return": 4.0,
        }
    )


def test_without_a_critic_there_are_no_numbers() -> None:
    assert critic_metrics([group(0, (1,), ((5,), (6,)), (1.0, 0.0))], []) == dict.fromkeys(CRITIC_METRICS)

"""One plain fault for each rule: what changes in a step's metrics from the moment it begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.health.histories import Row, reward_metrics

WRONG, RIGHT, MIXED = [0.0] * 8, [1.0] * 8, [1.0] * 4 + [0.0] * 4
Change = Callable[[Row, int], Row]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """`change(row, age)` is laid over every row from step `at` on; `rule` must speak within the steps it states.

    The fault itself begins `prelude` steps after `at`: before that the change only sets the scene.
    """

    rule: str
    change: Change
    at: int = 60
    prelude: int = 0

    @property
    def begins(self) -> int:
        return self.at + self.prelude

    def __str__(self) -> str:
        return f"{self.rule}-{self.begins}"


def rewards(*groups: list[float]) -> Change:
    """The same groups at every step; with every group tied there is nothing to update on."""
    found = reward_metrics(list(groups))
    tied = {"update/grad_norm": 0.0, "update/count": 0, "update/skipped": 1} if found["groups/mixed"] == 0 else {}
    return lambda row, age: found | tied


def constant(**changes: Any) -> Change:
    """Metric names with `__` for `/`."""
    values = {name.replace("__", "/"): value for name, value in changes.items()}
    return lambda row, age: values


def both(first: Change, second: Change) -> Change:
    return lambda row, age: first(row, age) | second(row, age)


def flat_reward_and_length(start: float, end: float, after: int) -> Change:
    """A reward that never rises, and a length that changes after some steps."""

    def change(row: Row, age: int) -> Row:
        groups = [MIXED, WRONG, MIXED, WRONG if age % 2 else MIXED]
        return reward_metrics(groups) | {"answers/mean_tokens": start if age < after else end}

    return change


def kl_without_reward(row: Row, age: int) -> Row:
    return flat_reward_and_length(20.0, 20.0, after=0)(row, age) | {"update/kl_policy_ref": 0.1 if age < 20 else 3.0}


FAULTS: tuple[Fault, ...] = (
    Fault(rule="not_finite", change=constant(update__loss=float("nan"))),
    Fault(rule="blind_critic", change=constant(critic__explained_variance=-0.2)),
    Fault(rule="not_finite", change=constant(update__ratio_max=float("inf"))),
    Fault(rule="sampler_gap_at_start", at=1, change=constant(sampler_gap__mean_abs=0.02)),
    Fault(rule="sampler_gap", change=constant(sampler_gap__mean_abs=0.3)),
    Fault(rule="failed_rewards", change=constant(rewards__number__failed=20, answers__unscored=20)),
    Fault(rule="unscored_answers", change=constant(rewards__number__abstained=8, answers__unscored=8)),
    Fault(
        rule="silent_reward",
        change=constant(
            rewards__format__abstained=32, rewards__format__mean=None, rewards__format__std=None, rewards__format__failed=0
        ),
    ),
    Fault(rule="constant_reward", at=1, change=constant(rewards__format__mean=0.5, rewards__format__std=0.0)),
    Fault(rule="constant_reward", change=constant(rewards__number__mean=0.0, rewards__number__std=0.0)),
    Fault(rule="pays_length", change=constant(rewards__number__length_correlation=0.93)),
    Fault(rule="pays_length", change=constant(rewards__number__length_correlation=-0.88)),
    Fault(rule="all_wrong", change=rewards(WRONG, WRONG, WRONG, WRONG)),
    Fault(rule="all_wrong", at=1, change=rewards(WRONG, WRONG, WRONG, WRONG)),
    Fault(rule="tied_groups", at=1, change=rewards([0.5] * 8, [0.5] * 8, [0.7] * 8, [0.5] * 8)),
    Fault(rule="solved", change=rewards(RIGHT, RIGHT, RIGHT, RIGHT)),
    Fault(rule="tied_groups", change=rewards(RIGHT, WRONG, RIGHT, WRONG)),
    Fault(rule="identical_answers", change=both(rewards(WRONG, RIGHT, WRONG, WRONG), constant(answers__distinct_share=1 / 8))),
    Fault(rule="empty_answers", change=constant(answers__empty_share=0.6)),
    Fault(rule="reward_drop", change=rewards(MIXED, WRONG, WRONG, WRONG)),
    Fault(
        rule="entropy_collapse", at=20,
        change=both(rewards(MIXED, RIGHT, WRONG, WRONG), constant(entropy__mean_nats=0.03)),
    ),
    Fault(rule="entropy_explosion", change=constant(entropy__mean_nats=4.2)),
    Fault(rule="kl_reference", at=1, prelude=20, change=kl_without_reward),
    Fault(rule="kl_reference", at=50, prelude=10, change=lambda row, age: {"update/kl_policy_ref": 0.05 if age < 10 else 1.5}),
    Fault(rule="policy_jump", change=constant(update__kl_old_policy_k3=0.6)),
    Fault(rule="policy_jump", change=constant(update__ratio_mean=2.6)),
    Fault(rule="policy_jump", change=constant(update__ratio_max=55.0)),
    Fault(rule="clipping", change=constant(update__clip_low_share=0.3, update__clip_high_share=0.25)),
    Fault(rule="gradient_explosion", change=both(constant(groups__mixed=4), constant(update__grad_norm=60.0))),
    Fault(
        rule="gradient_zero",
        change=both(rewards(MIXED, MIXED, WRONG, RIGHT), constant(update__grad_norm=0.0, update__count=1)),
    ),
    Fault(
        rule="skipped_updates",
        change=both(rewards(MIXED, MIXED, WRONG, RIGHT), constant(update__count=0, groups__dropped=4)),
    ),
    Fault(rule="length_growth", at=1, prelude=60, change=flat_reward_and_length(20.0, 50.0, after=60)),
    Fault(rule="length_growth", change=constant(answers__mean_tokens=90.0)),
    Fault(rule="length_shrink", at=1, prelude=60, change=flat_reward_and_length(20.0, 3.0, after=60)),
    Fault(rule="wrong_longer", change=constant(answers__mean_tokens_below=60.0)),
    Fault(rule="truncation", change=constant(answers__truncated_share=0.6)),
)  # fmt: skip

"""Where a step's groups come from: one function for each `algorithm.source`, and one result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Protocol

from toishi.display import Display
from toishi.errors import DataError
from toishi.ops.random import uniforms
from toishi.rollout import MIXING_STREAM, sample_groups
from toishi.scoring import Scoring
from toishi.session import Session
from toishi.types import Group
from toishi.written import passed_over, written_group


class Clock(Protocol):
    """Adds up the seconds spent inside, by name."""

    seconds: dict[str, float]

    def __call__(self, name: str) -> AbstractContextManager[None]: ...


MOST_LEFT_OUT = 100_000
"""Rows that a step may pass over before it gives up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """A step's groups, scored.

    refill_rounds  extra rounds of sampling
    left_out       rows that were passed over, since their written answers are too long, or both the same
    """

    groups: tuple[Group, ...]
    refill_rounds: int = 0
    left_out: int = 0


def sampled_and_scored(session: Session, step: int, clock: Clock, display: Display) -> Gathered:
    """Sampled groups. With refill, further prompts take the place of tied groups, up to the stated ceiling of rounds."""
    train = session.config.train
    groups: tuple[Group, ...] = ()
    for refill in range(train.refill_rounds + 1):
        missing = train.prompts_per_step - sum(not group.is_tied for group in groups)
        if missing == 0:
            return Gathered(groups=groups, refill_rounds=refill - 1)
        groups += _sampled(session, step, missing, len(groups), clock, display)
    return Gathered(groups=groups, refill_rounds=train.refill_rounds)


def as_written(session: Session, step: int, clock: Clock, display: Display) -> Gathered:
    """Groups of written answers, in the order of the data; rows that are passed over make room for the next."""
    return _written(session, step, session.config.train.prompts_per_step, clock)


def mixed(session: Session, step: int, clock: Clock, display: Display) -> Gathered:
    """Groups of both kinds, written ones first. For each place a number drawn from (seed, step) says which kind it gets."""
    config, places = session.config, session.config.train.prompts_per_step
    drawn = uniforms((config.seed, MIXING_STREAM, step), places)
    own = int((drawn < config.algorithm.sampled_share).sum())
    found = _written(session, step, places - own, clock)
    sampled = _sampled(session, step, own, len(found.groups), clock, display) if own else ()
    return replace(found, groups=found.groups + sampled)


def _sampled(session: Session, step: int, count: int, first_group: int, clock: Clock, display: Display) -> tuple[Group, ...]:
    """The next `count` prompts, answered by the policy and scored."""
    config = session.config
    with Scoring(session.rewards, config.rewards, num_groups=count) as scoring:
        with clock("rollout"):
            sample_groups(
                session.prompts(count), session.engine, session.sampling, seed=config.seed, step=step,
                group_size=config.train.group_size, first_group=first_group, on_group=scoring.add,
            )  # fmt: skip
        with clock("scoring"), display.scoring() as judged:
            groups = scoring.finish(judged)
        clock.seconds["scoring_hidden"] += scoring.hidden_s
    return groups


def _written(session: Session, step: int, count: int, clock: Clock) -> Gathered:
    """The next `count` rows that are not passed over."""
    groups: list[Group] = []
    left_out = 0
    with clock("rollout"):
        while len(groups) < count:
            (prompt,) = session.prompts(1)
            group = written_group(prompt, session.config, session.renderer, step=step, number=len(groups))
            if passed_over(group, session.config) is None:
                groups.append(group)
                continue
            left_out += 1
            if left_out >= MOST_LEFT_OUT:
                raise DataError(
                    f"step {step}: {left_out} rows passed over, all with answers longer than sampling.max_new_tokens="
                    f"{session.config.sampling.max_new_tokens} or with two equal answers; raise it, or remove the rows"
                )
    return Gathered(groups=tuple(groups), left_out=left_out)


SOURCES: Mapping[str, Callable[[Session, int, Clock, Display], Gathered]] = {
    "sampled": sampled_and_scored,
    "written": as_written,
    "written_pairs": as_written,
    "mixed": mixed,
}

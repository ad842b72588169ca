"""What the record holds of a step, read once: many questions can be asked of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from toishi.algorithms.terms import Term
from toishi.config import Config, load_config
from toishi.counterfactual.advantages import group_of, require_recorded
from toishi.counterfactual.change import Change
from toishi.counterfactual.pushes import Pushes, recorded_pushes
from toishi.counterfactual.ranges import Range, ranges_of
from toishi.errors import ConfigError
from toishi.explanation.step import terms_of
from toishi.machine import Machine
from toishi.ops import influence as maths
from toishi.record import Run
from toishi.record.influence import Arrays, Influence
from toishi.record.influence_files import has_influence, read_arrays, read_influence
from toishi.record.trace_files import has_trace, read_trace
from toishi.recorded import recorded_config
from toishi.types import Group, RolloutId, StepReport
from toishi.update import UpdateSettings


@dataclass(frozen=True)
class Measured:
    """The account of a step's update as tensors, all float64; see `record.influence.ARRAYS`.

    rest_R         what momentum and weight decay did to each row's text
    gradients_RI   on the sample of coordinates, as are the other [I]
    rule           AdamW's; None for SGD
    """

    influence: Influence
    products_RR: Tensor
    fixed_R: Tensor
    fixed_fixed: float
    rest_R: Tensor
    gradients_RI: Tensor
    mean_I: Tensor
    square_I: Tensor
    fixed_I: Tensor
    rule: maths.AdamRule | None

    @classmethod
    def read(cls, run: Run, step: int) -> Measured:
        """Raises RecordError when it is not on record or was changed."""
        return cls.of(read_influence(run.folder, step), read_arrays(run.folder, step))

    @classmethod
    def of(cls, influence: Influence, arrays: Arrays) -> Measured:
        """From the two files of the account."""
        tensors = {name: torch.from_numpy(value.copy()) for name, value in arrays.items()}
        numbers = influence.optimizer
        rule = maths.AdamRule(lr=numbers.lr, beta1=numbers.beta1, beta2=numbers.beta2, eps=numbers.eps, count=numbers.count)
        return cls(
            influence=influence,
            products_RR=tensors["products"],
            fixed_R=tensors["fixed_products"][:-1],
            fixed_fixed=float(tensors["fixed_products"][-1]),
            rest_R=tensors["history"] + tensors["decay"],
            gradients_RI=tensors["gradients"].double() * tensors["scales"][:, None],
            mean_I=tensors["mean"].double(),
            square_I=tensors["square"].double(),
            fixed_I=tensors["fixed_gradient"].double(),
            rule=rule if numbers.count else None,
        )

    @cached_property
    def pushes(self) -> Pushes:
        """Those of the real step."""
        return recorded_pushes(self.influence, len(self.products_RR))

    @cached_property
    def real_step_I(self) -> Tensor:
        """AdamW's real step on the sample, without weight decay."""
        assert self.rule is not None, "SGD needs no sample"
        ascent_I = maths.sampled_direction(self.gradients_RI, self.pushes.coefficients_R, self.fixed_I)
        return maths.adam_step(self.influence.clip_factor * ascent_I, self.mean_I, self.square_I, self.rule)


@dataclass(frozen=True)
class RecordedStep:
    """A step as recorded.

    before    log-probs of every answer before the update, 0 at positions without loss
    measured  who moved what; None when it is not on record
    """

    run: Run
    report: StepReport
    config: Config
    settings: UpdateSettings
    terms: tuple[Term, ...]
    ranges: Mapping[str, Range]
    before: Mapping[RolloutId, Sequence[float]]
    measured: Measured | None

    @property
    def groups(self) -> tuple[Group, ...]:
        return self.report.groups

    @property
    def num_updates(self) -> int:
        return len(self.report.updates)

    def changed_config(self, change: Change) -> Config:
        """The configuration with the change's settings. Raises ConfigError for one that cannot be."""
        if not change.settings:
            return self.config
        new = load_config(self.run.run["config"], change.settings)
        if new.optimizer.name != self.config.optimizer.name:
            raise ConfigError(
                f"optimizer.name: the step's optimizer is {self.config.optimizer.name} and its state belongs to it; start a "
                "new run to see another"
            )
        return new

    def changed_settings(self, change: Change) -> UpdateSettings:
        """The update's settings with those of the change."""
        new = self.changed_config(change)
        return replace(self.settings, algorithm=new.algorithm, optimizer=new.optimizer)


def read_step(run: Run, step: int, group: int) -> RecordedStep:
    """Everything that a question about `group` needs.

    Raises RecordError when the step is not on record, is damaged, or another program trained; ConfigError for a group that is
    not in it.
    """
    config, report = recorded_config(run), run.step(step)
    group_of(report.groups, group)
    budget = Machine(**run.run["decisions"]).token_budget(config)
    settings = UpdateSettings.of(config, shared_prompt=False, token_budget=budget)
    require_recorded(report.groups, config.algorithm, config.sampling.max_new_tokens)
    return RecordedStep(
        run=run,
        report=report,
        config=config,
        settings=settings,
        terms=terms_of(run, report.groups),
        ranges=ranges_of(_sections(run), _reward_names(report)),
        before=_before(run, report),
        measured=Measured.read(run, step) if has_influence(run.folder, step) else None,
    )


def _sections(run: Run) -> list[dict[str, Any]]:
    return list(run.run["config"].get("rewards") or ())


def _reward_names(report: StepReport) -> list[str]:
    return list(dict.fromkeys(score.reward for rollout in report.rollouts for score in rollout.scores))


def _before(run: Run, report: StepReport) -> dict[RolloutId, Sequence[float]]:
    """From the trace; without one as the update computed them; without that as sampled."""
    found: dict[RolloutId, Sequence[float]] = {
        rollout.id: rollout.completion.sampled_logprobs or (math.nan,) * rollout.completion.num_tokens
        for rollout in report.rollouts
    }
    for update in report.updates[:1]:
        found |= {stream.rollout: stream.old_logprob for stream in update.streams if stream.old_logprob}
    if has_trace(run.folder, report.step):
        for text in read_trace(run.folder, report.step).texts:
            if text.kind == "rollout" and text.group is not None and text.member is not None:
                found[RolloutId(report.step, text.group, text.member)] = text.before
    return found

"""A question put to a recorded step: the exact part, the forecast where the record holds one, and in words where it does not.

Decisions:
1. What cannot be forecast is refused with the reason; advantages are given all the same, they are exact.
2. A forecast within its half-width has no sign.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from toishi.algorithms.shaping import counts
from toishi.counterfactual.advantages import changed_groups, group_of
from toishi.counterfactual.change import Change
from toishi.counterfactual.forecast import Forecast, forecast
from toishi.counterfactual.model import AnswerChange, Moved, ScoreChange, Verdict, WhatIf
from toishi.counterfactual.pushes import changed_pushes, token_weights
from toishi.counterfactual.ranges import Range
from toishi.counterfactual.recorded import RecordedStep
from toishi.counterfactual.words import question_in_words
from toishi.errors import ConfigError
from toishi.explanation.step import left_out_because
from toishi.types import Group, Rollout, RolloutId
from toishi.update import UpdateSettings

FORECAST_KEYS = ("max_grad_norm",)
Weights = Mapping[RolloutId, Sequence[float]]


def answer(step: RecordedStep, group: int, change: Change, *, update: int = 0) -> WhatIf:
    """What would have come out of the step's update `update` with the change in `group`.

    Raises ConfigError for a change that cannot be, or an update that the step has not.
    """
    started = time.perf_counter()
    if not 0 <= update < step.num_updates:
        raise ConfigError(f"step {step.report.step} has {step.num_updates} optimizer updates, from 0; there is no {update}")
    settings = step.changed_settings(change)
    groups = groups_with(step, group, change, settings)
    refused, found = _forecast(step, groups, settings, update)
    moved = _moved(step, found)
    old, new = group_of(step.groups, group), group_of(groups, group)
    weights = _weights(step, groups, settings, update)
    account = None if step.measured is None else step.measured.influence
    advantages = [value for rollout in new.rollouts for value in rollout.advantage_per_token]
    return WhatIf(
        folder=str(step.run.folder),
        step=step.report.step,
        group=group,
        update=update,
        algorithm=settings.algorithm.name,
        optimizer=settings.optimizer.name,
        prompt=old.prompt.shown,
        change=asdict(change),
        question=question_in_words(change),
        refused=refused,
        trust="" if found is None else found.trust,
        tied=not any(advantages),
        skipped=found is not None and found.length_ratio == 0.0,
        gradient_norm=(
            step.report.updates[update].scalars.get("update/grad_norm"),
            None if found is None else found.gradient_norm,
        ),
        clip_factor=(None if account is None else account.clip_factor, None if found is None else found.clip_factor),
        length_ratio=None if found is None else found.length_ratio,
        answers=tuple(_answer(step, pair, weights, moved, settings) for pair in zip(old.rollouts, new.rollouts, strict=True)),
        others=tuple(one for one in moved.values() if one.group != group or one.member is None),
        seconds=time.perf_counter() - started,
    )


def groups_with(step: RecordedStep, group: int, change: Change, settings: UpdateSettings) -> tuple[Group, ...]:
    """All groups of the step with the change's advantages. Raises ConfigError, also for a KL term that the run did not have."""
    if settings.algorithm.needs_reference and any(rollout.ref_logprobs is None for rollout in step.report.rollouts):
        raise ConfigError(
            "algorithm.kl: the run kept no log-probs under the reference model, since it had no KL term, so none can be added "
            "afterwards; start a new run to see it"
        )
    if settings.algorithm.needs_critic and any(rollout.values is None for rollout in step.report.rollouts):
        raise ConfigError(
            "algorithm.baseline: the run had no critic, so there are no values to compare with; start a new run to see it"
        )
    return changed_groups(
        step.groups,
        group,
        change,
        settings.algorithm,
        terms=step.terms,
        ranges=step.ranges,
        max_new_tokens=settings.max_new_tokens,
    )


def _forecast(
    step: RecordedStep, groups: Sequence[Group], settings: UpdateSettings, update: int
) -> tuple[str, Forecast | None]:
    """Why there is none, or the forecast."""
    why = _refused(step, settings, update)
    if why or step.measured is None:
        return why, None
    measured = step.measured
    recorded, changed = (step.groups, step.settings), (groups, settings)
    pushes = changed_pushes(measured.influence, len(measured.products_RR), recorded, changed, step.before)
    if pushes.beyond:
        return f"{pushes.beyond}. {_REDO}", None
    return "", forecast(measured, pushes, settings.optimizer.max_grad_norm)


_REDO = "Do the step again with the change: --real"


def _refused(step: RecordedStep, settings: UpdateSettings, update: int) -> str:
    folder, number = step.run.folder, step.report.step
    if step.num_updates > 1:
        later = (
            f"update {update} starts from weights that the change would have moved"
            if update
            else "an account of the first does not say what all of them did"
        )
        return f"the step made {step.num_updates} optimizer updates, and {later}. {_REDO}"
    old, new = step.settings.optimizer.model_dump(), settings.optimizer.model_dump()
    other = [key for key in old if key not in FORECAST_KEYS and old[key] != new[key]]
    if other:
        return f"the account holds for the optimizer's recorded numbers, and optimizer.{other[0]} is another one. {_REDO}"
    if step.measured is None and all(update.scalars.get("update/skipped") == 1 for update in step.report.updates):
        return f"step {number} taught nothing, so its update moved nothing and nothing was measured. {_REDO}"
    if step.measured is None:
        return (
            f"who moved what in step {number} is not on record. Measure it with: toishi explain {folder} --step {number} "
            f"--influence, or do the step again with the change: --real"
        )
    if step.measured.influence.refused:
        return f"{step.measured.influence.refused}. {_REDO}"
    return ""


def _moved(step: RecordedStep, found: Forecast | None) -> dict[tuple[str, int | None, int | None], Moved]:
    if step.measured is None:
        return {}
    texts = step.measured.influence.texts
    changes = [None] * len(texts) if found is None or found.trust == "too_far" else found.changes_T.tolist()
    widths = [None] * len(texts) if found is None or found.trust == "too_far" else found.half_widths_T.tolist()
    return {
        (text.kind, text.group, text.member): Moved(
            kind=text.kind,
            group=text.group,
            member=text.member,
            measured=text.measured,
            forecast=change,
            half_width=width,
            verdict=verdict(change, width),
        )
        for text, change, width in zip(texts, changes, widths, strict=True)
    }


def verdict(change: float | None, half_width: float | None) -> Verdict:
    """
    >>> verdict(0.5, 0.1), verdict(-0.5, 0.1), verdict(0.05, 0.1), verdict(None, None)
    ('up', 'down', 'direction not determined', 'no number')
    """
    if change is None or half_width is None:
        return "no number"
    if abs(change) <= half_width:
        return "direction not determined"
    return "up" if change > 0 else "down"


def _weights(step: RecordedStep, groups: Sequence[Group], settings: UpdateSettings, update: int) -> tuple[Weights, Weights]:
    """Token weights of the update before and after; without any where the record does not say."""
    recorded = {stream.rollout: stream.token_weight for stream in step.report.updates[update].streams if stream.token_weight}
    known = update == 0 and step.settings.train.minibatches == 1
    known = known and all(not any(map(math.isnan, values)) for values in step.before.values())
    return recorded, token_weights(groups, settings, step.before) if known else {}


def _answer(
    step: RecordedStep,
    pair: tuple[Rollout, Rollout],
    weights: tuple[Weights, Weights],
    moved: Mapping[tuple[str, int | None, int | None], Moved],
    settings: UpdateSettings,
) -> AnswerChange:
    old, new = pair
    id_ = old.id
    nothing = Moved(
        kind="rollout", group=id_.group, member=id_.member, measured=None, forecast=None, half_width=None, verdict="no number"
    )
    before, after = (None if (found := one.get(id_)) is None else tuple(found) for one in weights)
    return AnswerChange(
        member=id_.member,
        text=old.completion.text,
        scores=tuple(_scores(old, new, step.ranges)),
        reward_before=old.reward,
        reward_after=new.reward,
        advantage_before=old.advantage,
        advantage_after=new.advantage,
        left_out="" if counts(new, settings.algorithm) else left_out_because(new),
        token_weights_before=before,
        token_weights_after=after,
        moved=moved.get(("rollout", id_.group, id_.member), nothing),
    )


def _scores(old: Rollout, new: Rollout, ranges: Mapping[str, Range]) -> list[ScoreChange]:
    names = dict.fromkeys(score.reward for score in (*old.scores, *new.scores))
    return [
        ScoreChange(
            reward=name,
            before=_shown(old, name, ranges.get(name, Range())),
            after=_shown(new, name, ranges.get(name, Range())),
        )
        for name in names
    ]


def _shown(rollout: Rollout, name: str, range_: Range) -> float | None:
    values = [score.value for score in rollout.scores if score.reward == name and score.value is not None]
    return range_.to_score(math.fsum(values)) if values else None


def with_real(found: WhatIf, changes: Mapping[RolloutId, float], **redone: Any) -> WhatIf:
    """The answer with the changes that were really measured beside the forecasts."""

    def real(one: Moved) -> Moved:
        if one.kind != "rollout" or one.group is None or one.member is None:
            return one
        return replace(one, real=changes.get(RolloutId(found.step, one.group, one.member)))

    answers = tuple(replace(each, moved=real(each.moved)) for each in found.answers)
    return replace(found, answers=answers, others=tuple(map(real, found.others)), **redone)

"""One step, group by group: what each reward said, what the group made of it, and the advantage that came out.

Decisions:
1. A view is plain data (`--json` prints it); rendering is another module and adds nothing.
2. Whoever was left out is shown with the reason, at the place where the number would have been.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import ValidationError

from toishi.algorithms.rows import Algorithm
from toishi.algorithms.shaping import counts
from toishi.algorithms.terms import Term, named, term_of
from toishi.errors import RecordError
from toishi.explanation.formula import formula, worked
from toishi.record import Run
from toishi.record.source import absent_links
from toishi.types import Group, Rollout, Score, StepReport


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberView:
    """One answer.

    advantage   a number, one number per token, or None before it was computed
    num_tokens  None where the tokens are not on record; `status` is 'unknown' where it is not said how the answer ended
    left_out    why the answer is outside the baseline; empty when it takes part
    weight_sum  sum over its tokens of d loss / d logprob in the first update it took part in; None when it was in none.
                Negative makes the answer more likely
    """

    member: int
    answer: str
    scores: tuple[Score, ...]
    reward: float | None
    advantage: float | tuple[float, ...] | None
    num_tokens: int | None
    status: str
    left_out: str
    weight_sum: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """One prompt and its answers; `summary` says what the group taught, `worked` shows one advantage with its numbers."""

    group: int
    prompt: str
    gold: str
    members: tuple[MemberView, ...]
    mean: float | None
    std: float | None
    count: int
    kept: bool
    summary: str
    worked: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """One step of a run."""

    folder: str
    step: int
    algorithm: str
    formula: str
    sentence: str
    groups: tuple[GroupView, ...]
    updates: tuple[Mapping[str, float], ...]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def step_report(run: Run, step: int) -> StepView:
    """What happened in `step`.

    Raises RecordError when the step is not on record or its files are damaged.
    """
    report, absent = run.step(step), absent_links(run.run)
    row, max_new_tokens = algorithm_of(run)
    weights = _weight_sums(report)
    return StepView(
        folder=str(run.folder),
        step=step,
        algorithm=row.name,
        formula=f"advantage: {absent['advantage']}" if "advantage" in absent else formula(row),
        sentence=_sentence(report, row, absent),
        groups=tuple(_group(group, report.groups, row, max_new_tokens, weights, absent) for group in report.groups),
        updates=tuple(dict(update.scalars) for update in report.updates),
    )


def algorithm_of(run: Run) -> tuple[Algorithm, int]:
    """The run's row of choices and its token limit, from run.json."""
    try:
        config = run.run["config"]
        return Algorithm.model_validate(config["algorithm"]), int(config["sampling"]["max_new_tokens"])
    except (KeyError, TypeError, ValidationError) as error:
        raise RecordError(
            f"{run.folder / 'run.json'}: config.algorithm or config.sampling cannot be read ({error}). "
            "Restore the file from a copy, or use the toishi version that the run was made with"
        ) from None


def critic_warmup_of(config: Mapping[str, Any]) -> int:
    """In how many first steps only the critic learned; runs of earlier versions have no critic.

    >>> critic_warmup_of({"critic": {"warmup_steps": 3}}), critic_warmup_of({})
    (3, 0)
    """
    return int((config.get("critic") or {}).get("warmup_steps", 0))


def terms_of(run: Run, groups: Sequence[Group]) -> tuple[Term, ...]:
    """How each reward that scored these groups enters the sum, from run.json; plain weights where it does not say."""
    names = list(dict.fromkeys(score.reward for group in groups for r in group.rollouts for score in r.scores))
    sections = run.run["config"].get("rewards") or ()
    if len(sections) != len(names):
        return ()
    try:
        return named([term_of(section) for section in sections], names)
    except (TypeError, ValueError) as error:
        raise RecordError(
            f"{run.folder / 'run.json'}: config.rewards cannot be read ({error}). Restore the file from a copy"
        ) from None


def _group(
    group: Group,
    groups: Sequence[Group],
    row: Algorithm,
    max_new_tokens: int,
    weights: Mapping[Any, float],
    absent: Mapping[str, str],
) -> GroupView:
    baseline = group.baseline
    return GroupView(
        group=group.rollouts[0].id.group,
        prompt=group.prompt.shown,
        gold="" if group.prompt.gold is None else json.dumps(group.prompt.gold, ensure_ascii=False),
        members=tuple(_member(rollout, row, weights.get(rollout.id), absent) for rollout in group.rollouts),
        mean=baseline.mean if baseline else None,
        std=baseline.std if baseline else None,
        count=baseline.count if baseline else 0,
        kept=baseline.kept if baseline else True,
        summary="the baseline is not on record" if "baseline" in absent else _summary(group, row),
        worked="" if "advantage" in absent else worked(group, groups, row, max_new_tokens),
    )


def _member(rollout: Rollout, row: Algorithm, weight_sum: float | None, absent: Mapping[str, str]) -> MemberView:
    return MemberView(
        member=rollout.id.member,
        answer=rollout.completion.text,
        scores=rollout.scores,
        reward=rollout.reward,
        advantage=rollout.advantage,
        num_tokens=None if "tokens" in absent else rollout.completion.num_tokens,
        status="unknown" if rollout.completion.finish_reason == "unknown" else rollout.status,
        left_out="" if counts(rollout, row) else left_out_because(rollout),
        weight_sum=weight_sum,
    )


def left_out_because(rollout: Rollout) -> str:
    """Why an answer that does not count is outside the baseline."""
    if rollout.status == "failed":
        return rollout.failure or "failed"
    if rollout.reward is None:
        return "no reward applies to it (all abstained)"
    return "cut by the token limit (truncation: mask)"


def _summary(group: Group, row: Algorithm) -> str:
    """What the group's numbers are and whether it taught anything, in one sentence."""
    baseline = group.baseline
    if baseline is None:
        return "no baseline was computed"
    size = len(group.rollouts)
    who = (
        f"{baseline.count} answers"
        if baseline.count == size
        else f"{baseline.count} of {size} answers (the others are left out)"
    )
    numbers = (
        "no answer counts" if baseline.mean is None else f"mean {baseline.mean:.3f}, std {baseline.std or 0.0:.3f} over {who}"
    )
    if not baseline.kept:
        return f"{numbers}; dropped: {baseline.why}"
    note = f" ({baseline.why})" if baseline.why else ""
    if row.needs_group and group.is_tied:
        return f"{numbers}; all equal, so there is nothing to compare: advantage 0{note}"
    return numbers + note


def _weight_sums(report: StepReport) -> dict[Any, float]:
    sums: dict[Any, float] = {}
    for update in report.updates:
        for stream in update.streams:
            if stream.token_weight or not stream.computed:
                sums.setdefault(stream.rollout, sum(stream.token_weight))
    return sums


def _sentence(report: StepReport, row: Algorithm, absent: Mapping[str, str]) -> str:
    """The step's numbers in words; what is not on record is left out."""
    rewards = [rollout.reward for rollout in report.rollouts if rollout.reward is not None]
    mean = f"mean reward {sum(rewards) / len(rewards):.3f}" if rewards else "no reward"
    unscored = len(report.rollouts) - len(rewards)
    tied = sum(group.is_tied for group in report.groups)
    parts = [
        f"{len(report.rollouts)} answers to {len(report.groups)} prompts, {mean}",
        f"{unscored} without a reward" if unscored else "",
        f"{len(report.groups) - tied} of {len(report.groups)} groups mixed",
        "" if "gradient" in absent else _updates(len(report.updates)),
        *(_named(report, name, words) for name, words in _HEADLINES.items()),
    ]
    return f"step {report.step} ({row.name}): " + ", ".join(part for part in parts if part)


def _updates(count: int) -> str:
    return f"{count} optimizer update{'s' * (count != 1)}"


_HEADLINES = {
    "update/grad_norm": "gradient norm {:.3g}",
    "update/lr": "learning rate {:.3g}",
    "answers/mean_tokens": "{:.1f} tokens an answer",
    "time/step_s": "{:.1f} s",
}


def _named(report: StepReport, name: str, words: str) -> str:
    value = report.metrics.get(name)
    return "" if value is None else words.format(value)

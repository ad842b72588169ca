"""Everything that can be found wrong with a recipe before its first step, in one report.

Decisions:
1. Findings are collected, not raised: a person mends all of them at once. An error means that training could not start, a
   warning that it would start and may disappoint.
2. The cheap part needs no model (preflight.py: packages, data, rewards on real rows). The full part loads it, renders the
   prompts as `train` does (rendering.py), samples a few groups and adds up the memory.
3. Forecast of the share of groups that teach: what was seen on a few groups, and from each prompt's success rate p the chance
   1 - p^G - (1-p)^G that a group of another size is mixed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from toishi.config import Config
from toishi.disk import DiskEstimate, estimate_disk
from toishi.errors import ModelError, ToishiError
from toishi.evaluate import summarise
from toishi.forecast import Forecast, forecast
from toishi.golds import GoldReadings, readings
from toishi.memory import MemoryPlan
from toishi.policy.critic import require_hidden_states
from toishi.policy.served_teacher import open_teacher
from toishi.preflight import Finding, Preflight, preflight
from toishi.rendering import render_all
from toishi.rewards.base import Reward
from toishi.rewards.hooks import closing
from toishi.rollout import sample_groups
from toishi.sampler import Sampler
from toishi.scoring import AttackReport, DryRunRow, attack_cost, score_groups, try_attacks
from toishi.session import planned, sampling_of
from toishi.tasks.base import Task
from toishi.types import Score
from toishi.written import look_at_rows

FORECAST_PROMPTS, _MOST_ANSWERS = 8, 64


@dataclass(kw_only=True)
class CheckReport:
    """What was found; the parts that could not be looked at (because an earlier one failed) are None or empty.

    rendered  which prompts were rendered, in words
    notes     what the rewards say of themselves: limits that hold here, what a probe found
    dry_run   what the rewards said of made-up answers to one real row
    attacks   what the rewards paid for answers that try to be paid without being right; None when it was not tried
    golds     how the golds were read by type
    examples  (text, reward, cut at the limit, reasons) of one sampled group's answers to `example_prompt`
    readable  share of the sampled answers in which an answer could be read; None when no reward looks for one
    """

    config: Config
    findings: list[Finding] = field(default_factory=list)
    num_train: int | None = None
    num_heldout: int = 0
    rows_checked: int = 0
    notes: tuple[str, ...] = ()
    golds: tuple[GoldReadings, ...] = ()
    dry_run: tuple[DryRunRow, ...] = ()
    attacks: AttackReport | None = None
    model: dict[str, Any] | None = None
    prompt: dict[str, Any] | None = None
    rendered: str = ""
    longest_prompt: int | None = None
    memory: MemoryPlan | None = None
    disk: DiskEstimate | None = None
    forecast: Forecast | None = None
    example_prompt: str = ""
    examples: tuple[tuple[str, float | None, bool, str], ...] = ()
    readable: float | None = None

    @property
    def ok(self) -> bool:
        """Training could start."""
        return all(finding.level != "error" for finding in self.findings)

    def error(self, part: str, message: str) -> None:
        self.findings.append(Finding("error", part, message))

    def warn(self, part: str, message: str) -> None:
        self.findings.append(Finding("warning", part, message))

    def as_record(self) -> dict[str, Any]:
        plain = asdict(self) | {"config": self.config.model_dump(mode="json")}
        plain["findings"] = [{"level": f.level, "part": f.part, "message": f.message} for f in self.findings]
        plain["dry_run"] = [{"answer": row.answer, "text": row.text, "reward": row.reward} for row in self.dry_run]
        if self.memory is not None:
            plain["memory"] |= self.memory.as_record()
        if self.disk is not None:
            plain["disk"] |= {"needed": self.disk.needed, "fits": self.disk.fits}
        return {"ok": self.ok, **plain}


def check(
    config: Config, *, with_model: bool = True, with_attacks: bool = True, say: Callable[[str], None] | None = None
) -> CheckReport:
    """Looks at everything that can be looked at. Raises nothing for what is wrong with the recipe: that is in the report.

    say  is told, before it happens, what the attacks on the rewards will cost, where they cost anything
    """
    found = preflight(config)
    report = CheckReport(config=config, findings=list(found.findings), rows_checked=len(found.rows))
    if found.task is not None:
        report.num_train, report.num_heldout = found.task.num_train, len(found.task.heldout_prompts())
    if found.dry_run is not None:
        first = found.dry_run.rows[0].prompt.id
        report.dry_run = tuple(row for row in found.dry_run.rows if row.prompt.id == first)
    report.notes = found.notes
    report.golds = readings(found.rewards or (), found.rows)
    with closing(found.rewards or ()):
        if with_attacks and found.rewards and report.ok:
            _check_attacks(report, found, say)
        if with_model and found.task is not None:
            _check_model(report, found.task, found)
    return report


def _check_attacks(report: CheckReport, found: Preflight, say: Callable[[str], None] | None) -> None:
    rewards = found.rewards or ()
    cost = attack_cost(rewards, found.rows)
    if cost and say is not None:
        say(cost)
    try:
        report.attacks = try_attacks(rewards, report.config.rewards, found.rows)
    except ToishiError as error:
        report.error("attacks", str(error))
        return
    if report.attacks.warning:
        report.warn("attacks", report.attacks.warning)


def _check_model(report: CheckReport, task: Task, found: Preflight) -> None:
    config = report.config
    try:
        sampler = Sampler.open(config.model, seed=config.seed, predicts=config.algorithm.predicts)
        report.model = describe_model(sampler)
    except ToishiError as error:
        report.error("model", str(error))
        return
    _check_teacher(report, sampler)
    _check_critic(report, sampler)
    _check_prompts(report, task, sampler)
    _check_memory(report, sampler, found.rewards or ())
    _check_disk(report, sampler)
    if found.rewards and report.ok and config.algorithm.answers_per_prompt is None:  # what is written is not sampled
        _check_signal(report, sampler, task, found.rewards)


def reasons(scores: Sequence[Score]) -> str:
    """What the rewards said, in one line.

    >>> reasons([Score(reward="number", value=1.0, reason="read 7, gold 7"), Score(reward="length", value=0.5)])
    'read 7, gold 7'
    """
    return "; ".join(score.reason for score in scores if score.reason)


def describe_model(sampler: Sampler) -> dict[str, Any]:
    """The model in plain values."""
    return {
        "source": sampler.loaded.source,
        "architecture": type(sampler.loaded.module).__name__,
        "parameters": sampler.policy.num_parameters,
        "trained": sampler.policy.num_trained,
        "dtype": sampler.machine.dtype,
        "device": sampler.machine.device,
        "path": sampler.able.why,
    }


def _check_teacher(report: CheckReport, sampler: Sampler) -> None:
    """Loads the teacher beside the model, so that its memory is counted too."""
    config = report.config
    if config.teacher is None:
        return
    try:
        sampler.policy.teacher = open_teacher(config.teacher, sampler.policy, sampler.loaded.tokenizer, seed=config.seed)
    except ToishiError as error:
        report.error("model", str(error))


def _check_critic(report: CheckReport, sampler: Sampler) -> None:
    if not report.config.algorithm.needs_critic:
        return
    try:
        require_hidden_states(sampler.policy)
    except ToishiError as error:
        report.error("critic", str(error))


def _check_prompts(report: CheckReport, task: Task, sampler: Sampler) -> None:
    rendered = render_all(report.config, task, sampler.renderer, sampler.policy.module)
    report.rendered, report.longest_prompt = rendered.looked_at, rendered.longest
    if rendered.error is not None:
        report.error("model" if isinstance(rendered.error, ModelError) else "prompts", str(rendered.error))
    for note in rendered.notes:
        report.warn("prompts", note)
    try:
        for note in look_at_rows(report.config, task, sampler.renderer):
            report.warn("data", note)
    except ToishiError as error:
        report.error("data", str(error))
    with suppress(ToishiError):  # a first prompt that cannot be rendered is in the report already
        report.prompt = sampler.renderer.describe(sampler.renderer.render(task.train_prompt(0)))


def _check_memory(report: CheckReport, sampler: Sampler, rewards: Sequence[Reward]) -> None:
    if report.longest_prompt is None:
        return
    report.memory = planned(report.config, sampler.policy, report.longest_prompt, rewards)
    if report.memory.fits is False:
        report.error("memory", report.memory.refusal)


def _check_disk(report: CheckReport, sampler: Sampler) -> None:
    policy = sampler.policy
    report.disk = estimate_disk(
        report.config,
        trained=policy.num_trained,
        weight_bytes=next(iter(policy.masters.values())).element_size(),
        tokenizer=sampler.loaded.tokenizer,
    )
    if report.disk.fits is False:
        report.warn(
            "disk",
            f"the checkpoints take {report.disk.words}. Keep fewer (checkpoint.keep_last, checkpoint.anchor_every, "
            "checkpoint.keep_best), train adapters (model.lora={}), or set record.folder to another disk",
        )


def _check_signal(report: CheckReport, sampler: Sampler, task: Task, rewards: Sequence[Reward]) -> None:
    """Samples a few groups as the first step would, and scores them."""
    config = report.config
    count = FORECAST_PROMPTS if task.num_train is None else min(FORECAST_PROMPTS, task.num_train)
    prompts = [sampler.renderer.render(task.train_prompt(index)) for index in range(count)]
    size = min(config.train.group_size, _MOST_ANSWERS)
    try:
        groups = sample_groups(prompts, sampler.engine, sampling_of(config), seed=config.seed, step=0, group_size=size)
        groups = score_groups(groups, rewards, config.rewards)
    except ToishiError as error:
        report.error("sampling", str(error))
        return
    report.forecast = forecast(groups, group_size=size, compares=config.algorithm.needs_group)
    shown = next((group for group in groups if not group.is_tied), groups[0])
    report.example_prompt = shown.prompt.shown
    report.examples = tuple(
        (one.completion.text, one.reward, one.completion.is_truncated, reasons(one.scores)) for one in shown.rollouts
    )
    report.readable = summarise(groups, sampling_of(config), step=0, samples=size).readable
    if report.forecast.verdict != "go":
        report.warn("sampling", f"{report.forecast.verdict}: {report.forecast.why}")
    if report.forecast.truncated > 0.5:
        report.warn(
            "sampling",
            f"{report.forecast.truncated:.0%} of the answers hit the limit of {config.sampling.max_new_tokens} tokens",
        )
    failed = [rollout.failure for group in groups for rollout in group.rollouts if rollout.status == "failed"]
    if failed:
        report.warn("rewards", f"{len(failed)} of {count * size} sampled answers could not be scored, first: {failed[0]}")

"""The loop: a table of contents. Each line of a step is one stage with a file of its own.

    prompts -> sources.py (rollout.py -> scoring.py, or written.py) -> algorithms/apply.py (advantages)
            -> packing.py + update.py -> record/

Decisions:
1. A step exists once its metrics line is written; a checkpoint is taken only after that. Killed at any moment, a run goes on
   from its last checkpoint, and what came after it is moved aside, not mixed in.
2. A run that is stopped by a health rule or by a reward that broke its contract is saved first, so that `resume` loses no step.
3. The loop holds no algorithm, no file format and no branch on a name.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from toishi.algorithms.apply import assign_advantages
from toishi.algorithms.critic import CRITIC_CHECKSUM, critic_metrics
from toishi.algorithms.preference import pair_metrics
from toishi.algorithms.teaching import SERVED_METRICS
from toishi.checkpoints import save_checkpoint
from toishi.config import Config
from toishi.display import Display
from toishi.errors import ConfigError, HealthStop, NumericsError, RewardError
from toishi.evaluate import Evaluation, best_step
from toishi.gap import measure_gap
from toishi.given import NOTHING_GIVEN, Given
from toishi.health import Alarm, examine
from toishi.health.numerics import GAP_LIMITS
from toishi.heldout import measure
from toishi.memory import telling_what_to_change
from toishi.metrics import WEIGHTS_CHECKSUM, sampler_gap, step_metrics, timing_metrics
from toishi.ops.checksum import weights_checksum
from toishi.passes import renew_reference, with_reference, with_values
from toishi.policy.saving import save_model
from toishi.record.schema import step_name
from toishi.record.writer import RunWriter
from toishi.resuming import reopen
from toishi.rewards.hooks import closing, usage_of
from toishi.scoring import scoring_summary, usage_since
from toishi.session import Session, gather, start
from toishi.sources import SOURCES
from toishi.stopping import Stopper
from toishi.tracing.live import keep_trace, live_updates, refused_trace
from toishi.tracked import tracking
from toishi.types import Group, StepReport


@dataclass(frozen=True)
class Result:
    """How a run ended: the folder that holds everything, and the evaluations."""

    folder: Path
    finished: bool
    step: int
    evaluations: tuple[Evaluation, ...]


def train(
    config: Config, folder: Path | str | None = None, display: Display | None = None, given: Given = NOTHING_GIVEN
) -> Result:
    """Train from the start. `folder` is the run folder to make; by default a new one inside `config.record.folder`."""
    display = display or Display.silent()
    target = possible(Path(folder)) if folder is not None else new_folder(config)
    materials = gather(config, given)
    with closing(materials.rewards):
        with display.waiting("loading the model"):
            session = start(config, materials, target)
        with session.writer:
            display.started(session)
            return run(session, display)


def resume(folder: Path | str, display: Display | None = None, given: Given = NOTHING_GIVEN) -> Result:
    """Go on with a run that was interrupted, from its last intact checkpoint (from its beginning if it never had a step)."""
    display = display or Display.silent()
    with RunWriter.open(Path(folder)) as writer:
        session = reopen(writer, display, given)
        with closing(session.rewards):
            return run(session, display)


def run(session: Session, display: Display) -> Result:
    """Steps until the last one, an interrupt, or a health stop; evaluations and checkpoints when due."""
    config = session.config
    with Stopper() as stopper, display.progress(session), tracking(session, display) as followed:
        if session.step == 0:
            checkpoint(session)
            measure(session, display, full=True)
        while session.step < config.train.steps and not stopper.requested:
            with saved_before_a_reward_stops(session, display), telling_what_to_change(session.step + 1, session.memory):
                report = train_step(session, display)
            session.writer.write_step(report, session.renderer.pieces, streams=session.config.record.tokens)
            session.step, session.metrics = report.step, [*session.metrics, {"step": report.step, **report.metrics}]
            display.step(session, report)
            followed.advance(session.step)
            last = session.step == config.train.steps
            if last or due(session.step, config.evaluation.every):
                measure(session, display, full=last)
            if last or stopper.requested or due(session.step, config.checkpoint.every):
                checkpoint(session)
            raise_alarms(session, display)
    finished = session.step >= config.train.steps
    display.ended(session, finished)
    return Result(session.writer.folder, finished, session.step, tuple(session.evaluations))


def train_step(session: Session, display: Display) -> StepReport:
    """One step: sample, score, compare, update. Only a trace is written here; the step is not on record yet."""
    config, step = session.config, session.step + 1
    clock, used = Clock(), usage_of(session.rewards)
    renew_reference(session.policy, session.settings, step)
    gathered = SOURCES[config.algorithm.source](session, step, clock, display)
    groups = gathered.groups
    with clock("update"):
        groups = with_reference(session.policy, groups, session.settings)
        groups = with_values(session.critic, groups, session.settings)
        groups = assign_advantages(groups, config.algorithm, max_new_tokens=config.sampling.max_new_tokens)
        gap = gap_before(session, groups, step)
    try:
        updates = live_updates(session, groups, step, clock)
    except NumericsError as error:
        refused(session, groups, step, str(error))
        raise
    with clock("update"):
        checksums = {WEIGHTS_CHECKSUM: weights_checksum(session.policy.masters)}
        if session.critic is not None:
            checksums[CRITIC_CHECKSUM] = weights_checksum(session.critic.masters)
        if not session.sampling.truncates:
            streams = [stream for update in updates for stream in update.streams]
            gap = sampler_gap(groups, streams) or gap or measure_gap(session.policy, groups, session.settings, session.sampling)
    clock.close()
    numbers = step_metrics(groups, updates, refill_rounds=gathered.refill_rounds, next_prompt=session.next_prompt, gap=gap)
    numbers |= (
        {"prompts/left_out": gathered.left_out}
        | pair_metrics(groups, config.algorithm)
        | critic_metrics(groups, updates)
        | dict.fromkeys(SERVED_METRICS)
        | ({} if session.policy.teacher is None else dict(session.policy.teacher.figures()))
        | scoring_summary(groups)
        | usage_since(used, session.rewards)
    )
    numbers |= timing_metrics(clock.seconds, int(numbers["tokens/sampled"] or 0))
    metrics = {**numbers, **checksums}
    return StepReport(step=step, groups=groups, updates=updates, metrics=metrics, timings_s=clock.seconds)


def refused(session: Session, groups: tuple[Group, ...], step: int, message: str) -> None:
    """Write out the answers of a step whose numbers were not finite and, if asked for, where they were not."""
    session.writer.write_failure(step, groups, message)
    if "nan" in session.config.record.trace_when:
        keep_trace(session, refused_trace(session.learner, groups, step, message))


def gap_before(session: Session, groups: tuple[Group, ...], step: int) -> tuple[float, float] | None:
    """(mean, max) sampler gap before the weights move, where the update's own log-probs cannot tell it: at the first step,
    which is refused when sampler and trainer do not mean the same model, and where sampling cuts the distribution.
    """
    if step > 1 and not session.sampling.truncates:
        return None
    found = measure_gap(session.policy, groups, session.settings, session.sampling)
    if found is None:
        return None
    mean, largest = found
    limit = session.config.health.max_sampler_gap or GAP_LIMITS[session.dtype]
    if step == 1 and not mean <= limit:
        raise HealthStop(
            f"sampler and trainer disagree: |log-prob as sampled - log-prob as trained| is {mean:.3g} nats on average "
            f"(largest {largest:.3g}), expected at most {limit:g}. No weight was changed. Set model.dtype=float32; if it "
            "stays, this architecture does not give the same result in batches: please report it"
        )
    return mean, largest


def checkpoint(session: Session) -> None:
    """Write the masters as an ordinary model folder, with optimizer and data position, and keep what the policy says."""
    config = session.config.checkpoint

    masters = session.policy.masters
    dtype = next(iter(masters.values())).dtype

    def write_model(folder: Path) -> None:
        save_model(session.policy.module, session.tokenizer, folder, weights=masters, dtype=dtype)

    state: dict[str, Any] = {"optimizer": session.optimizer.state_dict(), "next_prompt": session.next_prompt}
    if session.critic is not None:
        state["critic"] = session.critic.state()
    if session.config.algorithm.reference_every > 0:
        state["reference"] = session.policy.reference_state()
    path = save_checkpoint(
        session.writer.folder, session.step, write_model, state,
        keep_last=config.keep_last, protect=protected(session), lines=session.writer.heads(),
    )  # fmt: skip
    session.writer.write_event({"step": session.step, "kind": "checkpoint", "message": path.name})


def protected(session: Session) -> set[int]:
    """Steps whose checkpoints are never pruned: replay anchors and the best evaluation so far."""
    config = session.config.checkpoint
    keep = {step for step in range(session.step + 1) if due(step, config.anchor_every)}
    best = best_step(session.evaluations) if config.keep_best else None
    return keep if best is None else keep | {best}


def raise_alarms(session: Session, display: Display) -> None:
    """Say what the health rules see, once each; when one says stop, save what the step made of the weights, and stop."""
    alarms: list[Alarm] = examine(session.metrics, session.evaluations, session.config, session.said, dtype=session.dtype)
    for alarm in alarms:
        session.said.add(alarm.rule)
        session.writer.write_event({"step": session.step, "kind": "health", **alarm.as_record()})
        if alarm.action != "stop":
            display.alarm(alarm)
    stopping = [alarm for alarm in alarms if alarm.action == "stop"]
    if stopping:
        save_if_whole(session)
        display.ended(session, finished=False)
        look = f"See the step's answers, scores and reasons with: toishi explain {session.writer.folder} --step {session.step}"
        raise HealthStop("\n".join([*(alarm.text for alarm in stopping), look]))


@contextmanager
def saved_before_a_reward_stops(session: Session, display: Display) -> Iterator[None]:
    """A step that a reward made impossible is taken back, and the steps before it are saved before the error goes on."""
    position = session.next_prompt
    try:
        yield
    except RewardError:
        session.next_prompt = position
        save_if_whole(session)
        display.ended(session, finished=False)
        raise


def save_if_whole(session: Session) -> None:
    """A checkpoint of this step, unless there is one, or the weights are not finite and nobody should go on from them."""
    is_saved = (session.writer.folder / "checkpoints" / step_name(session.step)).exists()
    if not is_saved and all(bool(torch.isfinite(weight).all()) for weight in session.policy.masters.values()):
        checkpoint(session)


def new_folder(config: Config) -> Path:
    """A fresh name: runs/<name>-<date>-<time>, with a counter if that exists."""
    stem = f"{config.name}-{time.strftime('%Y%m%d-%H%M%S')}"
    candidates = (Path(config.record.folder) / (stem if not count else f"{stem}-{count}") for count in range(1000))
    return next(path for path in map(possible, candidates) if not path.exists())


def possible(folder: Path) -> Path:
    """Itself. Raises ConfigError for a path that the file system takes for none, before anything is loaded."""
    try:
        folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return folder
    except OSError as error:
        raise ConfigError(
            f"the run folder {str(folder)!r:.120} is no path that can be used: {error.strerror}. Choose another: --set "
            "name=..., --set record.folder=..., or --out FOLDER"
        ) from None
    return folder


def due(step: int, every: int) -> bool:
    """Whether something that happens every so many steps (0 = never) happens after this one."""
    return every > 0 and step % every == 0


class Clock:
    """Adds up wall seconds by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {"rollout": 0.0, "scoring": 0.0, "scoring_hidden": 0.0, "update": 0.0, "trace": 0.0}
        self._start = time.perf_counter()

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - begin

    def close(self) -> None:
        self.seconds["step"] = time.perf_counter() - self._start

"""TRLRecorder: an unmodified TRL script, and toishi's run folder beside it.

Decisions:
1. It must not change the training. It reads what TRL computed, and its own passes leave weights, modes and random state as they
   were: tests compare the weights bit for bit.
2. It must not stop the training either. What fails is told once as a warning with the step, the step is left out (with an event
   in events.jsonl), and recording goes on with the next one. Only a start that cannot be right raises, before the first step.
3. A recorded step is one generation with all updates that use it (or one update with all its generations): the smallest thing
   whose advantages and updates belong together. With TRL's defaults that is one TRL step.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback

from toishi.callbacks.document import run_record
from toishi.callbacks.measuring import distinct, logprobs, matrix_observer, trace_of, unknown_step
from toishi.callbacks.samples import Generation, groups_of
from toishi.callbacks.settings import Mapped, Rhythm, mapped
from toishi.callbacks.updates import MicroBatch, OpenUpdate, finished
from toishi.callbacks.wiring import find_trainer, listen
from toishi.errors import ConfigError, RecordError
from toishi.explanation.audit_updates import UNFINISHED
from toishi.metrics import step_metrics
from toishi.ops.norms import norm
from toishi.record.trace_files import write_trace
from toishi.record.writer import RunWriter
from toishi.scoring.summary import scoring_summary
from toishi.tracing.matrices import MatrixObserver
from toishi.types import Group, StepReport, Update

NOT_TRLS = ("prompts/next", "groups/refill_rounds", "update/tokens_computed", "entropy/mean_nats")
"""Metrics of toishi's own loop that have no counterpart here."""


@dataclass(slots=True)
class OpenStep:
    """A recorded step that is being made."""

    number: int
    first_global_step: int
    generations: list[Generation] = field(default_factory=list)
    batches: list[MicroBatch] = field(default_factory=list)
    updates: list[OpenUpdate] = field(default_factory=list)
    opened: OpenUpdate = field(default_factory=OpenUpdate)
    before: dict[int, Tensor] = field(default_factory=dict)
    observer: MatrixObserver | None = None
    seconds: float = 0.0
    spoilt: bool = False


class TRLRecorder(TrainerCallback):  # type: ignore[misc]
    """Writes a run folder while TRL's GRPOTrainer trains: `callbacks=[TRLRecorder("runs/trl")]`, nothing else changes.

    folder        the run folder; a new one, or the one of the run that `resume_from_checkpoint` goes on with
    trace_every   steps between traces (log-probs before and after the step, changes of every matrix): two more forward passes
                  of the step's answers and a copy of the trained weights each; 0 = none
    Raises ConfigError at the start of the training when it is given to another trainer than GRPOTrainer, RecordError when the
    folder holds another run. Later failures are warnings.
    """

    def __init__(self, folder: str | Path, *, trace_every: int = 1) -> None:
        if isinstance(trace_every, bool) or trace_every < 0:
            raise ConfigError(f"trace_every: expected a whole number, 0 or above, got {trace_every!r}; 0 means no traces")
        self.folder, self.trace_every = Path(folder), trace_every
        self._trainer: Any = None
        self._writer: RunWriter | None = None
        self._put_back: Callable[[], None] = lambda: None
        self._step: OpenStep | None = None
        self._warned = False
        self._kept = 0

    # transformers calls these

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Finds the trainer, starts or continues the folder, and listens."""
        trainer = self._trainer = _grpo_trainer(find_trainer(self))
        if trainer.accelerator.num_processes > 1:
            self._trainer = None
            warnings.warn("TRLRecorder records training in one process only; nothing is recorded", stacklevel=2)
            return
        self._rhythm = Rhythm(
            accumulation=int(args.gradient_accumulation_steps),
            split=int(args.steps_per_generation),
            iterations=int(trainer.num_iterations),
        )
        if not self._rhythm.is_even:
            raise ConfigError(
                f"TRLRecorder: gradient_accumulation_steps={self._rhythm.accumulation} and steps_per_generation x "
                f"num_iterations={self._rhythm.per_generation} do not divide one another, so updates mix "
                "parts of generations. Make one a multiple of the other, or leave the recorder out"
            )
        self._found: Mapped = mapped(trainer, self._rhythm)
        self._writer = self._opened(trainer, int(state.global_step))
        self._put_back = listen(trainer, self)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Looks at gradients and weights before the optimizer moves them."""
        self.guarded(self._before_update)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Looks at the weights after the optimizer moved them."""
        self.guarded(self._after_update)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Writes the recorded step when it is whole, or when the training is about to end."""
        whole = self._trainer is not None and self._trainer._step % self._rhythm.span == 0
        if whole or control.should_training_stop or state.global_step >= state.max_steps:
            self.guarded(lambda: self._write(int(state.global_step), unfinished=not whole))
            self._step = None

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Puts the trainer's functions back and closes the folder."""
        self._put_back()
        if self._writer is not None:
            self._writer.close()
        self._trainer = self._writer = self._step = None

    # the wires call these

    def generated(self, generation: Generation) -> int:
        """A generation was scored: the first of a step opens it."""
        number = self._kept + int(self._trainer._step) // self._rhythm.span + 1
        if self._step is None or self._step.number != number:
            self._step = OpenStep(number=number, first_global_step=int(self._trainer.state.global_step) + 1)
        first = sum(one.size for one in self._step.generations)
        self._step.generations.append(generation)
        return first

    def computed(self, batch: MicroBatch) -> None:
        """A micro-batch went forward."""
        step = self._open()
        step.batches.append(batch)
        step.opened.batches.append(batch)

    def measured(self, grad_norm: float) -> None:
        """The gradient's norm before clipping."""
        self._open().opened.grad_norm = grad_norm

    def guarded(self, work: Callable[[], Any]) -> Any:
        """Does `work`. What it raises spoils the step's record, never the training."""
        if self._writer is None or (self._step is not None and self._step.spoilt):
            return None
        began = time.perf_counter()
        try:
            return work()
        except Exception as error:  # the training of somebody else must go on, whatever this is
            self._failed(error)
            return None
        finally:
            if self._step is not None:
                self._step.seconds += time.perf_counter() - began

    # the recorder's own work

    def _opened(self, trainer: Any, global_step: int) -> RunWriter:
        found = run_record(trainer, self._found)
        if global_step == 0 or not (self.folder / "run.json").exists():
            return RunWriter.create(self.folder, found)
        writer = RunWriter.open(self.folder)
        self._kept = global_step * self._rhythm.accumulation // self._rhythm.span
        writer.undo_after(self._kept)
        return writer

    def _open(self) -> OpenStep:
        if self._step is None:
            raise RecordError("TRL used samples that were generated before the recorder listened")
        return self._step

    def _before_update(self) -> None:
        step, trainer = self._open(), self._trainer
        opened = step.opened
        gradients = [weight.grad for weight in trainer.model.parameters() if weight.grad is not None]
        opened.clipped_norm = float(torch.tensor([norm(gradient) for gradient in gradients], dtype=torch.float64).norm())
        opened.lr = float(trainer.optimizer.param_groups[0]["lr"])
        if not self.trace_every or (step.number - 1) % self.trace_every:
            return
        if not step.updates:
            step.before = logprobs(trainer, distinct(step.batches, trainer._buffered_inputs or ()))
            step.observer = (
                None if unknown_step(trainer.model, trainer.optimizer) else matrix_observer(trainer.model, trainer.optimizer)
            )
        if step.observer is not None:
            limit = float(trainer.args.max_grad_norm or 0.0)
            factor = min(1.0, limit / (opened.grad_norm + 1e-6)) if limit > 0 else 1.0
            step.observer.before(len(step.updates), factor)

    def _after_update(self) -> None:
        step = self._open()
        if step.observer is not None:
            step.observer.after(len(step.updates))
        step.updates.append(step.opened)
        step.opened = OpenUpdate()

    def _write(self, global_step: int, *, unfinished: bool) -> None:
        step, trainer, writer = self._open(), self._trainer, self._writer
        if writer is None:
            return
        groups = groups_of(step.generations, trainer, step.number, self._found)
        made = [finished(opened, step.number, index, groups, self._found) for index, opened in enumerate(step.updates)]
        updates, gaps = [update for update, _ in made], [gap for _, gap in made if gap is not None]
        metrics: dict[str, Any] = _metrics(groups, updates) | {
            "trl/first_global_step": step.first_global_step,
            "trl/last_global_step": global_step,
        }
        metrics |= {"trl/weight_gap": max(gaps)} if gaps else {}
        metrics |= {UNFINISHED: 1} if unfinished else {}
        trace = None
        if step.before:
            after = logprobs(trainer, distinct(step.batches, trainer._buffered_inputs or ()))
            trace = trace_of(step.number, groups, step.before, after, self._pieces, step.observer, trainer)
        report = StepReport(
            step=step.number, groups=groups, updates=tuple(updates), metrics=metrics, timings_s={"recording": step.seconds}
        )
        writer.write_step(report, self._pieces)
        if trace is not None:
            write_trace(self.folder, trace)

    def _pieces(self, token_ids: Any) -> list[str]:
        return [str(self._trainer._tokenizer.decode([token])) for token in token_ids]

    def _failed(self, error: Exception) -> None:
        number = self._step.number if self._step is not None else None
        if self._step is not None:
            self._step.spoilt = True
        what = f"TRLRecorder: step {number or '?'} is not recorded: {type(error).__name__}: {error}"
        if not self._warned:
            self._warned = True
            warnings.warn(f"{what}. The training goes on; further steps are tried, and told of in {self.folder}", stacklevel=2)
        try:
            if self._writer is not None:
                self._writer.write_event({"step": None, "kind": "not_recorded", "message": what})
        except RecordError:
            self._writer = None


def _grpo_trainer(found: Any) -> Any:
    """The found trainer, when it is TRL's GRPOTrainer. Raises ConfigError otherwise."""
    from trl import GRPOTrainer

    if not isinstance(found, GRPOTrainer):
        raise ConfigError(
            f"TRLRecorder records trl.GRPOTrainer, got {type(found).__name__}; give it as GRPOTrainer(..., callbacks=[...])"
        )
    return found


def _metrics(groups: tuple[Group, ...], updates: list[Update]) -> dict[str, Any]:
    found = step_metrics(groups, updates, refill_rounds=0, next_prompt=0, gap=None)
    return {name: value for name, value in found.items() if name not in NOT_TRLS} | dict(scoring_summary(groups))

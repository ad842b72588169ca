"""Stages of kind `train`: a run like any other, whose checkpoint is handed on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from toishi.config import Config
from toishi.display import Display
from toishi.evaluate import Evaluation
from toishi.loop import resume, train
from toishi.pipelines.sections import TrainStage
from toishi.pipelines.store import Made
from toishi.pipelines.work import Work
from toishi.record.reader import Run
from toishi.sampler import checkpoint_of

RUN = "run"


def make(work: Work) -> Made:
    """Trains, or goes on as `toishi resume` does. Raises KeyboardInterrupt when a person stopped the run, which is saved."""
    folder = work.folder / RUN
    display, begun = Display(work.console), (folder / "run.json").is_file()
    result = resume(folder, display) if begun else train(work.recipe, folder, display)
    if not result.finished:
        raise KeyboardInterrupt
    run = Run.open(folder)
    return Made(paths={"model": checkpoint_of(run, work.stage.checkpoint) / "model"}, facts=_facts(run, work.recipe))


def problems(stage: TrainStage, config: Config | None) -> Iterator[str]:
    """What a stage must not ask of a run."""
    assert config is not None
    if config.model.lora is not None or config.model.adapter is not None:
        yield "model.lora: a stage hands a whole model on, and an adapter is none; train all weights here"
    if config.train.steps == 0:
        yield "train.steps is 0: nothing would be trained; leave the stage out"


def speaks(stage: TrainStage, config: Config | None) -> bool:
    """A reward model answers no prompts."""
    return config is not None and config.algorithm.predicts == "tokens"


def _facts(run: Run, config: Config) -> dict[str, Any]:
    seconds = [float(line["time/step_s"]) for line in run.metrics if line.get("time/step_s") is not None]
    found = [Evaluation.from_record(line) for line in run.evaluations]
    return {
        "algorithm": config.algorithm.name,
        "steps": len(run.steps),
        "step_seconds": sum(seconds),
        "own": [{"mode": one.mode, "step": one.step, "value": one.value, "interval": one.interval} for one in found],
    }

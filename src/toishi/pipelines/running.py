"""A pipeline run: its stages in order, each once for each content, going on where it was interrupted.

Decisions:
1. All stages are checked before the first one begins (planning.py).
2. What a stage depends on is a sha256 (contents.py). Where that was finished before, it is not done again, whatever changed
   elsewhere; what takes from a stage that made something else is done again, and nothing besides.
3. A stage that was killed goes on as its command does: a run from its checkpoint, answers from the last one on the disk.
4. Models are measured as soon as they are there, the one that everything starts from first.
5. The precision is decided once for the whole pipeline, and kept in its folder.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.text import Text

from toishi.collecting.samples import sha256_of
from toishi.config import Config, ModelConfig
from toishi.display import Display
from toishi.errors import ConfigError, ToishiError
from toishi.evaluate import Evaluation
from toishi.machine import Machine
from toishi.pipelines.contents import IDENTITY_FREE, with_contents
from toishi.pipelines.measuring import known, measure_all
from toishi.pipelines.planning import Pipeline, Planned, faults_of, waits
from toishi.pipelines.references import Reference
from toishi.pipelines.sections import aims_of
from toishi.pipelines.store import Finished, Store
from toishi.pipelines.work import Work

State = Literal["finished", "kept", "begun", "next", "waits", "wrong"]
STATES: Mapping[str, str] = {
    "finished": "done now",
    "kept": "done before, and nothing that it depends on has changed",
    "begun": "interrupted; goes on where it was",
    "next": "to be done",
    "waits": "to be done; depends on stages before it",
    "wrong": "cannot be done as it is",
}
_WORDS_ONLY = ("recipe", "set", "about", "aim")
"""Keys of a stage that change nothing by themselves: the recipe counts as what it comes to."""
Measures = Mapping[str, list[Evaluation]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageView:
    """A stage as it stands.

    key            what it depends on, as a sha256; "" while that is not known
    model, start   contents of the model that it made and of the one that it started from; "" for none
    after, before  what these two came to on the held-out prompts
    """

    name: str
    kind: str
    about: str
    aim: tuple[str, ...]
    state: State
    key: str = ""
    folder: Path | None = None
    seconds: float | None = None
    sittings: int = 0
    paths: Mapping[str, Path] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""
    start: str = ""
    after: Measures = field(default_factory=dict)
    before: Measures = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineView:
    """A pipeline as it stands. `base`: what the model that everything starts from came to."""

    pipeline: Pipeline
    folder: Path
    stages: tuple[StageView, ...]
    base: Measures
    dtype: str

    @property
    def finished(self) -> bool:
        return all(stage.state in ("finished", "kept") for stage in self.stages)


def run_pipeline(pipeline: Pipeline, folder: Path, console: Console) -> PipelineView:
    """Runs what is not done yet. Raises what a stage raises, with the stage's name in front; what was done before stays."""
    store = Store(folder)
    with store.writing({"name": pipeline.name, "source": str(pipeline.source), "file": pipeline.file.model_dump(mode="json")}):
        pipeline = pipeline.with_dtype(store.decide(lambda: Machine.decide(_base_model(pipeline)).dtype))
        require_no_fault(pipeline, store)
        walk = _Walk(pipeline, store, console)
        base = walk.measure(pipeline.base, _sum_of(pipeline.base), "the model at the start") if walk.configs else {}
        for place, planned in enumerate(pipeline.stages, start=1):
            walk.do(place, planned)
    return PipelineView(
        pipeline=pipeline, folder=folder, stages=tuple(walk.views), base=base, dtype=str(pipeline.file.model["dtype"])
    )


def look_at(pipeline: Pipeline, folder: Path) -> PipelineView:
    """What would be done and what is done already; nothing is written."""
    store = Store(folder)
    dtype = store.decided()
    pipeline = pipeline.with_dtype(dtype) if dtype else pipeline
    walk = _Walk(pipeline, store, Console(quiet=True))
    for planned in pipeline.stages:
        walk.look(planned)
    base = known(store, walk.configs, _sum_of(pipeline.base))
    return PipelineView(pipeline=pipeline, folder=folder, stages=tuple(walk.views), base=base, dtype=dtype)


def faults(pipeline: Pipeline, folder: Path) -> dict[str, list[str]]:
    """Everything that is wrong with any stage, by where it is, before the first one begins."""
    return faults_of(pipeline, _paths(look_at(pipeline, folder)))


def require_no_fault(pipeline: Pipeline, store: Store) -> None:
    """Raises one ConfigError that lists every fault of every stage."""
    found = faults(pipeline, store.folder)
    if found:
        lines = [f"{where}: {fault}" for where, listed in found.items() for fault in listed]
        raise ConfigError("\n".join([f"{len(lines)} to mend before the first stage begins:", *lines]))


def _paths(view: PipelineView) -> dict[Reference, str]:
    return {Reference(stage.name, output): str(path) for stage in view.stages for output, path in stage.paths.items()}


def _base_model(pipeline: Pipeline) -> ModelConfig:
    return ModelConfig.model_validate(dict(pipeline.file.model))


def _sum_of(name: str) -> str:
    return str(with_contents(name))


class _Walk:
    """Goes through the stages in order and knows what those before made."""

    def __init__(self, pipeline: Pipeline, store: Store, console: Console) -> None:
        self.pipeline, self.store, self.console = pipeline, store, console
        self.views: list[StageView] = []
        self.configs = {name: pipeline.measured(name) for name in pipeline.file.measure}
        self._paths: dict[Reference, str] = {}
        self._sums: dict[Reference, str] = {}

    def look(self, planned: Planned) -> None:
        """Notes how a stage stands."""
        try:
            is_early = waits(*self.pipeline.stage_of(planned, self._sums))
        except ConfigError:
            self.views.append(self._view(planned, "wrong"))
            return
        if is_early:
            self.views.append(self._view(planned, "waits"))
            return
        key, _, start = self._identity(planned)
        done = self.store.finished(planned.name, key)
        if done is None:
            state: State = "begun" if self.store.is_begun(planned.name, key) else "next"
            self.views.append(self._view(planned, state, key=key))
            return
        self._take(planned, done)
        after = known(self.store, self.configs, done.sums.get("model", "")) if self._speaks(planned) else {}
        self.views.append(self._done(planned, "kept", key, done, start, after, known(self.store, self.configs, start)))

    def do(self, place: int, planned: Planned) -> None:
        """Does a stage, unless it was done."""
        key, identity, start = self._identity(planned)
        done = self.store.finished(planned.name, key)
        state: State = "finished" if done is None else "kept"
        self._say(place, planned, self.store.is_begun(planned.name, key), done)
        if done is None:
            done = self._make(planned, key, identity)
        self._take(planned, done)
        before: Measures = {}
        after: Measures = {}
        if self._speaks(planned):
            origin = planned.kind.starts(self.pipeline.stage_of(planned, self._paths)[0])
            before = self.measure(origin, start, f"what '{planned.name}' started from")
            after = self.measure(str(done.paths["model"]), done.sums["model"], f"what '{planned.name}' made")
        self.views.append(self._done(planned, state, key, done, start, after, before))

    def measure(self, model: str, model_sum: str, what: str) -> dict[str, list[Evaluation]]:
        """What a model comes to on all held-out prompts."""
        with _named(f"measuring {what}"):
            return measure_all(self.store, self.configs, model, model_sum, Display(self.console))

    def _make(self, planned: Planned, key: str, identity: Any) -> Finished:
        began = time.monotonic()
        stage, config = self.pipeline.stage_of(planned, self._paths)
        folder = self.store.begin(planned.name, key)
        work = Work(
            name=planned.name, stage=stage, config=config, folder=folder, seed=self.pipeline.file.seed, console=self.console
        )
        try:
            with _named(f"stage '{planned.name}'"):
                made = planned.kind.make(work)
        except KeyboardInterrupt:
            text = f"interrupted in stage '{planned.name}'; the same command goes on there"
            self.console.print(Text(text, style="yellow"))
            raise
        seconds = time.monotonic() - began
        self.store.finish(planned.name, key, made, kind=planned.stage.kind, identity=identity, seconds=seconds)
        done = self.store.finished(planned.name, key)
        assert done is not None
        return done

    def _identity(self, planned: Planned) -> tuple[str, Any, str]:
        """(sha256, that of which it is one, content of the model that the stage starts from)."""
        stage, config = self.pipeline.stage_of(planned, self._sums)
        keys = {key: value for key, value in stage.model_dump(mode="json").items() if key not in _WORDS_ONLY}
        recipe = None if config is None else _numbers_of(config)
        identity = with_contents({"stage": keys, "recipe": recipe, "seed": self.pipeline.file.seed})
        start = planned.kind.starts(stage)
        return sha256_of(identity), identity, _sum_of(start) if start else ""

    def _take(self, planned: Planned, done: Finished) -> None:
        for output, path in done.paths.items():
            self._paths[Reference(planned.name, output)] = str(path)
            self._sums[Reference(planned.name, output)] = done.sums[output]

    def _speaks(self, planned: Planned) -> bool:
        return bool(self.configs) and planned.kind.speaks(*self.pipeline.stage_of(planned, self._paths))

    def _say(self, place: int, planned: Planned, is_begun: bool, done: Finished | None) -> None:
        how = "kept: nothing that it depends on has changed" if done else "goes on where it was" if is_begun else "begins"
        text = f"\n[{place}/{len(self.pipeline.stages)}] {planned.name} ({planned.stage.kind}): {how}"
        self.console.print(Text(text, style="bold"))
        if planned.stage.about and done is None:
            self.console.print(Text(planned.stage.about, style="dim"))

    def _view(self, planned: Planned, state: State, **more: Any) -> StageView:
        stage = planned.stage
        return StageView(name=planned.name, kind=stage.kind, about=stage.about, aim=aims_of(stage), state=state, **more)

    def _done(
        self, planned: Planned, state: State, key: str, done: Finished, start: str, after: Measures, before: Measures
    ) -> StageView:
        return self._view(
            planned, state, key=key, folder=done.folder, seconds=done.seconds, sittings=done.sittings, paths=done.paths,
            facts=done.facts, model=done.sums.get("model", ""), start=start, after=after, before=before,
        )  # fmt: skip


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Errors that come out of it say where they came from."""
    try:
        yield
    except ToishiError as error:
        error.args = (f"{where}: {error}",)
        raise


def _numbers_of(config: Config) -> dict[str, Any]:
    return {key: value for key, value in config.model_dump(mode="json").items() if key not in IDENTITY_FREE}

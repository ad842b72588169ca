"""A pipeline file read, with everything that can be found wrong with any of its stages before the first one begins.

Decisions:
1. Every stage is looked at, and all faults are told at once, each under its stage's name: a misspelt key of the last stage is
   found before the first one trains for an hour.
2. What a stage takes from one that has not run yet is only known by name. Keys, options, packages and rewards are checked
   then; its data and prompts when it is there, by the run itself, before its first step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from toishi.config import Config, explained, read_file
from toishi.config.models import Section
from toishi.errors import ConfigError, ToishiError, nearest
from toishi.health import check_settings
from toishi.options import from_options
from toishi.packages import missing_packages
from toishi.pipelines.kinds import KINDS, Kind
from toishi.pipelines.references import FOLDER, Reference, parsed, references, resolved
from toishi.pipelines.sections import Measured, PipelineFile, Stage, aims_of
from toishi.pipelines.work import config_of
from toishi.preflight import preflight
from toishi.rewards import build_rewards
from toishi.rewards.hooks import closing
from toishi.tasks import TASKS

_SHIPPED = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A stage as its keys say, before anything that it names exists; `raw`: the keys themselves."""

    name: str
    kind: Kind
    raw: Mapping[str, Any]
    stage: Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """The whole file, read. `source`: where it lies."""

    file: PipelineFile
    source: Path
    stages: tuple[Planned, ...]

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def base(self) -> str:
        """The model of every stage that names none."""
        return str(self.file.model.get("name", "bundled"))

    def with_dtype(self, dtype: str) -> Pipeline:
        """The pipeline with a precision for every stage that sets none."""
        model = {"dtype": dtype, **self.file.model}
        return replace(self, file=self.file.model_copy(update={"model": model}))

    def lookup(self, name: str, made: Mapping[Reference, str]) -> str:
        """What `${name}` stands for: the file's folder, or what `made` says of an output; unknown ones stay as they are."""
        if name == FOLDER:
            return str(self.source.parent)
        _, stage, output = name.split(".", 2)
        return made.get(Reference(stage, output), f"${{{name}}}")

    def stage_of(self, planned: Planned, made: Mapping[Reference, str]) -> tuple[Any, Config | None]:
        """The stage's section and recipe with every name replaced by what `made` says. Raises ConfigError."""
        values = resolved(planned.raw, lambda name: self.lookup(name, made))
        stage = validated(planned.kind.section, values, f"stage '{planned.name}'")
        if "model" in type(stage).model_fields and stage.model is None:
            stage = stage.model_copy(update={"model": self.base})
        try:
            return stage, config_of(stage, name=planned.name, seed=self.file.seed, model=self.file.model)
        except ConfigError as error:
            raise ConfigError(_each_line(str(error), f"stage '{planned.name}'")) from None

    def measured(self, name: str) -> Config:
        """The recipe of what is measured, with the pipeline's seed and model. Raises ConfigError."""
        found: Measured = self.file.measure[name]
        changed = resolved({"recipe": found.recipe, "set": found.set}, lambda name: self.lookup(name, {}))
        try:
            config = config_of(found.model_copy(update=changed), name=name, seed=self.file.seed, model=self.file.model)
        except ConfigError as error:
            raise ConfigError(_each_line(str(error), f"measure '{name}'")) from None
        assert config is not None
        return config


def pipeline_names() -> tuple[str, ...]:
    """
    >>> pipeline_names()
    ('r1',)
    """
    return tuple(sorted(path.parent.name for path in _SHIPPED.glob("*/pipeline.yaml")))


def pipeline_path(pipeline: str) -> Path:
    """The file of a shipped pipeline, or the path itself when it is one. Raises ConfigError for what is neither."""
    path = Path(pipeline).expanduser()
    if path.is_file():
        return path
    if pipeline in pipeline_names():
        return _SHIPPED / pipeline / "pipeline.yaml"
    raise ConfigError(
        f"there is no file '{pipeline}', and no shipped pipeline of that name; {nearest(path.stem, pipeline_names())}"
    )


def read_pipeline(pipeline: str, overrides: Mapping[str, Any] | None = None) -> Pipeline:
    """A pipeline by name or path, with `STAGE.KEY` overrides, all names in it checked.

    Raises one ConfigError that lists every fault.
    """
    path = pipeline_path(pipeline)
    data = read_file(path, "pipeline")
    _override(data, overrides or {})
    file = validated(PipelineFile, data, "")
    order = tuple(file.stages)
    faults: list[str] = []
    outputs: dict[str, tuple[str, ...]] = {}
    stages = []
    for place, (name, raw) in enumerate(file.stages.items()):
        try:
            planned = _planned(name, raw, outputs, later=order[place:])
            stages.append(planned)
        except ConfigError as error:
            faults.append(str(error))
        kind = KINDS.get(str(raw.get("kind")))
        outputs[name] = () if kind is None else kind.outputs
    for planned in stages:
        faults += [
            f"stage '{planned.name}': aim: nothing is measured under the name '{aim}'; {_hint(aim, file.measure)}"
            for aim in aims_of(planned.stage)
            if aim not in file.measure
        ]
    for name, measured in file.measure.items():
        faults += [
            f"measure '{name}': ${{{found}}}: held-out prompts cannot come from a stage; there is ${{folder}}"
            for found in references({"recipe": measured.recipe, "set": measured.set})
            if found != FOLDER
        ]
    _require(faults)
    return Pipeline(file=file, source=path.resolve(), stages=tuple(stages))


def faults_of(pipeline: Pipeline, made: Mapping[Reference, str]) -> dict[str, list[str]]:
    """What is wrong with each stage and each measurement, by name; those without a fault are left out.

    made  what is there already, as paths
    """
    found = {f"stage '{planned.name}'": _faults_of_stage(pipeline, planned, made) for planned in pipeline.stages}
    for name in pipeline.file.measure:
        found[f"measure '{name}'"] = _faults_of_measured(pipeline, name)
    return {where: faults for where, faults in found.items() if faults}


def waits(stage: Stage, config: Config | None) -> bool:
    """Whether a stage takes something that is not there yet: a name that was not replaced."""
    keys = {key: value for key, value in stage.model_dump(mode="json").items() if key not in ("recipe", "set")}
    return any(references([keys, None if config is None else config.model_dump(mode="json")]))


def validated(section: type[Any], values: Mapping[str, Any], where: str) -> Any:
    """A section out of plain values. Raises ConfigError that names every wrong key."""
    try:
        return section.model_validate(values)
    except ValidationError as error:
        raise ConfigError("\n".join(_with(where, explained(line, section)) for line in error.errors())) from None


def _planned(name: str, raw: Mapping[str, Any], outputs: Mapping[str, tuple[str, ...]], *, later: tuple[str, ...]) -> Planned:
    where = f"stage '{name}'"
    kind = KINDS.get(str(raw.get("kind")))
    if not name.replace("-", "_").isidentifier():
        raise ConfigError(f"{where}: a stage's name is made of letters, digits, _ and -, and does not begin with a digit")
    if kind is None:
        got = f"there is no kind '{raw['kind']}'" if "kind" in raw else "no kind is given"
        hint = nearest(str(raw.get("kind", "")), KINDS)
        raise ConfigError(f"{where}: {got}; {hint}")
    stage = validated(kind.section, raw, where)
    for found in dict.fromkeys(references(raw)):
        parsed(found, outputs, where=where, later=later)
    return Planned(name=name, kind=kind, raw=raw, stage=stage)


def _override(data: dict[str, Any], overrides: Mapping[str, Any]) -> None:
    """`STAGE.KEY`: a key of the stage where it has one of that name, else one of its recipe; the same for what is measured."""
    for dotted, value in overrides.items():
        first, _, key = dotted.partition(".")
        if not key and first in ("seed", "name", "description"):
            data[first] = value
            continue
        places = {**(data.get("measure") or {}), **(data.get("stages") or {})}
        if first not in places or not key or not isinstance(places[first], dict):
            raise ConfigError(
                f"--set {dotted}: expected STAGE.KEY=VALUE; there is no stage '{first}'; {nearest(first, places)}"
            )
        kind = KINDS.get(str(places[first].get("kind")))
        section: type[Section] = Measured if kind is None else kind.section
        if key in section.model_fields:
            places[first][key] = value
        else:
            places[first]["set"] = {**(places[first].get("set") or {}), key: value}


def _faults_of_stage(pipeline: Pipeline, planned: Planned, made: Mapping[Reference, str]) -> list[str]:
    try:
        stage, config = pipeline.stage_of(planned, made)
    except ToishiError as error:
        return [str(error).removeprefix(f"stage '{planned.name}': ").replace(f"\nstage '{planned.name}': ", "\n")]
    faults = list(planned.kind.problems(stage, config))
    if config is None:
        return faults
    found = _without_data(config) if waits(stage, config) else (one.message for one in preflight_of(config))
    return [*faults, *found]


def _faults_of_measured(pipeline: Pipeline, name: str) -> list[str]:
    try:
        config = pipeline.measured(name)
    except ToishiError as error:
        return [str(error).removeprefix(f"measure '{name}': ")]
    faults = [one.message for one in preflight_of(config)]
    if config.algorithm.predicts != "tokens":
        faults.append(f"algorithm '{config.algorithm.name}' trains a score; what is measured are answers")
    if config.evaluation.prompts == 0:
        faults.append("evaluation.prompts is 0: nothing would be measured")
    return faults


def preflight_of(config: Config) -> list[Any]:
    """Errors of data and rewards, as a run of this recipe would find them."""
    found = preflight(config)
    with closing(found.rewards or ()):
        return found.errors


def _without_data(config: Config) -> Iterator[str]:
    """What can be found wrong while the data, or a model that a reward asks, is not there yet."""
    yield from (str(missing) for missing in missing_packages(config))
    try:
        check_settings(config.health)
        if config.task.name not in TASKS:
            raise ConfigError(f"task.name: there is no task '{config.task.name}'; {nearest(config.task.name, TASKS)}")
        from_options(TASKS[config.task.name], config.task.options, where="task")
        known = [reward for reward in config.rewards if not any(references(reward.model_dump()))]
        if known:
            build_rewards(known, columns=None)
    except ToishiError as error:
        yield str(error)


def _hint(name: str, measured: Mapping[str, Any]) -> str:
    return nearest(name, measured) if measured else "`measure` is empty"


def _with(where: str, text: str) -> str:
    return f"{where}: {text}" if where else text


def _each_line(text: str, where: str) -> str:
    return "\n".join(_with(where, line) for line in text.splitlines())


def _require(faults: list[str]) -> None:
    if len(faults) == 1:
        raise ConfigError(faults[0])
    if faults:
        raise ConfigError("\n".join(["the pipeline cannot start:", *faults]))

"""What a run is, as nested frozen values: read from a YAML recipe, changed by `--set a.b=c`.

Decisions:
1. Unknown keys are errors that name the nearest known key; impossible combinations fail here, before any model loads.
2. The defaults are a setting that was run and works; a recipe shows only what it changes.
3. You state prompts per step and group size; everything else about batches is derived from them.
4. A task and a reward are a `name` plus that task's or reward's own options, which the task or reward itself validates.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from toishi.algorithms.rows import Algorithm, algorithm
from toishi.errors import ConfigError, nearest


class Section(BaseModel):
    """A frozen part of the configuration that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class OpenSection(BaseModel):
    """A `name` and free options, which the named thing validates when it is built."""

    model_config = ConfigDict(frozen=True, extra="allow")
    name: str

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class LoraConfig(Section):
    rank: int = Field(16, ge=1, description="rank of the adapter matrices")
    alpha: float = Field(32.0, gt=0, description="adapter scale is alpha / rank")
    target_modules: str | tuple[str, ...] = Field("all-linear", description="module names, or 'all-linear'")


class ModelConfig(Section):
    name: str = Field("bundled", description="'bundled', a folder, or a hub id of a causal language model")
    revision: str | None = Field(None, description="hub revision")
    dtype: Literal["auto", "float32", "bfloat16", "float64"] = Field(
        "auto", description="compute precision; masters stay fp32. 'auto' measures once which is faster here"
    )
    device: str = Field("auto", description="'auto', 'cpu', 'cuda', 'cuda:1', 'mps'")
    lora: LoraConfig | None = Field(None, description="train LoRA adapters instead of all weights")
    adapter: str | None = Field(None, description="folder of an existing adapter to continue from")
    chat_template: str | None = Field(None, description="Jinja chat template that replaces the tokenizer's")
    trust_remote_code: bool = False


class TaskConfig(OpenSection):
    name: str = "sums"


class RewardConfig(OpenSection):
    weight: float = Field(1.0, description="factor in the weighted sum")


class SamplingConfig(Section):
    temperature: float = Field(1.0, gt=0)
    top_p: float = Field(1.0, gt=0, le=1, description="below 1 makes the data off-policy: refused without a correction")
    top_k: int = Field(0, ge=0, description="0 = off")
    min_p: float = Field(0.0, ge=0, lt=1, description="0 = off")
    max_new_tokens: int = Field(64, ge=1)
    max_prompt_tokens: int = Field(1024, ge=1, description="longer prompts are refused and listed, never cut")
    stop: tuple[str, ...] = Field((), description="stop strings besides the model's stop ids")


class TrainConfig(Section):
    steps: int = Field(30, ge=0)
    prompts_per_step: int = Field(4, ge=1, description="distinct prompts sampled in a step (P)")
    group_size: int = Field(8, ge=1, description="completions per prompt (G)")
    inner_epochs: int = Field(1, ge=1, description="passes over the same samples")
    minibatches: int = Field(1, ge=1, description="optimizer updates per pass; groups are never split")
    micro_batch_tokens: int = Field(4096, ge=1, description="packed tokens per forward pass; does not change the result")
    refill_rounds: int = Field(
        0, ge=0, description="DAPO: sample further prompts, at most this many extra rounds, until enough groups are mixed"
    )


class OptimizerConfig(Section):
    name: Literal["adamw", "sgd"] = "adamw"
    lr: float = Field(1e-5, gt=0)
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = Field(1e-8, gt=0)
    momentum: float = Field(0.0, ge=0, lt=1, description="SGD only")
    weight_decay: float = Field(0.0, ge=0)
    max_grad_norm: float | None = Field(1.0, gt=0, description="null = no clipping")
    warmup_steps: int = Field(0, ge=0)
    decay: Literal["none", "linear", "cosine"] = "none"


class EvaluationConfig(Section):
    every: int = Field(10, ge=0, description="steps between evaluations during training; 0 = only before and after")
    prompts: int = Field(64, ge=0, description="held-out prompts before and after; 0 = no evaluation")
    prompts_during: int = Field(32, ge=1, description="the first so many held-out prompts are used during training")
    samples: int = Field(8, ge=1, description="samples per prompt before and after, at the sampling temperature")
    greedy: bool = Field(True, description="one greedy answer per prompt as well")


class CheckpointConfig(Section):
    every: int = Field(10, ge=0, description="steps between checkpoints; 0 = only first and last")
    keep_last: int = Field(1, ge=1)
    anchor_every: int = Field(0, ge=0, description="keep every K-th step's checkpoint for ever (replay anchors); 0 = off")
    keep_best: bool = True


class RecordConfig(Section):
    folder: str = Field("runs", description="a run's folder is made inside this one")
    tokens: bool = Field(True, description="write per-token streams")


class HealthConfig(Section):
    """Limits of the live rules; `action` of a rule is 'warn', 'stop' or 'off'. See docs/health.md."""

    actions: Mapping[str, Literal["warn", "stop", "off"]] = Field(default_factory=dict, description="rule -> action")
    limits: Mapping[str, float] = Field(default_factory=dict, description="rule -> limit, in place of the table's")
    max_failed_share: float = Field(0.5, ge=0, le=1, description="stop when more rewards than this fail in a step")
    max_sampler_gap: float | None = Field(
        None, gt=0, description="limit of mean |log-prob(sampler) - log-prob(trainer)| at the first step; null = by precision"
    )


class Config(Section):
    """One run."""

    name: str = Field("run", pattern=r"^[A-Za-z0-9._-]+$")
    description: str = ""
    seed: int = Field(0, ge=0)
    model: ModelConfig = ModelConfig()
    task: TaskConfig = TaskConfig()
    rewards: tuple[RewardConfig, ...] = (RewardConfig(name="number"),)
    algorithm: Algorithm = Field(default_factory=lambda: algorithm("grpo"))
    sampling: SamplingConfig = SamplingConfig()
    train: TrainConfig = TrainConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    record: RecordConfig = RecordConfig()
    health: HealthConfig = HealthConfig()

    @model_validator(mode="after")
    def _possible(self) -> Config:
        row, sampling, train = self.algorithm, self.sampling, self.train
        truncated_support = sampling.top_p < 1 or sampling.top_k > 0 or sampling.min_p > 0
        if truncated_support and row.off_policy == "none":
            raise ValueError(
                "sampling.top_p/top_k/min_p change the distribution that answers come from, so the data would be "
                "off-policy without a word; set them to 1/0/0, or set algorithm.off_policy to a correction"
            )
        if row.needs_group and train.group_size < 2:
            raise ValueError(
                f"algorithm '{row.name}' compares answers to the same prompt (baseline {row.baseline}, scale {row.scale}): "
                f"train.group_size must be at least 2, got {train.group_size}"
            )
        if train.minibatches > train.prompts_per_step:
            raise ValueError(
                f"train.minibatches={train.minibatches} is more than train.prompts_per_step={train.prompts_per_step}: "
                "groups are never split, so there is at least one prompt per minibatch"
            )
        return self


def load_config(source: str | Path | Mapping[str, Any], overrides: Mapping[str, Any] | None = None) -> Config:
    """A recipe (path or mapping) with dotted overrides, as a validated `Config`.

    >>> load_config({"seed": 3}, {"train.steps": 5}).train.steps
    5
    >>> load_config({"train": {"grop_size": 8}})
    Traceback (most recent call last):
    ...
    toishi.errors.ConfigError: train.grop_size: unknown key; did you mean 'group_size'?
    """
    data = dict(source) if isinstance(source, Mapping) else _read_yaml(Path(source))
    for dotted, value in (overrides or {}).items():
        _set(data, dotted, value)
    if "algorithm" in data:
        data["algorithm"] = _algorithm(data["algorithm"])
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        raise ConfigError("\n".join(_explain(line) for line in error.errors())) from None


def parse_override(text: str) -> tuple[str, Any]:
    """`a.b=c` as a dotted key and a YAML value.

    >>> parse_override("optimizer.lr=1e-4")
    ('optimizer.lr', 0.0001)
    >>> parse_override("model.lora={rank: 4}")
    ('model.lora', {'rank': 4})
    """
    key, equals, raw = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {text!r}: expected key=value, for example --set train.steps=5")
    return key.strip(), _scalar(yaml.safe_load(raw))


def _scalar(value: Any) -> Any:
    """YAML 1.1 reads 1e-4 (no dot) as text; a person means the number."""
    if isinstance(value, str):
        try:
            return float(value) if any(mark in value for mark in "eE.") and value[:1] in "+-.0123456789" else value
        except ValueError:
            return value
    if isinstance(value, dict):
        return {key: _scalar(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_scalar(item) for item in value]
    return value


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"recipe {path} does not exist") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"recipe {path} is not YAML: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"recipe {path}: expected key: value lines, got {type(data).__name__}")
    return _scalar(data)  # type: ignore[no-any-return]


def _set(data: dict[str, Any], dotted: str, value: Any) -> None:
    *parents, last = dotted.split(".")
    here: Any = data
    for position, part in enumerate(parents):
        if isinstance(here, list):
            here = here[_index(here, part, dotted)]
            continue
        child = here.get(part)
        if part == "algorithm" and position == 0 and isinstance(child, str):
            child = {"name": child}
        here[part] = list(child) if isinstance(child, list | tuple) else dict(child or {})
        here = here[part]
    if isinstance(here, list):
        here[_index(here, last, dotted)] = value
    else:
        here[last] = value


def _index(items: list[Any], part: str, dotted: str) -> int:
    if not part.isdigit() or int(part) >= len(items):
        raise ConfigError(f"{dotted}: '{part}' must be a position from 0 to {len(items) - 1}")
    return int(part)


def _algorithm(value: Any) -> Algorithm:
    """`grpo`, or `{name: grpo, kl: k3, ...}`: a row by name with some of its choices changed."""
    if isinstance(value, Algorithm):
        return value
    if isinstance(value, str):
        return algorithm(value)
    if not isinstance(value, Mapping):
        raise ConfigError(f"algorithm: expected a name or a mapping, got {type(value).__name__}")
    changes = dict(value)
    row = algorithm(str(changes.pop("name", "grpo")))
    unknown = [key for key in changes if key not in Algorithm.model_fields]
    if unknown:
        raise ConfigError(f"algorithm.{unknown[0]}: unknown key; {nearest(unknown[0], Algorithm.model_fields)}")
    try:
        return Algorithm.model_validate(row.model_dump() | changes)
    except ValidationError as error:
        raise ConfigError("\n".join("algorithm." + _explain(line) for line in error.errors())) from None


def _explain(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        section: Any = Config
        for part in error["loc"][:-1]:
            annotation = section.model_fields[part].annotation if hasattr(section, "model_fields") else None
            section = _section_of(annotation)
        known = section.model_fields if hasattr(section, "model_fields") else ()
        return f"{where}: unknown key; {nearest(str(error['loc'][-1]), known)}"
    message = error["msg"].removeprefix("Value error, ")
    got = "" if isinstance(error.get("input"), dict | BaseModel) else f", got {error.get('input')!r}"
    return f"{where}: {message}{got}" if where else message


def _section_of(annotation: Any) -> Any:
    if isinstance(annotation, type):
        return annotation
    return next((part for part in getattr(annotation, "__args__", ()) if hasattr(part, "model_fields")), None)

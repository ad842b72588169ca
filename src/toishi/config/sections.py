"""What a run is, as nested frozen values.

Decisions:
1. Impossible combinations fail here, before any model loads.
2. The defaults are a setting that was run and works; a recipe shows only what it changes.
3. You state prompts per step and group size; everything else about batches is derived from them.
4. A task and a reward are a `name` plus that task's or reward's own options, which the task or reward itself validates.
5. Every key says what it means: docs/recipes.md is printed from here.
6. Types are strict: true is no number, "3" is not 3, and no number is infinite or NaN. A whole number is taken for a float, and
   a list, which is all that YAML has, for a tuple.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from toishi.algorithms.rows import Algorithm, algorithm
from toishi.algorithms.terms import Term, in_order
from toishi.config.contradictions import contradictions_of_answers, contradictions_of_training
from toishi.config.models import Listed, ModelConfig, OpenSection, Section, TeacherConfig, Text
from toishi.config.scores import require_no_sampling
from toishi.config.teachers import require_teacher
from toishi.config.unions import AutoOrAmount

Decay = Annotated[float, Field(ge=0, lt=1)]


class TaskConfig(OpenSection):
    """Where prompts come from: a task's name and that task's options."""

    name: str = Field(
        default="sums",
        description="sums, json_keys, describe, functions, implications, file, hub or reasoning_gym; options stand beside it",
    )


class AnswersConfig(Section):
    """Answers that stand in the task's rows, where `algorithm.source` takes them from there (SFT, DPO)."""

    column: Text = Field(default="completion", description="source 'written': text, a number, or the chat turns that follow")
    chosen: Text = Field(default="chosen", description="source 'written_pairs': the better answer")
    rejected: Text = Field(default="rejected", description="source 'written_pairs': the worse one")
    margin: Text | None = Field(
        default=None,
        description="source 'written_pairs': column of how far apart the two are to be at least (-log σ(h - margin)); null = 0",
    )
    value: Text | None = Field(
        default=None, description="source 'written': column of what an answer is worth; null = 1. Below 0: not to be said"
    )
    too_long: Literal["refuse", "leave_out"] = Field(
        default="refuse", description="answers above sampling.max_new_tokens; never cut. leave_out: passed over and counted"
    )


class RewardConfig(Term):
    """What judges answers: a reward's name, how it enters the sum, and that reward's options."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True, allow_inf_nan=False)

    name: str = Field(
        description="number, math, format, ... (see Rewards), or your own name with `function` or `kind`; options beside it"
    )

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class SamplingConfig(Section):
    """How answers are drawn."""

    temperature: float = Field(
        default=1.0, ge=1e-3, le=1e3, description="of sampling; log-probs and entropy are taken at it too"
    )
    top_p: float = Field(default=1.0, gt=0, le=1, description="below 1 makes the data off-policy: refused without a correction")
    top_k: int = Field(default=0, ge=0, description="only the k most likely tokens; 0 = off")
    min_p: float = Field(default=0.0, ge=0, lt=1, description="only tokens with this share of the likeliest; 0 = off")
    max_new_tokens: int = Field(default=64, ge=1, description="longer answers are cut there and count as truncated")
    max_prompt_tokens: int = Field(default=1024, ge=1, description="longer prompts are refused and listed, never cut")
    stop: Listed[Text] = Field(default=(), description="stop strings besides the model's stop ids")


class TrainConfig(Section):
    """How much is sampled and how often it is used."""

    steps: int = Field(default=30, ge=0, description="training steps; each samples, scores and updates once")
    prompts_per_step: int = Field(default=4, ge=1, description="distinct prompts sampled in a step (P)")
    group_size: int = Field(default=8, ge=1, description="completions per prompt (G)")
    inner_epochs: int = Field(default=1, ge=1, description="passes over the same samples")
    minibatches: int = Field(default=1, ge=1, description="optimizer updates per pass; groups are never split")
    micro_batch_tokens: AutoOrAmount = Field(
        default="auto",
        description="packed tokens per forward pass; does not change the result. 'auto' takes 1280 on a CPU, or as many as "
        "fit into memory",
    )
    gradient_checkpointing: bool = Field(
        default=False, description="layers are computed again in the backward pass instead of kept; does not change the result"
    )
    refill_rounds: int = Field(
        default=0,
        ge=0,
        description="DAPO: sample further prompts, at most this many extra rounds, until enough groups are mixed",
    )

    @property
    def num_updates(self) -> int:
        """Optimizer updates in a step."""
        return self.inner_epochs * self.minibatches


class OptimizerConfig(Section):
    """How a gradient becomes changed weights."""

    name: Literal["adamw", "sgd"] = Field(default="adamw", description="the rule that turns a gradient into a weight change")
    lr: float = Field(default=1e-5, gt=0, le=1e3, description="learning rate after the warm-up")
    betas: Annotated[tuple[Decay, Decay], Field(strict=False)] = Field(
        default=(0.9, 0.999), description="AdamW: decay of its two running means"
    )
    eps: float = Field(default=1e-8, gt=0, description="AdamW: added to the divisor")
    momentum: float = Field(default=0.0, ge=0, lt=1, description="SGD only")
    weight_decay: float = Field(default=0.0, ge=0, description="pulls all weights towards 0; moves them without any reward")
    max_grad_norm: float | None = Field(default=1.0, gt=0, description="longer gradients are shortened to this; null = never")
    warmup_steps: int = Field(default=0, ge=0, description="steps in which the learning rate rises to lr")
    decay: Literal["none", "linear", "cosine"] = Field(
        default="none", description="of the learning rate after the warm-up, to 0"
    )


class CriticOptimizerConfig(OptimizerConfig):
    """How a critic's gradient becomes changed weights: as the policy's does, ten times as fast, since its head starts at 0."""

    lr: float = Field(default=1e-4, gt=0, description="learning rate after the warm-up")


class CriticConfig(Section):
    """What guesses the value of a text, where the algorithm has such a baseline (a2c, ppo)."""

    kind: Literal["shared", "separate"] = Field(
        default="shared",
        description="a head on the policy's own hidden states, or a second model that starts as the policy does",
    )
    warmup_steps: int = Field(
        default=0, ge=0, description="first steps in which only the critic's own weights learn; the policy stays as it is"
    )
    optimizer: CriticOptimizerConfig = Field(
        default=CriticOptimizerConfig(),
        description="of the critic's own weights: the head alone (shared: the trunk is the policy's to step), or all of them",
    )


class EvaluationConfig(Section):
    """When and how held-out prompts are measured."""

    every: int = Field(default=10, ge=0, description="steps between evaluations during training; 0 = only before and after")
    prompts: int = Field(default=64, ge=0, description="held-out prompts before and after; 0 = no evaluation")
    prompts_during: int = Field(default=32, ge=1, description="the first so many held-out prompts are used during training")
    samples: int = Field(
        default=8, ge=0, description="samples per prompt before and after, at the sampling temperature; 0 = greedy answers only"
    )
    greedy: bool = Field(default=True, description="one greedy answer per prompt as well")


class CheckpointConfig(Section):
    """When the run is saved, and what is kept."""

    every: int = Field(default=10, ge=0, description="steps between checkpoints; 0 = only first and last")
    keep_last: int = Field(default=1, ge=1, description="so many of the newest are kept, besides the first")
    anchor_every: int = Field(
        default=0, ge=0, description="keep every K-th step's checkpoint for ever (replay anchors); 0 = off"
    )
    keep_best: bool = Field(default=True, description="keep the one with the best held-out value")


TraceTrigger = Literal["first_step", "reward_jump", "nan", "kl_spike"]


class RecordConfig(Section):
    """What is written, and where."""

    folder: str = Field(default="runs", description="a run's folder is made inside this one")
    tokens: bool = Field(default=True, description="write per-token streams")
    trace_every: int = Field(
        default=0, ge=0, description="steps between traces (log-probs before and after, changes of every matrix); 0 = off"
    )
    trace_when: Listed[TraceTrigger] = Field(
        default=(),
        description="also trace these steps: first_step, reward_jump, nan, kl_spike (keeps a copy of weights and optimizer)",
    )
    trace_influence: bool = Field(
        default=False, description="traced steps also say which answer moved which (three to four times an update's work)"
    )


class HealthConfig(Section):
    """Limits of the live rules; `action` of a rule is 'warn', 'stop' or 'off'. See docs/health.md."""

    actions: Mapping[str, Literal["warn", "stop", "off"]] = Field(default_factory=dict, description="rule -> action")
    limits: Mapping[str, float] = Field(default_factory=dict, description="rule -> limit, in place of the table's")
    max_failed_share: float = Field(default=0.5, ge=0, le=1, description="stop when more rewards than this fail in a step")
    max_sampler_gap: float | None = Field(
        default=None,
        gt=0,
        description="limit of mean |log-prob(sampler) - log-prob(trainer)| at the first step; null = by precision",
    )


class Config(Section):
    """One run."""

    name: str = Field(default="run", pattern=r"^[A-Za-z0-9._-]+$", max_length=200, description="begins the run folder's name")
    description: str = Field(default="", description="one line for people")
    seed: int = Field(default=0, ge=0, lt=2**63, description="every random number of the run is derived from it")
    model: ModelConfig = ModelConfig()
    teacher: TeacherConfig | None = Field(
        default=None, description="a frozen model to learn from (algorithms gkd, opd, opd_sampled); more keys as of `model`"
    )
    task: TaskConfig = TaskConfig()
    answers: AnswersConfig = AnswersConfig()
    rewards: Listed[RewardConfig] = Field(default=(RewardConfig(name="number"),), description="summed by weight, parts kept")
    algorithm: Algorithm = Field(default_factory=lambda: algorithm("grpo"), description="a row by name, or a row with changes")
    sampling: SamplingConfig = SamplingConfig()
    train: TrainConfig = TrainConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    critic: CriticConfig = CriticConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    record: RecordConfig = RecordConfig()
    track: Listed[Literal["wandb", "tensorboard"]] = Field(
        default=(), description="other programs that show the run beside its record: see docs/tracking.md"
    )
    health: HealthConfig = HealthConfig()

    @model_validator(mode="after")
    def _possible(self) -> Config:
        in_order(self.rewards)
        for found in (contradictions_of_answers(self), contradictions_of_training(self)):
            for why in found:
                raise ValueError(why)
        require_no_sampling(self)
        require_teacher(self)
        return self

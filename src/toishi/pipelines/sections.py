"""What a pipeline file holds, as frozen values: stages in the order in which they run, and what each model is measured on.

Decisions:
1. A stage names its `kind`, and has that kind's keys. What a command of the same name can be told, a stage can be told.
2. A stage that asks or trains a model has a recipe, changed by `set` as `--set` changes one. The pipeline's own `model` and
   `seed` stand between the two.
3. Where a later stage takes something from an earlier one, it says so by name: ${stages.sft.model}. See references.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from toishi.config.models import Listed, Section, Text
from toishi.config.unions import NameOrNames

Recipe = Annotated[
    str | Mapping[str, Any] | None,
    Field(description="a built-in recipe, a YAML file, or its keys; null = every default"),
]
Changes = Annotated[Mapping[str, Any], Field(description="dotted keys of the recipe -> values, as `--set` has them")]
ModelName = Annotated[
    Text | None, Field(description="who is trained or asked: a name, a folder, or an earlier stage's model; null = pipeline's")
]
Many = Annotated[int, Field(ge=1)]


class Stage(Section):
    """What every stage has."""

    kind: str = Field(description="what is done: see the kinds below")
    about: str = Field(default="", description="one line for people")


def aims_of(stage: Stage) -> tuple[str, ...]:
    """What a stage is meant to raise, by name."""
    aim = getattr(stage, "aim", None) or ()
    return (aim,) if isinstance(aim, str) else tuple(aim)


class Asking(Stage):
    """A stage that samples answers of a model."""

    recipe: Recipe = None
    model: ModelName = None
    set: Changes = Field(default_factory=dict)
    samples: Many = Field(default=8, description="answers to each prompt")
    prompts: Many | None = Field(default=None, description="the first so many of the task's prompts; null = all")


class TrainStage(Stage):
    """Train by any recipe: SFT, GRPO and the other rows, a reward model, distillation."""

    kind: Literal["train"]
    recipe: Recipe = None
    model: ModelName = None
    set: Changes = Field(default_factory=dict)
    checkpoint: Literal["last", "best"] = Field(default="last", description="which of the run's checkpoints is handed on")
    aim: NameOrNames | None = Field(
        default=None, description="one or several of `measure` that it is meant to raise; the report judges it by them"
    )


class CollectStage(Asking):
    """Rejection sampling: answers that are good enough to be learnt from. Keys as the options of `toishi collect`."""

    kind: Literal["collect"]
    shots: Text | None = Field(
        default=None,
        description="a JSONL file of worked examples (rows with `prompt` and `completion`), shown before every prompt and not "
        "written into what is made",
    )
    keep: Literal["right", "best", "top", "all"] = Field(
        default="right", description="every right answer, the best, or the top"
    )
    top: Many = Field(default=4, description="how many, with keep: top")
    reward: Text | None = Field(default=None, description="the reward that tells right from wrong; null = the only one")
    threshold: float = Field(default=0.5, description="a value of that reward at or above it is right")
    min_reward: float | None = Field(default=None, description="answers with a lower reward go")
    min_tokens: int = Field(default=0, ge=0, description="shorter answers go")
    max_tokens: Many | None = Field(default=None, description="longer answers go")
    keep_truncated: bool = Field(default=False, description="answers that the token limit cut may stay")
    keep_unreadable: bool = Field(default=False, description="answers in which none can be read may stay")
    dedup: Literal["exact", "words", "near", "off"] = Field(default="exact", description="which repeated answers go")
    language: Text | None = Field(default=None, description="answers in other languages go: en, ja, ...")


class SelectStage(Asking):
    """Prompts chosen by pass rate. Keys as the options of `toishi select`."""

    kind: Literal["select"]
    band: Text | None = Field(default=None, description="LOW-HIGH of the pass rate; null = all but never and always right")
    reward: Text | None = Field(default=None, description="the reward that tells right from wrong; null = the only one")
    threshold: float = Field(default=0.5, description="a value of that reward at or above it is right")
    against: Listed[Text] = Field(default=(), description="evaluation sets to look for overlap with")
    drop_overlap: bool = Field(default=False, description="what held-out or evaluation sets hold too goes")
    drop_duplicates: bool = Field(default=False, description="near-duplicates go, but for the first")


class PairsStage(Asking):
    """Preference pairs by rewards or by a judge. Keys as the options of `toishi pairs`."""

    kind: Literal["pairs"]
    per_prompt: Many = Field(default=1, description="pairs of a prompt, at most")
    judge: Text | None = Field(default=None, description="a judge of the recipe (mode: pairwise) decides, not the rewards")
    calls: int = Field(default=4, ge=2, description="of the judge for each pair, half in each order")
    min_margin: float | None = Field(default=None, ge=0, description="larger margins only; null = 0 of rewards, 0.5 of a judge")
    balance: bool = Field(default=True, description="balance the lengths of chosen and rejected")


class JoinStage(Stage):
    """Rows of several files in one, shuffled by the pipeline's seed; columns that not all of them have are left out."""

    kind: Literal["join"]
    files: Annotated[Listed[Text], Field(min_length=1)] = Field(description="JSONL files, in order")
    limits: Listed[int] = Field(default=(), description="of each file the first so many rows; 0 = all")


class ShrinkStage(Stage):
    """A student: some of a model's layers, spread evenly, with its embeddings, head and tokenizer."""

    kind: Literal["shrink"]
    model: ModelName = None
    layers: Many = Field(description="how many layers are left; the first and the last are kept")


class Measured(Section):
    """Held-out prompts that every model of the pipeline is measured on."""

    recipe: Recipe = None
    set: Changes = Field(default_factory=dict)
    worth: float = Field(
        default=0.05, ge=0, description="the smallest gain that would matter: a stage that surely gained less did not help"
    )
    about: str = Field(default="", description="one line for people")


class PipelineFile(Section):
    """The file as a whole; a stage's keys are looked at by its kind (kinds.py)."""

    name: str = Field(pattern=r"^[A-Za-z0-9._-]+$", max_length=100, description="names the pipeline's folder")
    description: str = Field(default="", description="one line for people")
    seed: int = Field(default=0, ge=0, lt=2**63, description="of every stage that sets none")
    model: Mapping[str, Any] = Field(
        default_factory=lambda: {"name": "bundled"}, description="the section `model` of every stage that names none"
    )
    stages: Mapping[str, Mapping[str, Any]] = Field(min_length=1, description="name -> stage, in the order in which they run")
    measure: Mapping[str, Measured] = Field(default_factory=dict, description="name -> what every model is measured on")

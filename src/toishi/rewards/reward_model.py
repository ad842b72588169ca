"""`reward_model`: a trained sequence-classification model's score of the answer.

Decisions:
1. The model is loaded when it is first asked, which the dry run before the start does; the folder is looked at before that.
2. The score is the logit itself: no sigmoid, no limits. Bradley-Terry models mean differences, and the group's baseline takes
   the rest.
3. What the chat template wrote for the assistant is a part of the answer, since the reward model's own template does not write
   it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from toishi.errors import ConfigError
from toishi.rewards.base import Judgement
from toishi.types import Completion, Prompt

if TYPE_CHECKING:
    from toishi.rewards.sequence_model import Form, SequenceModel


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardModelReward:
    """The score that a sequence-classification model gives to question and answer.

    model      a folder made by save_pretrained, or a hub id
    revision   of the hub id; null = main
    label      name or number of the logit that is the reward; null for models with one logit
    form       "chat": through the chat template of the model's own tokenizer; "pair": question and answer as two segments;
               "text": one text; "as_asked": conversations as chat, plain prompts as plain text with the token that ends an
               answer, as algorithm `reward_model` trains; "auto": what the model says it was trained with, otherwise chat if
               the tokenizer has a template, else pair
    centre     "group": the mean over the answers to the prompt is subtracted; "none"
    batch_tokens  tokens in a padded batch
    max_tokens    longer texts are refused (failed, never cut); null = what model and tokenizer were made for
    device, dtype "auto": the GPU in bfloat16 if there is one, else the CPU in float32

    A plain prompt is one user turn (not with as_asked). Baselines of the group take out a constant anyway, so centring matters
    with baselines of the batch, and to read the metrics.

    Traps: the policy learns what the model likes, not what it was meant to: watch a held-out measure, and answers' length. Some
    chat templates drop the reasoning of an assistant turn before the model sees it.
    """

    model: str
    name: str = "reward_model"
    revision: str | None = None
    label: str | int | None = None
    form: Literal["auto", "chat", "pair", "text", "as_asked"] = "auto"
    centre: Literal["none", "group"] = "none"
    batch_tokens: Annotated[int, Field(ge=1)] = 8192
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    device: str = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"

    concurrent: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        _check_folder(self.model, f"reward '{self.name}'")

    @property
    def columns(self) -> tuple[str, ...]:
        return ()

    def prepare(self, prompts: Sequence[Prompt]) -> None:
        """Loads the model. Raises ModelError or ConfigError when it cannot be used."""
        self._form(self._loaded())

    def close(self) -> None:
        """Lets go of the model's memory."""
        _load.cache_clear()

    def weight_bytes(self) -> int:
        return sum(weight.nbytes for weight in self._loaded().module.parameters())

    def problem(self, prompt: Prompt) -> str | None:
        """Why this prompt cannot be scored, or None."""
        several = prompt.messages is not None and len(prompt.messages) > 1
        if several and self.form in ("pair", "text"):
            return f"form: {self.form} knows one question and one answer, and the prompt has {len(prompt.messages or ())} turns"
        return None

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        model = self._loaded()
        problem = self.problem(prompt)
        if problem is not None:
            return [(Judgement(value=None, status="failed", reason=problem, kind="bad_row"),)] * len(completions)
        form = self._form(model)
        rows = [model.encode(prompt, prompt.prefill + completion.text, form) for completion in completions]
        refused = [_refusal(model, row) for row in rows]
        asked = [row for row, why in zip(rows, refused, strict=True) if why is None]
        scores = iter(model.score(asked, batch_tokens=self.batch_tokens))
        judged = [_judgement(next(scores)) if why is None else why for why in refused]
        return [(judgement,) for judgement in (_centred(judged) if self.centre == "group" else judged)]

    def _form(self, model: SequenceModel) -> Form:
        if self.form == "chat" and not model.has_template:
            raise ConfigError(
                f"reward '{self.name}'.form: the tokenizer of {self.model} has no chat template; use pair or text"
            )
        return model.own_form if self.form == "auto" else self.form

    def _loaded(self) -> SequenceModel:
        return _load(self)


def _check_folder(model: str, where: str) -> None:
    """Raises ConfigError for what looks like a folder and is none, or holds no model; a hub id is not looked up."""
    folder = Path(model).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise ConfigError(f"{where}.model: the folder {folder} has no config.json; give a folder made by save_pretrained")
    elif model.startswith((".", "~", "/")) or model.count("/") > 1 or "\\" in model:
        raise ConfigError(
            f"{where}.model: the folder {folder.absolute()} does not exist; give a folder made by save_pretrained, or a hub id"
        )


@lru_cache(maxsize=4)
def _load(reward: RewardModelReward) -> SequenceModel:
    """One model for equal options, however often the reward is built."""
    from toishi.rewards.sequence_model import load_sequence_model

    return load_sequence_model(
        reward.model,
        where=f"reward '{reward.name}'",
        revision=reward.revision,
        label=reward.label,
        device=reward.device,
        dtype=reward.dtype,
        max_tokens=reward.max_tokens,
    )


def _refusal(model: SequenceModel, row: dict[str, list[int]]) -> Judgement | None:
    length = len(row["input_ids"])
    if model.max_tokens is None or length <= model.max_tokens:
        return None
    reason = f"question and answer are {length} of the model's tokens, and it takes {model.max_tokens}; nothing is cut"
    return Judgement(value=None, status="failed", reason=reason, kind="too_long")


def _judgement(score: float) -> Judgement:
    if not math.isfinite(score):
        return Judgement(value=None, status="failed", reason=f"the model gave {score}", kind="not_finite")
    return Judgement(value=score, reason=f"score {score:.4g}")


def _centred(judged: Sequence[Judgement]) -> list[Judgement]:
    """Values minus the mean of those that there are."""
    values = [judgement.value for judgement in judged if judgement.value is not None]
    mean = statistics.fmean(values) if values else 0.0
    return [
        each
        if each.value is None
        else Judgement(value=each.value - mean, reason=f"{each.reason}, {mean:.4g} on average over the group")
        for each in judged
    ]

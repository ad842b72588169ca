"""The teacher of a distillation: a model beside the policy, that reads the policy's tokens and never changes.

Decisions:
1. In this process it is a policy without a trained weight, so it is asked in the same packed rows, on the student's device. Its
   precision is the student's unless the configuration says otherwise.
2. A teacher can only be asked about the student's tokens, so both must read text alike: the same number for every token, and
   the same tokens for the same texts. What differs is said. Sequence-level distillation needs none of that.
3. Heads may be of different widths (rows beyond the last token, for the sake of a round number): what both have is compared.
4. A teacher behind a server (`served_teacher`) has the same face.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from toishi.config import TeacherConfig
from toishi.errors import ModelError
from toishi.ops.divergence import divergences
from toishi.policy.head import Predictions, output_layer
from toishi.policy.loading import load_model
from toishi.policy.policy import Policy
from toishi.types import Rollout, RolloutId

TEXTS = (
    "The answer is 1234.5, isn't it?\n\n  def f(x):\n\treturn x**2  # 3 > 2",
    "naïve café, 砥石 Ünïcödé — “quotes” 🙂",
    "HELLO hello Hello   spaces\r\nend",
)
"""What both tokenizers are tried on."""
INSTEAD = (
    "The teacher can still write answers that the student learns from, which needs no common tokens: toishi collect with "
    "--model TEACHER, then algorithm sft"
)
LogProbs = dict[RolloutId, tuple[float, ...]]


class Seen(Protocol):
    """A packed row, as far as a teacher looks at it: its answers, and the tokens with loss (N,), answer by answer."""

    @property
    def rollouts(self) -> tuple[Rollout, ...]: ...
    @property
    def targets_N(self) -> Tensor: ...


class Teacher(Protocol):
    """Who is asked what it would have said where the student stands."""

    @property
    def model(self) -> Policy | None:
        """The model, where it is in this process."""

    def describe(self) -> dict[str, Any]:
        """Source, fingerprint, size and architecture, for run.json: a resume must find the same again."""

    def look_at(self, rollouts: Sequence[Rollout]) -> None:
        """The answers of a step, before anything is asked of them. Raises EngineError where the teacher cannot be reached."""

    def logprobs(self, rollouts: Sequence[Rollout], ask: Callable[[Policy], LogProbs]) -> LogProbs:
        """Its log-prob of every token with loss, 0 elsewhere; `ask` gets them from a model in this process."""

    def divergence(
        self, student: Predictions, row: Seen, ask: Callable[[Policy], Predictions], *, temperature: float, beta: float
    ) -> Tensor:
        """D_β of what student and teacher predict at the row's N tokens with loss, (N,); differentiable in the student.

        ask          runs a model in this process over the row
        temperature  divides the logits of both
        """

    def figures(self) -> Mapping[str, float | int | None]:
        """What it counted in the step, by metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTeacher:
    """A frozen model in this process.

    num_words  words that its head and the student's both have
    """

    model: Policy
    source: str
    fingerprint: str
    num_words: int

    @classmethod
    def load(cls, config: TeacherConfig, student: Policy, tokenizer: Any, *, seed: int) -> LocalTeacher:
        """Raises ModelError when it cannot be loaded, or when it reads other tokens than the student."""
        loaded = load_model(config, seed=seed)
        difference = tokenizers_differ(tokenizer, loaded.tokenizer)
        if difference:
            raise ModelError(f"teacher {config.name} cannot be asked about the student's tokens: {difference}. {INSTEAD}")
        dtype = student.compute_dtype if config.dtype == "auto" else getattr(torch, config.dtype)
        return cls.of(
            Policy(loaded.module.requires_grad_(False), compute_dtype=dtype, device=student.device), student,
            source=loaded.source, fingerprint=loaded.fingerprint,
        )  # fmt: skip

    @classmethod
    def of(cls, model: Policy, student: Policy, *, source: str = "", fingerprint: str = "") -> LocalTeacher:
        """A model that is there already."""
        widths = [int(output_layer(one.module).weight.shape[0]) for one in (student, model)]
        return cls(model=model, source=source, fingerprint=fingerprint, num_words=min(widths))

    def describe(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "fingerprint": self.fingerprint,
            "parameters": self.model.num_parameters,
            "architecture": type(self.model.module).__name__,
        }

    def look_at(self, rollouts: Sequence[Rollout]) -> None:
        """Nothing: it is asked row by row."""

    def logprobs(self, rollouts: Sequence[Rollout], ask: Callable[[Policy], LogProbs]) -> LogProbs:
        return ask(self.model)

    def divergence(
        self, student: Predictions, row: Seen, ask: Callable[[Policy], Predictions], *, temperature: float, beta: float
    ) -> Tensor:
        with torch.no_grad():
            teacher = ask(self.model)

        def compared(places_n: Tensor) -> tuple[Tensor, Tensor]:
            with torch.no_grad():
                teacher_nV = _logprobs(teacher, places_n, self.num_words, temperature)
            student_nV = _logprobs(student, places_n, self.num_words, temperature)
            return student_nV, teacher_nV.to(student_nV.dtype)

        return divergences(compared, len(row.targets_N), self.num_words, beta, row.targets_N.device)

    def figures(self) -> Mapping[str, float | int | None]:
        return {}


def _logprobs(predictions: Predictions, places_n: Tensor, num_words: int, temperature: float) -> Tensor:
    logits_nV = predictions.logits(places_n)[:, :num_words]
    return torch.log_softmax(logits_nV.to(torch.promote_types(logits_nV.dtype, torch.float32)) / temperature, dim=-1)


def tokenizers_differ(student: Any, teacher: Any) -> str:
    """What two tokenizers read differently, in words; empty when nothing is found."""
    own, other = student.get_vocab(), teacher.get_vocab()
    every = {*own, *other}
    different = sorted(token for token in every if own.get(token) != other.get(token))
    if different:
        first = min(different, key=len)
        return (
            f"{len(different)} of {len(every)} tokens differ, such as {first!r}, which is {_place(own, first)} for the student "
            f"and {_place(other, first)} for the teacher"
        )
    for text in TEXTS:
        ids, others = (list(one(text, add_special_tokens=False)["input_ids"]) for one in (student, teacher))
        if ids != others:
            shown = " | ".join(str(one.convert_ids_to_tokens(found)[:8]) for one, found in ((student, ids), (teacher, others)))
            return f"they have the same tokens and cut {text!r} into different ones: {shown}"
    return ""


def _place(vocabulary: Mapping[str, int], token: str) -> str:
    return f"token {vocabulary[token]}" if token in vocabulary else "no token"

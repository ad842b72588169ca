"""A reward for tests and examples, and completions without a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from toishi.rewards.base import Judgement
from toishi.types import Completion, FinishReason, Prompt

Said = float | Judgement | tuple[Judgement, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedReward:
    """Says what it is told to: `values` in turn over the members of a group, or a function of (prompt, completion).

    A number is a value, None abstains, a `Judgement` or a tuple of them (spans) is passed on.

    >>> prompt = Prompt(id="a", text="?")
    >>> reward = ScriptedReward(values=(1.0, None))
    >>> [judgement.status for (judgement,) in reward.score_group(prompt, [answered("x"), answered("y"), answered("z")])]
    ['ok', 'abstained', 'ok']
    """

    values: tuple[Said, ...] | Callable[[Prompt, Completion], Said]
    name: str = "scripted"
    columns: tuple[str, ...] = ()

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        if callable(self.values):
            return [_judgements(self.values(prompt, completion)) for completion in completions]
        return [_judgements(self.values[member % len(self.values)]) for member in range(len(completions))]


def answered(text: str, finish_reason: FinishReason = "stop") -> Completion:
    """A completion with `text` and one made-up token per word, and a stop token when it stopped.

    >>> answered("it is 7").num_tokens, answered("it is", "length").num_tokens
    (4, 2)
    """
    count = max(len(text.split()) + (finish_reason == "stop"), 1)
    return Completion(
        token_ids=tuple(range(count)),
        loss_mask=(1,) * count,
        sampled_logprobs=(0.0,) * count,
        entropies=(0.0,) * count,
        text=text,
        finish_reason=finish_reason,
    )


def _judgements(said: Said) -> tuple[Judgement, ...]:
    match said:
        case tuple():
            return said
        case Judgement():
            return (said,)
        case None:
            return (Judgement(value=None, status="abstained"),)
        case _:
            return (Judgement(value=said),)

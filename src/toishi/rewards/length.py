"""`length`: how near the answer's length is to a target. No gold needed, and every answer gets a different value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from toishi.rewards.base import Judgement
from toishi.types import Completion, Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthReward:
    """-(l - target)^2 / scale, where l counts the answer's tokens.

    The token that ended the answer is not text, so it is not counted: l = num_tokens - 1 when the answer stopped, and all of
    num_tokens when the limit cut it. (Of a stop *string* of several tokens, only the last is left out.)

    Traps: the square grows fast, so one answer that runs to the limit can outweigh everything else in a group that is divided
    by its spread. To keep answers below a limit use `soft_overlong`.

    >>> from toishi.rewards.scripted import answered
    >>> prompt = Prompt(id="a", text="Describe a dog.")
    >>> judged = LengthReward(target=12).score_group(prompt, [answered("a loyal pet"), answered("a dog is", "length")])
    >>> [(judgement.value, judgement.reason) for (judgement,) in judged]
    [(-0.081, '3 tokens, target 12'), (-0.081, '3 tokens, target 12')]
    """

    target: Annotated[int, Field(ge=1)]
    name: str = "length"
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1000.0

    @property
    def columns(self) -> tuple[str, ...]:
        return ()

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        return [(self._judge(text_tokens(completion)),) for completion in completions]

    def _judge(self, length: int) -> Judgement:
        off = length - self.target
        return Judgement(value=-(off * off) / self.scale, reason=f"{length} tokens, target {self.target}")


def text_tokens(completion: Completion) -> int:
    """The completion's tokens without the one that ended it."""
    return completion.num_tokens - (not completion.is_truncated)

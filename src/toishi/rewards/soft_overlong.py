"""`soft_overlong`: DAPO's length penalty as a reward of its own.

Decisions:
1. The number is `algorithms.shaping.soft_overlong_penalty`, the same function that an algorithm with truncation 'soft_penalty'
   uses.
2. Length counts every token that has loss, the one that ended the answer as well, since that is what the algorithm counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from toishi.algorithms.shaping import soft_overlong_penalty
from toishi.errors import ConfigError
from toishi.rewards.base import Judgement
from toishi.types import Completion, Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftOverlongReward:
    """0 for answers of up to max_tokens - ramp_tokens, then a straight line down to -1 at max_tokens (DAPO, eq. 13).

    max_tokens   L_max, the length that costs 1; at most sampling.max_new_tokens, or no answer ever reaches it
    ramp_tokens  L_cache, over how many tokens before it the penalty grows

    `algorithm.truncation: soft_penalty` is the same penalty inside the algorithm: its limit is sampling.max_new_tokens, and
    filters and `reward/mean` do not see it. Take that to do what the paper does. Take this reward to see the penalty as a part
    of its own, to weigh it, to have filters see it, or for a limit below the sampling limit.

    Traps: beside an algorithm with truncation 'soft_penalty' an answer pays twice. With truncation 'mask', cut answers leave
    the baseline and their penalty with them.

    >>> from toishi.rewards.scripted import answered
    >>> prompt = Prompt(id="a", text="?")
    >>> answers = [answered("word " * count, "length") for count in (16, 17, 20, 30)]
    >>> [judgement.value for (judgement,) in SoftOverlongReward(max_tokens=20, ramp_tokens=4).score_group(prompt, answers)]
    [0.0, -0.25, -1.0, -1.0]
    """

    max_tokens: Annotated[int, Field(ge=1)]
    ramp_tokens: Annotated[int, Field(ge=1)]
    name: str = "soft_overlong"

    def __post_init__(self) -> None:
        if self.ramp_tokens > self.max_tokens:
            raise ConfigError(
                f"reward '{self.name}'.ramp_tokens: {self.ramp_tokens} is more than max_tokens={self.max_tokens}; the ramp "
                "lies before the limit"
            )

    @property
    def columns(self) -> tuple[str, ...]:
        return ()

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        return [(self._judge(sum(completion.loss_mask)),) for completion in completions]

    def _judge(self, length: int) -> Judgement:
        value = soft_overlong_penalty(length, self.max_tokens, self.ramp_tokens)
        free = self.max_tokens - self.ramp_tokens
        return Judgement(value=value, reason=f"{length} tokens, free up to {free}, -1 from {self.max_tokens}")

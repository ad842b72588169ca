"""`random`: a coin for every answer, whatever it says. A control: what a run gains with it, it did not learn from a reward.

Decision: the draw is a function of the answer's place in its group and of the log-probs that it was sampled with, which no two
steps share. So a text that comes again later is drawn for anew, nothing can be learned from the draws, and a resumed run draws
what it would have drawn.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from toishi.ops.random import uniforms
from toishi.rewards.base import Judgement
from toishi.types import Completion, Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomReward:
    """1 with a fixed probability, else 0, whatever the answer says.

    probability  of a 1
    seed         another one draws otherwise

    Traps: it is a control, and no reward: a run that gains with it gains from something else (the entropy term, clipping, or
    the luck of a few steps; Spurious Rewards, arXiv 2506.10947).

    >>> from toishi.rewards.scripted import answered
    >>> judged = RandomReward().score_group(Prompt(id="a", text="?"), [answered("4") for _ in range(8)])
    >>> [judgement.value for (judgement,) in judged]
    [1.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0]
    """

    name: str = "random"
    probability: Annotated[float, Field(ge=0, le=1)] = 0.5
    seed: int = 0
    columns: tuple[str, ...] = ()

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        return [(self._drawn(prompt, member, completion),) for member, completion in enumerate(completions)]

    def _drawn(self, prompt: Prompt, member: int, completion: Completion) -> Judgement:
        words = repr((self.seed, prompt.id, member, completion.text, completion.sampled_logprobs)).encode()
        key = int.from_bytes(hashlib.blake2b(words, digest_size=8).digest(), "big")
        draw = float(uniforms((key,), 1)[0])
        return Judgement(value=float(draw < self.probability), reason=f"drawn: {draw:.3f}")

"""Short ways to ask a reward in tests."""

from __future__ import annotations

from typing import Any

from toishi.rewards import Judgement, Reward
from toishi.rewards.scripted import answered
from toishi.types import FinishReason, Prompt


def asked(question: str = "What is 5 + 7?", **rest: Any) -> Prompt:
    return Prompt(id="row 1", text=question, **rest)


def judge(reward: Reward, text: str, prompt: Prompt, finish_reason: FinishReason = "stop") -> Judgement:
    """The one judgement of one answer."""
    ((judgement,),) = reward.score_group(prompt, [answered(text, finish_reason)])
    return judgement

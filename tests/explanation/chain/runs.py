"""Short real runs of a tiny model whose scores are written by hand: group 0 is mixed with one failed call, group 1 is tied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.test_loop import recipe
from toishi import loop
from toishi.given import given_objects, with_given
from toishi.record import Run
from toishi.replay.plan import plan_replay
from toishi.rewards.base import Judgement
from toishi.rewards.scripted import ScriptedReward
from toishi.tasks.scripted import ScriptedTask
from toishi.tracing.afterwards import replay_traced
from toishi.types import Completion, Prompt

PROMPTS = ("one two", "three four")
MIXED = (0.75, 0.5, None, 0.25)
"""The judge's scores of group 0, weight 2; None: the call failed."""
STYLE = 0.5
"""What the second reward gives everybody, weight 0.5."""
MEAN = 2 * (0.75 + 0.5 + 0.25) / 3 + 0.25

SHORT = {
    "train": {"steps": 1, "prompts_per_step": 2, "group_size": 4, "inner_epochs": 1},
    "evaluation.prompts": 0,
    "checkpoint.every": 1,
    "record.trace_when": ["first_step"],
}


class Judge:
    """Answers in turn; the group is known by its prompt."""

    def __init__(self) -> None:
        self.turn = 0

    def __call__(self, prompt: Prompt, completion: Completion) -> Judgement:
        if prompt.text != PROMPTS[0] or not completion.token_ids or completion.sampled_logprobs[0] == 0.0:
            return Judgement(value=0.5, reason="as good as the others")
        score = MIXED[self.turn % 4]
        self.turn += 1
        if score is None:
            return Judgement(value=None, reason="no answer within 30 s", status="failed")
        return Judgement(value=score, reason=f"worth `{score}` of **1**")


def make(model: Path, folder: Path, **overrides: Any) -> Run:
    """One traced step."""
    rewards = [ScriptedReward(values=Judge(), name="judge"), ScriptedReward(values=(STYLE,), name="style")]
    given = given_objects(ScriptedTask(PROMPTS, heldout=["five"]), rewards)
    config = recipe(model, **(SHORT | overrides))
    return Run.open(loop.train(with_given(config, given, [2.0, 0.5]), folder, given=given).folder)


def trace(run: Run, step: int = 1) -> Run:
    """The run with the step traced afterwards, SFT beside it."""
    report, made = replay_traced(run, plan_replay(run, step))
    assert report.ok
    assert made is not None
    return run

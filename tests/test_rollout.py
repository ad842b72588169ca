"""Groups out of prompts: identities, versions, and random keys that differ for every answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from toishi.engines.base import Request, Sampling
from toishi.rewards.scripted import answered
from toishi.rollout import EVALUATION_STREAM, sample_groups
from toishi.types import Completion, Prompt


class Remembering:
    """An engine that remembers what it was asked; every third answer is cut."""

    name = "remembering"

    def __init__(self) -> None:
        self.asked: list[Request] = []

    def generate(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        self.asked += requests
        return [
            replace(answered(f"answer {place}", "length" if place % 3 == 2 else "stop"), policy_version=-5)
            for place in range(len(requests))
        ]


PROMPTS = [Prompt(id="a", text="a", token_ids=(1, 2)), Prompt(id="b", text="b", token_ids=(3,))]


def test_groups_keep_prompt_order_and_identity() -> None:
    engine = Remembering()
    groups = sample_groups(PROMPTS, engine, Sampling(max_new_tokens=4), seed=9, step=3, group_size=2, first_group=4)
    assert [[str(r.id) for r in group.rollouts] for group in groups] == [["3/4/0", "3/4/1"], ["3/5/0", "3/5/1"]]
    assert [[r.completion.text for r in group.rollouts] for group in groups] == [
        ["answer 0", "answer 1"],
        ["answer 2", "answer 3"],
    ]
    assert [r.status for group in groups for r in group.rollouts] == ["completed", "completed", "truncated", "completed"]
    assert {r.completion.policy_version for group in groups for r in group.rollouts} == {2}
    assert [request.prompt_ids for request in engine.asked] == [(1, 2), (1, 2), (3,), (3,)]
    assert all(r.prompt is group.prompt for group in groups for r in group.rollouts)


def test_no_two_answers_of_a_run_share_their_random_numbers() -> None:
    engine = Remembering()
    for step in (1, 2):
        for stream in (0, EVALUATION_STREAM):
            for first in (0, 2):
                sample_groups(
                    PROMPTS,
                    engine,
                    Sampling(max_new_tokens=4),
                    seed=0,
                    step=step,
                    group_size=3,
                    first_group=first,
                    stream=stream,
                )
    keys = [request.key for request in engine.asked]
    assert len(set(keys)) == len(keys) == 2 * 2 * 2 * 6

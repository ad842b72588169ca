"""Tasks whose answers a program judges."""

from __future__ import annotations

import re

from toishi.config import TaskConfig
from toishi.tasks import build_task


def test_every_function_passes_its_own_tests_and_no_other_ones() -> None:
    task = build_task(TaskConfig.model_validate({"name": "functions"}), seed=0)
    assert (task.num_train, len(task.heldout_prompts())) == (24 * 5 - 32, 32)
    prompts = [*task.heldout_prompts(), *(task.train_prompt(index) for index in range(task.num_train or 0))]
    for prompt in prompts:
        code = re.fullmatch(r"```python\n(.*)\n```", prompt.gold, re.DOTALL)
        assert code is not None
        names: dict[str, object] = {}
        exec(code[1], names)
        for test in prompt.columns["tests"]:
            exec(test, names)
    wanted = [tuple(prompt.columns["tests"]) for prompt in prompts]
    assert len(set(wanted)) == len(wanted)


def test_every_statement_is_a_chain_from_what_is_given_to_the_goal() -> None:
    task = build_task(TaskConfig.model_validate({"name": "implications", "steps": 3}), seed=0)
    prompt = task.train_prompt(0)
    given, goal = (line.split(": ")[1] for line in prompt.columns["statement"].split("\n"))
    start, *links = given.split("; ")
    assert len(links) == 3
    for link in links:
        one, other = link.split(" -> ")
        assert one == start
        start = other
    assert start == goal
    assert prompt.gold.count("\n") == 2
    assert goal not in given.split("; ")

"""The promise on a real model: every link of real steps checks, and steps done again give the same bits.

Minutes on two cores; `make test-all` runs it.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from toishi.api import resume, train
from toishi.explanation.chain.build import explain_chain
from toishi.record import Run
from toishi.record.trace_files import read_trace
from toishi.replay.plan import plan_replay
from toishi.replay.redo import replay
from toishi.rewards import Judgement
from toishi.types import Completion, Prompt

pytestmark = [pytest.mark.slow, pytest.mark.bundled, pytest.mark.timeout(3600)]

SMALL = {
    "task.high": 9,
    "task.heldout": 8,
    "train.prompts_per_step": 3,
    "train.group_size": 6,
    "sampling.max_new_tokens": 12,
    "evaluation.prompts": 0,
    "checkpoint.every": 4,
    "checkpoint.keep_last": 9,
}


@dataclass
class JudgeWithOneFailure:
    """A scripted judge: closeness to the gold in words and points, and one call that gets no answer."""

    name: str = "judge"
    columns: tuple[str, ...] = ()
    calls: list[str] = field(default_factory=list)
    failing: int = 9

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        return [(self._judge(prompt, completion),) for completion in completions]

    def _judge(self, prompt: Prompt, completion: Completion) -> Judgement:
        if any(completion.token_ids):  # what is made up before the start has no tokens of its own
            self.calls.append(completion.text)
        if len(self.calls) == self.failing and any(completion.token_ids):
            return Judgement(value=None, status="failed", reason="timed out after 30 s")
        found = str(prompt.gold) in completion.text
        score = 9 if found else 1 + len(self.calls) % 3
        return Judgement(value=float(score), reason=f"The answer {'names' if found else 'misses'} the sum: {score} of 10.")


def trained(folder: Path, changes: dict[str, Any], rewards: Any = None) -> Run:
    train("sums", rewards=rewards, overrides=SMALL | changes, folder=folder, quiet=True)
    return Run.open(folder)


def assert_all_links_pass(run: Run, steps: Sequence[int]) -> int:
    """Every group and every answer of the steps; the number of chains."""
    count = 0
    for step in steps:
        for group in run.step(step).groups:
            for rollout in group.rollouts:
                chain = explain_chain(run, step, group=rollout.id.group, member=rollout.id.member)
                assert [check.name for check in chain.checks if not check.ok] == []
                assert chain.effect is not None
                assert (chain.change is None) == bool(run.step(step).updates[0].scalars["update/skipped"])
                count += 1
    return count


def test_ten_steps_with_a_checker(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", {"train.steps": 10, "record.trace_every": 1})
    assert assert_all_links_pass(run, range(1, 11)) == 180
    taught = 0
    for step in range(1, 11):
        check = read_trace(run.folder, step).check
        if check is not None:
            taught += 1
            assert check.compared > 0
            assert check.largest_relative <= 1e-6
    assert taught >= 5


def test_three_steps_with_a_judge_that_fails_once(tmp_path: Path) -> None:
    judge = JudgeWithOneFailure()
    run = trained(tmp_path / "run", {"train.steps": 3, "record.trace_every": 1}, [judge])
    assert assert_all_links_pass(run, range(1, 4)) == 54
    left_out = [rollout for step in (1, 2, 3) for rollout in run.step(step).rollouts if rollout.status == "failed"]
    assert [str(rollout.id) for rollout in left_out] == ["1/1/2"]
    chain = explain_chain(run, 1, group=1, member=2)
    assert "timed out after 30 s" in str(chain.scores)
    assert chain.baseline.count == 5
    assert left_out[0].advantage in (None, 0.0)


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {"train.steps": 8},
    "lora": {"train.steps": 8, "model.lora": {"rank": 4}, "optimizer.lr": 1e-4},
    "accumulation": {"train.steps": 8, "train.micro_batch_tokens": 96},
    "two inner epochs": {"train.steps": 8, "train.inner_epochs": 2},
    "after resume": {"train.steps": 8},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_random_steps_done_again_give_the_same_bits(variant: str, tmp_path: Path) -> None:
    if variant == "after resume":
        trained(tmp_path / "run", VARIANTS[variant] | {"train.steps": 8, "checkpoint.every": 3})
        cut_after_checkpoint(tmp_path / "run", 3)
        resume(tmp_path / "run", quiet=True)
        run = Run.open(tmp_path / "run")
    else:
        run = trained(tmp_path / "run", VARIANTS[variant])
    for step in random.Random(variant).sample(range(1, 9), 4):
        plan = plan_replay(run, step)
        assert plan.elsewhere == ()
        report = replay(run, plan)
        assert report.ok, f"{variant}, step {step}: {report.difference}"
        assert report.bit_for_bit


def cut_after_checkpoint(folder: Path, step: int) -> None:
    """What a kill leaves: no checkpoint after `step`."""
    for path in (folder / "checkpoints").glob("step_*"):
        if int(path.name.removeprefix("step_")) > step:
            shutil.rmtree(path)

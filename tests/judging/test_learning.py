"""Learning under a judge whose noise is known: the truth behind the noisy scores rises.

The truth of an answer is the share of its characters that are lower-case letters. The judge says 30 + 40 x truth on a scale
from 0 to 100, with Gaussian noise of 10 points: a quarter of the whole range of the truth, more than siblings differ by. The
threshold was set before the first run: the truth rises by at least 0.1 on the mean over seeds, and falls with none.
"""

from __future__ import annotations

import hashlib
import json
import re
import statistics
from pathlib import Path

import pytest

import toishi
from tests.tiny import save_tiny
from toishi.judging.base import JudgeCall, ScriptedJudge
from toishi.ops.random import uniforms
from toishi.record.reader import Run
from toishi.rewards.judge import JudgeReward
from toishi.tasks import ScriptedTask

NOISE_POINTS = 10.0
STEPS = 30
LEAST_GAIN = 0.1
QUOTED = re.compile(r"<(data-[0-9a-f]+)>\n(.*?)\n</\1>", re.DOTALL)
"""How `judge` shows the question, and last the answer."""


def truth(text: str) -> float:
    return sum(letter.islower() for letter in text) / max(1, len(text))


def noisy_judge(seed: int) -> ScriptedJudge:
    """Noise is a function of (seed, question and answer): calls come from several threads, in any order."""

    def say(call: JudgeCall) -> str:
        shown = call.messages[-1]["content"]
        key = int.from_bytes(hashlib.sha256(shown.encode()).digest()[:8], "big")
        noise = statistics.NormalDist(0.0, NOISE_POINTS).inv_cdf(float(uniforms((seed, key), 1)[0]))
        answer = QUOTED.findall(shown)[-1][1]
        return json.dumps({"reason": "noisy", "score": round(min(100.0, max(0.0, 30.0 + 40.0 * truth(answer) + noise)), 3)})

    return ScriptedJudge(script=say)


def gain(folder: Path, seed: int) -> float:
    """How far the truth has risen: mean over the last five steps minus mean over the first two."""
    reward = JudgeReward(judge=noisy_judge(seed), probe="off", scale="0-100")
    recipe = {
        "seed": seed,
        "model": {"name": str(save_tiny(folder / "model", seed=seed)), "dtype": "float32"},
        "sampling": {"max_new_tokens": 12},
        "train": {"steps": STEPS, "prompts_per_step": 4, "group_size": 8},
        "optimizer": {"lr": 3e-3},
        "evaluation": {"prompts": 0},
        "checkpoint": {"every": 0},
    }
    task = ScriptedTask([f"Say {thing}." for thing in ("this", "that", "one", "two", "three", "four")])
    run = Run.open(toishi.train(recipe, task=task, rewards=reward, folder=folder / "run", quiet=True).folder)
    means = [statistics.fmean(truth(rollout.completion.text) for rollout in run.step(step).rollouts) for step in run.steps]
    return statistics.fmean(means[-5:]) - statistics.fmean(means[:2])


def test_a_noisy_judge_teaches(tmp_path: Path) -> None:
    assert gain(tmp_path, seed=0) >= LEAST_GAIN


@pytest.mark.slow
def test_a_noisy_judge_teaches_with_every_seed(tmp_path: Path) -> None:
    gains = [gain(tmp_path / str(seed), seed) for seed in range(5)]
    assert statistics.fmean(gains) >= LEAST_GAIN, gains
    assert min(gains) > 0, gains

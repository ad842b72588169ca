"""Made-up run histories: plausible, noisy, seeded, with every metric of a step, and faults to plant into them.

A healthy run samples its groups: each prompt has its own chance of being answered right, drawn around a mean that rises from
0.1 to 0.9 while entropy falls from 2 to 0.3 nats and answers shorten from 20 to 10 tokens, as small models did on sums.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from toishi.algorithms.critic import CRITIC_METRICS
from toishi.algorithms.preference import PAIR_METRICS
from toishi.algorithms.teaching import SERVED_METRICS
from toishi.evaluate import Evaluation

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How a run goes. `speed` is the number of steps in which most of the learning happens."""

    steps: int = 200
    speed: float = 60.0
    prompts: int = 4
    group_size: int = 8
    reward: tuple[float, float] = (0.1, 0.9)
    entropy: tuple[float, float] = (2.0, 0.3)
    length: tuple[float, float] = (20.0, 10.0)
    truncated: tuple[float, float] = (0.5, 0.01)
    inner_updates: int = 1
    evaluate_every: int = 10
    heldout_prompts: int = 32


@dataclass
class MadeRun:
    rows: list[Row]
    evaluations: list[Evaluation]


def healthy(seed: int, shape: Shape | None = None) -> MadeRun:
    shape = shape or Shape()
    noise = random.Random(seed)
    rows = [step_row(step, noise, shape) for step in range(1, shape.steps + 1)]
    difficulty = [noise.gauss(0.0, 1.0) for _ in range(shape.heldout_prompts)]
    steps = range(0, shape.steps + 1, shape.evaluate_every)
    return MadeRun(rows, [evaluation(step, noise, shape, difficulty) for step in steps])


def between(ends: tuple[float, float], step: int, shape: Shape) -> float:
    """From the first end to the second, most of the way after `speed` steps."""
    return ends[1] + (ends[0] - ends[1]) * math.exp(-2.0 * step / shape.speed)


def chance(level: float, difficulty: float) -> float:
    """A prompt's chance of a right answer around the mean level."""
    odds = math.log(level / (1 - level)) + difficulty
    return 1 / (1 + math.exp(-odds))


def step_row(step: int, noise: random.Random, shape: Shape) -> Row:
    level, length = between(shape.reward, step, shape), between(shape.length, step, shape)
    groups = []
    for _ in range(shape.prompts):
        right = chance(level, noise.gauss(0.0, 1.0))
        groups.append([float(noise.random() < right) for _ in range(shape.group_size)])
    entropy = between(shape.entropy, step, shape) * math.exp(noise.gauss(0.0, 0.12))
    return (
        reward_metrics(groups)
        | answer_metrics(step, noise, shape, length, entropy)
        | update_metrics(noise, shape, groups)
        | {"prompts/left_out": 0, **dict.fromkeys((*PAIR_METRICS, *CRITIC_METRICS, *SERVED_METRICS))}  # nothing of these
        | {"step": step}
    )


def reward_metrics(groups: list[list[float]]) -> Row:
    rewards = [reward for group in groups for reward in group]
    spread = statistics.pstdev(rewards)
    return {
        "reward/mean": statistics.fmean(rewards),
        "reward/std": spread,
        "reward/group_std_mean": statistics.fmean(statistics.pstdev(group) for group in groups),
        "rewards/number/mean": statistics.fmean(rewards),
        "rewards/number/std": spread,
        "rewards/number/failed": 0,
        "rewards/number/abstained": 0,
        "rewards/number/at_max": sum(reward == max(rewards) for reward in rewards) / len(rewards),
        "rewards/number/at_min": sum(reward == min(rewards) for reward in rewards) / len(rewards),
        "rewards/number/length_correlation": 0.1,
        "rewards/number/right": sum(reward > 0 for reward in rewards),
        "rewards/number/wrong": sum(reward <= 0 for reward in rewards),
        "rewards/number/no_answer": 0,
        **{f"rewards/number/{use}": 0 for use in ("gated", "capped", "levelled", "left_out")},
        "groups/count": len(groups),
        "groups/mixed": sum(len(set(group)) > 1 for group in groups),
        "groups/all_wrong": sum(set(group) == {0.0} for group in groups),
        "groups/all_right": sum(set(group) == {1.0} for group in groups),
        "groups/below_noise": 0,
        "groups/dropped": 0,
        "groups/refill_rounds": 0,
        "answers/count": len(rewards),
        "answers/unscored": 0,
    }


def answer_metrics(step: int, noise: random.Random, shape: Shape, length: float, entropy: float) -> Row:
    count = shape.prompts * shape.group_size
    cut = between(shape.truncated, step, shape)
    lengths = [max(1.0, noise.gauss(length, 0.3 * length)) for _ in range(count)]
    variety = 1 - math.exp(-0.5 * entropy * length)
    below = [max(1.0, noise.gauss(1.3 * length, 0.4 * length)) for _ in range(4)]
    return {
        "answers/truncated_share": sum(noise.random() < cut for _ in range(count)) / count,
        "answers/mean_tokens": statistics.fmean(lengths),
        "answers/p95_tokens": sorted(lengths)[int(0.95 * count)],
        "answers/max_tokens": max(lengths),
        "answers/mean_tokens_above": statistics.fmean(lengths[:8]),
        "answers/mean_tokens_below": statistics.fmean(below) if noise.random() < 0.9 else None,
        "answers/distinct_share": 1 / shape.group_size + (1 - 1 / shape.group_size) * variety,
        "answers/empty_share": float(noise.random() < 0.02) / count,
        "entropy/mean_nats": entropy,
        "sampler_gap/mean_abs": 2e-6 * math.exp(noise.gauss(0.0, 0.5)),
        "sampler_gap/max_abs": 2e-5 * math.exp(noise.gauss(0.0, 0.5)),
        "tokens/sampled": round(sum(lengths)),
        "tokens/per_s": noise.gauss(400.0, 30.0),
        "prompts/next": step * shape.prompts,
    }


def update_metrics(noise: random.Random, shape: Shape, groups: list[list[float]]) -> Row:
    mixed = sum(len(set(group)) > 1 for group in groups)
    several = shape.inner_updates > 1
    norm = math.sqrt(mixed) * math.exp(noise.gauss(0.0, 0.45))
    return {
        "update/count": shape.inner_updates if mixed else 0,
        "update/loss": noise.gauss(0.0, 0.02),
        "update/grad_norm": norm,
        "update/grad_norm_clipped": min(norm, 1.0),
        "update/lr": 1e-5,
        "update/skipped": 0 if mixed else shape.inner_updates,
        "update/tokens": 400,
        "update/rollouts": 32,
        "update/tokens_computed": 100 * mixed,
        "update/ratio_mean": (1 + noise.gauss(0.0, 0.02) * several) if mixed else None,
        "update/ratio_max": (1 + several * math.exp(noise.gauss(0.5, 0.8))) if mixed else None,
        "update/ratio_min": 1 - 0.5 * several if mixed else None,
        "update/clip_low_share": several * abs(noise.gauss(0.03, 0.02)) if mixed else None,
        "update/clip_high_share": several * abs(noise.gauss(0.04, 0.02)) if mixed else None,
        "update/clip_dual_share": 0.0 if mixed else None,
        "update/kl_old_policy_k3": several * abs(noise.gauss(0.004, 0.004)) if mixed else None,
        "update/kl_policy_ref": None,
        "update/divergence": None,
        "update/weights_checksum": f"{len(groups):032x}",
        "time/rollout_s": 2.0,
        "time/scoring_s": 0.1,
        "time/scoring_hidden_s": 0.0,
        "time/update_s": 1.0,
        "time/trace_s": 0.0,
        "time/step_s": 3.2,
    }


def evaluation(step: int, noise: random.Random, shape: Shape, difficulty: list[float]) -> Evaluation:
    """Greedy answers are right a little more often than sampled ones."""
    level = min(0.97, between(shape.reward, step, shape) + 0.1)
    values = {f"p{number}": float(noise.random() < chance(level, hard)) for number, hard in enumerate(difficulty)}
    return made_evaluation(step, values)


def made_evaluation(step: int, by_prompt: dict[str, float]) -> Evaluation:
    value = statistics.fmean(by_prompt.values())
    half = 1.96 * statistics.pstdev(by_prompt.values()) / math.sqrt(len(by_prompt))
    return Evaluation(
        step=step, mode="greedy", num_prompts=len(by_prompt), samples=1, temperature=1.0, value=value,
        interval=(value - half, value + half), readable=None, value_readable=None, truncated=0.0, mean_tokens=10.0,
        unscored=0, by_prompt=by_prompt,
    )  # fmt: skip


def plant(run: MadeRun, at: int, change: Callable[[Row, int], Row]) -> MadeRun:
    """The run with `change(row, steps since the fault began)` laid over every row from step `at` on."""
    rows = [row | change(row, row["step"] - at) if row["step"] >= at else row for row in run.rows]
    return MadeRun(rows, run.evaluations)

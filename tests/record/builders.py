"""Small hand-made step reports with every kind of row: kept, tied, failed, truncated, per-token and plain."""

from __future__ import annotations

from typing import Any

from toishi.types import (
    Completion,
    Group,
    GroupBaseline,
    Prompt,
    Rollout,
    RolloutId,
    Score,
    StepReport,
    TokenStreams,
    Update,
)

RUN_FIELDS: dict[str, Any] = {
    "config": {"name": "tiny", "seed": 7},
    "seed": 7,
    "decisions": {"dtype": "float32", "device": "cpu", "threads": 1},
    "model": {"source": "tiny", "fingerprint": "0" * 16},
    "prompt": {"text": "1 + 1 =", "token_ids": [3, 4]},
    "environment": {"toishi": "0.1.0"},
}


def completion(token_ids: tuple[int, ...], text: str, *, finish: Any = "stop") -> Completion:
    count = len(token_ids)
    return Completion(
        token_ids=token_ids,
        loss_mask=(1,) * count,
        sampled_logprobs=tuple(-0.1 * (position + 1) for position in range(count)),
        entropies=tuple(0.2 * (position + 1) for position in range(count)),
        text=text,
        finish_reason=finish,
        policy_version=4,
    )


def sum_prompt(number: int) -> Prompt:
    return Prompt(
        id=f"sums/{number}",
        messages=({"role": "system", "content": "Add."}, {"role": "user", "content": f"{number} + 1 = ?"}),
        gold=number + 1,
        columns={"a": number, "note": "naïve → 砥石", "parts": [1, {"x": None}]},
        token_ids=(1, 2, 3),
        prefill="<think>",
    )


def mixed_group(step: int, group: int = 0) -> Group:
    """Rewards 1, 0 and a failed one: mean 0.5, sample std 0.7071."""
    prompt = sum_prompt(group)
    right = Score(reward="number", value=1.0, weight=1.0, reason="read 1, gold 1", readable=True)
    wrong = Score(reward="number", value=0.0, weight=1.0, reason="read 7, gold 1", readable=True)
    failed = Score(
        reward="number", value=None, weight=1.0, status="failed", reason="ZeroDivisionError: division by zero", kind="raised"
    )
    absent = Score(reward="style", value=None, weight=0.5, status="abstained", span=(0, 1))
    advantage = 0.5 / (0.5**0.5 + 1e-4)
    return Group(
        prompt=prompt,
        rollouts=(
            Rollout(
                id=RolloutId(step=step, group=group, member=0),
                prompt=prompt,
                completion=completion((5, 6, 2), "1 [bold]"),
                scores=(right, absent),
                reward=1.0,
                advantage=advantage,
            ),
            Rollout(
                id=RolloutId(step=step, group=group, member=1),
                prompt=prompt,
                completion=completion((5, 7), "7\nand more", finish="length"),
                scores=(wrong, absent),
                reward=0.0,
                advantage=-advantage,
                status="truncated",
            ),
            Rollout(
                id=RolloutId(step=step, group=group, member=2),
                prompt=prompt,
                completion=completion((9,), ""),
                scores=(failed,),
                advantage=0.0,
                status="failed",
                failure="reward number: division by zero",
            ),
        ),
        baseline=GroupBaseline(mean=0.5, std=0.5**0.5, count=2),
    )


def plain_group(step: int, group: int = 1) -> Group:
    """A plain prompt, tied rewards, per-token advantages, reference log-probs, one empty answer."""
    prompt = Prompt(id="plain/0", text="Once", gold=None)
    score = Score(reward="length", value=0.25, weight=2.0, reason="")
    return Group(
        prompt=prompt,
        rollouts=(
            Rollout(
                id=RolloutId(step=step, group=group, member=0),
                prompt=prompt,
                completion=completion((8, 2), "upon"),
                scores=(score,),
                reward=0.5,
                advantage=(0.25, -0.125),
                ref_logprobs=(-0.3, -0.4),
            ),
            Rollout(
                id=RolloutId(step=step, group=group, member=1),
                prompt=prompt,
                completion=completion((), ""),
                scores=(score,),
                reward=0.5,
                advantage=(),
                ref_logprobs=(),
            ),
        ),
        baseline=GroupBaseline(mean=0.5, std=0.0, count=2, kept=False, why="tied: both answers got 0.5"),
    )


def streams(rollout: Rollout, shift: float = 0.0) -> TokenStreams:
    old = rollout.completion.sampled_logprobs
    return TokenStreams(
        rollout=rollout.id,
        computed=True,
        advantage=rollout.advantage_per_token,
        old_logprob=old,
        logprob=tuple(value + shift for value in old),
        ref_logprob=rollout.ref_logprobs or (),
        entropy=rollout.completion.entropies,
        ratio=(1.0,) * len(old),
        clip=(0, 1, 2)[: len(old)],
        kl_policy_ref=(0.0,) * len(old),
        token_weight=(-0.1234567891234567,) * len(old),
    )


def report(step: int = 1) -> StepReport:
    mixed, plain = mixed_group(step), plain_group(step)
    first = Update(
        step=step,
        index=0,
        scalars={"update/loss": 0.0, "update/grad_norm": 1.5},
        streams=(streams(mixed.rollouts[0]), streams(plain.rollouts[0])),
    )
    second = Update(
        step=step,
        index=1,
        scalars={"update/loss": -0.25, "update/grad_norm": 1.25},
        streams=(
            streams(mixed.rollouts[1], 0.01),
            TokenStreams(rollout=mixed.rollouts[2].id, computed=False, advantage=(0.0,)),
        ),
    )
    return StepReport(
        step=step,
        groups=(mixed, plain),
        updates=(first, second),
        metrics={
            "reward/mean": 0.5,
            "answers/count": 5,
            "sampler_gap/mean_abs": None,
            "update/loss": -0.125,
            "time/rollout_s": 0.5,
            "time/update_s": 0.25,
        },
        timings_s={"rollout": 0.5, "update": 0.25},
    )

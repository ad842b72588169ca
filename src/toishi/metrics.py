"""The numbers of one step, each explained once: the code that emits them and the docs read the same table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toishi.algorithms.composing import noise_note
from toishi.algorithms.critic import CRITIC_METRICS
from toishi.algorithms.preference import PAIR_METRICS
from toishi.algorithms.teaching import SERVED_METRICS
from toishi.types import Group, Rollout, TokenStreams, Update

Value = float | int | None
WEIGHTS_CHECKSUM = "update/weights_checksum"
REWARDS_OWN = ("rewards/<name>/failed/<kind>", "rewards/<name>/<key>")  # a reward itself gives these; all others always are


@dataclass(frozen=True, slots=True)
class Metric:
    """What a logged number means, and what to look for."""

    unit: str
    meaning: str
    look_for: str = ""


METRICS: dict[str, Metric] = {
    "reward/mean": Metric("reward", "mean reward of the step's scored answers", "the curve to watch, with the held-out value"),
    "reward/std": Metric("reward", "standard deviation of the reward over all scored answers of the step (population)"),
    "reward/group_std_mean": Metric("reward", "mean over groups of the spread inside the group", "0 = nothing to compare"),
    "rewards/<name>/mean": Metric("score", "mean value of one reward, before its weight"),
    "rewards/<name>/std": Metric(
        "score", "standard deviation of one reward's values (sample, ddof 1)", "0 for many steps: constant reward"
    ),
    "rewards/<name>/at_max": Metric(
        "share", "answers at the highest value the step saw", "near 1 for many steps: saturated, nothing left to tell apart"
    ),
    "rewards/<name>/at_min": Metric("share", "answers at the lowest value the step saw", "near 1: it almost never pays"),
    "rewards/<name>/length_correlation": Metric(
        "correlation",
        "Pearson correlation of the value with the answer's number of tokens; null when either is constant",
        "beyond ±0.5 for many steps: it pays for length, not for the answer",
    ),
    "rewards/<name>/failed": Metric("answers", "answers this reward broke on; they are left out, never counted as 0"),
    "rewards/<name>/failed/<kind>": Metric(
        "answers", "those of them of one kind (timed_out, unreadable, raised, ...), where the reward tells kinds apart"
    ),
    "rewards/<name>/abstained": Metric("answers", "answers this reward does not apply to (it returned None)"),
    "rewards/<name>/right": Metric("answers", "answers that could be read and are paid; null where it does not look for one"),
    "rewards/<name>/wrong": Metric("answers", "answers that could be read and are not paid"),
    "rewards/<name>/no_answer": Metric(
        "answers", "answers in which none could be read", "much of the reward's zeros: the form is the problem, not the task"
    ),
    "rewards/<name>/gated": Metric("answers", "answers that its closed gate pays 0"),
    "rewards/<name>/capped": Metric("answers", "answers held at a bound of its cap", "most: the cap decides, not the reward"),
    "rewards/<name>/levelled": Metric(
        "answers",
        "answers that got their group's mean, since its differences are within the noise",
        "most: the judge is too noisy",
    ),
    "rewards/<name>/left_out": Metric(
        "answers", "answers paid without it: it failed in their group, or its gate could not be decided"
    ),
    "rewards/<name>/<key>": Metric("its own", "what the reward itself counted during the step: calls, tokens, cost"),
    "groups/count": Metric("groups", "groups sampled in the step, refills included"),
    "groups/mixed": Metric(
        "groups",
        "groups whose rewards differ: only these teach by comparison",
        "below a third: change difficulty or group size",
    ),
    "groups/all_wrong": Metric("groups", "tied groups with reward at or below 0", "rising: task too hard"),
    "groups/all_right": Metric("groups", "tied groups with reward above 0", "rising: task solved or reward saturated"),
    "groups/below_noise": Metric(
        "groups",
        "groups in which the differences of a reward are within its noise and so are not paid",
        "most: average more judge calls, or use a finer scale",
    ),
    "groups/dropped": Metric("groups", "groups that the algorithm's filter left out"),
    "groups/refill_rounds": Metric("rounds", "extra sampling rounds made to find mixed groups (DAPO refill)"),
    "answers/count": Metric("answers", "answers sampled in the step"),
    "answers/unscored": Metric("answers", "answers without a reward (failed or all rewards abstained)"),
    "answers/truncated_share": Metric(
        "share", "answers cut by the token limit", "above 0.1: raise sampling.max_new_tokens or penalise length"
    ),
    "answers/mean_tokens": Metric("tokens", "mean answer length, stop token included"),
    "answers/p95_tokens": Metric("tokens", "95th percentile of the answer length"),
    "answers/max_tokens": Metric("tokens", "longest answer"),
    "answers/mean_tokens_above": Metric("tokens", "mean length of answers above their group's mean reward"),
    "answers/mean_tokens_below": Metric(
        "tokens", "mean length of answers below it", "growing faster than `above`: length bias"
    ),
    "answers/distinct_share": Metric("share", "different texts among the answers", "falling to 1/G: the policy has collapsed"),
    "answers/empty_share": Metric("share", "answers without any text"),
    "entropy/mean_nats": Metric(
        "nats", "mean entropy of the next-token distribution over all sampled tokens", "halving early or below 0.05: collapse"
    ),
    "sampler_gap/mean_abs": Metric(
        "nats", "mean |log-prob as sampled - log-prob as trained| of the same tokens", "fp32 below 1e-3, bf16 below 0.1"
    ),
    "sampler_gap/max_abs": Metric("nats", "largest such difference"),
    "update/count": Metric("updates", "optimizer updates made in the step"),
    "update/loss": Metric(
        "loss", "value of the loss, mean over the step's updates", "near 0 is normal and says nothing about learning"
    ),
    "update/grad_norm": Metric(
        "norm", "gradient norm before clipping, mean over updates", "0: nothing taught; 10x the usual: trouble"
    ),
    "update/grad_norm_clipped": Metric("norm", "gradient norm after clipping"),
    "update/lr": Metric("1", "learning rate"),
    "update/skipped": Metric("updates", "updates without anything that moves the policy: no optimizer step was made"),
    "update/tokens": Metric("tokens", "tokens in the loss's denominator, sum over updates"),
    "update/rollouts": Metric("answers", "answers in the loss's denominator, sum over updates"),
    "update/tokens_computed": Metric(
        "tokens", "tokens that went through the model in the updates (zero-advantage answers do not)"
    ),
    "update/ratio_mean": Metric("ratio", "mean importance ratio", "off 1: samples have grown stale"),
    "update/ratio_max": Metric("ratio", "largest importance ratio", "single values beyond 2: updates too drastic"),
    "update/ratio_min": Metric("ratio", "smallest importance ratio"),
    "update/clip_low_share": Metric("share", "tokens held at the lower bound", "0 with one update per step is normal"),
    "update/clip_high_share": Metric("share", "tokens held at the upper bound"),
    "update/clip_dual_share": Metric("share", "tokens held by the dual clip"),
    "update/kl_old_policy_k3": Metric(
        "nats",
        "k3 estimate of KL(policy sampled from || current policy) per token, over the updates",
        "jumps: learning rate too high",
    ),
    "update/kl_policy_ref": Metric("nats", "the row's KL term per token, policy against the model of step 0"),
    "update/divergence": Metric("nats", "mean divergence from the teacher's next-token distributions, if in the loss", "falls"),
    WEIGHTS_CHECKSUM: Metric(
        "text", "checksum over every bit of the trained weights after the step", "`toishi replay` must find the same again"
    ),
    "tokens/sampled": Metric("tokens", "tokens sampled in the step"),
    "tokens/per_s": Metric("tokens/s", "sampled tokens divided by the whole step's time"),
    "prompts/next": Metric("prompts", "position in the task's stream after the step"),
    "prompts/left_out": Metric("rows", "rows passed over: answers too long (answers.too_long), or the same twice in a pair"),
    **{name: Metric(*words) for name, words in {**PAIR_METRICS, **CRITIC_METRICS, **SERVED_METRICS}.items()},
    "time/rollout_s": Metric("s", "sampling, or reading written answers"),
    "time/scoring_s": Metric("s", "rewards, waited for after the last answer was sampled"),
    "time/scoring_hidden_s": Metric(
        "s", "of sampling, during which a reward was already asked (judges, programs): waited for by nobody"
    ),
    "time/update_s": Metric("s", "reference and old log-probs, forward, backward, optimizer"),
    "time/trace_s": Metric("s", "measuring for a trace (record.trace_every, record.trace_when)", "0: not traced"),
    "time/step_s": Metric("s", "the whole step without writing the record"),
}


def step_metrics(
    groups: Sequence[Group],
    updates: Sequence[Update],
    *,
    refill_rounds: int,
    next_prompt: int,
    gap: tuple[float, float] | None,
) -> dict[str, Value]:
    """All scalars of a step but the rewards' own (see `scoring_summary`) and the timings."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    return (
        _reward_metrics(groups, rollouts)
        | _group_metrics(groups, refill_rounds)
        | _answer_metrics(groups, rollouts)
        | update_metrics(groups, updates)
        | {
            "sampler_gap/mean_abs": gap[0] if gap else None,
            "sampler_gap/max_abs": gap[1] if gap else None,
            "tokens/sampled": sum(rollout.completion.num_tokens for rollout in rollouts),
            "prompts/next": next_prompt,
        }
    )


def sampler_gap(groups: Sequence[Group], streams: Sequence[TokenStreams]) -> tuple[float, float] | None:
    """(mean, max) of |log-prob as sampled - log-prob by the trainer before the first update|, over the tokens trained on."""
    completions = {rollout.id: rollout.completion for group in groups for rollout in group.rollouts}
    gaps = [
        abs(sampled - trained)
        for stream in streams
        if stream.computed and completions[stream.rollout].sampled_logprobs
        for sampled, trained, has_loss in zip(
            completions[stream.rollout].sampled_logprobs, stream.old_logprob, completions[stream.rollout].loss_mask, strict=True
        )
        if has_loss
    ]
    return (sum(gaps) / len(gaps), max(gaps)) if gaps else None


def _reward_metrics(groups: Sequence[Group], rollouts: Sequence[Rollout]) -> dict[str, Value]:
    rewards = [rollout.reward for rollout in rollouts if rollout.reward is not None]
    spreads = [_std([r for r in group.rewards if r is not None]) for group in groups]
    return {
        "reward/mean": _mean(rewards),
        "reward/std": _std(rewards),
        "reward/group_std_mean": _mean([spread for spread in spreads if spread is not None]),
        "answers/unscored": len(rollouts) - len(rewards),
    }


def _group_metrics(groups: Sequence[Group], refill_rounds: int) -> dict[str, Value]:
    tied = [[r for r in group.rewards if r is not None] for group in groups if group.is_tied]
    return {
        "groups/count": len(groups),
        "groups/mixed": sum(not group.is_tied for group in groups),
        "groups/all_wrong": sum(bool(rewards) and rewards[0] <= 0 for rewards in tied),
        "groups/all_right": sum(bool(rewards) and rewards[0] > 0 for rewards in tied),
        "groups/below_noise": sum(bool(noise_note(group.rollouts)) for group in groups),
        "groups/dropped": sum(group.baseline is not None and not group.baseline.kept for group in groups),
        "groups/refill_rounds": refill_rounds,
    }


def _answer_metrics(groups: Sequence[Group], rollouts: Sequence[Rollout]) -> dict[str, Value]:
    lengths = sorted(rollout.completion.num_tokens for rollout in rollouts)
    entropies = [entropy for rollout in rollouts for entropy in rollout.completion.entropies]
    above, below = _lengths_by_side(groups)
    distinct = [len({r.completion.text for r in group.rollouts}) / len(group.rollouts) for group in groups]
    return {
        "answers/count": len(rollouts),
        "answers/truncated_share": _mean([float(rollout.completion.is_truncated) for rollout in rollouts]),
        "answers/mean_tokens": _mean(lengths),
        "answers/p95_tokens": lengths[min(len(lengths) - 1, int(0.95 * len(lengths)))],
        "answers/max_tokens": lengths[-1],
        "answers/mean_tokens_above": _mean(above),
        "answers/mean_tokens_below": _mean(below),
        "answers/distinct_share": _mean(distinct),
        "answers/empty_share": _mean([float(not rollout.completion.text.strip()) for rollout in rollouts]),
        "entropy/mean_nats": _mean(entropies),
    }


def _lengths_by_side(groups: Sequence[Group]) -> tuple[list[int], list[int]]:
    above: list[int] = []
    below: list[int] = []
    for group in groups:
        mean = _mean([reward for reward in group.rewards if reward is not None])
        for rollout in group.rollouts:
            if rollout.reward is not None and mean is not None and rollout.reward != mean:
                (above if rollout.reward > mean else below).append(rollout.completion.num_tokens)
    return above, below


def update_metrics(groups: Sequence[Group], updates: Sequence[Update]) -> dict[str, Value]:
    """The scalars of a step's updates, and of their tokens."""
    trained = {rollout.id: rollout.completion.loss_mask for group in groups for rollout in group.rollouts}
    streams = [stream for update in updates for stream in update.streams if stream.computed]

    def tokens(name: str) -> list[float]:
        """A stream's values over all tokens with loss."""
        return [
            value
            for stream in streams
            for value, has_loss in zip(getattr(stream, name), trained[stream.rollout], strict=False)
            if has_loss
        ]

    ratios, clips, kl = tokens("ratio"), tokens("clip"), tokens("kl_policy_ref")
    logs = [new - old for old, new in zip(tokens("old_logprob"), tokens("logprob"), strict=True)]
    k3 = [math.expm1(min(log, 700.0)) - log for log in logs]
    averaged = ("update/loss", "update/grad_norm", "update/grad_norm_clipped", "update/lr")
    summed = ("update/skipped", "update/tokens", "update/rollouts")
    return (
        {"update/count": sum(update.scalars["update/skipped"] == 0 for update in updates)}
        | {name: _mean([update.scalars[name] for update in updates]) for name in averaged}
        | {name: sum(update.scalars[name] for update in updates) for name in summed}
        | {
            "update/tokens_computed": len(ratios),
            "update/ratio_mean": _mean(ratios),
            "update/ratio_max": max(ratios, default=None),
            "update/ratio_min": min(ratios, default=None),
            "update/clip_low_share": _mean([code == 1 for code in clips]),
            "update/clip_high_share": _mean([code == 2 for code in clips]),
            "update/clip_dual_share": _mean([code == 3 for code in clips]),
            "update/kl_old_policy_k3": _mean(k3),
            "update/kl_policy_ref": _mean(kl),
            "update/divergence": _mean(tokens("divergence")),
        }
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _std(values: Sequence[float]) -> float | None:
    """Population standard deviation; scaled by the largest distance first, so that huge rewards do not overflow."""
    mean = _mean(values)
    if mean is None:
        return None
    largest = max(abs(value - mean) for value in values)
    if largest == 0 or not math.isfinite(largest):
        return largest
    return largest * math.sqrt(sum(((value - mean) / largest) ** 2 for value in values) / len(values))


def timing_metrics(timings_s: Mapping[str, float], num_tokens: int) -> dict[str, Value]:
    """Seconds of each part of the step, and sampled tokens per second of the whole step."""
    rate = num_tokens / timings_s["step"] if timings_s["step"] > 0 else None
    return {f"time/{name}_s": seconds for name, seconds in timings_s.items()} | {"tokens/per_s": rate}

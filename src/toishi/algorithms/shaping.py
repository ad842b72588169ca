"""From a rollout's scores to the numbers that its advantage is made of.

Decisions:
1. One effective mask decides who counts: scored, not failed and, under truncation 'mask', not cut by the token limit. The
   same mask serves the baseline, the advantages, the filters and the denominators.
2. A score with a token span is the reward of a step: it sits on the span's last token. Everything else is the outcome.
3. The order is: reward map, length penalty, KL. Filters look at the reward as it was judged, before all three.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from toishi.algorithms.rows import Algorithm
from toishi.errors import ConfigError, NumericsError, RewardError
from toishi.types import Rollout

REWARD_MAPS: Mapping[str, Callable[[float], float]] = {
    "identity": lambda reward: reward,
    "plus_minus": lambda reward: 2 * reward - 1,
}
MARGIN = "written_margin"
"""Name of the score (of weight 0) that says by how much an answer is to win its pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shaped:
    """One rollout as the advantages see it.

    counts        inside the statistics; the numbers of a rollout that does not count are 0
    outcome       reward of the whole answer: mapped, with length penalty, without KL and without rewards of steps
    steps         (reward, index of the step's last token) for each scored step
    parts         by reward, its weight and what it says of the whole answer: the contribution divided by the weight, so that a
                  cap or a closed gate is in it; rewards of weight 0 are not here
    kl_penalty_T  kl_coef · (logprob_sampled - logprob_ref) for each token, to be subtracted; empty without KL in the reward
    values_T      what the critic said before the step of the text before each token; empty without a critic
    value_after   and of the text after the last one, where the answer was cut and that counts as a time-out; else 0
    log_ratio_T   log π - log π_ref of each token with loss, 0 elsewhere; a reward model's score stands on the last token. Empty
                  where no advantage is made of it
    margin        by how much its pair says that it is better at least
    loss_mask_T   1 for tokens with loss
    """

    counts: bool
    loss_mask_T: tuple[int, ...]
    outcome: float = 0.0
    steps: tuple[tuple[float, int], ...] = ()
    parts: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    kl_penalty_T: tuple[float, ...] = ()
    log_ratio_T: tuple[float, ...] = ()
    values_T: tuple[float, ...] = ()
    value_after: float = 0.0
    margin: float = 0.0

    @property
    def num_tokens(self) -> int:
        """Tokens with loss."""
        return sum(self.loss_mask_T)

    @property
    def outcome_with_kl(self) -> float:
        return self.outcome - math.fsum(self.kl_penalty_T)

    @property
    def total(self) -> float:
        """Everything the answer earned."""
        return self.outcome_with_kl + math.fsum(reward for reward, _ in self.steps)


def counts(rollout: Rollout, row: Algorithm) -> bool:
    """Whether a rollout is inside the baseline and may have an advantage: the one effective mask."""
    cut = rollout.completion.is_truncated or rollout.status == "truncated"
    return rollout.reward is not None and rollout.status != "failed" and not (row.truncation == "mask" and cut)


def shaped(rollout: Rollout, row: Algorithm, max_new_tokens: int) -> Shaped:
    """The numbers of one rollout. Raises NumericsError for a reward that is not finite, RewardError for a bad span."""
    loss_mask_T = rollout.completion.loss_mask
    if not counts(rollout, row):
        return Shaped(counts=False, loss_mask_T=loss_mask_T)
    reward_map = REWARD_MAPS[row.reward_map]
    steps = tuple(
        (reward_map(value), _last_token(score.reward, span, rollout))
        for score in rollout.scores
        if (span := score.span) is not None and (value := score.contribution) is not None
    )
    judged = _outcome(rollout) if steps else rollout.reward
    outcome = 0.0 if judged is None else reward_map(judged)
    if row.truncation == "soft_penalty":
        outcome += soft_overlong_penalty(sum(loss_mask_T), max_new_tokens, row.soft_penalty_tokens)
    _refuse_non_finite(rollout, [outcome, *(reward for reward, _ in steps)])
    penalty_T = _kl_penalty(rollout, row)
    return Shaped(
        counts=True, loss_mask_T=loss_mask_T, outcome=outcome, steps=steps, parts=_parts(rollout), kl_penalty_T=penalty_T,
        log_ratio_T=_COMPARED[row.predicts](rollout) if row.needs_policy_before else (), margin=_margin(rollout),
        values_T=_values(rollout) if row.needs_critic else (), value_after=rollout.value_after or 0.0,
    )  # fmt: skip


def token_rewards(answer: Shaped) -> list[float]:
    """What each token with loss earned; an answer without one earns nothing here.

    >>> penalty = (0.25, 0.0, 0.5, 0.0)
    >>> token_rewards(Shaped(counts=True, loss_mask_T=(1, 0, 1, 0), outcome=1.0, steps=((0.5, 1),), kl_penalty_T=penalty))
    [0.25, 0.5]
    """
    rewards_T = [0.0] * len(answer.loss_mask_T)
    for reward, last in (*answer.steps, (answer.outcome, len(rewards_T) - 1)):
        if rewards_T:
            rewards_T[last] += reward
    for place, penalty in enumerate(answer.kl_penalty_T):
        rewards_T[place] -= penalty
    earned: list[float] = []
    for reward, trained in zip(rewards_T, answer.loss_mask_T, strict=True):
        if trained:
            earned.append(reward)
        elif earned:
            earned[-1] += reward
    return earned


def soft_overlong_penalty(length: int, limit: int, ramp: int) -> float:
    """DAPO's R_len (arXiv 2503.14476, eq. 13): 0 up to limit - ramp, then a straight line down to -1 at the limit.

    Raises ConfigError for a ramp longer than the limit.

    >>> [soft_overlong_penalty(length, limit=20, ramp=4) for length in (16, 17, 20, 21)]
    [0.0, -0.25, -1.0, -1.0]
    """
    if not 0 < ramp <= limit:
        raise ConfigError(
            f"algorithm.soft_penalty_tokens={ramp} must be between 1 and sampling.max_new_tokens={limit}: "
            "it is the length of the ramp before the token limit"
        )
    return max(min((limit - ramp - length) / ramp, 0.0), -1.0)


def _outcome(rollout: Rollout) -> float | None:
    """The weighted sum of the scores about the whole answer; None when all scores are about steps."""
    whole = [value for score in rollout.scores if score.span is None and (value := score.contribution) is not None]
    return math.fsum(whole) if whole else None


def _parts(rollout: Rollout) -> dict[str, tuple[float, float]]:
    """Reward -> (weight, value that its contribution stands for)."""
    paid: dict[str, tuple[float, list[float]]] = {}
    for score in rollout.scores:
        part = score.contribution
        if part is not None and score.span is None and score.weight != 0:
            paid.setdefault(score.reward, (score.weight, []))[1].append(part)
    return {name: (weight, math.fsum(parts) / weight) for name, (weight, parts) in paid.items()}


def _last_token(reward: str, span: tuple[int, int], rollout: Rollout) -> int:
    start, end = span
    if not 0 <= start < end <= rollout.completion.num_tokens:
        raise RewardError(
            f"reward '{reward}', rollout {rollout.id}: token span [{start}, {end}) does not lie in the completion's "
            f"{rollout.completion.num_tokens} tokens; expected 0 <= start < end <= {rollout.completion.num_tokens}"
        )
    return end - 1


def _kl_penalty(rollout: Rollout, row: Algorithm) -> tuple[float, ...]:
    if row.kl != "k1_in_reward" or not row.needs_reference:
        return ()
    completion = rollout.completion
    if rollout.ref_logprobs is None:
        raise ValueError(f"rollout {rollout.id}: kl 'k1_in_reward' needs ref_logprobs, log-probs under the reference model")
    streams = zip(completion.sampled_logprobs, rollout.ref_logprobs, completion.loss_mask, strict=True)
    return tuple(row.kl_coef * (sampled - ref) * mask for sampled, ref, mask in streams)


def _values(rollout: Rollout) -> tuple[float, ...]:
    if rollout.values is None:
        raise ValueError(f"rollout {rollout.id}: its advantage needs the critic's values of the text before each token")
    return rollout.values


def _log_ratio(rollout: Rollout) -> tuple[float, ...]:
    own, reference = rollout.own_logprobs, rollout.ref_logprobs
    if not own or reference is None:
        raise ValueError(f"rollout {rollout.id}: its advantage needs log-probs under the policy and the reference model")
    return tuple((one - ref) * mask for one, ref, mask in zip(own, reference, rollout.completion.loss_mask, strict=True))


def _score(rollout: Rollout) -> tuple[float, ...]:
    own = rollout.own_logprobs
    if not own:
        raise ValueError(f"rollout {rollout.id}: its advantage needs the score that the model gives it")
    return tuple(score * mask for score, mask in zip(own, rollout.completion.loss_mask, strict=True))


_COMPARED: Mapping[str, Callable[[Rollout], tuple[float, ...]]] = {"tokens": _log_ratio, "score": _score}


def _margin(rollout: Rollout) -> float:
    return next((score.value for score in rollout.scores if score.reward == MARGIN and score.value is not None), 0.0)


def _refuse_non_finite(rollout: Rollout, numbers: list[float]) -> None:
    if not all(math.isfinite(number) for number in numbers):
        raise NumericsError(
            f"rollout {rollout.id}: reward {rollout.reward} is not a finite number, so no advantage can be computed; "
            "a reward that cannot judge returns None"
        )

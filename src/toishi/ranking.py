"""How a reward model ranks held-out pairs: right or wrong, how clearly, and whether its probabilities can be believed.

Decisions:
1. The pair is the unit, as the prompt is elsewhere: 1 if the chosen answer has the higher score, 0 if the lower, one half for
   equal ones.
2. The difference of two scores says how probable it is that people prefer the first: σ(β (r⁺ - r⁻)). Calibration compares this
   with how often it is right, over bins of equal width.
3. Length is the easiest thing to learn, so its correlation with the score is measured each time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from toishi.config import Config
from toishi.evaluate import Evaluation, ends
from toishi.ops.association import pearson
from toishi.ops.preference import PREFERENCES, sigmoid
from toishi.ops.stats import calibration_error, mean_interval
from toishi.policy.chat import Renderer
from toishi.policy.policy import Policy
from toishi.types import Group, Prompt
from toishi.update import UpdateSettings, policy_logprobs
from toishi.written import written_group

DETAILS = {
    "loss": "mean loss of the pairs, without centring",
    "margin": "mean of r⁺ - r⁻",
    "calibration_error": "mean distance of the probability that it gives its choice from how often that is right, in 10 bins",
    "score_mean": "mean score of all answers",
    "score_std": "their standard deviation (population)",
    "length_correlation": "correlation of score and number of tokens; null where either never varies",
}
"""Name -> meaning of the numbers of an evaluation on pairs besides its value, the share that is ranked right."""


def evaluate_pairs(
    policy: Policy, renderer: Renderer, prompts: Sequence[Prompt], config: Config, settings: UpdateSettings, *, step: int
) -> Evaluation:
    """The scores of both answers of every rendered held-out row, compared. Nothing is sampled.

    Raises DataError for a row without a pair.
    """
    groups = [written_group(prompt, config, renderer, step=step, number=number) for number, prompt in enumerate(prompts)]
    scored = policy_logprobs(policy, [rollout for group in groups for rollout in group.rollouts], settings)
    pairs = [(scored[chosen.id][-1], scored[rejected.id][-1]) for chosen, rejected in (group.rollouts for group in groups)]
    return _summarised(groups, pairs, settings, step)


def _summarised(
    groups: Sequence[Group], pairs: Sequence[tuple[float, float]], settings: UpdateSettings, step: int
) -> Evaluation:
    row = settings.algorithm
    right = {group.prompt.id: _right(c - r) for group, (c, r) in zip(groups, pairs, strict=True)}
    found = mean_interval(list(right.values()))
    losses = [PREFERENCES[row.preference](c, r, 1, 1, row.beta, row.label_smoothing, 0.0).loss for c, r in pairs]
    beliefs = [sigmoid(row.beta * abs(c - r)) for c, r in pairs]
    scores = [score for pair in pairs for score in pair]
    lengths = [rollout.completion.num_tokens for group in groups for rollout in group.rollouts]
    mean, correlation = _mean(scores), pearson(scores, lengths)
    details = {
        "loss": _mean(losses),
        "margin": _mean([c - r for c, r in pairs]),
        "calibration_error": calibration_error(beliefs, list(right.values())),
        "score_mean": mean,
        "score_std": math.sqrt(_mean([(score - mean) ** 2 for score in scores])),
        "length_correlation": None if math.isnan(correlation) else correlation,
    }
    return Evaluation(
        step=step, mode="pairs", num_prompts=len(groups), samples=2, temperature=1.0, value=found.value,
        interval=ends(found, len(groups)), readable=None, value_readable=None, truncated=0.0, mean_tokens=_mean(lengths),
        unscored=0, by_prompt=right, details=details,
    )  # fmt: skip


def _right(difference: float) -> float:
    """
    >>> _right(0.3), _right(0.0), _right(-0.1)
    (1.0, 0.5, 0.0)
    """
    return 0.5 * (1 + (difference > 0) - (difference < 0))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)

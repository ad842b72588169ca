"""TRL's settings as a row of toishi's choices, as far as there is one: what has no row is named, with the reason.

Decisions:
1. A setting is mapped only where both losses are the same function of log-probs and advantages. tests/callbacks compare the
   row's token weights with the ones that TRL's own backward pass made.
2. What is not mapped costs the links that need it and no other: a loss without a row still has scores, baseline, advantages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from toishi.algorithms.rows import Algorithm

CLIPPED = ("grpo", "bnpo", "dr_grpo", "dapo")
REDUCTIONS = {
    "grpo": "sequence_mean_token_mean",
    "bnpo": "token_mean",
    "dr_grpo": "constant_length",
    "dapo": "token_mean",
    "cispo": "token_mean",
}
SCALES = {"group": "group_std", "batch": "batch_std", "none": "none"}
WINDOW = ("dapo", "cispo")
UNNAMED = Algorithm(name="unknown", baseline="none", surrogate="score_function")
"""Stands where no row is known; readers say the reason instead of using it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """How TRL alternates between sampling and updating, counted in micro-batches (forward and backward passes).

    accumulation  micro-batches of an optimizer update
    split         micro-batches that the samples of one generation make
    iterations    how often each of them is used
    """

    accumulation: int
    split: int
    iterations: int

    @property
    def per_generation(self) -> int:
        """Micro-batches from one generation to the next."""
        return self.split * self.iterations

    @property
    def generations(self) -> int:
        """Generations of a recorded step: 1, unless an update spans several."""
        return max(1, self.accumulation // self.per_generation)

    @property
    def span(self) -> int:
        """Micro-batches of a recorded step: samples and all updates that use them."""
        return max(self.accumulation, self.per_generation)

    @property
    def is_even(self) -> bool:
        """Whether updates and generations end together, so that a step is a thing of its own."""
        return max(self.accumulation, self.per_generation) % min(self.accumulation, self.per_generation) == 0

    @property
    def updates(self) -> int:
        """Optimizer updates of a recorded step."""
        return max(1, self.per_generation // self.accumulation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """`row` stands for TRL's settings except for the links in `missing` (link -> why)."""

    row: Algorithm
    missing: Mapping[str, str]
    max_new_tokens: int


def mapped(trainer: Any, rhythm: Rhythm) -> Mapped:
    """The row that a GRPOTrainer's settings amount to."""
    args, missing = trainer.args, dict[str, str]()
    if args.multi_objective_aggregation != "sum_then_normalize":
        why = "multi_objective_aggregation='normalize_then_sum' compares each reward by itself; the advantages are TRL's own."
        missing |= {"baseline": why, "advantage": why}
    if args.scale_rewards == "batch" and rhythm.generations > 1:
        missing["advantage"] = "scale_rewards='batch' was computed for each of several generations in this step."
    reasons = [why for unmapped, why in _UNMAPPED if unmapped(trainer, rhythm)]
    if reasons:
        missing["weights"] = f"{' '.join(reasons)} {_OWN}"
    row = Algorithm(name=f"trl_{trainer.loss_type}", **_baseline(args), **({} if reasons else _loss(trainer)))
    return Mapped(row=row, missing=missing, max_new_tokens=int(trainer.max_completion_length))


def _baseline(args: Any) -> dict[str, Any]:
    return {"baseline": "group_mean", "scale": SCALES[str(args.scale_rewards)], "std_ddof": 1, "std_epsilon": 1e-4}


def _loss(trainer: Any) -> dict[str, Any]:
    args, loss = trainer.args, trainer.loss_type
    choices: dict[str, Any] = {
        "reduction": REDUCTIONS[loss],
        "ratio_level": "token" if trainer.importance_sampling_level == "token" else "sequence_mean",
    }
    if loss in CLIPPED:
        dual = {} if args.delta is None else {"dual_clip": float(args.delta)}
        choices |= {"surrogate": "dual_clip" if dual else "clipped", **dual}
        choices |= {"clip_low": float(trainer.epsilon_low), "clip_high": float(trainer.epsilon_high)}
    else:
        choices |= {"surrogate": "stop_gradient", "clip_low": 1.0, "clip_high": float(trainer.epsilon_high) - 1.0}
    if trainer.beta != 0.0:
        choices |= {"kl": "ratio_k3" if args.use_bias_correction_kl else "k3", "kl_coef": float(trainer.beta)}
    return choices


_OWN = "The token weights in tokens/ are TRL's own; only what they are made of is not shown."
_UNMAPPED: tuple[tuple[Callable[[Any, Rhythm], bool], str], ...] = (
    (lambda t, r: t.loss_type not in REDUCTIONS, "This loss_type has no row in toishi."),
    (
        lambda t, r: t.loss_type == "bnpo" and r.accumulation > 1,
        "loss_type='bnpo' divides every micro-batch by its own tokens, and an update has several.",
    ),
    (
        lambda t, r: t.loss_type in WINDOW and (r.split != r.accumulation),
        "This loss_type divides by the tokens of the whole generation, which is another number than the tokens of an update "
        "when steps_per_generation is not gradient_accumulation_steps.",
    ),
    (lambda t, r: r.accumulation > r.split and r.iterations > 1, "An update uses the same samples several times."),
    (lambda t, r: t.args.delta is not None and t.args.delta <= 1 + t.epsilon_high, "delta lies inside the clip range."),
    (
        lambda t, r: t.loss_type == "cispo" and t.epsilon_high < 1.0,
        "CISPO with a bound below 1 holds back every ratio.",
    ),
    (
        lambda t, r: t.importance_sampling_level != "token" and t.beta != 0.0 and t.args.use_bias_correction_kl,
        "The KL term is weighted by the ratio of the whole answer.",
    ),
    (
        lambda t, r: t.importance_sampling_level != "token" and t.loss_type not in ("grpo", "bnpo", "dapo", "dr_grpo"),
        "This loss with a ratio of the whole answer has no row.",
    ),
    (lambda t, r: t.top_entropy_quantile < 1.0, "top_entropy_quantile leaves tokens out of the loss."),
    (lambda t, r: t.off_policy_mask_threshold is not None, "off_policy_mask_threshold leaves answers out of the loss."),
    (
        lambda t, r: bool(t.use_vllm and t.vllm_importance_sampling_correction),
        "vLLM's importance correction is part of the loss.",
    ),
    (lambda t, r: bool(t._entropy_bonus_enabled), "The entropy bonus is a mean over each micro-batch."),
    (lambda t, r: bool(t.aux_loss_enabled), "The model's balancing loss is part of the loss."),
)

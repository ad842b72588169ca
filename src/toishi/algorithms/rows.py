"""Every algorithm as one row of independent choices: values, no classes, no branches on a name.

A choice is a short literal that `toishi.algorithms.apply` maps to one function in `toishi.ops`. Any choice can be
changed from a recipe (`algorithm: {name: grpo, scale: none}`); the row's name then only says where it started.

Decisions:
1. `grpo` follows TRL where the paper leaves room: sample standard deviation (ddof 1) plus 1e-4. `std_ddof: 0` is the paper's.
2. Bounds are offsets from 1: the ratio is held in [1 - clip_low, 1 + clip_high]. CISPO's cap of 5 is clip_low 1, clip_high 4.
3. Rows that learn from comparisons say so (`needs_group`), so that a group of one is refused before training.
4. A sequence-level ratio makes one loss per sequence and repeats it on its tokens; the mean over the tokens gives it back,
   so `rloo` and `gspo` reduce by `sequence_mean_token_mean`.
5. Choices that would contradict or silently undo one another are refused here (`_consistent`), with the remedy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from toishi.errors import ConfigError, nearest

RewardMap = Literal["identity", "plus_minus"]
Combine = Literal["sum", "normalise_each"]
Baseline = Literal["none", "batch_mean", "group_mean", "leave_one_out"]
Scale = Literal["none", "group_std", "batch_std", "group_mean"]
Filter = Literal["none", "drop_tied", "drop_all_wrong", "keep_best", "keep_positive"]
RatioLevel = Literal["token", "sequence_mean", "sequence_sum"]
Surrogate = Literal["score_function", "clipped", "dual_clip", "stop_gradient"]
Reduction = Literal["token_mean", "sequence_mean_token_mean", "sequence_sum", "constant_length"]
Kl = Literal["none", "k1_in_reward", "k2", "k3", "ratio_k3"]
Truncation = Literal["keep", "mask", "soft_penalty"]
OffPolicy = Literal["none", "truncated_importance", "mask"]


class Algorithm(BaseModel):
    """One row. Every field is a choice of its own."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    name: str = Field(description="the row that it started from")
    reward_map: RewardMap = Field(default="identity", description="plus_minus: r -> 2r - 1, for rewards in [0, 1]")
    combine: Combine = Field(
        default="sum",
        description="several rewards: 'sum' adds them and compares the sums; 'normalise_each' (GDPO) puts each through "
        "baseline and scale by itself, adds by weight, and divides by the spread of these sums over the step",
    )
    baseline: Baseline = Field(default="group_mean", description="what is subtracted from a reward")
    scale: Scale = Field(default="none", description="what the difference is divided by")
    statistics_over: Literal["rollouts", "tokens"] = Field(
        default="rollouts", description="batch_mean and batch_std: every rollout counts once, or once per token"
    )
    std_ddof: Literal[0, 1] = Field(default=1, description="1 = sample, 0 = population standard deviation")
    std_epsilon: float = Field(default=1e-4, ge=0, description="added to the divisor")
    filter: Filter = Field(default="none", description="which groups or rollouts teach")
    credit: Literal["sequence", "reward_to_go"] = Field(
        default="sequence", description="one number per answer, or per token the sum of what comes at and after it"
    )
    ratio_level: RatioLevel = Field(default="token", description="the importance ratio is a token's or its whole answer's")
    surrogate: Surrogate = Field(default="clipped", description="how ratio and advantage make a token's loss")
    clip_low: float = Field(default=0.2, ge=0, description="the ratio is held above 1 - clip_low")
    clip_high: float = Field(default=0.2, ge=0, description="the ratio is held below 1 + clip_high")
    dual_clip: float = Field(default=3.0, gt=1, description="dual_clip only: bound c of -c*A for negative advantages")
    reduction: Reduction = Field(default="token_mean", description="how much each token weighs in the loss")
    kl: Kl = Field(default="none", description="estimate of KL(policy || model of step 0), in the loss or in the reward")
    kl_coef: float = Field(default=0.0, ge=0, description="factor of the KL estimate")
    entropy_coef: float = Field(default=0.0, description="loss -= entropy_coef * mean token entropy")
    policy_term: bool = Field(default=True, description="False: only KL and entropy terms act (entropy_only)")
    truncation: Truncation = Field(default="keep", description="answers that hit the token limit")
    soft_penalty_tokens: int = Field(
        default=0, ge=0, description="soft_penalty: length of the ramp before the limit (DAPO's L_cache)"
    )
    off_policy: OffPolicy = Field(default="none", description="correction for sampler/trainer log-prob differences")
    off_policy_cap: float = Field(
        default=2.0, gt=0, description="weight cap (truncated_importance) or mask bound (ratio in [1/cap, cap])"
    )

    @property
    def needs_group(self) -> bool:
        """Learns by comparing siblings: a group of one carries no signal, or is dropped as tied."""
        compares = self.baseline in ("group_mean", "leave_one_out") or self.scale in ("group_std", "group_mean")
        return self.policy_term and (compares or self.filter == "drop_tied")

    @property
    def needs_reference(self) -> bool:
        return self.kl != "none" and self.kl_coef > 0

    @property
    def moves_without_advantage(self) -> bool:
        """Tokens with advantage 0 still get a gradient (KL or entropy term in the loss)."""
        return (self.needs_reference and self.kl != "k1_in_reward") or self.entropy_coef != 0

    @field_validator("std_ddof", mode="before")
    @classmethod
    def _no_bool(cls, value: object) -> object:
        if isinstance(value, bool):
            raise ValueError("Input should be 0 or 1")  # true equals 1, so a Literal would take it
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Algorithm:
        for refused, why in _CONTRADICTIONS:
            if refused(self):
                raise ValueError(why.format(row=self))
        return self


_NORMALISES = "combine 'normalise_each' (GDPO) compares each reward inside its group: "
_CONTRADICTIONS: tuple[tuple[Callable[[Algorithm], bool], str], ...] = (
    (
        lambda row: row.kl == "none" and row.kl_coef > 0,
        "kl_coef={row.kl_coef} has no effect while kl is 'none'; choose k2, k3, ratio_k3 or k1_in_reward",
    ),
    (
        lambda row: not row.policy_term and row.kl == "k1_in_reward" and row.kl_coef > 0,
        "kl 'k1_in_reward' acts through the rewards, which policy_term=false leaves out of the loss: it would have no effect; "
        "choose k2, k3 or ratio_k3",
    ),
    (
        lambda row: row.truncation == "soft_penalty" and row.soft_penalty_tokens == 0,
        "truncation 'soft_penalty' needs soft_penalty_tokens, the length of the ramp before the token limit",
    ),
    (
        lambda row: row.truncation != "soft_penalty" and row.soft_penalty_tokens > 0,
        "soft_penalty_tokens={row.soft_penalty_tokens} has no effect unless truncation is 'soft_penalty'",
    ),
    (
        lambda row: row.scale == "group_mean" and row.baseline != "group_mean",
        "scale 'group_mean' (MaxRL) divides the distance from the group mean: baseline must be 'group_mean'",
    ),
    (
        lambda row: (
            row.scale == "group_mean"
            and (
                row.reward_map == "plus_minus"
                or row.truncation == "soft_penalty"
                or (row.kl == "k1_in_reward" and row.kl_coef > 0)
            )
        ),
        "scale 'group_mean' (MaxRL) needs rewards >= 0: reward_map 'plus_minus', truncation 'soft_penalty' and "
        "kl 'k1_in_reward' make them negative; choose another scale, or k2, k3 or ratio_k3",
    ),
    (
        lambda row: row.scale == "group_std" and row.baseline not in ("group_mean", "leave_one_out"),
        "scale 'group_std' with baseline '{row.baseline}' divides rewards that are not centred in their group by its spread, "
        "which is near 0 for a nearly tied group; choose baseline 'group_mean' or 'leave_one_out', or scale 'batch_std'",
    ),
    (
        lambda row: row.scale == "batch_std" and row.baseline == "none",
        "scale 'batch_std' with baseline 'none' divides rewards that are not centred by their spread, which is near 0 when "
        "nearly all are equal; choose a baseline",
    ),
    (
        lambda row: row.filter == "keep_best" and (row.baseline != "none" or row.scale != "none"),
        "filter 'keep_best' gives the best answers advantage 1 and the others 0, so baseline '{row.baseline}' and scale "
        "'{row.scale}' would have no effect; set both to 'none'",
    ),
    *(
        (lambda row, refused=refused: row.combine == "normalise_each" and refused(row), _NORMALISES + why)
        for refused, why in (
            (
                lambda row: row.baseline not in ("group_mean", "leave_one_out") or row.scale not in ("none", "group_std"),
                "baseline must be 'group_mean' or 'leave_one_out' and scale 'group_std' or 'none', got '{row.baseline}' and "
                "'{row.scale}'",
            ),
            (
                lambda row: row.reward_map != "identity" or row.truncation == "soft_penalty",
                "reward_map '{row.reward_map}' and truncation '{row.truncation}' act on a sum that is never made; leave them "
                "out (a length penalty can be a reward of its own)",
            ),
            (
                lambda row: row.credit != "sequence" or row.statistics_over != "rollouts",
                "credit must be 'sequence' and statistics_over 'rollouts'",
            ),
            (
                lambda row: row.kl == "k1_in_reward" and row.kl_coef > 0,
                "kl 'k1_in_reward' is part of no reward; choose k2, k3 or ratio_k3",
            ),
        )
    ),
)
"""(what is refused, why and the remedy)."""


ROWS: dict[str, Algorithm] = {
    row.name: row
    for row in (
        Algorithm(name="reinforce", baseline="none", surrogate="score_function", reduction="sequence_sum"),
        Algorithm(
            name="reinforce_pp",
            baseline="batch_mean",
            scale="batch_std",
            statistics_over="tokens",
            std_epsilon=1e-8,
            credit="reward_to_go",
            kl="k1_in_reward",
            kl_coef=0.0,
            reduction="token_mean",
        ),
        Algorithm(name="rloo", baseline="leave_one_out", ratio_level="sequence_sum", reduction="sequence_mean_token_mean"),
        Algorithm(name="grpo", scale="group_std", reduction="sequence_mean_token_mean"),
        Algorithm(name="dr_grpo", reduction="constant_length"),
        Algorithm(name="dapo", scale="group_std", filter="drop_tied", clip_high=0.28),
        Algorithm(
            name="gspo",
            scale="group_std",
            ratio_level="sequence_mean",
            clip_low=3e-4,
            clip_high=4e-4,
            reduction="sequence_mean_token_mean",
        ),
        Algorithm(name="cispo", scale="group_std", surrogate="stop_gradient", clip_low=1.0, clip_high=4.0),
        Algorithm(name="maxrl", scale="group_mean", std_epsilon=0.0),
        Algorithm(
            name="raft",
            baseline="none",
            filter="keep_best",
            surrogate="score_function",
            reduction="sequence_mean_token_mean",
        ),
        Algorithm(name="raft_pp", baseline="none", filter="keep_best", reduction="sequence_mean_token_mean"),
        Algorithm(
            name="reinforce_rej",
            reward_map="plus_minus",
            baseline="none",
            filter="drop_tied",
            reduction="sequence_mean_token_mean",
        ),
        Algorithm(name="entropy_only", policy_term=False, baseline="none", entropy_coef=1e-3, surrogate="score_function"),
    )
}


def algorithm(name: str) -> Algorithm:
    """The row of that name.

    >>> algorithm("grpo").scale
    'group_std'
    >>> algorithm("grpp")
    Traceback (most recent call last):
    ...
    toishi.errors.ConfigError: unknown algorithm 'grpp'; did you mean 'grpo'?
    """
    if name not in ROWS:
        raise ConfigError(f"unknown algorithm '{name}'; {nearest(name, ROWS)}")
    return ROWS[name]

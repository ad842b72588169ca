"""Every algorithm as one row of independent choices: values, no classes, no branches on a name.

A choice is a short literal that `toishi.algorithms.apply` maps to one function in `toishi.ops`. Any choice can be
changed from a recipe (`algorithm: {name: grpo, scale: none}`); the row's name then only says where it started.

Decisions:
1. `grpo` follows TRL where the paper leaves room: sample standard deviation (ddof 1) plus 1e-4. `std_ddof: 0` is the paper's.
2. Bounds are offsets from 1: the ratio is held in [1 - clip_low, 1 + clip_high]. CISPO's cap of 5 is clip_low 1, clip_high 4.
3. Rows that learn from comparisons say so (`needs_group`), so that a group of one is refused before training.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from toishi.errors import ConfigError, nearest

RewardMap = Literal["identity", "plus_minus"]
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

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    reward_map: RewardMap = Field("identity", description="plus_minus: r -> 2r - 1, for rewards in [0, 1]")
    baseline: Baseline = Field("group_mean", description="what is subtracted from a reward")
    scale: Scale = Field("none", description="what the difference is divided by")
    statistics_over: Literal["rollouts", "tokens"] = Field(
        "rollouts", description="batch_mean and batch_std: every rollout counts once, or once per token"
    )
    std_ddof: Literal[0, 1] = Field(1, description="1 = sample, 0 = population standard deviation")
    std_epsilon: float = Field(1e-4, ge=0, description="added to the divisor")
    filter: Filter = Field("none", description="which groups or rollouts teach")
    credit: Literal["sequence", "reward_to_go"] = Field(
        "sequence", description="one number per answer, or per token the sum of what comes at and after it"
    )
    ratio_level: RatioLevel = "token"
    surrogate: Surrogate = "clipped"
    clip_low: float = Field(0.2, ge=0)
    clip_high: float = Field(0.2, ge=0)
    dual_clip: float = Field(3.0, gt=1, description="dual_clip only: bound c of -c*A for negative advantages")
    reduction: Reduction = "token_mean"
    kl: Kl = "none"
    kl_coef: float = Field(0.0, ge=0)
    entropy_coef: float = Field(0.0, description="loss -= entropy_coef * mean token entropy")
    policy_term: bool = Field(True, description="False: only KL and entropy terms act (entropy_only)")
    truncation: Truncation = Field("keep", description="answers that hit the token limit")
    soft_penalty_tokens: int = Field(0, ge=0, description="soft_penalty: length of the ramp before the limit (DAPO's L_cache)")
    off_policy: OffPolicy = Field("none", description="correction for sampler/trainer log-prob differences")
    off_policy_cap: float = Field(2.0, gt=0, description="weight cap (truncated_importance) or mask bound (ratio in [1/cap, cap])")

    @property
    def needs_group(self) -> bool:
        """Learns by comparing siblings: a group of one carries no signal."""
        return self.policy_term and (
            self.baseline in ("group_mean", "leave_one_out") or self.scale in ("group_std", "group_mean")
        )

    @property
    def needs_reference(self) -> bool:
        return self.kl != "none" and self.kl_coef > 0

    @property
    def moves_without_advantage(self) -> bool:
        """Tokens with advantage 0 still get a gradient (KL or entropy term in the loss)."""
        return (self.needs_reference and self.kl != "k1_in_reward") or self.entropy_coef != 0

    @model_validator(mode="after")
    def _consistent(self) -> Algorithm:
        if self.kl == "none" and self.kl_coef > 0:
            raise ValueError(f"kl_coef={self.kl_coef} has no effect while kl is 'none'; choose k2, k3, ratio_k3 or k1_in_reward")
        if self.truncation == "soft_penalty" and self.soft_penalty_tokens == 0:
            raise ValueError("truncation 'soft_penalty' needs soft_penalty_tokens, the length of the ramp before the token limit")
        if self.truncation != "soft_penalty" and self.soft_penalty_tokens > 0:
            raise ValueError("soft_penalty_tokens has no effect unless truncation is 'soft_penalty'")
        if self.scale == "group_mean" and self.baseline != "group_mean":
            raise ValueError("scale 'group_mean' (MaxRL) divides the distance from the group mean: baseline must be 'group_mean'")
        return self


ROWS: dict[str, Algorithm] = {
    row.name: row
    for row in (
        Algorithm(name="reinforce", baseline="none", surrogate="score_function", reduction="sequence_sum"),
        Algorithm(
            name="reinforce_pp", baseline="batch_mean", scale="batch_std", statistics_over="tokens", std_epsilon=1e-8,
            credit="reward_to_go", kl="k1_in_reward", kl_coef=0.0, reduction="token_mean",
        ),
        Algorithm(name="rloo", baseline="leave_one_out", ratio_level="sequence_sum", reduction="sequence_sum"),
        Algorithm(name="grpo", scale="group_std", reduction="sequence_mean_token_mean"),
        Algorithm(name="dr_grpo", reduction="constant_length"),
        Algorithm(name="dapo", scale="group_std", filter="drop_tied", clip_high=0.28),
        Algorithm(
            name="gspo", scale="group_std", ratio_level="sequence_mean", clip_low=3e-4, clip_high=4e-4,
            reduction="sequence_mean_token_mean",
        ),
        Algorithm(name="cispo", scale="group_std", surrogate="stop_gradient", clip_low=1.0, clip_high=4.0),
        Algorithm(name="maxrl", scale="group_mean", reduction="token_mean"),
        Algorithm(
            name="raft", baseline="none", filter="keep_best", surrogate="score_function", reduction="sequence_mean_token_mean",
        ),
        Algorithm(name="raft_pp", baseline="none", filter="keep_best", reduction="sequence_mean_token_mean"),
        Algorithm(name="reinforce_rej", reward_map="plus_minus", baseline="none", filter="drop_tied", reduction="sequence_mean_token_mean"),
        Algorithm(name="entropy_only", policy_term=False, baseline="none", entropy_coef=1e-3, surrogate="score_function"),
    )
}


def algorithm(name: str) -> Algorithm:
    """The row of that name.

    >>> algorithm("grpo").scale
    'group_std'
    >>> algorithm("gpro")
    Traceback (most recent call last):
    ...
    toishi.errors.ConfigError: unknown algorithm 'gpro'; did you mean 'grpo'?
    """
    if name not in ROWS:
        raise ConfigError(f"unknown algorithm '{name}'; {nearest(name, ROWS)}")
    return ROWS[name]

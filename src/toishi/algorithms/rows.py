"""Every algorithm as one row of independent choices: values, no classes, no branches on a name.

A choice is a short literal that `toishi.algorithms.apply` maps to one function in `toishi.ops`. Any choice can be
changed from a recipe (`algorithm: {name: grpo, scale: none}`); the row's name then only says where it started.

Decisions:
1. `grpo` follows TRL where the paper leaves room: sample standard deviation (ddof 1) plus 1e-4. `std_ddof: 0` is the paper's.
2. Bounds are offsets from 1: the ratio is held in [1 - clip_low, 1 + clip_high]. CISPO's cap of 5 is clip_low 1, clip_high 4.
3. Rows that learn from comparisons say so (`needs_group`), so that a group of one is refused before training.
4. A sequence-level ratio makes one loss per sequence and repeats it on its tokens; the mean over the tokens gives it back,
   so `rloo` and `gspo` reduce by `sequence_mean_token_mean`.
5. Baseline 'critic' is a model's guess of what a text will earn, and credit 'gae' makes token advantages of its surprises: one
   needs the other. Which model guesses, and how it learns, is no choice of the row (`critic` of the configuration).
6. Choices that would contradict or silently undo one another are refused (`contradictions.py`), with the remedy.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from toishi.algorithms.contradictions import CONTRADICTIONS
from toishi.errors import ConfigError, nearest

RewardMap = Literal["identity", "plus_minus"]
Combine = Literal["sum", "normalise_each"]
Baseline = Literal["none", "batch_mean", "group_mean", "leave_one_out", "critic"]
Scale = Literal["none", "group_std", "batch_std", "group_mean"]
Filter = Literal["none", "drop_tied", "drop_all_wrong", "keep_best", "keep_positive"]
RatioLevel = Literal["token", "sequence_mean", "sequence_sum"]
Source = Literal["sampled", "written", "written_pairs", "mixed"]
Surrogate = Literal["score_function", "clipped", "dual_clip", "stop_gradient", "dynamic", "unlikelihood"]
Reduction = Literal["token_mean", "sequence_mean_token_mean", "sequence_sum", "constant_length"]
Kl = Literal["none", "k1_in_reward", "k2", "k3", "ratio_k3"]
Truncation = Literal["keep", "mask", "soft_penalty", "bootstrap"]
OffPolicy = Literal["none", "truncated_importance", "mask"]
Predicts = Literal["tokens", "score"]


class Algorithm(BaseModel):
    """One row. Every field is a choice of its own."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    name: str = Field(description="the row that it started from")
    source: Source = Field(
        default="sampled",
        description="whose answers teach: sampled from the policy and scored; 'written' in the task's rows (SFT), one each; "
        "'written_pairs': a chosen and a rejected one (DPO); 'mixed': sampled for `sampled_share` of the prompts, else "
        "written. See `answers` for the columns",
    )
    sampled_share: float = Field(
        default=0.5, ge=0, le=1, description="source 'mixed': share of the prompts that the policy itself answers (λ of GKD)"
    )
    predicts: Predicts = Field(
        default="tokens",
        description="what the model learns to say: the next 'tokens', or one 'score' for a whole answer: a reward model, whose "
        "head is one number",
    )
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
    credit: Literal["sequence", "reward_to_go", "gae", "preference", "teacher"] = Field(
        default="sequence",
        description="one number per answer; per token the sum of what comes at and after it; per token a critic's surprises "
        "from it on (GAE); from the best and the worst answer of a group: log-probs compared with the reference (DPO), or "
        "scores (reward models); or per token how much likelier the teacher finds it than the policy",
    )
    gamma: float = Field(default=1.0, ge=0, le=1, description="credit 'gae': what a token later counts of a reward")
    gae_lambda: float = Field(
        default=1.0, ge=0, le=1, description="credit 'gae': 1 = what was earned minus the value, 0 = the next surprise only"
    )
    whiten: bool = Field(
        default=False,
        description="credit 'gae': advantages of all tokens of the step are centred and divided by their spread, returns not",
    )
    value_coef: float = Field(default=0.5, gt=0, description="baseline 'critic': factor of the value loss")
    value_clip: float | None = Field(
        default=None,
        gt=0,
        description="baseline 'critic': a value that came nearer to its return by more than this is held; null = never",
    )
    preference: Literal["sigmoid", "ipo"] = Field(default="sigmoid", description="credit 'preference': the loss of a pair")
    beta: float = Field(
        default=0.1, gt=0, description="credit 'preference': factor of the difference: how dear it is to leave the reference"
    )
    label_smoothing: float = Field(
        default=0.0, ge=0, lt=0.5, description="preference 'sigmoid': probability that a pair is the wrong way round"
    )
    centring: float = Field(
        default=0.0, ge=0, description="predicts 'score': factor of (r⁺ + r⁻)², which holds the scores near 0"
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
    reference: Literal["step_0", "teacher"] = Field(
        default="step_0", description="whose log-probs of the answers KL terms and advantages compare with: see `teacher`"
    )
    reference_every: int = Field(default=0, ge=0, description="steps until the policy is the new 'step_0' (R1: 400); 0 = never")
    divergence_coef: float = Field(
        default=0.0, ge=0, description="factor of the divergence from the teacher's whole next-token distribution, in the loss"
    )
    divergence_beta: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="which one: 0 = KL(teacher || policy), 1 = KL(policy || teacher), between: generalised Jensen-Shannon",
    )
    truncation: Truncation = Field(
        default="keep",
        description="answers that hit the token limit: scored like others, left out, with a "
        "length penalty, or (bootstrap) worth what the critic says of the text so far, as one that was interrupted",
    )
    soft_penalty_tokens: int = Field(
        default=0, ge=0, description="soft_penalty: length of the ramp before the limit (DAPO's L_cache)"
    )
    off_policy: OffPolicy = Field(default="none", description="correction for sampler/trainer log-prob differences")
    off_policy_cap: float = Field(
        default=2.0, gt=0, description="weight cap (truncated_importance) or mask bound (ratio in [1/cap, cap])"
    )

    @property
    def answers_per_prompt(self) -> int | None:
        """How many answers a row of the data gives; None where they are sampled, as many as one likes."""
        return {"sampled": None, "written": 1, "written_pairs": 2, "mixed": None}[self.source]

    @property
    def needs_group(self) -> bool:
        """Learns by comparing siblings: a group of one carries no signal, or is dropped as tied."""
        compares = self.baseline in ("group_mean", "leave_one_out") or self.scale in ("group_std", "group_mean")
        compares = compares or self.credit == "preference"
        return self.policy_term and (compares or self.filter == "drop_tied")

    @property
    def needs_policy_before(self) -> bool:
        """Advantages are made of what the policy says of the answers before the update."""
        return self.credit in ("preference", "teacher")

    @property
    def needs_critic(self) -> bool:
        """Advantages are made of values, which a critic gives."""
        return self.baseline == "critic"

    @property
    def needs_reference(self) -> bool:
        """Log-probs under the reference are asked for: for a KL term, or since advantages compare with them."""
        compares = self.credit == "teacher" or (self.credit == "preference" and self.predicts == "tokens")
        return (self.kl != "none" and self.kl_coef > 0) or compares

    @property
    def needs_step_0(self) -> bool:
        """The weights of step 0 are kept."""
        return self.needs_reference and self.reference == "step_0"

    @property
    def needs_teacher(self) -> bool:
        """A teacher is asked: for its log-probs of the answers, or for whole distributions."""
        return self.divergence_coef > 0 or (self.needs_reference and self.reference == "teacher")

    @property
    def moves_without_advantage(self) -> bool:
        """Tokens with advantage 0 still get a gradient (KL, entropy or divergence term in the loss)."""
        in_loss = self.kl not in ("none", "k1_in_reward") and self.kl_coef > 0
        return in_loss or self.entropy_coef != 0 or self.divergence_coef > 0

    @property
    def moves_policy(self) -> bool:
        """Anything in the loss has a gradient by the policy's log-probs or entropies."""
        return self.policy_term or self.moves_without_advantage

    def at(self, step: int, critic_warmup: int) -> Algorithm:
        """The row that a step's loss is made by. In the first `critic_warmup` steps only the critic learns: nothing of the loss
        moves the policy then.

        >>> algorithm("ppo").at(3, critic_warmup=3).moves_policy, algorithm("ppo").at(4, critic_warmup=3).moves_policy
        (False, True)
        """
        still = {"policy_term": False, "kl": "none", "kl_coef": 0.0, "entropy_coef": 0.0, "divergence_coef": 0.0}
        return self.model_copy(update=still) if self.needs_critic and step <= critic_warmup else self

    @field_validator("std_ddof", mode="before")
    @classmethod
    def _no_bool(cls, value: object) -> object:
        if isinstance(value, bool):
            raise ValueError("Input should be 0 or 1")  # true equals 1, so a Literal would take it
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Algorithm:
        for refused, why in CONTRADICTIONS:
            if refused(self):
                raise ValueError(why.format(row=self))
        return self


_PAIRS: dict[str, Any] = {
    "baseline": "none", "credit": "preference", "surrogate": "score_function", "reduction": "sequence_sum",
}  # fmt: skip
_CRITIC: dict[str, Any] = {"baseline": "critic", "credit": "gae"}
_TAUGHT: dict[str, Any] = {"policy_term": False, "baseline": "none", "surrogate": "score_function"}

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
            name="raft", baseline="none", filter="keep_best", surrogate="score_function", reduction="sequence_mean_token_mean"
        ),
        Algorithm(name="raft_pp", baseline="none", filter="keep_best", reduction="sequence_mean_token_mean"),
        Algorithm(
            name="reinforce_rej",
            reward_map="plus_minus",
            baseline="none",
            filter="drop_tied",
            reduction="sequence_mean_token_mean",
        ),
        Algorithm(name="a2c", surrogate="score_function", **_CRITIC),
        Algorithm(
            name="ppo",
            gae_lambda=0.95,
            whiten=True,
            std_epsilon=1e-8,
            value_coef=0.1,
            value_clip=0.2,
            kl="k1_in_reward",
            **_CRITIC,
        ),
        Algorithm(name="sft", source="written", baseline="none", surrogate="score_function"),
        Algorithm(name="dft", source="written", baseline="none", surrogate="dynamic"),
        Algorithm(name="unlikelihood", source="written", baseline="none", surrogate="unlikelihood"),
        Algorithm(name="dpo", source="written_pairs", **_PAIRS),
        Algorithm(name="ipo", source="written_pairs", preference="ipo", **_PAIRS),
        Algorithm(name="reward_model", source="written_pairs", predicts="score", beta=1.0, **_PAIRS),
        Algorithm(name="dpo_online", filter="drop_tied", **_PAIRS),
        Algorithm(name="gkd", source="mixed", divergence_coef=1.0, **_TAUGHT),
        Algorithm(name="opd", divergence_coef=1.0, divergence_beta=1.0, **_TAUGHT),
        Algorithm(name="opd_sampled", credit="teacher", reference="teacher", baseline="none", surrogate="score_function"),
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

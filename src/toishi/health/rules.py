"""The table of rules. Adding a rule is adding a row; docs/health.md is printed from it.

Decisions:
1. Few and sure: a rule speaks at plain faults and stays silent through healthy runs, whose curves also fall, tie and shrink.
2. A rule stops only where going on cannot be right: numbers that are not finite, a sampler that is not the trained model,
   rewards that mostly fail, gradients that are exactly 0. All else warns; a recipe may turn any rule into a stop, or off.
3. Remedies name recipe keys, cheapest first.
"""

from __future__ import annotations

from toishi.health import answers, numerics, policy, progress, signal
from toishi.health.alarm import Rule

RESTART = "start again from an earlier checkpoint (model.name=its model folder) with a lower optimizer.lr"

RULES: tuple[Rule, ...] = (
    Rule(
        name="loss_near_zero",
        watches="`update/loss` and `update/grad_norm` at the first update, for algorithms whose advantages are centred",
        action="note", limit=None, limit_is="", within=1,
        find=numerics.loss_is_near_zero,
        remedy="nothing; watch reward/mean and update/grad_norm, not the loss",
    ),
    Rule(
        name="not_finite",
        watches="every metric of the step",
        action="stop", limit=None, limit_is="", within=1,
        find=numerics.not_finite,
        remedy="look at the step's answers for a reward far out of range; set model.dtype=float32; " + RESTART,
    ),
    Rule(
        name="sampler_gap_at_start",
        watches="`sampler_gap/mean_abs` at the first step",
        action="stop", limit=None, within=1,
        limit_is="health.max_sampler_gap; by precision 0.001 (float32, float64) or 0.1 (bfloat16, float16)",
        find=numerics.sampler_gap_at_start,
        remedy="the update would learn from another model's answers: check that the engine runs the same weights and template; "
        "set model.dtype=float32; if the gap is known and wanted, raise health.max_sampler_gap and set algorithm.off_policy",
    ),
    Rule(
        name="sampler_gap",
        watches="`sampler_gap/mean_abs`, mean of 3 steps",
        action="warn", limit=None, limit_is="as above", within=3,
        find=numerics.sampler_gap,
        remedy="check that the engine gets the new weights after each step; set algorithm.off_policy=truncated_importance; "
        "set model.dtype=float32",
    ),
    Rule(
        name="failed_rewards",
        watches="`rewards/<name>/failed` against `answers/count`",
        action="stop", limit=None, within=1,
        limit_is="health.max_failed_share or the reward's own, share of the step's answers",
        find=signal.failed_rewards,
        remedy="read the reasons in the step's scores (toishi explain RUN), repair the reward or its service, toishi resume",
    ),
    Rule(
        name="unscored_answers",
        watches="`answers/unscored` against `answers/count` over 5 steps",
        action="warn", limit=0.1, limit_is="share of answers", within=5,
        find=signal.unscored_answers,
        remedy="read the reasons (toishi explain RUN); mend the rows whose gold answers cannot be read, or the failing reward",
    ),
    Rule(
        name="silent_reward",
        watches="`rewards/<name>/abstained` over 5 steps",
        action="warn", limit=5, limit_is="steps without any value", within=5,
        find=signal.silent_reward,
        remedy="check the column that the reward reads and the form of its gold answers, or remove it from rewards",
    ),
    Rule(
        name="constant_reward",
        watches="`rewards/<name>/std` and `/mean`; having risen to the best value so far is fine",
        action="warn", limit=10, limit_is="steps at one value", within=10,
        find=signal.constant_reward,
        remedy="read 20 answers and what the reward says of them; check the form it asks for; choose easier prompts, "
        "or remove the reward if it is mastered already",
    ),
    Rule(
        name="pays_length",
        watches="`rewards/<name>/length_correlation` over 10 steps; rewards about length are left in peace",
        action="warn", limit=0.8, limit_is="correlation, either sign, at every step", within=10,
        find=signal.pays_length,
        remedy="read the longest and the shortest answers: does the judge pay for length? Say in its rubric that length "
        "does not count, set a cap on the reward, or add a length reward",
    ),
    Rule(
        name="all_wrong",
        watches="`groups/mixed`, `groups/all_wrong` over 10 steps (more with fewer than 4 prompts a step)",
        action="warn", limit=0.2, limit_is="share of groups that teach", within=10,
        find=signal.all_wrong,
        remedy="read 20 answers: does the reward reject right ones? Then easier prompts, a reward with partial credit, "
        "a larger train.group_size, or supervised training first",
    ),
    Rule(
        name="solved",
        watches="`groups/mixed`, `groups/all_right`, as above, while `reward/mean` is at its best",
        action="note", limit=0.2, limit_is="share of groups that teach", within=10,
        find=signal.solved,
        remedy="read 10 answers to see that the reward is deserved, then stop, or go on with harder prompts",
    ),
    Rule(
        name="tied_groups",
        watches="`groups/mixed`, as above, when the ties are neither all wrong nor a success",
        action="warn", limit=0.2, limit_is="share of groups that teach", within=10,
        find=signal.tied_groups,
        remedy="choose prompts of middling difficulty; raise train.group_size; set train.refill_rounds to sample more prompts",
    ),
    Rule(
        name="identical_answers",
        watches="`answers/distinct_share` over 5 steps, unless the prompts are solved",
        action="warn", limit=0.1, limit_is="share of the other G-1 answers that differ", within=5,
        find=signal.identical_answers,
        remedy="check sampling.temperature; raise algorithm.clip_high or set algorithm.entropy_coef (0.001); " + RESTART,
    ),
    Rule(
        name="empty_answers",
        watches="`answers/empty_share` over 5 steps",
        action="warn", limit=0.3, limit_is="share of answers", within=5,
        find=answers.empty_answers,
        remedy="see that the reward pays nothing for an empty text; check the template's stop ids (toishi check)",
    ),
    Rule(
        name="reward_drop",
        watches="`reward/mean`, last 10 steps against the best 10 before",
        action="warn", limit=0.5, limit_is="fall as a share of `reward/std`", within=10,
        find=progress.reward_drop,
        remedy=RESTART + "; set a KL term (algorithm.kl=k3, algorithm.kl_coef=0.001)",
    ),
    Rule(
        name="heldout_flat",
        watches="`reward/mean` against the held-out value of the same prompts; 30 steps with evaluation.every=10",
        action="warn", limit=3, limit_is="evaluations in a row", within=30,
        find=progress.heldout_flat,
        remedy="read 20 training answers: is the reward being gamed, or are few prompts learned by heart? More prompts, "
        "a repaired reward, or stop at the best held-out checkpoint",
    ),
    Rule(
        name="unpaid_reward",
        watches="`reward/mean` against `rewards/<name>/mean` of rewards with weight 0, last 5 steps against the first 5",
        action="warn", limit=0.25, limit_is="share of the reward's rise that it has to gain", within=5,
        find=progress.unpaid_reward,
        remedy="read 20 well paid answers (toishi explain RUN): is the reward being hacked? Then pay what was meant (give that "
        "reward a weight, or repair the one that pays: toishi check lists what it pays wrongly), and start again",
    ),
    Rule(
        name="entropy_collapse",
        watches="`entropy/mean_nats`, 3 steps against the first 3, unless the prompts are solved",
        action="warn", limit=0.05, limit_is="nats (or 5% of the start, if more)", within=3,
        find=policy.entropy_collapse,
        remedy=RESTART + "; raise algorithm.clip_high (0.28); set algorithm.entropy_coef (0.001); raise train.group_size",
    ),
    Rule(
        name="entropy_explosion",
        watches="`entropy/mean_nats`, 3 steps against the first 3",
        action="warn", limit=1.75, limit_is="times the start (and 0.5 nats above it)", within=3,
        find=policy.entropy_explosion,
        remedy="lower algorithm.entropy_coef if it is set; lower optimizer.lr; set algorithm.truncation=mask; "
        "use a denser reward: single lucky answers pull the policy apart",
    ),
    Rule(
        name="kl_reference",
        watches="`update/kl_policy_ref`, mean of 3 steps while the reward does not rise, or a jump to 5 times the usual",
        action="warn", limit=2.0, limit_is="nats per token (half of it for a jump)", within=3,
        find=policy.kl_reference,
        remedy=RESTART + "; raise algorithm.kl_coef",
    ),
    Rule(
        name="policy_jump",
        watches="`update/kl_old_policy_k3`, `update/ratio_mean` (0.5 to 2), `update/ratio_max` (20), 3 steps in a row",
        action="warn", limit=0.3, limit_is="nats per token and step", within=3,
        find=policy.policy_jump,
        remedy="lower optimizer.lr; set optimizer.warmup_steps; fewer train.inner_epochs or train.minibatches",
    ),
    Rule(
        name="clipping",
        watches="`update/clip_low_share` + `clip_high_share` + `clip_dual_share`, mean of 3 steps, token-level ratios",
        action="warn", limit=0.3, limit_is="share of tokens", within=3,
        find=policy.clipping,
        remedy="lower optimizer.lr; fewer train.inner_epochs or train.minibatches; widen algorithm.clip_low and clip_high",
    ),
    Rule(
        name="gradient_explosion",
        watches="`update/grad_norm` against the median of the last 20 steps that taught",
        action="warn", limit=10.0, limit_is="times the median (and twice the largest)", within=1,
        find=numerics.gradient_explosion,
        remedy="look at the step (toishi explain RUN --step N) for a reward out of range; keep optimizer.max_grad_norm at 1; "
        "lower optimizer.lr",
    ),
    Rule(
        name="gradient_zero",
        watches="`update/grad_norm` while `groups/mixed` is above 0",
        action="stop", limit=3, limit_is="steps in a row", within=3,
        find=numerics.gradient_zero,
        remedy="nothing is being trained: check model.lora.target_modules and frozen weights; "
        "with algorithm.off_policy=mask, see whether every token is masked",
    ),
    Rule(
        name="skipped_updates",
        watches="`update/count`, where tied groups are not the reason",
        action="warn", limit=5, limit_is="steps in a row", within=5,
        find=numerics.skipped_updates,
        remedy="look at advantages and statuses of a step (toishi explain RUN); loosen algorithm.filter; "
        "with algorithm.truncation=mask, raise sampling.max_new_tokens",
    ),
    Rule(
        name="blind_critic",
        watches="`critic/explained_variance`, mean of 10 steps after critic.warmup_steps",
        action="warn", limit=0.0, limit_is="share of the returns' spread", within=10,
        find=policy.blind_critic,
        remedy="change critic.optimizer.lr (docs/critic.md); raise critic.warmup_steps; set critic.kind=separate; choose a row "
        "without one (rloo)",
    ),
    Rule(
        name="length_growth",
        watches="`answers/mean_tokens`, last 5 steps against the first 5, while the reward does not rise",
        action="warn", limit=2.0, limit_is="times the start (twice that if the reward rises too)", within=5,
        find=answers.length_growth,
        remedy="read the longest answers; set algorithm.reduction=token_mean or constant_length; "
        "set algorithm.truncation=soft_penalty; see whether the reward likes length",
    ),
    Rule(
        name="length_shrink",
        watches="`answers/mean_tokens`, as above",
        action="warn", limit=0.25, limit_is="times the start", within=5,
        find=answers.length_shrink,
        remedy="read the shortest answers: is a cut-off answer paid? Make the reward ask for the whole answer",
    ),
    Rule(
        name="wrong_longer",
        watches="`answers/mean_tokens_below` against `answers/mean_tokens_above`, last 10 steps against the first 10",
        action="warn", limit=1.5, limit_is="times faster (and 8 tokens longer than at the start)", within=10,
        find=answers.wrong_longer,
        remedy="set algorithm.reduction=token_mean or constant_length: dividing by an answer's own length makes long wrong "
        "answers cheap",
    ),
    Rule(
        name="truncation",
        watches="`answers/truncated_share` over 10 steps: up by 0.2, or not falling in 30 steps while the reward stands still",
        action="warn", limit=0.1, limit_is="share of answers", within=10,
        find=answers.truncation,
        remedy="raise sampling.max_new_tokens; set algorithm.truncation=soft_penalty or mask; "
        "check that the model's stop ids are known (toishi check)",
    ),
)  # fmt: skip

BY_NAME: dict[str, Rule] = {rule.name: rule for rule in RULES}

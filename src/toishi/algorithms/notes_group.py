"""Notes of the rows that compare an answer with its siblings and divide or clip: the GRPO family."""

from __future__ import annotations

from toishi.algorithms.note import AlgorithmNote, symbols

GROUP_NOTES: tuple[AlgorithmNote, ...] = (
    AlgorithmNote(
        name="grpo",
        title="GRPO: Group Relative Policy Optimization",
        meaning=(
            "Sample several answers to the same prompt, score them, and call an answer good by how far it lies above the "
            "group's mean, in units of the group's spread. No critic is needed: the siblings are the baseline. Tokens of good "
            "answers become likelier, tokens of bad ones less likely, and a clip stops a token from moving far on one batch. "
            "The first update after sampling is supervised fine-tuning on the model's own answers with signed weights."
        ),
        equation=(
            "Aᵢ = (rᵢ - mean) / (std + ε)\nL  = -(1/B) Σᵢ (1/|oᵢ|) Σₜ min( ρᵢₜ Aᵢ , clip(ρᵢₜ) Aᵢ )   [+ β KL, when kl is set]"
        ),
        symbols=symbols("oᵢ", "B", "rᵢ", "mean, std", "Aᵢ", "ε", "ρᵢₜ", "clip(ρ)", "β"),
        paper="DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models, arXiv 2402.03300",
        traps=(
            "The printed loss is near 0 while the gradient is not: ratios are 1 and advantages sum to 0. Watch the reward and "
            "the gradient norm.",
            "A group whose rewards are all equal teaches nothing. With success rate p that happens with probability "
            "pᴳ + (1-p)ᴳ: .43 for p = .1 and G = 8.",
            "Division by the spread makes a trivial difference as large as a real one: scores .01 (seven times) and .05 "
            "become -.35 and +2.46. With a noisy judge state the reward's `noise`, or use scale none or batch_std.",
            "1/|oᵢ| makes each token of a long wrong answer cheap: answers that fail grow longer.",
            "With one update per sampling the ratio is 1 and the clip is inert.",
        ),
        differences=(
            "Sample standard deviation (ddof 1) plus 1e-4, as TRL. The paper's formula has no epsilon; std_ddof 0 is its "
            "population form; verl adds 1e-6.",
            "TRL's default loss_type is dapo (token mean) and its default KL is weighted by the ratio; this row has no KL.",
            "Several rewards are added before they are compared. combine normalise_each (GDPO) compares each by itself first; "
            "TRL calls it multi_objective_aggregation normalize_then_sum.",
        ),
    ),
    AlgorithmNote(
        name="dr_grpo",
        title="Dr. GRPO: GRPO done right",
        meaning=(
            "GRPO without its two biases: no division by the group's spread, which gave very easy and very hard prompts extra "
            "weight, and one constant divisor in place of the answer's own length, which made long wrong answers cheap. The "
            "advantages are RLOO's times (G-1)/G."
        ),
        equation="Aᵢ = rᵢ - mean\nL  = -(1/(B·L_max)) Σᵢ Σₜ min( ρᵢₜ Aᵢ , clip(ρᵢₜ) Aᵢ )",
        symbols=symbols("oᵢ", "B", "rᵢ", "mean, std", "Aᵢ", "L_max", "ρᵢₜ", "clip(ρ)"),
        paper="Understanding R1-Zero-Like Training: A Critical Perspective, arXiv 2503.20783",
        traps=(
            "The divisor is the token limit: changing max_new_tokens changes the size of a step.",
            "The scale of the reward now matters for plain SGD and for gradient clipping.",
        ),
        differences=("In TRL loss_type dr_grpo alone still divides by the spread; scale_rewards none must be set as well.",),
    ),
    AlgorithmNote(
        name="dapo",
        title="DAPO: decoupled clip and dynamic sampling",
        meaning=(
            "GRPO with every token of the update weighing the same, a higher upper clip bound so that rare tokens can grow, "
            "and groups without differences left out (train.refill_rounds samples further prompts in their place). The paper "
            "also lowers the reward of answers that run into the token limit: truncation soft_penalty with "
            "soft_penalty_tokens."
        ),
        equation=(
            "Aᵢ = (rᵢ - mean) / (std + ε)      groups with equal rewards are dropped\n"
            "L  = -(1/N) Σᵢ Σₜ min( ρᵢₜ Aᵢ , clip(ρᵢₜ) Aᵢ )"
        ),
        symbols=symbols("N", "rᵢ", "mean, std", "Aᵢ", "ε", "ρᵢₜ", "clip(ρ)"),
        paper="DAPO: An Open-Source LLM Reinforcement Learning System at Scale, arXiv 2503.14476",
        traps=(
            "Dropping without refill makes batches smaller as the model gets better; refill costs several times the samples.",
            "Long answers dominate the gradient, which is wanted for chains of thought and not when length is the trouble.",
            "The filter looks at rewards as judged: a length penalty does not make an all-right group mixed.",
        ),
        differences=(
            "TRL 1.16 has loss_type dapo but no dynamic sampling; masked answers stay in its baseline, here they leave it.",
            "Dropped groups leave the denominator N here.",
        ),
    ),
    AlgorithmNote(
        name="gspo",
        title="GSPO: Group Sequence Policy Optimization",
        meaning=(
            "GRPO with one ratio per answer, the geometric mean of its token ratios, so that the unit that is rewarded is the "
            "unit that is clipped. Made for mixture-of-experts models, whose token ratios are noisy. It differs from GRPO "
            "only when a batch is used for more than one update."
        ),
        equation=("sᵢ = exp( (1/|oᵢ|) Σₜ log ρᵢₜ )\nAᵢ = (rᵢ - mean) / (std + ε)\nL  = -(1/B) Σᵢ min( sᵢ Aᵢ , clip(sᵢ) Aᵢ )"),
        symbols=(*symbols("oᵢ", "B", "rᵢ", "mean, std", "Aᵢ", "ε", "ρᵢₜ", "clip(ρ)"), ("sᵢ", "ratio of the whole answer")),
        paper="Group Sequence Policy Optimization, arXiv 2507.18071",
        traps=(
            "The bounds are tiny, since the mean of many log ratios is near 0. A small model with large steps leaves the range "
            "at once, on the favourable side too, and then the gradient is 0: raise clip_low and clip_high.",
        ),
        differences=(
            "A KL term weighted by the ratio (ratio_k3) uses the token's ratio here; TRL uses the sequence's, for which the "
            "estimate is not exact.",
        ),
    ),
    AlgorithmNote(
        name="cispo",
        title="CISPO: clipped importance-sampling weights",
        meaning=(
            "Instead of dropping a token whose ratio left the range, cap its weight and keep its gradient: rare tokens that "
            "open a new line of thought go on learning. The ratio is a constant weight on plain REINFORCE."
        ),
        equation="Aᵢ = (rᵢ - mean) / (std + ε)\nL  = -(1/N) Σᵢ Σₜ sg( clip(ρᵢₜ) ) Aᵢ log π(oᵢₜ)",
        symbols=symbols("N", "rᵢ", "mean, std", "Aᵢ", "ε", "ρᵢₜ", "clip(ρ)", "sg(·)", "π, π_old"),
        paper="MiniMax-M1: Scaling Test-Time Compute Efficiently with Lightning Attention, arXiv 2506.13585",
        traps=(
            "The printed loss holds log-probs, so it is neither near 0 nor comparable with the other rows.",
            "Nothing pulls a token back but the cap: many updates on the same samples can drift far.",
        ),
        differences=(
            "TRL's epsilon_high is the cap itself (5 in ScaleRL) and there is no lower bound; here the bounds are offsets "
            "from 1, so a cap of 5 without lower bound is clip_high 4, clip_low 1. In TRL leaving epsilon_high out caps at .2.",
            "TRL counts a token as clipped only when its advantage is positive; here a capped weight counts for both signs.",
        ),
    ),
    AlgorithmNote(
        name="maxrl",
        title="MaxRL: maximum likelihood reinforcement learning",
        meaning=(
            "Divide by the group's mean reward instead of its spread. For rewards 0 and 1 that is the average over the right "
            "answers alone minus a baseline, and its expectation climbs a truncated series of log p, the log of the success "
            "rate, instead of p: hard prompts get the weight 1/p that maximum likelihood would give them."
        ),
        equation="Aᵢ = (rᵢ - mean) / mean      0 when every reward is 0\nL  = -(1/N) Σᵢ Σₜ min( ρᵢₜ Aᵢ , clip(ρᵢₜ) Aᵢ )",
        symbols=symbols("N", "rᵢ", "mean, std", "Aᵢ", "ρᵢₜ", "clip(ρ)"),
        paper="Maximum Likelihood Reinforcement Learning, arXiv 2602.02710",
        traps=(
            "Rewards must be at least 0; a negative one is refused.",
            "One right answer among G gets advantage G - 1: a false positive of the checker is amplified just as much.",
        ),
        differences=("The token mean is the reduction of this row; with sequence_sum the gradient is the paper's exactly.",),
    ),
)

"""Notes of the rows built on plain REINFORCE and on rejection sampling."""

from __future__ import annotations

from toishi.algorithms.note import AlgorithmNote, symbols

XIONG = "A Minimalist Approach to LLM Reasoning: from Rejection Sampling to Reinforce, arXiv 2504.11343"

PLAIN_NOTES: tuple[AlgorithmNote, ...] = (
    AlgorithmNote(
        name="reinforce",
        title="REINFORCE: the score-function gradient",
        meaning=(
            "Make a sampled answer likelier in proportion to its reward. It is the exact gradient of the expected reward, with "
            "no baseline, no ratio and no clip: the measure for everything else, and the noisiest."
        ),
        equation="L = -(1/B) Σᵢ rᵢ Σₜ log π(oᵢₜ)",
        symbols=symbols("oᵢ", "B", "rᵢ", "π, π_old"),
        paper="Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning, Williams 1992",
        traps=(
            "With rewards that are all positive every sampled answer is pushed up; only the differences teach, slowly.",
            "Made for one update per sampling: there is no ratio that would correct for a second one.",
        ),
    ),
    AlgorithmNote(
        name="reinforce_pp",
        title="REINFORCE++: global normalisation, no critic",
        meaning=(
            "A token's return is what its answer earns at and after it: the reward at the end, minus a KL penalty paid token "
            "by token. Returns are centred and scaled over all tokens of the batch, not per prompt, and go into the clipped "
            "loss. It works with one answer per prompt. kl_coef is 0 in this row; set it to pay for leaving the reference."
        ),
        equation=(
            "Rₜ = Σ_{s≥t} ( [s = last] r - β (log π_old(o_s) - log π_ref(o_s)) )\n"
            "Aₜ = (Rₜ - mean of all tokens) / (std of all tokens + ε)\n"
            "L  = -(1/N) Σᵢ Σₜ min( ρᵢₜ Aᵢₜ , clip(ρᵢₜ) Aᵢₜ )"
        ),
        symbols=(
            *symbols("N", "β", "ε", "ρᵢₜ", "clip(ρ)"),
            ("r", "reward of the answer"),
            ("Rₜ", "return of token t"),
            ("π_ref", "the model at step 0"),
        ),
        paper="REINFORCE++, arXiv 2501.03262",
        traps=(
            "One baseline for all prompts: an easy prompt's answers are all above it and a hard prompt's all below.",
            "A small batch has a noisy spread. If every return is equal the advantages are 0.",
        ),
        differences=(
            "verl divides by the square root of (variance + 1e-8), here 1e-8 is added to the standard deviation.",
            "TRL comes near it with RLOOConfig(normalize_advantages=True), which normalises whole-answer advantages.",
        ),
    ),
    AlgorithmNote(
        name="rloo",
        title="RLOO: REINFORCE leave-one-out",
        meaning=(
            "Compare an answer with the mean of its siblings only. Since that baseline does not contain the answer's own "
            "reward, the gradient stays unbiased for every group size. The whole answer is one action with one ratio."
        ),
        equation=(
            "Aᵢ = rᵢ - (1/(G-1)) Σ_{j≠i} rⱼ = (G/(G-1)) (rᵢ - mean)\n"
            "ρᵢ = exp( Σₜ log ρᵢₜ )\n"
            "L  = -(1/B) Σᵢ min( ρᵢ Aᵢ , clip(ρᵢ) Aᵢ )"
        ),
        symbols=(*symbols("G", "B", "rᵢ", "mean, std", "Aᵢ", "ρᵢₜ", "clip(ρ)"), ("ρᵢ", "ratio of the whole answer")),
        paper=(
            "Back to Basics: Revisiting REINFORCE Style Optimization for Learning from Human Feedback in LLMs, arXiv 2402.14740"
        ),
        traps=(
            "The ratio is a product over tokens: a drift of .001 nat per token makes it 1.22 after 200 tokens, and the clip "
            "holds everything. Use one update per sampling or a token ratio.",
        ),
        differences=(
            "TRL's RLOOConfig puts .05 · KL into the reward by default (kl k1_in_reward, kl_coef .05); this row has none.",
        ),
    ),
    AlgorithmNote(
        name="raft",
        title="RAFT: reward-ranked fine-tuning",
        meaning=(
            "Keep each prompt's best answers, if they were rewarded at all, and fine-tune on them; repeat from the new model. "
            "Supervised learning on one's own successes: stable, fast at first, blind to failures."
        ),
        equation="D = { oᵢ : rᵢ = maxⱼ rⱼ and rᵢ > 0 }\nL = -(1/|D|) Σ_{i∈D} (1/|oᵢ|) Σₜ log π(oᵢₜ)",
        symbols=(*symbols("oᵢ", "rᵢ", "π, π_old"), ("D", "kept answers of the update; the others leave the denominators")),
        paper="RAFT: Reward rAnked FineTuning for Generative Foundation Model Alignment, arXiv 2304.06767",
        traps=(
            "Entropy falls quickly, since nothing is ever pushed down; gains stop when answers stop differing.",
            "With graded rewards 'best' may be poor: any positive maximum is kept.",
        ),
        differences=(
            "Released code keeps answers with reward equal to the maximum after clamping negatives to 0; the same set.",
        ),
    ),
    AlgorithmNote(
        name="raft_pp",
        title="RAFT++: RAFT with ratio and clip",
        meaning=(
            "RAFT whose samples may serve several updates: the importance ratio corrects for the policy having moved and the "
            "clip stops a kept answer from being pushed without end."
        ),
        equation=("D = { oᵢ : rᵢ = maxⱼ rⱼ and rᵢ > 0 }\nL = -(1/|D|) Σ_{i∈D} (1/|oᵢ|) Σₜ min( ρᵢₜ , clip(ρᵢₜ) )"),
        symbols=(*symbols("oᵢ", "rᵢ", "ρᵢₜ", "clip(ρ)"), ("D", "kept answers of the update")),
        paper=XIONG,
        traps=(
            "The ratio without the clip is worse than plain RAFT.",
            "Learns faster than GRPO at first, then entropy collapses and GRPO passes; clip_high .28 helps.",
        ),
        differences=(
            "The paper writes D as all samples with an indicator inside the sum, which scales the loss by the share kept.",
        ),
    ),
    AlgorithmNote(
        name="reinforce_rej",
        title="Reinforce-Rej: REINFORCE without all-right and all-wrong prompts",
        meaning=(
            "Rewards +1 and -1 with ratio and clip, no mean and no spread; prompts whose answers are all right or all wrong "
            "are dropped. Most of GRPO's advantage over plain REINFORCE comes from not learning on all-wrong prompts."
        ),
        equation="L = -(1/B) Σᵢ (1/|oᵢ|) Σₜ min( ρᵢₜ (2rᵢ-1) , clip(ρᵢₜ) (2rᵢ-1) )      mixed groups only",
        symbols=symbols("oᵢ", "B", "rᵢ", "ρᵢₜ", "clip(ρ)"),
        paper=XIONG,
        traps=("Rewards must lie in [0, 1]: they are mapped to 2r - 1.", "Few mixed groups early on mean small batches."),
        differences=(
            "The released code's rewards are 0 and 1, so wrong answers weigh nothing there; the paper's are ±1, as here.",
        ),
    ),
    AlgorithmNote(
        name="entropy_only",
        title="Entropy only: a control without any reward",
        meaning=(
            "Only spread out the next-token distributions of the sampled answers. No reward is used. A control for claims "
            "about reinforcement learning: some models gain on benchmarks from it for a few steps, mostly through format."
        ),
        equation="L = -entropy_coef · (1/N) Σᵢ Σₜ H(π(·|x, oᵢ,<ₜ))",
        symbols=symbols("x", "oᵢ", "N", "π, π_old", "H"),
        paper="Reinforcement Learning for Reasoning in Large Language Models with One Training Example, arXiv 2504.20571",
        traps=(
            "With Adam the coefficient hardly changes the first steps (each is ±lr): stop early and evaluate often.",
            "Compare with a format-only reward, which gains more in the paper's own table.",
        ),
        differences=("The paper writes + α·H with α = -.001 into the loss; entropy_coef .001 is the same.",),
    ),
)

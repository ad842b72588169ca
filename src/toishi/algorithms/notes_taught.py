"""Notes of the rows that learn from a teacher."""

from __future__ import annotations

from toishi.algorithms.note import AlgorithmNote, symbols

_TEACHER = (
    ("p, q", "next-token distributions of the teacher and of the policy, at the sampling temperature"),
    ("s", "a place in an answer: the prompt and the tokens before it"),
)
_BETA = ("b", "divergence_beta of the row")

TAUGHT_NOTES: tuple[AlgorithmNote, ...] = (
    AlgorithmNote(
        name="gkd",
        title="GKD: distillation on the student's own and on written answers",
        meaning=(
            "At every token the whole next-token distribution is drawn towards a frozen teacher's, which is asked what it "
            "would say where the student stands. For a share of the prompts (sampled_share) the student answers itself, and "
            "so learns what to do after its own mistakes; for the others the answer stands in the data. `source: sampled` is "
            "the first kind alone, `source: written` the second. Rewards are asked, and teach nothing."
        ),
        equation=(
            "D = b KL(p ‖ m) + (1-b) KL(q ‖ m),  m = b p + (1-b) q      0 < b < 1\n"
            "D = KL(p ‖ q) at b = 0,  KL(q ‖ p) at b = 1\n"
            "L = (1/N) Σ_s D(s)"
        ),
        symbols=(*symbols("N"), *_TEACHER, _BETA, ("m", "their mixture")),
        paper="On-Policy Distillation of Language Models: Learning from Self-Generated Mistakes, arXiv 2306.13649",
        traps=(
            "Both must have the same tokens. With other ones let the teacher write answers (toishi collect) and use sft.",
            "b = 0 makes a small student spread over all that the teacher might say; b = 1 lets it forget most of it.",
            "D is small between the ends and goes to 0 towards them: a b of .1 needs a larger learning rate than one of .5.",
            "The teacher reads the student's chat template: one that it was not trained with makes it a worse teacher.",
        ),
        differences=(
            "TRL samples at temperature .9 by default and takes the loss at 1; here both are at sampling.temperature.",
            "TRL decides for a whole batch whether it is sampled, here it is decided for each prompt.",
        ),
    ),
    AlgorithmNote(
        name="opd",
        title="On-policy distillation: the student's answers, the teacher's distributions",
        meaning=(
            "GKD with answers of the student alone and KL(q ‖ p): the student tries, and at every token is told how likely "
            "each word would have been to the teacher. A dense signal where RL has one number for an answer, on the states "
            "that the student really meets."
        ),
        equation="L = (1/N) Σ_s KL( q(·|s) ‖ p(·|s) )      s of the policy's own answers, taken as given",
        symbols=(*symbols("N"), *_TEACHER),
        paper="MiniLLM: Knowledge Distillation of Large Language Models, arXiv 2306.08543, and GKD, arXiv 2306.13649",
        traps=(
            "What the student never says it is never told about: it cannot get beyond what it samples, as in RL.",
            "The gradient leaves out that other words lead to other places: each place is a lesson of its own.",
            "Start near the teacher (sft on its answers): from far away the first answers are no place to learn at.",
        ),
        differences=("TRL's DistillationTrainer is this, with b = 1 by default.",),
    ),
    AlgorithmNote(
        name="opd_sampled",
        title="On-policy distillation by the sampled token alone",
        meaning=(
            "The same as a policy gradient: a token's advantage is how much likelier the teacher finds it than the policy did. "
            "One log-prob of the teacher for each token is all that it needs, and its mean is the gradient of opd at each "
            "place; its noise is higher."
        ),
        equation="Aₜ = log p(yₜ|s) - log π_old(yₜ|s)\nL = -(1/N) Σₜ Aₜ log π(yₜ|s)",
        symbols=(*symbols("N", "π, π_old"), *_TEACHER[1:], ("p", "the teacher"), ("yₜ", "the sampled token")),
        paper="MiniLLM: Knowledge Distillation of Large Language Models, arXiv 2306.08543",
        traps=(
            "A token that the teacher finds impossible gets a huge negative advantage: keep optimizer.max_grad_norm.",
            "update/kl_policy_ref is the sampled estimate of KL(policy ‖ teacher); the loss itself says little.",
        ),
    ),
)

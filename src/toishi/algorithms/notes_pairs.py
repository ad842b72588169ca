"""Notes of the rows that learn from pairs of answers."""

from __future__ import annotations

from toishi.algorithms.note import AlgorithmNote, symbols

_PAIR = (
    ("y⁺, y⁻", "the chosen and the rejected answer to x"),
    ("P", "pairs of the step"),
    ("π_ref", "the model at step 0"),
    ("b", "beta of the row: how dear it is to leave π_ref"),
)

PAIR_NOTES: tuple[AlgorithmNote, ...] = (
    AlgorithmNote(
        name="dpo",
        title="DPO: direct preference optimisation on written pairs",
        meaning=(
            "Raise the chosen answer against the rejected one, measured from the model at step 0, until the margin is wide "
            "enough. No reward is asked: the pair is the judgement. Its gradient is a policy gradient with the advantage "
            "+2bσ(-h) for the chosen answer and -2bσ(-h) for the rejected one (2, since an answer is half of a pair), so a "
            "pair that is settled already hardly pushes. Each step has one update, at whose weights h is taken."
        ),
        equation=(
            "h = b [ log π(y⁺)/π_ref(y⁺) - log π(y⁻)/π_ref(y⁻) ]\n"
            "L = -(1/P) Σ ( (1-s) log σ(h) + s log σ(-h) )\n"
            "A(y⁺) = 2b (σ(-h) - s) = -A(y⁻)"
        ),
        symbols=(*symbols("x", "π, π_old"), *_PAIR, ("s", "label_smoothing: probability that a pair is the wrong way round")),
        paper="Direct Preference Optimization: Your Language Model is Secretly a Reward Model, arXiv 2305.18290",
        traps=(
            "Both answers may fall while the margin grows: watch preference/logps_chosen.",
            "Pairs that the model would never say itself teach it little about what it does say: dpo_online makes its own.",
            "Sums over tokens: with long answers of unequal length the longer one decides the margin.",
            "The learning rate is about a tenth of SFT's; beta .1 at 1e-6 is usual.",
        ),
        differences=(
            "TRL logs rewards/margins and rewards/accuracies; here preference/margin and preference/accuracy.",
            "TRL 1.16 reads label_smoothing for loss_type robust and exo_pair alone; with sigmoid it changes nothing there.",
        ),
    ),
    AlgorithmNote(
        name="ipo",
        title="IPO: pairs up to a fixed margin",
        meaning=(
            "DPO's margin has no end where all pairs agree; IPO stops at 1/(2b) and pushes back beyond it. Log-probs are means "
            "over tokens, so long answers weigh no more than short ones."
        ),
        equation=(
            "d = mean log π/π_ref over y⁺ - mean log π/π_ref over y⁻\nL = (1/P) Σ ( d - 1/(2b) )²\n"
            "A(y⁺) = 4 (1/(2b) - d) / |y⁺|,  A(y⁻) = -4 (1/(2b) - d) / |y⁻|"
        ),
        symbols=(*symbols("x", "π, π_old"), *_PAIR, ("|y|", "tokens with loss")),
        paper="A General Theoretical Paradigm to Understand Learning from Human Preferences, arXiv 2310.12036",
        traps=("A small beta asks for a margin of 1/(2b) nats per token, which no text has: .1 asks for 5.",),
        differences=("The paper sums log-probs; its authors and TRL take means over tokens, as here.",),
    ),
    AlgorithmNote(
        name="reward_model",
        title="Reward model: one number for an answer, learned from pairs",
        meaning=(
            "The model's head becomes one number, read at the last token of prompt and answer, and the chosen answer is to "
            "have the higher one: the difference of two numbers is the log-odds that people prefer the first (Bradley and "
            "Terry). Nothing is sampled; held-out pairs tell how many are ranked right, how clearly, and whether its "
            "probabilities can be believed. What is saved is transformers' sequence classifier with one label: the reward "
            "`reward_model` takes the folder, and so does TRL. On record its score stands where other methods have the "
            "log-prob of an answer's last token."
        ),
        equation=(
            "h = b [ r(x,y⁺) - r(x,y⁻) ] - m\n"
            "L = (1/P) Σ ( -log σ(h) + c (r⁺ + r⁻)² )\n"
            "A(y⁺) = 2b σ(-h) - 4c (r⁺ + r⁻),  A(y⁻) = -2b σ(-h) - 4c (r⁺ + r⁻)"
        ),
        symbols=(
            *symbols("x"),
            *(pair for pair in _PAIR if pair[0] in ("y⁺, y⁻", "P")),
            ("r", "the model's number for prompt and answer; r⁺, r⁻ of the two"),
            ("b", "beta of the row, 1"),
            ("m", "by how much the chosen answer is to win: the column that answers.margin names, or 0"),
            ("c", "centring of the row"),
        ),
        paper="Training language models to follow instructions with human feedback, arXiv 2203.02155 (its second step)",
        traps=(
            "Length is the easiest thing to learn: watch length_correlation of the held-out pairs.",
            "Scores are known up to a constant. Baselines of the group take it out; with others, set centring (.01), or centre "
            "in the reward.",
            "A policy that is trained on it finds what it likes beside what was meant: keep a measure that it never sees, and "
            "a KL term.",
            "One epoch is usual: it learns its pairs by heart, and then its probabilities are too sure (calibration_error).",
        ),
        differences=(
            "TRL leaves out pairs above max_length (1024) without a word; here they are refused, or passed over and counted.",
            "The padding token is never one that ends a text, so the score is read where it was trained.",
        ),
    ),
    AlgorithmNote(
        name="dpo_online",
        title="Online DPO: the best of one's own answers against the worst",
        meaning=(
            "Sample a group, score it, and let the best answer be the chosen and the worst the rejected one. The reward may be "
            "a checker, a rubric or a judge: only its order counts. Other answers and tied groups teach nothing."
        ),
        equation=(
            "y⁺ = argmaxᵢ rᵢ,  y⁻ = argminᵢ rᵢ      groups with different rewards only\n"
            "L  = -(1/P) Σ log σ( b [ log π(y⁺)/π_ref(y⁺) - log π(y⁻)/π_ref(y⁻) ] )"
        ),
        symbols=(*symbols("x", "rᵢ", "π, π_old"), *_PAIR),
        paper="Direct Language Model Alignment from Online AI Feedback, arXiv 2402.04792",
        traps=(
            "Two answers of a group of G teach: GRPO uses all G for the same price of sampling.",
            "A noisy judge's best and worst are its largest errors: give the reward its `noise`.",
        ),
    ),
)

"""Notes of the rows that learn from written answers."""

from __future__ import annotations

from toishi.algorithms.note import AlgorithmNote, symbols

_WRITTEN = (("y", "the written answer to x, from the data"), ("|y|", "its tokens with loss, the stop token included"))

WRITTEN_NOTES: tuple[AlgorithmNote, ...] = (
    AlgorithmNote(
        name="sft",
        title="SFT: supervised fine-tuning on written answers",
        meaning=(
            "Make each token of a written answer likelier, every token alike. Nothing is sampled and nothing is judged: it is "
            "a policy gradient whose answers come from the data and whose advantage is 1. So RAFT is SFT on one's own best "
            "answers, and GRPO's first update is SFT on one's own answers, each weighted by its advantage. Only the "
            "assistant's turns have loss."
        ),
        equation="L = -(1/N) Σ_y w Σₜ log π(yₜ | x, y,<ₜ)",
        symbols=(
            *symbols("x", "N", "π, π_old"),
            *_WRITTEN,
            ("w", "what the answer is worth: 1, or the column that answers.value names"),
        ),
        paper="Training language models to follow instructions with human feedback, arXiv 2203.02155 (its first step)",
        traps=(
            "It has no place for a wrong answer: w < 0 pushes it down without end, and is refused. Use unlikelihood, or pairs.",
            "An answer without its stop token teaches never to stop. Here it is added and trained.",
            "Answers far from what the model would say cost abilities that the data lacks; a low rate and few epochs help.",
            "Long answers have more tokens and so more say: every token of the step counts alike.",
        ),
        differences=(
            "TRL cuts rows at max_length (1024) without a word; here a long answer is refused, or passed over and counted.",
            "TRL also trains what the chat template writes after the stop token, such as a line break; here it has no loss.",
        ),
    ),
    AlgorithmNote(
        name="dft",
        title="DFT: SFT with each token weighted by its own probability",
        meaning=(
            "SFT's gradient is a policy gradient whose reward is 1 / π: the less likely a token, the harder it is pulled. "
            "DFT takes that factor out: a token pulls in proportion to the probability that it has already."
        ),
        equation="L = -(1/N) Σ_y w Σₜ sg(π(yₜ)) log π(yₜ | x, y,<ₜ)",
        symbols=(*symbols("x", "N", "π, π_old", "sg(·)"), *_WRITTEN, ("w", "what the answer is worth, 1 by default")),
        paper="On the Generalization of SFT: A Reinforcement Learning Perspective with Reward Rectification, arXiv 2508.05629",
        traps=("What the model finds nearly impossible it hardly learns: new facts and new forms need plain SFT first.",),
    ),
    AlgorithmNote(
        name="unlikelihood",
        title="Unlikelihood: written answers to say, and others not to say",
        meaning=(
            "Answers with a worth above 0 are learned as in SFT; those below 0 are unlearned through log(1 - π), whose pull "
            "fades as the token becomes unlikely, where minus log π would go on for ever."
        ),
        equation="L = -(1/N) Σ_y |w| Σₜ ( log π(yₜ) where w ≥ 0,  log(1 - π(yₜ)) where w < 0 )",
        symbols=(*symbols("N", "π, π_old"), *_WRITTEN, ("w", "what the answer is worth, by the column answers.value")),
        paper="Neural Text Generation with Unlikelihood Training, arXiv 1908.04319",
        traps=(
            "Every token of a bad answer is unlearned, also those that a good one shares: pairs (dpo) compare instead.",
            "A token that the model is sure of pulls by π / (1 - π), which has no bound: keep optimizer.max_grad_norm.",
        ),
    ),
)

"""Notes of the rows whose baseline is a critic."""

from __future__ import annotations

from toishi.algorithms.note import AlgorithmNote, symbols

_SHARED = (
    ("V(sₜ)", "the critic's value of the text before token t; V_old: before the step's first update"),
    ("δₜ", "surprise at token t"),
    ("γ, λ", "gamma and gae_lambda of the row"),
    ("Rₜ", "return: what the value before token t is to become"),
    ("c_v, c_e", "value_coef and entropy_coef of the row"),
)
_GAE = (
    "δₜ = rₜ + γ V_old(sₜ₊₁) - V_old(sₜ)          V after the last token is 0\n"
    "Aₜ = δₜ + γ λ Aₜ₊₁          Rₜ = Aₜ + V_old(sₜ)\n"
)

CRITIC_NOTES: tuple[AlgorithmNote, ...] = (
    AlgorithmNote(
        name="a2c",
        title="A2C: advantage actor-critic",
        meaning=(
            "A critic guesses, from the text so far, what the answer will earn. What comes better than it expected makes the "
            "sampled tokens likelier, what comes worse less likely; and the critic is moved towards what came. One update per "
            "sampling: no ratio, no clip. It needs no group: one answer to a prompt is enough. `critic` of the configuration "
            "says which model guesses (a head on the policy's own hidden states, or a second model) and how it learns."
        ),
        equation=_GAE + "L  = -(1/N) Σᵢ Σₜ Aᵢₜ log π(oᵢₜ) + c_v (1/N) Σᵢ Σₜ ½ (V(sᵢₜ) - Rᵢₜ)² - c_e (1/N) Σᵢ Σₜ Hᵢₜ",
        symbols=(
            *symbols("oᵢ", "N", "π, π_old", "H"),
            ("rₜ", "what was earned at token t: a step's reward at its last token, the rest at the answer's last"),
            *_SHARED,
        ),
        paper="Asynchronous Methods for Deep Reinforcement Learning, arXiv 1602.01783; GAE: arXiv 1506.02438",
        traps=(
            "A fresh head knows nothing: its first values are 0, so the first advantages are plain returns, with no baseline. "
            "Let it learn alone for some steps (critic.warmup_steps).",
            "With a shared trunk value_coef decides how much the value loss moves the policy's weights. Returns in the "
            "hundreds make it dominate: scale rewards, lower value_coef, or take critic.kind=separate.",
            "An answer that was cut at the token limit is scored as if it had ended there. truncation=bootstrap takes the cut "
            "for an interruption and puts the critic's value in the place of what was cut off.",
            "More than one update on the same answers is off-policy, and nothing here corrects for it: use ppo.",
        ),
        differences=(
            "Same as ppo with one update per step, no value clipping, λ 1 and no whitening: the gradients are equal, the "
            "printed loss is not (the ratio's derivative is that of the log-prob).",
            "TRL and verl have no row of this name.",
        ),
    ),
    AlgorithmNote(
        name="ppo",
        title="PPO: clipped ratio with a critic",
        meaning=(
            "Advantages of tokens come from a critic's surprises (GAE), are centred and scaled over all tokens of the step, "
            "and go into the clipped loss, so that one sampling can be used for several updates. The critic is held likewise: "
            "a value that has already come nearer to its return by value_clip gets no further pull in this step. A KL penalty "
            "may be paid in the reward, token by token; kl_coef is 0 in this row. surrogate=dual_clip bounds the loss of "
            "negative advantages as well."
        ),
        equation=(
            "rₜ = [t = last] r - β (log π_old(oₜ) - log π_ref(oₜ))\n"
            + _GAE
            + "Âₜ = (Aₜ - mean of all tokens) / (std of all tokens + ε)\n"
            "V_clip = clip(V(sₜ), V_old(sₜ) ± value_clip)\n"
            "L  = -(1/N) Σᵢ Σₜ min( ρᵢₜ Âᵢₜ , clip(ρᵢₜ) Âᵢₜ )\n"
            "     + c_v (1/N) Σᵢ Σₜ ½ max( (V - R)² , (V_clip - R)² ) - c_e (1/N) Σᵢ Σₜ Hᵢₜ"
        ),
        symbols=(
            *symbols("oᵢ", "N", "π, π_old", "ρᵢₜ", "clip(ρ)", "β", "ε", "H"),
            ("r", "reward of the answer; rewards of steps are earned at their own last token"),
            ("π_ref", "the model at step 0"),
            *_SHARED,
        ),
        paper="Proximal Policy Optimization Algorithms, arXiv 1707.06347; dual clip: arXiv 1912.09729; GAE: arXiv 1506.02438",
        traps=(
            "Returns are formed before advantages are whitened. The other way round the critic learns what is no reward.",
            "With one reward at the end its echo fades as λ to the power of the tokens left: 0.95^100 is 0.006, and what "
            "the first tokens learn is the critic's opinion. For long answers take gae_lambda 1.",
            "value_clip is in units of reward. With returns from 0 to 1 a bound of 0.2 holds little; with rewards of 1 to 10 "
            "it holds nearly everything: scale the rewards or leave it out.",
            "explained_variance at or below 0 after the warm-up: the critic only adds noise, and rloo would do better.",
            "With train.inner_epochs and train.minibatches at 1 the ratio is 1 and both clips are inert.",
        ),
        differences=(
            "TRL's PPO (no longer in 1.16): value_coef 0.1, KL coefficient 0.05 paid in the reward, four epochs, "
            "whitened advantages, a separate critic.",
            "verl's critic is always a second model (critic.kind=separate here), and its dual clip (3) is always on "
            "(surrogate=dual_clip here).",
            "Whitening: verl divides by the square root of (variance + 1e-8), here 1e-8 is added to the standard deviation.",
        ),
    ),
)

"""The form of an algorithm's note, and the symbols that all equations share."""

from __future__ import annotations

from dataclasses import dataclass

SYMBOLS: dict[str, str] = {
    "x": "prompt",
    "oᵢ": "i-th sampled answer to x, |oᵢ| its tokens with loss (the stop token has loss)",
    "G": "answers per prompt",
    "B": "answers of the whole optimizer update",
    "N": "tokens with loss of the whole optimizer update, Σ |oᵢ|",
    "rᵢ": "reward of answer i",
    "mean, std": "over the scored answers of the same prompt",
    "Aᵢ": "advantage of answer i, a constant",
    "ε": "std_epsilon of the row",
    "π, π_old": "the policy now, and the policy that sampled",
    "ρᵢₜ": "π(oᵢₜ) / π_old(oᵢₜ), the token's importance ratio; 1 in the first update after sampling",
    "clip(ρ)": "ρ held in [1 - clip_low, 1 + clip_high]",
    "L_max": "the token limit of a completion",
    "sg(·)": "taken as a constant: no gradient",
    "H": "entropy of the next-token distribution, nats",
    "β": "kl_coef",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlgorithmNote:
    """One row in words.

    symbols      (symbol, meaning) of everything in the equation
    traps        what goes wrong in practice
    differences  where other libraries mean something else by the same name
    """

    name: str
    title: str
    meaning: str
    equation: str
    symbols: tuple[tuple[str, str], ...]
    paper: str
    traps: tuple[str, ...]
    differences: tuple[str, ...] = ()


def symbols(*names: str) -> tuple[tuple[str, str], ...]:
    """The shared symbols of those names, in that order.

    >>> symbols("G")
    (('G', 'answers per prompt'),)
    """
    return tuple((name, SYMBOLS[name]) for name in names)

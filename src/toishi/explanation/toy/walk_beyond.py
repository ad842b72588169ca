"""What a walk holds beyond the comparison of answers: a critic's guesses and its lessons, and the pair of a preference loss.

Plain values, as in `walk.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

Numbers = tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuedToken:
    """One word of one answer on its way from the critic's guess to its advantage.

    value, following  the guess before the word, and after it (0 after the last one: nothing is to come)
    reward            what is earned at the word: the answer's reward at its last word, 0 before
    surprise          δ = reward + γ · following - value
    ahead             the advantage of the next word; 0 after the last one
    estimated         A = surprise + γ λ · ahead
    target            estimated + value: what the guess is to become
    advantage         what the loss uses: `estimated`, whitened where the row says so
    """

    answer: int
    position: int
    word: str
    value: float
    following: float
    reward: float
    surprise: float
    ahead: float
    estimated: float
    target: float
    advantage: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticStep:
    """The critic's part of one update. Its weights are a table: a guess before the first word, and one after each word but the
    last of the vocabulary.

    held             of each word: whether its guess has moved far enough and teaches nothing more
    loss             the mean over words of half the squared distance to the target
    slopes, autograd d (coef · loss) / d guess, by the closed form and by autograd
    """

    index: int
    before: Numbers
    held: tuple[bool, ...]
    loss: float
    slopes: Numbers
    autograd: Numbers
    max_difference: float
    after: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Valued:
    """A critic in the place of the comparison.

    mean, std  of the estimated advantages, where they are whitened; else None
    ends       estimated advantages of the first answer at λ = 0 and λ = 1
    """

    gamma: float
    lam: float
    coef: float
    clip: float | None
    epsilon: float
    mean: float | None
    std: float | None
    tokens: tuple[ValuedToken, ...]
    ends: tuple[Numbers, Numbers]
    steps: tuple[CriticStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairStep:
    """A chosen and a rejected answer in one step of a preference loss.

    logprob, ref        of the whole answer, now and under the reference
    chosen_reward, ...  β · (logprob - ref): the reward that the model gives the answer without saying so
    apart               h = chosen_reward - rejected_reward
    weight              - d loss / d log-prob of the chosen answer: how hard the pair pulls
    rejected_weight     the same of the rejected answer
    loss                of the pair
    chosen_slope, ...   d log-prob of the answer / d logits, [first, second]
    gradient, autograd  d loss / d logits: - weight · chosen_slope - rejected_weight · rejected_slope, and by autograd
    """

    index: int
    chosen: int
    rejected: int
    beta: float
    chosen_logprob: float
    chosen_ref: float
    rejected_logprob: float
    rejected_ref: float
    chosen_reward: float
    rejected_reward: float
    apart: float
    weight: float
    rejected_weight: float
    loss: float
    chosen_slope: tuple[Numbers, Numbers]
    rejected_slope: tuple[Numbers, Numbers]
    gradient: tuple[Numbers, Numbers]
    autograd: tuple[Numbers, Numbers]
    max_difference: float

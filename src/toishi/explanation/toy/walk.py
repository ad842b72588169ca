"""The computed walk: every number of the step under a name, plain values in, plain values out.

Decisions:
1. Frozen dataclasses of floats and texts alone, so that `--json` is the walk itself and rendering computes nothing.
2. Gradients and logits are `Rows`: one number for each word of the vocabulary, for the first and for the second position.
3. A weight is d loss / d log-prob; a push is its negative: above 0 the token becomes likelier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from toishi.explanation.toy.model import World
from toishi.explanation.toy.walk_beyond import PairStep, Valued

Numbers = tuple[float, ...]
Clip = Literal["free", "held_low", "held_high", "held_dual"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A number for each word, at the first and at the second position of an answer."""

    first: Numbers
    second: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The model at one moment.

    expected_reward  Σ probability of a first word · its reward; None when the judge failed on a word
    entropy          of each position, nats
    kl_from_start    KL(this model ‖ model of step 0) of each position, nats
    """

    probabilities: Rows
    expected_reward: float | None
    entropy: tuple[float, float]
    kl_from_start: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What an optimizer made of a gradient."""

    optimizer: str
    lr: float
    change: Rows
    after: State


@dataclass(frozen=True, slots=True, kw_only=True)
class Sft:
    """Supervised fine-tuning on the target, with plain SGD or the walk's optimizer."""

    answer: str
    logprobs: Numbers
    nll: float
    gradient: Rows
    autograd: Rows
    max_difference: float
    step: Applied
    nll_after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer on its way from score to advantage.

    subtracted, divisor  the row's baseline and unit for this answer; None where the row has no such part
    advantage            mean over its tokens (they differ only when credit goes to tokens)
    formula_holds        whether (reward - subtracted) / (divisor + epsilon) is all there is to the advantage
    takes_part           whether the loss averages over it
    """

    number: int
    text: str
    tokens: tuple[int, ...]
    score: float | None
    comment: str
    reward: float | None
    subtracted: float | None
    divisor: float | None
    advantage: float
    formula_holds: bool
    takes_part: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One token in one update.

    share          how much the token counts in the loss
    loss           its term of the loss, share included, without KL
    kl             the row's KL estimate; k1 when the row has none
    policy_weight, kl_weight, weight   d loss / d log-prob by the closed form: policy part, KL part, both
    push           -weight
    """

    answer: int
    position: int
    word: str
    logprob: float
    old_logprob: float
    advantage: float
    ratio: float
    clip: Clip
    share: float
    loss: float
    kl: float
    policy_weight: float
    kl_weight: float
    weight: float
    push: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """One update on the group: its tokens, its loss, its gradient by two roads, and the optimizer's step.

    by_answer, entropy_part  what each answer and the entropy term add to the gradient
    """

    index: int
    tokens: tuple[Token, ...]
    loss: float
    clip_fraction: float
    gradient: Rows
    autograd: Rows
    max_difference: float
    by_answer: tuple[Rows, ...]
    entropy_part: Rows
    gradient_norm: float
    step: Applied


@dataclass(frozen=True, slots=True, kw_only=True)
class WordMove:
    """Why a first word gained or lost: its own push against the growth of all words together.

    growth      e^change of its logit
    total       Σ probability · growth over all words: what everything is divided by
    advantage   mean of the answers that begin with it; None when there is none
    surprising  the advantage and the change of probability have opposite signs
    turns_at    learning rate at which a first step of this optimizer leaves the probability as it was: below it the word gains,
                above it it loses. None when there is none: it gains or loses at every rate
    """

    word: str
    advantage: float | None
    change: float
    growth: float
    total: float
    factor: float
    before: float
    after: float
    surprising: bool
    turns_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KlRow:
    """The second update once more, with a KL term to the model of step 0."""

    kl: str
    coef: float
    loss: float
    gradient: Rows
    autograd: Rows
    max_difference: float
    per_token: Numbers
    token_mean: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Another row of choices on the same answers; its second update starts where the walk's first one ended."""

    name: str
    choices: dict[str, object]
    advantages: Numbers
    loss: float
    gradient: Rows
    adam_change: Rows
    second_ratios: Numbers
    second_clips: tuple[Clip, ...]
    second_clip_fraction: float
    second_loss: float
    second_gradient: Rows
    max_difference: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Σ factor · SFT gradient of each answer, beside the gradient of the first update.

    factors  what each answer's mean NLL is multiplied by: share · advantage · length
    """

    factors: Numbers
    sft_gradients: tuple[Rows, ...]
    total: Rows
    max_difference: float
    holds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueModel:
    """Advantages of one answer's tokens had there been a value model (GAE)."""

    answer: int
    values: Numbers
    gamma: float
    lam: float
    reward: float
    delta: Numbers
    advantages: Numbers
    returns: Numbers
    advantages_lam_0: Numbers
    advantages_lam_1: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeDistribution:
    """A judge that is not sure: probabilities of its score tokens, and the score that they amount to."""

    points: Numbers
    probabilities: Numbers
    mass: float
    most_likely: float
    expected: float
    std: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """The whole step. `updates` has at least one entry; `beside_step` is the other optimizer's first step.

    valued  the critic's part, for a row with one; pairs: one entry for each update, for a row that compares pairs
    """

    world: World
    row: dict[str, object]
    dropped: str
    before: State
    sft: Sft
    mean: float | None
    std: float | None
    answers: tuple[Answer, ...]
    updates: tuple[Update, ...]
    beside_step: Applied
    moves: tuple[WordMove, ...]
    kl_rows: tuple[KlRow, ...]
    rows: tuple[Beside, ...]
    identity: Identity
    value_model: ValueModel | None
    judge: JudgeDistribution
    valued: Valued | None
    pairs: tuple[PairStep, ...]

"""Links 1 to 4 as values: what each reward said, the reward, the baseline, the advantage; and the check that every link has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from toishi.explanation.formula import RewardNumbers
from toishi.explanation.surprises import TokenAdvantage, Whitening
from toishi.types import ScoreUse

LinkName = Literal["scores", "reward", "baseline", "advantage", "weights", "gradient", "change", "effect", "sft"]
LINKS: tuple[LinkName, ...] = ("scores", "reward", "baseline", "advantage", "weights", "gradient", "change", "effect", "sft")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A link recomputed: the comparison that came out worst stands for all.

    how         how it was recomputed
    where       whose number the worst comparison is about
    recorded, recomputed, difference  that comparison; None where one side has no number
    bound       how far apart the two may be there
    compared    how many numbers were compared
    """

    name: LinkName
    how: str
    where: str
    recorded: float | None
    recomputed: float | None
    difference: float | None
    bound: float
    compared: int
    ok: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreLine:
    """What one reward said of an answer, and how it counts; `contribution` is None for what is not in the sum."""

    reward: str
    value: float | None
    weight: float
    contribution: float | None
    status: Literal["ok", "abstained", "failed"]
    reason: str
    span: tuple[int, int] | None
    use: ScoreUse


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberScores:
    """An answer and what each reward said of it; `cut`: the token limit ended it."""

    member: int
    answer: str
    num_tokens: int
    status: Literal["completed", "truncated", "failed"]
    failure: str
    cut: bool
    scores: tuple[ScoreLine, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoresLink:
    """Link 1: the judge's words and what they are worth."""

    members: tuple[MemberScores, ...]
    check: Check


@dataclass(frozen=True, slots=True, kw_only=True)
class SumTerm:
    """One part of an answer's reward; `paid` is weight times value unless `use` says otherwise."""

    reward: str
    weight: float
    value: float
    use: ScoreUse
    paid: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberReward:
    """An answer's reward as the sum of what its `terms` paid."""

    member: int
    terms: tuple[SumTerm, ...]
    recorded: float | None
    recomputed: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardLink:
    """Link 2: the weighted sum of an answer's scores."""

    members: tuple[MemberReward, ...]
    check: Check


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberBaseline:
    """Whether an answer is inside the group's statistics; `earned` is its reward after the row's own shaping."""

    member: int
    counts: bool
    left_out: str
    earned: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineLink:
    """Link 3: what the group's answers are measured against.

    kept   whether the row's filter let the group teach; `why` says why not
    tied   all rewards are equal and the row compares siblings: nothing to learn from
    """

    mean: float | None
    std: float | None
    std_ddof: int
    count: int
    size: int
    kept: bool
    why: str
    tied: bool
    members: tuple[MemberBaseline, ...]
    check: Check


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberAdvantage:
    """An answer's advantage: one number, or one per token.

    subtracted, divisor  what stands in the formula for this answer; None where the row has no such part
    rewards              with combine 'normalise_each', each reward's own comparison; empty otherwise
    worked               the formula with this answer's numbers; empty where the row does more than one line can show
    tokens, texts        with a critic, how each token with loss came to its advantage, and its text; empty otherwise
    """

    member: int
    recorded: float | tuple[float, ...] | None
    recomputed: float | tuple[float, ...] | None
    subtracted: float | None
    divisor: float | None
    rewards: tuple[RewardNumbers, ...]
    worked: str
    tokens: tuple[TokenAdvantage, ...] = ()
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticNumbers:
    """What a critic's advantages are made with; `learns_alone`: in this step only the critic learned, nothing was pushed."""

    gamma: float
    gae_lambda: float
    whitening: Whitening | None
    learns_alone: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvantageLink:
    """Link 4: how far an answer is above or below its baseline, in the row's own measure; `epsilon` is added to the divisor."""

    formula: str
    combine: str
    baseline: str
    scale: str
    epsilon: float
    members: tuple[MemberAdvantage, ...]
    check: Check
    critic: CriticNumbers | None = None

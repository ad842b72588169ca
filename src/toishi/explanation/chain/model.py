"""What a chain is: one frozen value for each link, plain data throughout, so that `--json` prints all of it.

Decisions:
1. Every link that is on record carries its check. A link that is not on record is None, and `missing` says how to get it.
2. Recomputation starts from the scores and never from the recorded number of a link on the way: an altered number breaks its
   own link and not those after it. (Altered scores break everything after them, as they should.)
3. Probabilities and log-probs are at the run's sampling temperature. Negative token weights make a token more likely.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from toishi.explanation.chain.model_influence import InfluenceLink
from toishi.explanation.chain.model_scores import (
    LINKS,
    AdvantageLink,
    BaselineLink,
    Check,
    CriticNumbers,
    LinkName,
    MemberAdvantage,
    MemberBaseline,
    MemberReward,
    MemberScores,
    RewardLink,
    ScoreLine,
    ScoresLink,
    SumTerm,
)
from toishi.explanation.chain.model_step import (
    AnswerEffect,
    ChangeLink,
    EffectLink,
    GradientLink,
    LayerChange,
    MemberWeights,
    SftLink,
    SharedStart,
    TokenEffect,
    TokenPush,
    UpdateGradient,
    WeightsLink,
)

__all__ = [
    "LINKS",
    "AdvantageLink",
    "AnswerEffect",
    "BaselineLink",
    "Chain",
    "ChangeLink",
    "Check",
    "CriticNumbers",
    "EffectLink",
    "GradientLink",
    "LayerChange",
    "LinkName",
    "MemberAdvantage",
    "MemberBaseline",
    "MemberReward",
    "MemberScores",
    "MemberWeights",
    "RewardLink",
    "ScoreLine",
    "ScoresLink",
    "SftLink",
    "SharedStart",
    "SumTerm",
    "TokenEffect",
    "TokenPush",
    "UpdateGradient",
    "WeightsLink",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """All links of one group in one step; with `member`, one answer is the one that is followed.

    headlines  sentences made from the numbers
    num_prompts, num_answers  of the whole step
    chosen     the group or the answer was chosen here, as the one with the largest pushes
    influence  who moved what; None where it is not on record
    missing    what is not on record, and how to get it
    broken     the first link whose check fails; None when all pass
    absent     link -> why the program that trained did not write it down
    """

    folder: str
    step: int
    group: int
    member: int | None
    num_prompts: int
    num_answers: int
    chosen: bool
    algorithm: str
    prompt_id: str
    prompt: str
    gold: str
    headlines: tuple[str, ...]
    scores: ScoresLink
    reward: RewardLink
    baseline: BaselineLink
    advantage: AdvantageLink
    weights: WeightsLink | None
    gradient: GradientLink | None
    change: ChangeLink | None
    effect: EffectLink | None
    sft: SftLink | None
    influence: InfluenceLink | None
    missing: tuple[str, ...]
    broken: LinkName | None
    absent: Mapping[str, str] = field(default_factory=dict)

    @property
    def checks(self) -> tuple[Check, ...]:
        """The checks of all links on record, in order."""
        links = (getattr(self, name) for name in LINKS if name not in self.absent)
        return tuple(link.check for link in links if link is not None)

"""What an audit of a judge takes and gives: plain values, each number with its interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from toishi.ops.stats import Interval

Word = Literal["good", "usable", "unclear", "bad"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditItem:
    """One answer and what the judge said of it each time it was asked.

    prompt    which prompt it answers; answers to one prompt are siblings
    length    of the answer, in characters
    scores    one for each asking, None where there is no score
    failures  what kind of failure it was, in as many words as there are None in `scores`
    label     what is known of it: 1 right and 0 wrong, or a number on any scale; None = unknown
    source    "own" (by the model that judges, or its family), "other", or "" where that is not known
    """

    prompt: str
    length: int
    scores: tuple[float | None, ...]
    failures: tuple[str, ...] = ()
    label: float | None = None
    source: str = ""

    @property
    def first(self) -> float | None:
        """The first asking: what training would have used."""
        return self.scores[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class PairVerdict:
    """Two answers to one prompt, shown in both orders: "first", "second" or "tie" was preferred; None = not readable."""

    prompt: str
    forward: str | None
    backward: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """First score against label.

    base_rate       share of right answers; None for labels that are not 0 and 1
    raw, kappa      of score >= threshold with the label; for other labels only where both use one set of values (kappa is then
                    quadratic); None otherwise
    auc             chance that a right answer scores above a wrong one; None for labels that are not 0 and 1
    spearman, kendall, pearson, alpha  any labels; alpha is Krippendorff's for intervals, None unless all labels lie in [0, 1]
    calibration     expected calibration error of the score as a probability of being right; None where it is none
    map             (score, share right) of the best non-decreasing map: what a score means
    """

    count: int
    base_rate: float | None
    raw: Interval | None
    kappa: Interval | None
    auc: Interval | None
    spearman: Interval
    kendall: float
    pearson: float
    alpha: float | None
    calibration: float | None
    map: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistakes:
    """Error rates of score >= threshold against labels of 0 and 1.

    gap          expected advantage of a right answer minus that of a wrong one at the group size: J (1 - 1/G)
    wrong_signs  share of advantages in truly mixed groups whose sign is wrong or lost, at the base rate and group size
    """

    false_positive: Interval
    false_negative: Interval
    youden_j: Interval
    gap: float
    wrong_signs: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """What the order of two answers does.

    flips  share of pairs whose preference is not the same in both orders
    first  share of preferences that are for the answer shown first; .5 = none for the place; None when there are only ties
    """

    pairs: int
    unreadable: int
    flips: Interval | None
    first: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """Rank correlation of score and length in characters, alone and at equal label (None without labels)."""

    correlation: Interval
    at_equal_label: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnAnswers:
    """How much more the judge pays its own model's answers than others with the same label."""

    own: int
    other: int
    difference: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """What asking again changes.

    sd           standard deviation of one asking
    spread       standard deviation of true scores between siblings; None without siblings
    reliability  correlation of two askings within a prompt; None without siblings
    alpha        Krippendorff's alpha between askings, over all answers
    """

    askings: int
    sd: Interval
    spread: float | None
    reliability: Interval | None
    alpha: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipRow:
    """What noise does to advantages when `calls` askings are averaged.

    closed_form, simulated  share of wrong advantage signs: normal noise by formula; the judge's own deviations by drawing them
    best_not_first          share of groups whose best answer does not get the highest advantage
    correlation             of noisy and true advantages
    """

    calls: int
    noise_sd: float
    closed_form: float
    simulated: float
    best_not_first: float
    correlation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundOut:
    """One part of the verdict: a word by stated bands, and the numbers that it stands on."""

    part: Literal["replies", "agreement", "position", "length", "own answers", "noise"]
    word: Word
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """What an audit found; a part that could not be measured is None.

    asked, no_score  askings, and how many of them gave no score
    failures         how many of each kind
    used             what the askings cost: calls, tokens, and cost where a price is known
    tied_advantage   mean |advantage| that noise alone pays among equally good answers
    findings, word, advice  the verdict by part, the worst of it, and what to do
    """

    reward: str
    prompts: int
    answers: int
    group_size: int
    threshold: float
    asked: int
    no_score: int
    failures: Mapping[str, int]
    used: Mapping[str, float]
    agreement: Agreement | None
    mistakes: Mistakes | None
    position: Position | None
    length: Length | None
    own_answers: OwnAnswers | None
    noise: Noise | None
    sign_flips: tuple[FlipRow, ...]
    tied_advantage: float | None
    findings: tuple[FoundOut, ...] = ()
    word: Word = "unclear"
    advice: str = ""

    def as_record(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

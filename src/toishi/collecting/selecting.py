"""Prompts chosen by how often the model answers them rightly.

Decisions:
1. A pass rate is right answers over answers that have a score. A prompt none of whose answers has one is left out, and counted.
2. By default only what cannot teach by comparison goes: prompts that were always or never answered rightly. A band keeps what
   lies inside, ends included.
3. A measured rate is not the true one: 0 right of 8 has the interval [0, .32]. So rows carry theirs, and the forecast of mixed
   groups pulls every rate towards the common one (as `toishi.forecast` does), instead of believing what was selected by chance.
4. Copies, near-duplicates and overlap with evaluation sets are always reported. They go only when that is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from toishi.collecting.right import Right, in_between
from toishi.collecting.samples import Asked, Header
from toishi.collecting.texts import Overlap, alike_pairs, clusters, overlaps
from toishi.errors import ConfigError
from toishi.forecast import mixed_share, success_rates
from toishi.ops.stats import Interval, mean_interval, wilson

BINS = ((0.0, 0.0), (0.0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0), (1.0, 1.0))
MIN_PROMPTS = 10
SHOWN = 5
REASONS = {
    "unscored": "no answer has a score",
    "never_right": "no answer is right",
    "always_right": "every answer is right",
    "too_hard": "pass rate below the band",
    "too_easy": "pass rate above the band",
    "overlap": "an evaluation set holds it too",
    "duplicate": "alike to an earlier prompt",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectPlan:
    """What is kept.

    band      (lowest, highest) pass rate, both included; None = everything but never and always right
    drop_duplicates, drop_overlap  whether such prompts go
    """

    right: Right
    band: tuple[float, float] | None = None
    drop_duplicates: bool = False
    drop_overlap: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rated:
    """A prompt's pass rate: `right` of `scored` answers. `interval` is Wilson's, 95%; None without a scored answer."""

    asked: Asked
    right: int
    scored: int

    @property
    def rate(self) -> float | None:
        return self.right / self.scored if self.scored else None

    @property
    def interval(self) -> Interval | None:
        return wilson(self.right, self.scored) if self.scored else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """How many prompts have a pass rate of 0, above 0 and up to .25, ..., below 1, of exactly 1; the share's 95% interval."""

    name: str
    count: int
    share: Interval
    kept: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What was measured and what was kept.

    rate       mean pass rate with a 95% interval over prompts; its bounds are None with fewer than 10
    dropped    reason -> prompts, in the order in which reasons are looked for; a prompt is counted once
    truncated  share of answers that the token limit cut
    mixed      expected share of mixed groups of `group_size`: (all prompts, those kept); None where it cannot be said
    duplicates (row, the earlier row it is alike to, similarity); overlap: (row, evaluation set's row, how, similarity)
    """

    prompts: int
    answers: int
    unscored: int
    truncated: float
    right: str
    rate: float | None
    rate_interval: tuple[float, float] | None
    bins: tuple[Bin, ...]
    kept: int
    dropped: Mapping[str, int]
    group_size: int
    mixed: tuple[float, float] | None
    duplicates: tuple[tuple[str, str, float], ...]
    overlap: tuple[tuple[str, str, str, float], ...]
    compared_with: int
    notes: tuple[str, ...]

    @property
    def why_dropped(self) -> str:
        """Each reason and how many it took, in words."""
        return ", ".join(f"{count}: {REASONS[reason]}" for reason, count in self.dropped.items())

    def as_record(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """A prompt of an evaluation set: what it is called, and its text."""

    id: str
    text: str


def read_band(text: str) -> tuple[float, float]:
    """
    >>> read_band("0.2-0.8")
    (0.2, 0.8)
    """
    low, _, high = text.partition("-")
    try:
        band = float(low), float(high)
    except ValueError:
        band = (1.0, 0.0)
    if not 0 <= band[0] <= band[1] <= 1:
        raise ConfigError(f"--band: expected LOW-HIGH with 0 <= LOW <= HIGH <= 1, such as 0.2-0.8, got {text!r}")
    return band


def select(
    header: Header, asked: Sequence[Asked], plan: SelectPlan, evaluated: Sequence[Evaluated] = ()
) -> tuple[Selection, list[dict[str, Any]]]:
    """The report and the rows to write, in the order of the prompts."""
    rated = [_rated(one, plan.right) for one in asked]
    texts = [whole_text(one) for one in asked]
    pairs = alike_pairs(texts)
    first = clusters(len(texts), pairs)
    overlap = overlaps(texts, [one.text for one in evaluated])
    overlapping = {one.place for one in overlap}
    kept: list[Rated] = []
    taken: set[int] = set()
    dropped: Counter[str] = Counter()
    for place, one in enumerate(rated):
        reason = _reason(one, plan) or ("overlap" if plan.drop_overlap and place in overlapping else None)
        if reason is None and plan.drop_duplicates and first[place] in taken:
            reason = "duplicate"
        if reason is not None:
            dropped[reason] += 1
            continue
        taken.add(first[place])
        kept.append(one)
    found = _summary(header, rated, kept, plan, dropped)
    ids = [one.id for one in asked]
    duplicates = tuple((ids[other], ids[one], similarity) for one, other, similarity in pairs)
    report = Selection(
        **found,
        duplicates=duplicates,
        overlap=tuple((ids[one.place], evaluated[one.other].id, one.how, one.similarity) for one in overlap),
        compared_with=len(evaluated),
        notes=tuple(filter(None, [in_between(plan.right, asked), *_warnings(duplicates, overlap, plan)])),
    )
    return report, [_row(header, one, plan.right) for one in kept]


def whole_text(asked: Asked) -> str:
    """All turns of a prompt."""
    return asked.prompt if isinstance(asked.prompt, str) else "\n".join(turn["content"] for turn in asked.prompt)


def _rated(asked: Asked, right: Right) -> Rated:
    verdicts = [verdict for answer in asked.answers if (verdict := right(answer)) is not None]
    return Rated(asked=asked, right=sum(verdicts), scored=len(verdicts))


def _reason(one: Rated, plan: SelectPlan) -> str | None:
    rate = one.rate
    if rate is None:
        return "unscored"
    if plan.band is None:
        return "never_right" if rate == 0 else "always_right" if rate == 1 else None
    return "too_hard" if rate < plan.band[0] else "too_easy" if rate > plan.band[1] else None


def _summary(
    header: Header, rated: Sequence[Rated], kept: Sequence[Rated], plan: SelectPlan, dropped: Mapping[str, int]
) -> dict[str, Any]:
    answers = [answer for one in rated for answer in one.asked.answers]
    rates = [one.rate for one in rated if one.rate is not None]
    spread = mean_interval(rates) if len(rates) >= MIN_PROMPTS else None
    group_size = int(header.config["train"]["group_size"])
    return {
        "prompts": len(rated),
        "answers": len(answers),
        "unscored": len(answers) - sum(one.scored for one in rated),
        "truncated": sum(answer.finish_reason == "length" for answer in answers) / max(1, len(answers)),
        "right": plan.right.words,
        "rate": sum(rates) / len(rates) if rates else None,
        "rate_interval": None if spread is None else (spread.low, spread.high),
        "bins": _bins(rates, [one.rate for one in kept if one.rate is not None]),
        "kept": len(kept),
        "dropped": {reason: dropped[reason] for reason in REASONS if reason in dropped},
        "group_size": group_size,
        "mixed": _mixed(rated, kept, group_size),
    }


def _bins(rates: Sequence[float], kept: Sequence[float]) -> tuple[Bin, ...]:
    def inside(values: Sequence[float], low: float, high: float) -> int:
        if low == high:
            return sum(value == low for value in values)
        return sum(low < value <= high and value < 1 for value in values)

    return tuple(
        Bin(
            name=f"{low:g}" if low == high else f"{low:g} to {high:g}",
            count=inside(rates, low, high),
            share=wilson(inside(rates, low, high), len(rates)),
            kept=inside(kept, low, high),
        )
        for low, high in BINS
        if rates
    )


def _mixed(rated: Sequence[Rated], kept: Sequence[Rated], group_size: int) -> tuple[float, float] | None:
    scored = [one for one in rated if one.scored]
    shrunk = success_rates([[1.0] * one.right + [0.0] * (one.scored - one.right) for one in scored])
    if not shrunk or not kept:
        return None
    of = {one.asked.number: rate for one, rate in zip(scored, shrunk, strict=True)}
    return mixed_share(shrunk, group_size), mixed_share([of[one.asked.number] for one in kept], group_size)


def _warnings(duplicates: Sequence[object], overlap: Sequence[Overlap], plan: SelectPlan) -> list[str]:
    found = []
    if duplicates and not plan.drop_duplicates:
        found.append("near-duplicates are kept; --drop-duplicates keeps the first of each")
    if overlap and not plan.drop_overlap:
        found.append(
            "prompts that an evaluation set holds too are kept, and would make its numbers look better; --drop-overlap"
        )
    return found


def _row(header: Header, one: Rated, right: Right) -> dict[str, Any]:
    """The row as it stood in the data, with `id` and `prompt` where it had none, and what was measured."""
    asked, interval = one.asked, one.interval
    prompt = asked.prompt if isinstance(asked.prompt, str) else [dict(turn) for turn in asked.prompt]
    measured = {
        "pass_rate": one.rate,
        "pass_rate_interval": None if interval is None else [interval.low, interval.high],
        "pass_rate_source": {"right": one.right, "scored": one.scored, "rule": right.words} | header.provenance,
    }
    return {"id": asked.id, "prompt": prompt} | dict(asked.columns) | measured

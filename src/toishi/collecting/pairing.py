"""Preference pairs out of sampled answers: by their rewards, or by a judge that compares them in both orders.

Decisions:
1. Candidates of a prompt are its best answer with its worst, the second best with the second worst, and so on. An answer cut at
   the limit is never chosen by its reward alone, and no pair has two equal texts. Equal is sign for sign: a program that is
   right and one that is wrong may differ by an indentation.
2. A judge decides as in DeepSeek-R1's preference data (arXiv 2501.12948; 4 calls a pair in random order, averaged, kept where
   |difference| > 1, lengths balanced). Orders are not drawn here: half of the calls show each order, so a judge that likes a
   place contributes 0.
3. Where the rewards differ and the judge prefers the answer with the lower one, one of them errs: the pair is dropped.
4. Lengths: pairs whose chosen answer is longer (or shorter) by most go first, until the mean lengths differ by at most 5%.
   DPO makes much of a difference in length (Park et al. 2024, "Disentangling length from quality in DPO", arXiv 2403.19159).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from toishi.collecting.samples import Asked, Header
from toishi.collecting.verdicts import Candidate, Verdict

LENGTH_TOLERANCE = 0.05
REASONS = {
    "too_few": "fewer than two scored answers",
    "same_text": "both answers are the same text",
    "cut": "the better answer is cut at the token limit",
    "unread": "fewer than half of the judge's calls could be read",
    "judge_against_reward": "the judge prefers the answer with the lower reward",
    "close": "margin not above --min-margin",
    "balance": "taken out so that chosen and rejected are equally long",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPlan:
    """Which pairs are made.

    per_prompt  candidates of each prompt, at most
    min_margin  a pair's margin has to be above it; of rewards their difference, of a judge see `Verdict.margin`
    balance     whether lengths are balanced
    """

    per_prompt: int = 1
    min_margin: float = 0.0
    balance: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A preference. `margin` is above 0."""

    candidate: Candidate
    chosen: int
    rejected: int
    margin: float
    verdict: Verdict | None = None

    @property
    def longer_by(self) -> int:
        """Tokens of the chosen answer above those of the rejected one."""
        chosen, rejected = _tokens(self)
        return chosen - rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Mean tokens of chosen and rejected answers, and the share of pairs whose chosen answer is the longer one."""

    chosen: float
    rejected: float
    longer: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """What was made and what was not. `dropped` is reason -> candidates (prompts, for too_few).

    first_shown  share of the judge's decided calls that preferred the answer shown first; None without a judge
    """

    prompts: int
    candidates: int
    kept: int
    dropped: Mapping[str, int]
    by: str
    before: Lengths | None
    after: Lengths | None
    first_shown: float | None

    @property
    def why_dropped(self) -> str:
        """Each reason and how many it took, in words."""
        return ", ".join(f"{count}: {REASONS[reason]}" for reason, count in self.dropped.items())

    def as_record(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def candidates(asked: Sequence[Asked], plan: PairPlan) -> tuple[list[Candidate], Counter[str]]:
    """The pairs worth a look, and why others are none."""
    found: list[Candidate] = []
    dropped: Counter[str] = Counter()
    for one in asked:
        scored = [member for member, answer in enumerate(one.answers) if answer.reward is not None]
        ranked = sorted(scored, key=lambda member: (-(one.answers[member].reward or 0.0), member))
        if len(ranked) < 2:
            dropped["too_few"] += 1
        for place in range(min(plan.per_prompt, len(ranked) // 2)):
            pair = Candidate(asked=one, first=ranked[place], second=ranked[-1 - place])
            first, second = pair.answers
            if first.text == second.text:
                dropped["same_text"] += 1
            else:
                found.append(pair)
    return found, dropped


def pair_up(
    header: Header, asked: Sequence[Asked], plan: PairPlan, *, by: str, verdicts: Mapping[str, Verdict] | None = None
) -> tuple[Paired, list[dict[str, Any]]]:
    """The report and the rows to write, in the order of the prompts.

    by        who decides, for the record: a judge's name, or "reward"
    verdicts  a judge's, by the candidates' keys; None = the rewards decide
    """
    found, dropped = candidates(asked, plan)
    total = len(found)
    pairs: list[Pair] = []
    for one in found:
        decided = _by_reward(one, plan) if verdicts is None else _by_judge(one, verdicts[one.key], plan)
        if isinstance(decided, Pair):
            pairs.append(decided)
        else:
            dropped[decided] += 1
    kept = balanced(pairs) if plan.balance else pairs
    if len(kept) < len(pairs):
        dropped["balance"] = len(pairs) - len(kept)
    report = Paired(
        prompts=len(asked),
        candidates=total,
        kept=len(kept),
        dropped={reason: dropped[reason] for reason in REASONS if dropped[reason]},
        by=by,
        before=lengths(pairs),
        after=lengths(kept),
        first_shown=None if verdicts is None else _first_shown([verdicts[one.key] for one in found]),
    )
    return report, [_row(header, pair, by) for pair in kept]


def _by_reward(one: Candidate, plan: PairPlan) -> Pair | str:
    if not one.difference > plan.min_margin:
        return "close"
    if one.answers[0].finish_reason == "length":
        return "cut"
    return Pair(candidate=one, chosen=one.first, rejected=one.second, margin=one.difference)


def _by_judge(one: Candidate, verdict: Verdict, plan: PairPlan) -> Pair | str:
    margin = verdict.margin
    if margin is None:
        return "unread"
    if margin < 0 < one.difference:
        return "judge_against_reward"
    if not abs(margin) > plan.min_margin:
        return "close"
    chosen, rejected = (one.first, one.second) if margin > 0 else (one.second, one.first)
    return Pair(candidate=one, chosen=chosen, rejected=rejected, margin=abs(margin), verdict=verdict)


def _first_shown(verdicts: Sequence[Verdict]) -> float | None:
    shown = [
        value if order == 0 else -value for one in verdicts for value, order in zip(one.said, one.orders, strict=True) if value
    ]
    return sum(value > 0 for value in shown) / len(shown) if shown else None


def balanced(pairs: Sequence[Pair], tolerance: float = LENGTH_TOLERANCE) -> list[Pair]:
    """Pairs in order, without those that make chosen answers longer (or shorter) than rejected ones by more than `tolerance`.

    Of the side with the surplus the greatest differences go first, of equal ones the smallest margin, and none that would turn
    the surplus round.
    """
    surplus = sum(pair.longer_by for pair in pairs)
    sign = 1 if surplus > 0 else -1
    left, tokens = abs(surplus), sum(sum(_tokens(pair)) for pair in pairs)
    gone: set[int] = set()
    order = sorted(range(len(pairs)), key=lambda place: (-sign * pairs[place].longer_by, pairs[place].margin))
    for place in order:
        away = sign * pairs[place].longer_by
        if left <= tolerance * tokens / 2 or away <= 0:
            break
        if away <= left:
            gone.add(place)
            left -= away
            tokens -= sum(_tokens(pairs[place]))
    return [pair for place, pair in enumerate(pairs) if place not in gone]


def _tokens(pair: Pair) -> tuple[int, int]:
    answers = pair.candidate.asked.answers
    return answers[pair.chosen].tokens, answers[pair.rejected].tokens


def lengths(pairs: Sequence[Pair]) -> Lengths | None:
    """None without pairs."""
    if not pairs:
        return None
    tokens = [_tokens(pair) for pair in pairs]
    return Lengths(
        chosen=sum(chosen for chosen, _ in tokens) / len(tokens),
        rejected=sum(rejected for _, rejected in tokens) / len(tokens),
        longer=sum(chosen > rejected for chosen, rejected in tokens) / len(tokens),
    )


def _row(header: Header, pair: Pair, by: str) -> dict[str, Any]:
    asked = pair.candidate.asked
    chosen, rejected = asked.answers[pair.chosen], asked.answers[pair.rejected]
    source: dict[str, Any] = {"id": asked.id, "prompt_number": asked.number, "chosen_member": pair.chosen}
    source |= {"rejected_member": pair.rejected, "by": by} | header.provenance
    said = {} if pair.verdict is None else {"calls": _for_chosen(pair, pair.verdict)}
    prefill = {"prefill": asked.prefill} if asked.prefill else {}
    return {
        **asked.asked,
        **prefill,
        "chosen": chosen.text,
        "rejected": rejected.text,
        "margin": pair.margin,
        **said,
        "chosen_reward": chosen.reward,
        "rejected_reward": rejected.reward,
        "chosen_tokens": chosen.tokens,
        "rejected_tokens": rejected.tokens,
        "source": source,
    }


def _for_chosen(pair: Pair, verdict: Verdict) -> list[float | None]:
    """The calls, above 0 for the chosen answer."""
    sign = 1.0 if pair.chosen == pair.candidate.first else -1.0
    return [None if value is None else value * sign + 0.0 for value in verdict.said]

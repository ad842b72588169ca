"""Rejection sampling: of the answers of a model those that are good enough to be learnt from.

Decisions:
1. An answer is dropped for the first reason that holds, in the order of `REASONS`, and is counted under it. So the counts add
   up to all answers: kept + dropped = sampled.
2. What is wrong with an answer by itself (no score, cut, empty, unreadable, too long, another language) goes before answers are
   compared with their siblings (copies, best of n).
3. Of equal answers the first sampled one stays: taking the shorter one would teach shortness.
4. A language that cannot be told (too few words, as in "12") is no reason to drop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from toishi.collecting.right import Right, in_between
from toishi.collecting.samples import Answer, Asked, Header
from toishi.collecting.texts import alike_pairs, words_of
from toishi.rewards.language import LanguageReward
from toishi.rewards.scripted import answered
from toishi.types import Prompt

Keep = Literal["right", "best", "top", "all"]
Dedup = Literal["exact", "words", "near", "off"]
REASONS = {
    "unscored": "a reward gave no score",
    "truncated": "cut at the token limit",
    "empty": "no text",
    "unreadable": "no answer in the asked-for form",
    "low_reward": "reward below --min-reward",
    "wrong": "not right",
    "too_short": "fewer tokens than --min-tokens",
    "too_long": "more tokens than --max-tokens",
    "language": "too few words in the language",
    "copy": "the same text as an earlier answer to the prompt",
    "same_words": "the same words as an earlier answer to the prompt, but for case and spacing",
    "alike": "nearly the same words as an earlier answer to the prompt",
    "not_best": "others to the prompt have a higher reward",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepPlan:
    """What is kept.

    keep        "right": every right answer; "best": the one with the highest reward; "top": the `top` highest; "all"
    right       needed for keep "right"
    min_reward  of the whole reward; None = any
    min_tokens, max_tokens  of an answer, the stop token included
    truncated   whether answers that the limit cut may stay; unreadable likewise
    dedup       among the answers to one prompt: copies, sign for sign ("exact"), those with the same words whatever their case
                and spacing ("words": two programs may differ by an indentation), near-duplicates too ("near"), or none ("off")
    language    two-letter code of the reward `language`; at least `language_share` of the words have to be in it
    """

    keep: Keep = "right"
    right: Right | None = None
    top: int = 4
    min_reward: float | None = None
    min_tokens: int = 0
    max_tokens: int | None = None
    truncated: bool = False
    unreadable: bool = False
    dedup: Dedup = "exact"
    language: str | None = None
    language_share: float = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What was kept and what was not.

    dropped   reason -> answers; kept + all dropped = answers
    prompts_kept  prompts with at least one kept answer
    reward_before, reward_after  mean reward of scored answers and of kept ones; None without any
    tokens_before, tokens_after  mean length, tokens
    """

    prompts: int
    answers: int
    kept: int
    prompts_kept: int
    dropped: Mapping[str, int]
    reward_before: float | None
    reward_after: float | None
    tokens_before: float | None
    tokens_after: float | None
    notes: tuple[str, ...]

    @property
    def why_dropped(self) -> str:
        """Each reason and how many it took, in words."""
        return ", ".join(f"{count}: {REASONS[reason]}" for reason, count in self.dropped.items())

    def as_record(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def keep(header: Header, asked: Sequence[Asked], plan: KeepPlan) -> tuple[Kept, list[dict[str, Any]]]:
    """The report and the rows to write: in the order of the prompts, and of their answers.

    Raises ConfigError for an unknown language.
    """
    language = None if plan.language is None else LanguageReward(language=plan.language)
    dropped: Counter[str] = Counter()
    rows, kept = [], []
    for one in asked:
        stays, why = kept_of(one, plan, language)
        dropped.update(why)
        kept += [one.answers[member] for member in stays]
        rows += [_row(header, one, member) for member in stays]
    everything = [answer for one in asked for answer in one.answers]
    note = "" if plan.right is None or plan.keep != "right" else in_between(plan.right, asked)
    report = Kept(
        prompts=len(asked),
        answers=len(everything),
        kept=len(kept),
        prompts_kept=len({row["source"]["prompt_number"] for row in rows}),
        dropped={reason: dropped[reason] for reason in REASONS if reason in dropped},
        reward_before=_mean([answer.reward for answer in everything if answer.reward is not None]),
        reward_after=_mean([answer.reward for answer in kept if answer.reward is not None]),
        tokens_before=_mean([float(answer.tokens) for answer in everything]),
        tokens_after=_mean([float(answer.tokens) for answer in kept]),
        notes=(note,) if note else (),
    )
    return report, rows


def kept_of(asked: Asked, plan: KeepPlan, language: LanguageReward | None = None) -> tuple[list[int], list[str]]:
    """Members that stay, ascending, and the reason of each that does not.

    >>> answers = [Answer(text=t, tokens=2, finish_reason="stop", reward=r) for t, r in (("4", 1.0), ("4", 1.0), ("5", 0.0))]
    >>> kept_of(Asked(number=0, id="a", prompt="2 + 2?", answers=tuple(answers)), KeepPlan(keep="best"))
    ([0], ['copy', 'not_best'])
    """
    reasons = [_fault(answer, plan, language) for answer in asked.answers]
    dropped = [reason for reason in reasons if reason is not None]
    stays = [member for member, reason in enumerate(reasons) if reason is None]
    ranked = sorted(stays, key=lambda member: (-(asked.answers[member].reward or 0.0), member))
    ranked, copies = _without_copies(asked, ranked, plan.dedup)
    limit = {"best": 1, "top": plan.top}.get(plan.keep, len(ranked))
    return sorted(ranked[:limit]), [*dropped, *copies, *["not_best"] * len(ranked[limit:])]


def _fault(answer: Answer, plan: KeepPlan, language: LanguageReward | None) -> str | None:
    """Why an answer cannot stay, whatever its siblings are."""
    checks = (
        ("unscored", answer.reward is None),
        ("truncated", answer.finish_reason == "length" and not plan.truncated),
        ("empty", not answer.text.strip()),
        ("unreadable", answer.readable is False and not plan.unreadable),
        ("low_reward", plan.min_reward is not None and (answer.reward or 0.0) < plan.min_reward),
        ("wrong", plan.keep == "right" and plan.right is not None and not plan.right(answer)),
        ("too_short", answer.tokens < plan.min_tokens),
        ("too_long", plan.max_tokens is not None and answer.tokens > plan.max_tokens),
    )
    first = next((reason for reason, holds in checks if holds), None)
    if first is None and language is not None and _foreign(answer.text, plan, language):
        return "language"
    return first


def _foreign(text: str, plan: KeepPlan, language: LanguageReward) -> bool:
    share = language.score_group(Prompt(id="", text=""), [answered(text)])[0][0].value
    return share is not None and share < plan.language_share


def _without_copies(asked: Asked, ranked: Sequence[int], dedup: Dedup) -> tuple[list[int], list[str]]:
    """The members without those that repeat an earlier one of the ranking, and the reasons of these."""
    if dedup == "off":
        return list(ranked), []
    texts = [asked.answers[member].text for member in ranked]
    pairs = alike_pairs(texts) if dedup == "near" else []
    stays: list[int] = []
    reasons: list[str] = []
    seen_texts: set[str] = set()
    seen_words: set[tuple[str, ...]] = set()
    gone: set[int] = set()
    for place, text in enumerate(texts):
        words = words_of(text) if dedup == "words" else ()
        near = any(other == place and one not in gone for one, other, _ in pairs)
        reason = "copy" if text in seen_texts else "same_words" if words in seen_words else "alike" if near else None
        if reason is not None:
            reasons.append(reason)
            gone.add(place)
            continue
        seen_texts.add(text)
        seen_words |= {words} if dedup == "words" else set()
        stays.append(ranked[place])
    return stays, reasons


def _row(header: Header, asked: Asked, member: int) -> dict[str, Any]:
    answer = asked.answers[member]
    source = {"id": asked.id, "prompt_number": asked.number, "member": member} | header.provenance
    prefill = {"prefill": asked.prefill} if asked.prefill else {}
    return {
        **asked.asked,
        **prefill,
        "completion": answer.text,
        "reward": answer.reward,
        "scores": dict(answer.scores),
        "tokens": answer.tokens,
        "source": source,
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None

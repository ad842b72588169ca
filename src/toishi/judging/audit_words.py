"""An audit's numbers as words: one for each part by stated bands, the worst of them, and what to do.

Decisions:
1. Words stand on intervals, not on estimates: "good" and "usable" need the whole interval inside their band, "bad" the whole
   interval outside. What lies between is "unclear", which few answers nearly always are.
2. From 30 labels on, agreement that cannot be told from guessing is "bad": a judge that is any good would have shown it.
3. Agreement is judged by J = 1 - FPR - FNR, which is kappa at a base rate of one half and does not move with the base rate.
4. Without labels nothing is good: noise and biases can only speak against a judge.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from toishi.judging.audit_parts import AuditReport, FoundOut, Word
from toishi.ops.stats import Interval

GOOD_J, USABLE_J = 0.6, 0.4
GOOD_RANKS, USABLE_RANKS = 0.7, 0.5
GOOD_RELIABILITY, USABLE_RELIABILITY = 0.8, 0.5
GOOD_FAILED, USABLE_FAILED = 0.02, 0.10
GOOD_FLIPS, USABLE_FLIPS = 0.20, 0.35
MAX_FIRST = 0.60
MAX_LENGTH = 0.30
MAX_OWN = 0.10
ENOUGH = 30
_ORDER: tuple[Word, ...] = ("bad", "unclear", "usable", "good")


def findings(report: AuditReport) -> tuple[FoundOut, ...]:
    """One for each part that was measured, and one for agreement in any case."""
    return (
        _replies(report),
        _agreement(report),
        *_position(report),
        *_length(report),
        *_own_answers(report),
        *_noise(report),
    )


def worst(found: Sequence[FoundOut]) -> Word:
    """
    >>> worst([FoundOut(part="noise", word="usable", why=""), FoundOut(part="length", word="unclear", why="")])
    'unclear'
    """
    return next(word for word in _ORDER if any(one.word == word for one in found))


def advice(report: AuditReport, found: Sequence[FoundOut]) -> str:
    """One sentence: what to do about the worst of what was found."""
    word = worst(found)
    parts = [one.part for one in found if one.word == word]
    part = "noise" if word == "usable" and "noise" in parts else parts[0]
    if word == "good":
        return "Nothing speaks against it; keep a measure that it never sees, and audit again when the answers have changed."
    if part == "agreement":
        return _about_agreement(report, word)
    if part == "noise":
        return _about_noise(report)
    return _ADVICE[part]


_ADVICE = {
    "replies": "Mend the replies first: ask for less text, raise max_tokens, or take a judge that keeps to the form.",
    "position": "The place of an answer decides: count a disagreement of both orders as a tie, or use another judge.",
    "length": "Length is paid: show it the answer without the reasoning, say what length is right, or add a length reward.",
    "own answers": "Take a judge of another family than the policy: it favours its own.",
}


def _about_agreement(report: AuditReport, word: Word) -> str:
    agreement = report.agreement
    if agreement is None:
        return "Give it answers with labels (--labels FILE, or --against a checker): without, nobody knows whether it is right."
    if word == "bad":
        return "Do not train with it: use a larger judge, give it the right answer to compare with, or a checker in its place."
    if word == "unclear":
        return f"Label more answers: {agreement.count} are too few to tell, and about {_needed(report)} would do."
    return "It can teach, more slowly than a checker would: take more prompts a step, and watch a measure that it never sees."


def _needed(report: AuditReport) -> int:
    """Labels for an interval half as wide as the usable band: widths fall with the square root of their number."""
    agreement, mistakes = report.agreement, report.mistakes
    assert agreement is not None
    seen = agreement.spearman if mistakes is None else mistakes.youden_j
    width = seen.high - seen.low
    if not math.isfinite(width):
        return max(100, 2 * agreement.count)
    times = max(1.0, (width / (GOOD_J - USABLE_J)) ** 2)
    return max(50, 10 * math.ceil(agreement.count * times / 10))


def _about_noise(report: AuditReport) -> str:
    noise, rows = report.noise, report.sign_flips
    assert noise is not None
    if not rows:
        return "Its noise explains all differences between siblings: averaging calls will not help, another question may."
    single = rows[0].closed_form
    better = next((row for row in rows[1:] if row.closed_form <= single * 2 / 3), rows[-1])
    return (
        f"Noise {noise.sd.value:.2g} against a spread of {_spread(noise.spread)} between siblings: {single:.0%} of the "
        f"advantage signs at G={report.group_size} are wrong; average {better.calls} calls ({better.closed_form:.0%}), or "
        f"state noise: {noise.sd.value:.2g} so that smaller differences count as ties."
    )


def _spread(spread: float | None) -> str:
    """
    >>> _spread(0.1234), _spread(None)
    ('0.12', '-')
    """
    return "-" if spread is None else f"{spread:.2g}"


def _band(seen: Interval, good: float, usable: float) -> Word:
    """For a number of which more is better.

    >>> [_band(Interval(*bounds), 0.6, 0.4) for bounds in ((0.7, 0.65, 0.8), (0.5, 0.3, 0.7), (0.1, 0.0, 0.3))]
    ['good', 'unclear', 'bad']
    """
    if seen.low >= good:
        return "good"
    if seen.low >= usable:
        return "usable"
    return "bad" if seen.high < usable else "unclear"


def _replies(report: AuditReport) -> FoundOut:
    share = report.no_score / report.asked
    word: Word = "good" if share <= GOOD_FAILED else "usable" if share <= USABLE_FAILED else "bad"
    kinds = ", ".join(f"{kind} {count}" for kind, count in report.failures.items())
    return FoundOut(
        part="replies", word=word, why=f"{share:.0%} of {report.asked} gave no score" + (f" ({kinds})" if kinds else "")
    )


def _agreement(report: AuditReport) -> FoundOut:
    found, mistakes = report.agreement, report.mistakes
    if found is None:
        return FoundOut(part="agreement", word="unclear", why="there are no labels to compare with")
    if mistakes is None and found.base_rate is not None:
        return FoundOut(part="agreement", word="unclear", why=f"all {found.count} labels are equal: right and wrong are needed")
    seen, name = (found.spearman, "rank correlation") if mistakes is None else (mistakes.youden_j, "J")
    bands = (GOOD_RANKS, USABLE_RANKS) if mistakes is None else (GOOD_J, USABLE_J)
    if not math.isfinite(seen.value):
        return FoundOut(part="agreement", word="bad", why="it says the same of every answer")
    word = _band(seen, *bands)
    numbers = f"{name} {_shown(seen)} on {found.count} labels"
    if seen.low <= 0 and word != "good":
        word = "bad" if found.count >= ENOUGH or word == "bad" else "unclear"
        return FoundOut(part="agreement", word=word, why=f"{numbers}: cannot be told from guessing")
    return FoundOut(part="agreement", word=word, why=numbers)


def _position(report: AuditReport) -> Iterator[FoundOut]:
    seen = report.position
    if seen is None or seen.flips is None:
        return
    why = f"{_shown(seen.flips)} of {seen.pairs} pairs change when swapped"
    word: Word = "good" if seen.flips.high <= GOOD_FLIPS else "usable" if seen.flips.high <= USABLE_FLIPS else "unclear"
    if seen.flips.low > USABLE_FLIPS:
        word = "bad"
    if seen.first is not None:
        why += f"; first is preferred {_shown(seen.first)}"
        if seen.first.low > MAX_FIRST or seen.first.high < 1 - MAX_FIRST:
            word = "bad"
    yield FoundOut(part="position", word=word, why=why)


def _length(report: AuditReport) -> Iterator[FoundOut]:
    seen = report.length
    if seen is None:
        return
    if seen.at_equal_label is None:
        yield FoundOut(
            part="length", word="unclear", why=f"{_shown(seen.correlation)}; without labels, merit is not told apart"
        )
    elif math.isfinite(seen.at_equal_label.value):
        yield FoundOut(
            part="length", word=_near_zero(seen.at_equal_label, MAX_LENGTH), why=_shown(seen.at_equal_label, "at equal label")
        )


def _own_answers(report: AuditReport) -> Iterator[FoundOut]:
    seen = report.own_answers
    if seen is not None and math.isfinite(seen.difference.value):
        word: Word = "good" if seen.difference.high <= MAX_OWN else "bad" if seen.difference.low > MAX_OWN else "unclear"
        yield FoundOut(part="own answers", word=word, why=_shown(seen.difference, "more at equal label"))


def _noise(report: AuditReport) -> Iterator[FoundOut]:
    seen = report.noise
    if seen is None:
        return
    if seen.sd.value == 0:
        yield FoundOut(part="noise", word="good", why=f"the same score in all {seen.askings} askings")
    elif seen.reliability is None:
        yield FoundOut(
            part="noise", word="unclear", why=f"sd {seen.sd.value:.2g}; no prompt has two answers to compare it with"
        )
    else:
        why = f"sd {seen.sd.value:.2g}, spread {_spread(seen.spread)}, reliability {_shown(seen.reliability)}"
        yield FoundOut(part="noise", word=_band(seen.reliability, GOOD_RELIABILITY, USABLE_RELIABILITY), why=why)


def _near_zero(seen: Interval, limit: float) -> Word:
    if -limit <= seen.low and seen.high <= limit:
        return "good"
    return "bad" if seen.low > limit or seen.high < -limit else "unclear"


def _shown(seen: Interval, words: str = "") -> str:
    """
    >>> _shown(Interval(0.5, 0.25, 0.75), "of them"), _shown(Interval(0.5, math.nan, math.nan))
    ('.50 [.25, .75] of them', '.50')
    """
    bounds = f" [{_short(seen.low)}, {_short(seen.high)}]" if math.isfinite(seen.low) else ""
    return f"{_short(seen.value)}{bounds} {words}".strip()


def _short(value: float) -> str:
    return f"{value:.2f}".replace("0.", ".", 1) if abs(value) < 0.995 else f"{value:.2f}"

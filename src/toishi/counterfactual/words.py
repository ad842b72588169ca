"""The answer in sentences; every number in them is the answer's own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from toishi.counterfactual.change import Change
from toishi.counterfactual.model import AnswerChange, Moved, WhatIf

NAMED = 2


def question_in_words(change: Change) -> str:
    """
    >>> from toishi.counterfactual.change import change_of
    >>> question_in_words(change_of({3: 9.0, "style:1": 0.5}, [2], {"algorithm.scale": "none"}))
    'If #3 had scored 9, #1 had got 0.5 from style, #2 had been left out and algorithm.scale had been none'
    """
    parts = [
        f"#{score.member} had scored {score.value:g}"
        if score.reward is None
        else f"#{score.member} had got {score.value:g} from {score.reward}"
        for score in change.scores
    ]
    parts += [f"#{member} had been left out" for member in change.drop]
    parts += [f"{key} had been {'null' if value is None else value}" for key, value in change.settings.items()]
    if not parts:
        return "If nothing had been changed"
    return f"If {', '.join(parts[:-1])}{' and ' if parts[1:] else ''}{parts[-1]}"


def times(nats: float) -> str:
    """A change of log-prob as the factor of the probability.

    >>> times(0.0), times(0.96), times(-0.39), times(6.0), times(-9.0)
    ('1x', '2.61x', '0.677x', '403x', '0.000123x')
    """
    return f"{math.exp(nats):.3g}x"


def interval(moved: Moved) -> str:
    """The forecast's lower and upper end.

    >>> interval(Moved(kind="rollout", group=0, member=1, measured=0.1, forecast=0.0, half_width=0.1,
    ...                verdict="direction not determined"))
    '0.905x to 1.11x'
    """
    assert moved.forecast is not None
    assert moved.half_width is not None
    return f"{times(moved.forecast - moved.half_width)} to {times(moved.forecast + moved.half_width)}"


def sentences(found: WhatIf) -> Iterator[str]:
    """What the table comes to."""
    if found.tied:
        yield (
            "Nothing would be left to compare in this group: every advantage is 0, so none of its answers would push. They "
            "would still be moved by what other groups, KL and the optimizer's memory do."
        )
    if found.refused:
        yield f"Probabilities are not forecast: {found.refused}."
    elif found.trust == "too_far":
        yield "The step is too large for a linear story: no number is given. Redo it with --real."
    elif found.skipped:
        yield "No answer of the step would be learned from, so no optimizer step would be made and nothing would move."
    else:
        yield from _forecasts(found)
    if found.redone is not None and not found.redone.agrees:
        yield (
            f"The step as recorded did not come out again ({found.redone.difference}), so `real` is of a slightly different "
            "step than `measured`."
        )
    yield from _clipping(found)
    yield from _elsewhere(found)


def _forecasts(found: WhatIf) -> Iterator[str]:
    asked = {score["member"] for score in found.change["scores"]} | set(found.change["drop"])
    able = [each for each in found.answers if each.moved.forecast is not None]
    first = [each for each in able if each.member in asked]
    rest = sorted((each for each in able if each.member not in asked), key=_distance, reverse=True)
    named = [*first, *rest[: max(1, NAMED - len(first))]] if first else rest[:NAMED]
    if named:
        yield f"{found.question}: {'; '.join(_went(each.moved) for each in named)}."
    unsure = [f"#{each.member}" for each in able if each.moved.verdict == "direction not determined"]
    if unsure:
        yield f"Direction not determined for {', '.join(unsure)}: the forecast change is smaller than its bar."
    if found.redone is None:
        yield "A forecast is an estimate, its bar no guarantee; --real does the step again."


def _distance(each: AnswerChange) -> float:
    moved = each.moved
    return abs((moved.forecast or 0.0) - (moved.measured or 0.0))


def _went(moved: Moved) -> str:
    assert moved.measured is not None
    assert moved.forecast is not None
    real = "" if moved.real is None else f"; really redone: {times(moved.real)}"
    if moved.verdict == "direction not determined":
        return f"#{moved.member} would go from {times(moved.measured)} to somewhere in {interval(moved)}{real}"
    return (
        f"#{moved.member} would go from {times(moved.measured)} to {times(moved.forecast)} (estimate, {interval(moved)}{real})"
    )


def _clipping(found: WhatIf) -> Iterator[str]:
    before, after = found.clip_factor
    if before is not None and after is not None and abs(after - before) > 1e-3 * before and not found.skipped:
        yield (
            f"All answers of the step share the gradient's clipping: its factor goes from {before:.3g} to {after:.3g} "
            f"(norm {_number(found.gradient_norm[0])} to {_number(found.gradient_norm[1])})."
        )


def _elsewhere(found: WhatIf) -> Iterator[str]:
    outside = [one for one in found.others if one.forecast is not None and one.kind == "rollout"]
    if outside:
        yield f"{len(outside)} answers of other groups: {_spread(outside)}."
    watched = [one for one in found.others if one.forecast is not None and one.kind != "rollout"]
    if watched:
        yield f"{len(watched)} texts that were not sampled: {_spread(watched)}."


def _spread(moved: Sequence[Moved]) -> str:
    by = [(one.forecast or 0.0) - (one.measured or 0.0) for one in moved]
    most = max(range(len(moved)), key=lambda place: abs(by[place]))
    one = moved[most]
    place = "" if one.group is None else f" {one.group}/{one.member}" if one.member is not None else f" of group {one.group}"
    name = f"{'' if one.kind == 'rollout' else one.kind.replace('_', ' ')}{place}".strip()
    return (
        f"on average {_mean(by):+.3f} nats from what was measured; most {name}, {times(one.measured or 0.0)} to "
        f"{times(one.forecast or 0.0)}"
    )


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return math.fsum(listed) / len(listed)


def _number(value: float | None) -> str:
    return "?" if value is None else f"{value:.3g}"

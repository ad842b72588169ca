"""What every answer's gradient would have been multiplied by: exact, for an update at its recorded weights.

Decisions:
1. Weights come from the library's own objective, as those of the account did; no algorithm is known here by name.
2. The account holds the gradient of each whole answer, and of the direction along which it was learned from. A change that
   would push along another direction (weights that vary inside an answer and vary otherwise) is beyond the record, and said so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from toishi.record.influence import Influence, TextInfluence
from toishi.tracing.influence.rows import Rows, make_rows, token_pushes
from toishi.tracing.watched import sampled
from toishi.types import Group, RolloutId
from toishi.update import UpdateSettings

_SAME = 1e-6
Before = Mapping[RolloutId, Sequence[float]]


@dataclass(frozen=True)
class Pushes:
    """The direction of ascent in terms of the account's rows.

    coefficients_R  what each row's gradient is multiplied by
    fixed_ratio     what the terms without an advantage are multiplied by, relative to the recorded update
    moves           whether an optimizer step is made at all
    beyond          why the account cannot hold it; empty when it can
    """

    coefficients_R: Tensor
    fixed_ratio: float = 1.0
    moves: bool = True
    beyond: str = ""


def token_weights(groups: Sequence[Group], settings: UpdateSettings, before: Before) -> dict[RolloutId, tuple[float, ...]]:
    """d loss / d log-prob of each token of every answer that the loss averages over, at ratio 1."""
    unit, fix = token_pushes(groups, settings, before)
    rollouts = {rollout.id: rollout for group in groups for rollout in group.rollouts}
    return {
        id_: tuple(
            0.0 - (push * advantage + rest)
            for push, rest, advantage in zip(unit[id_], fix[id_], rollouts[id_].advantage_per_token, strict=True)
        )
        for id_ in unit
    }


def recorded_pushes(influence: Influence, num_rows: int) -> Pushes:
    """Those of the update that was made."""
    coefficients_R = torch.zeros(num_rows, dtype=torch.float64)
    for text in influence.texts:
        if text.source is not None:
            coefficients_R[text.source] += text.coefficient
    return Pushes(coefficients_R)


def changed_pushes(
    influence: Influence,
    num_rows: int,
    recorded: tuple[Sequence[Group], UpdateSettings],
    changed: tuple[Sequence[Group], UpdateSettings],
    before: Before,
) -> Pushes:
    """Those of the update with the changed groups and settings."""
    old = make_rows(sampled(recorded[0]), *recorded, before)
    new = make_rows(sampled(changed[0]), *changed, before)
    texts = {(text.group, text.member): text for text in influence.texts if text.kind == "rollout"}
    coefficients_R = torch.zeros(num_rows, dtype=torch.float64)
    for id_, source in new.sources.items():
        coefficient = source.weight * source.advantage
        if coefficient == 0:
            continue
        found = _place(texts.get((id_.group, id_.member)), id_, old, _profile(new, source.row))
        if found is None:
            return Pushes(coefficients_R, beyond=_ELSEWHERE.format(id_=id_))
        coefficients_R[found[0]] += coefficient * found[1]
    ratio = _fixed_ratio(new, old)
    if ratio is None:
        return Pushes(coefficients_R, beyond=_FIXED)
    moves = changed[1].algorithm.moves_without_advantage or any(
        value != 0.0 for group in changed[0] for rollout in group.rollouts for value in rollout.advantage_per_token
    )
    return Pushes(coefficients_R, fixed_ratio=ratio, moves=moves)


_ELSEWHERE = (
    "answer {id_} (step/group/member) would be learned from with weights that vary inside it otherwise than in the recorded "
    "update, and of that direction no gradient is on record"
)
_FIXED = (
    "the change also changes the terms that no advantage multiplies (KL, entropy) otherwise than by a factor, and of those no "
    "other gradient is on record"
)


def _place(text: TextInfluence | None, id_: RolloutId, old: Rows, profile: Sequence[float]) -> tuple[int, float] | None:
    """(row of the account, factor) of a direction inside an answer."""
    if text is None:
        return None
    whole = _profile(old, old.texts[id_])
    factor = _along(profile, whole)
    if factor is not None:
        return text.row, factor
    if text.source is None or id_ not in old.sources:
        return None
    factor = _along(profile, _profile(old, old.sources[id_].row))
    return None if factor is None else (text.source, factor)


def _profile(rows: Rows, row: int) -> tuple[float, ...]:
    return next(one.pushes for one in rows.passes if one.row == row)


def _fixed_ratio(new: Rows, old: Rows) -> float | None:
    """The factor between all that the terms without an advantage push, token by token and through the entropies."""
    pushes, recorded = _fixed(new), _fixed(old)
    places = sorted(pushes.keys() | recorded.keys())
    return _along([pushes.get(place, 0.0) for place in places], [recorded.get(place, 0.0) for place in places])


def _fixed(rows: Rows) -> dict[tuple[RolloutId, int], float]:
    """(answer, token) -> push; the token -1 stands for the push on the answer's entropies."""
    return {
        (one.rollout.id, place): push
        for one in rows.passes
        if one.row == rows.fixed
        for place, push in enumerate((one.entropy_push, *one.pushes), start=-1)
    }


def _along(new: Sequence[float], old: Sequence[float]) -> float | None:
    """The factor by which `new` is `old`; None when it is another direction.

    >>> _along([2.0, 4.0], [1.0, 2.0]), _along([0.0], [0.0]), _along([1.0, 1.0], [1.0, 2.0]), _along([0.0], [3.0])
    (2.0, 1.0, None, 0.0)
    """
    if not any(old):
        return None if any(new) else 1.0
    factor = sum(a * b for a, b in zip(new, old, strict=True)) / sum(b * b for b in old)
    largest = max(map(abs, new))
    close = all(abs(a - factor * b) <= _SAME * largest for a, b in zip(new, old, strict=True))
    return factor if close else None

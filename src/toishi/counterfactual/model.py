"""The answer to a what-if as plain values; `--json` prints them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Verdict = Literal["up", "down", "direction not determined", "no number"]
"""Of a text's change by the step that is asked for. 'no number': the record does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreChange:
    """What a reward said of an answer, and what it would have said, on the reward's own scale. None: nothing (it failed)."""

    reward: str
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """A text's change of log-prob in nats of the whole text: exp of it is the factor of its probability.

    kind       'rollout' (an answer of the step) or a text that was watched beside them; member None: it was not sampled
    measured   by the step that was taken; None without an account on record
    forecast   by the step that is asked for; None where no number is given
    half_width how far the forecast may be off: an estimate, no guarantee
    real       by the step that is asked for, really done; None unless asked for
    """

    kind: str
    group: int | None
    member: int | None
    measured: float | None
    forecast: float | None
    half_width: float | None
    verdict: Verdict
    real: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerChange:
    """An answer of the group that is asked about.

    left_out      why the answer is outside the baseline after the change; empty when it takes part
    token_weights d loss / d log-prob of each token in the update, before and after; exact. None where it was not (or would not
                  be) learned from, or where the record does not say
    """

    member: int
    text: str
    scores: tuple[ScoreChange, ...]
    reward_before: float | None
    reward_after: float | None
    advantage_before: float | tuple[float, ...] | None
    advantage_after: float | tuple[float, ...] | None
    left_out: str
    token_weights_before: tuple[float, ...] | None
    token_weights_after: tuple[float, ...] | None
    moved: Moved


@dataclass(frozen=True, slots=True, kw_only=True)
class Redone:
    """The step really done again with the change.

    agrees      whether the step as recorded came out again on the way; else `difference` says where it did not, and the two
                columns are of different steps
    bit_for_bit  whether it did so on every compared bit
    loss, gradient_norm  of the changed update; 0 for one that moved nothing
    """

    agrees: bool
    bit_for_bit: bool
    difference: str
    loss: float
    gradient_norm: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A recorded optimizer update with a change: what is exact, what is estimated, and what was redone.

    change         the question as plain values
    question       the same in words
    refused        why there is no forecast, and what to do; empty when there is one
    trust          'straight' (up to 1 nat), 'bent' (up to 10), 'too_far' (no numbers); '' without a forecast
    tied           the group has nothing to compare after the change: all its advantages are 0
    skipped        nothing at all would be learned: no optimizer step would be made
    gradient_norm, clip_factor  (before, after) of the whole step; after is None without a forecast
    length_ratio   length of the step, relative to the real one; None without a forecast
    others         all other watched texts of the step: they share clipping and, where the rule has them, batch statistics
    seconds        of this answer after the record was read, without a redo
    """

    folder: str
    step: int
    group: int
    update: int
    algorithm: str
    optimizer: str
    prompt: str
    change: Mapping[str, Any]
    question: str
    refused: str
    trust: str
    tied: bool
    skipped: bool
    gradient_norm: tuple[float | None, float | None]
    clip_factor: tuple[float | None, float | None]
    length_ratio: float | None
    answers: tuple[AnswerChange, ...]
    others: tuple[Moved, ...]
    seconds: float
    redone: Redone | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for `--json`."""
        return asdict(self)

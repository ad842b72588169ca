"""What-ifs of one group, asked beforehand: plain values that the page looks up. Whoever asks them stands above this package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["up", "down", "direction not determined", "no number"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedAnswer:
    """An answer of the group in one case.

    score      of the reward that is asked about, on that reward's own scale; None: it has none
    reward, advantage  exact; an advantage that varies inside the answer is its mean. None: left out
    left_out   why it is outside the baseline; empty when it takes part
    forecast, half_width  change of its log-prob by the step that is asked for (nats), and how far that may be off
    """

    member: int
    score: float | None
    reward: float | None
    advantage: float | None
    left_out: str
    forecast: float | None
    half_width: float | None
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One question and its answer.

    score      what the answer would have got; None: it would have been left out
    option     the question as the command's option
    refused    why no probabilities are forecast; empty when they are
    trust      'straight', 'bent', 'too_far', or '' without a forecast
    tied       every advantage of the group would be 0
    skipped    nothing at all would be learned in the step
    clip_factor  (before, after) of the whole step's gradient
    """

    score: float | None
    option: str
    refused: str
    trust: str
    tied: bool
    skipped: bool
    clip_factor: tuple[float | None, float | None]
    answers: tuple[AskedAnswer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slider:
    """One answer and one reward.

    recorded   the score that it really got; None: it failed
    declared   whether the reward declares the range; else it is that of the scores seen in the step
    cases      by score; the one without an option is the real step, where `forecast` is what was measured
    why_not    why no other score can be asked about; empty where others can
    """

    member: int
    reward: str
    recorded: float | None
    low: float
    high: float
    declared: bool
    cases: tuple[Case, ...]
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """An answer left out; without a case `why_not` says why it cannot be."""

    member: int
    case: Case | None
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfs:
    """All questions that the page of a group answers.

    before     the group as recorded; `forecast` is what the real step did to each answer, measured, where it is on record
    refused    why no question has a forecast, and what to do; empty when some have one
    update, num_updates  which optimizer update is asked about, from 0, and of how many
    passed_over  answers about which the page holds nothing, since the group is large
    impossible why no question can be put to the step at all; then everything else is empty
    """

    before: tuple[AskedAnswer, ...] = ()
    sliders: tuple[Slider, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    rewards: tuple[str, ...] = ()
    refused: str = ""
    update: int = 0
    num_updates: int = 0
    passed_over: tuple[int, ...] = ()
    impossible: str = ""

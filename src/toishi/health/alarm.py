"""What a rule is, and what it says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from toishi.health.history import History

Action = Literal["note", "warn", "stop"]
Find = Callable[[History, float], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One row of the table: a thing that can go wrong, how it shows, and what to do about it.

    watches  in words, with the metric names it reads
    action   what happens by default: a note (good news, or an expectation set right), a warning, or a stop
    limit    the number that decides, settable as `health.limits.<name>`; None where there is nothing to set
    limit_is what that number counts
    within   how many steps after a plain occurrence the rule has spoken, at the default limit
    find     (history, limit) -> evidence in words, or None
    remedy   what to do, cheapest first
    """

    name: str
    watches: str
    action: Action
    limit: float | None
    limit_is: str
    within: int
    find: Find
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """What a rule says at a step.

    >>> Alarm(rule="truncation", action="warn", step=12, evidence="40% of answers were cut",
    ...       remedy="raise sampling.max_new_tokens").text
    'step 12, truncation: 40% of answers were cut.\\n  What to do: raise sampling.max_new_tokens.'
    """

    rule: str
    action: Action
    step: int
    evidence: str
    remedy: str

    @property
    def text(self) -> str:
        """Evidence and remedy for a person."""
        opening = f"step {self.step}, {self.rule}" + (" (stopping)" if self.action == "stop" else "")
        return f"{opening}: {self.evidence}.\n  What to do: {self.remedy}."

    def as_record(self) -> dict[str, Any]:
        """The fields of its line in events.jsonl; `message` is the evidence."""
        return {
            "rule": self.rule,
            "action": self.action,
            "step": self.step,
            "message": self.evidence,
            "remedy": self.remedy,
        }

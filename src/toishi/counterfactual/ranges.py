"""The scale on which a reward's scores are given and shown.

Decisions:
1. A judge's reward lies between 0 and 1; people know its scores by the scale that it was told. So they are given and shown on
   that scale, and turned into rewards as the run did. All other rewards are given and shown as recorded.
2. Nothing is moved into a range: a score outside is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toishi.errors import ConfigError
from toishi.judging.questions import load_template
from toishi.judging.scale import Scale
from toishi.rewards.judged import EXPECTED_SCALE

_JUDGED, _RUBRIC = ("judge", "rubric"), ("holistic", "expected")


@dataclass(frozen=True, slots=True)
class Range:
    """Lowest and highest score, as a person writes it, and as the reward pays it. None: no range is declared."""

    low: float | None = None
    high: float | None = None
    scaled: bool = False

    def to_value(self, score: float, where: str) -> float:
        """The reward's value for a score. Raises ConfigError for one outside.

        >>> Range(1.0, 10.0, scaled=True).to_value(5.5, "answer 3"), Range().to_value(-7.0, "answer 3")
        (0.5, -7.0)
        """
        if self.low is None or self.high is None:
            return score
        if not self.low <= score <= self.high:
            raise ConfigError(f"{where}: {score:g} is outside the reward's range, {self.low:g} to {self.high:g}")
        return (score - self.low) / (self.high - self.low) if self.scaled else score

    def to_score(self, value: float) -> float:
        """The score that a value was paid for.

        >>> Range(1.0, 10.0, scaled=True).to_score(0.5)
        5.5
        """
        if not self.scaled or self.low is None or self.high is None:
            return value
        return self.low + value * (self.high - self.low)


def ranges_of(sections: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, Range]:
    """Reward's name -> its range, from the rewards' sections of the configuration, in the same order."""
    if len(sections) != len(names):
        return {}
    return {name: range_of(section) for section, name in zip(sections, names, strict=True)}


def range_of(section: Mapping[str, Any]) -> Range:
    """
    >>> range_of({"name": "style", "kind": "judge", "scale": "0-10"})
    Range(low=0.0, high=10.0, scaled=True)
    >>> range_of({"name": "number"}), range_of({"name": "judge", "mode": "pairwise"})
    (Range(low=None, high=None, scaled=False), Range(low=0.0, high=1.0, scaled=False))
    """
    kind, mode = section.get("kind") or section["name"], section.get("mode")
    if kind not in _JUDGED or "python" in section:
        return Range()
    if mode == "pairwise" or (kind == "rubric" and mode not in _RUBRIC):
        return Range(0.0, 1.0)
    stated = section.get("scale")
    if stated is None:
        default = "rubric" if kind == "rubric" else "helpfulness"
        where = f"reward '{section['name']}'.prompt"
        stated = EXPECTED_SCALE if mode == "expected" else load_template(section.get("prompt") or default, where=where).scale
    scale = Scale.read(stated)
    return Range(scale.low, scale.high, scaled=True)

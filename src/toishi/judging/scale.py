"""The stated range of a judge's scores, and how a score becomes a reward.

Decisions:
1. A reward is (score - low) / (high - low), so every scale pays between 0 and 1. No score is ever moved into the range.
2. For expected scores every value of the scale has to be one token: digits 0 to 9, or letters. Of letters A is the best, as
   in school grades.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from toishi.errors import ConfigError

MAX_SCORE = 1e6
_NUMBERS = re.compile(r"\s*(-?[0-9]+(?:\.[0-9]+)?)\s*(?:-|\.\.|to)\s*(-?[0-9]+(?:\.[0-9]+)?)\s*")
_LETTERS = re.compile(r"\s*A\s*-\s*([B-Z])\s*")


@dataclass(frozen=True, slots=True)
class Scale:
    """A closed range of scores.

    low, high  its ends; for letters 0 (the last one) and one less than their number (A)
    letters    "" for numbers, else the letters, the best one first

    >>> scale = Scale.read("1-10")
    >>> str(scale), scale.to_reward(1), scale.to_reward(10), scale.to_reward(5.5)
    ('1-10', 0.0, 1.0, 0.5)
    >>> Scale.read("1-3").choices, Scale.read("A-C").choices
    ({'1': 1.0, '2': 2.0, '3': 3.0}, {'A': 2.0, 'B': 1.0, 'C': 0.0})
    """

    low: float
    high: float
    letters: str = ""

    @classmethod
    def read(cls, text: str, *, where: str = "scale") -> Scale:
        """From "1-10", "0-1", "-1-1" or "A-E". Raises ConfigError."""
        if letters := _LETTERS.fullmatch(text):
            count = ord(letters[1]) - ord("A") + 1
            return cls(0.0, float(count - 1), "".join(chr(ord("A") + place) for place in range(count)))
        numbers = _NUMBERS.fullmatch(text)
        low, high = (float(numbers[1]), float(numbers[2])) if numbers else (0.0, 0.0)
        if numbers is None or low >= high:
            raise ConfigError(f"{where}: expected the lowest and the highest score, such as 1-10 or 0-1, got {text!r:.80}")
        if max(abs(low), abs(high)) > MAX_SCORE:
            raise ConfigError(
                f"{where}: expected scores of at most {MAX_SCORE:,.0f}, got {text!r:.80}; judges use small scales"
            )
        return cls(low, high)

    @property
    def choices(self) -> dict[str, float] | None:
        """Each value as the one token that stands for it, and its score; None where a value is longer than one digit."""
        if self.letters:
            return {letter: self.high - place for place, letter in enumerate(self.letters)}
        if not (self.low.is_integer() and self.high.is_integer() and self.low >= 0 and self.high <= 9):
            return None
        return {str(value): float(value) for value in range(int(self.low), int(self.high) + 1)}

    @property
    def best(self) -> str:
        """The best score as the judge would write it."""
        return self.letters[0] if self.letters else f"{self.high:g}"

    def to_reward(self, score: float) -> float:
        """(score - low) / (high - low)."""
        return (score - self.low) / (self.high - self.low)

    def __str__(self) -> str:
        return f"A-{self.letters[-1]}" if self.letters else f"{self.low:g}-{self.high:g}"

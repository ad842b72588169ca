"""A reward like a judge of known noise: the truth is a function of the answer, and every asking adds a new draw."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from scipy.special import ndtri

from toishi.ops.random import uniforms
from toishi.rewards.base import Comparison, Judgement
from toishi.types import Completion, Prompt


def letters(text: str) -> float:
    """The truth by default: the share of letters that are vowels."""
    return sum(sign in "aeiou" for sign in text) / max(1, len(text))


@dataclass(frozen=True, kw_only=True)
class NoisyReward:
    """`truth(answer)` plus normal noise of `noise_sd`, a function of (seed, the prompt's words, place, answer, repeat).

    first     additive preference for the answer shown first, in pairs
    fails     every so many answers' askings give no score (0 = never)
    """

    name: str = "noisy"
    noise_sd: float = 0.1
    first: float = 0.0
    fails: int = 0
    seed: int = 0
    columns: tuple[str, ...] = ()
    truth: Callable[[str], float] = field(default=letters, compare=False)
    asked: list[int] = field(default_factory=list, init=False, compare=False)

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        return self.score_group_again(prompt, completions, 0)

    def score_group_again(self, prompt: Prompt, completions: Sequence[Completion], repeat: int) -> list[tuple[Judgement, ...]]:
        self.asked.append(repeat)
        return [(self._judged(prompt, place, one.text, repeat),) for place, one in enumerate(completions)]

    def usage(self) -> dict[str, float]:
        return {"calls": float(len(self.asked))}

    def _judged(self, prompt: Prompt, place: int, text: str, repeat: int) -> Judgement:
        number = self._key(prompt, place, text)
        if self.fails and (number + repeat) % self.fails == 0:
            return Judgement(value=None, status="failed", reason="cannot be read", kind="unreadable")
        return Judgement(value=self.truth(text) + self.noise_sd * self._normal(number, repeat, 0))

    def _normal(self, number: int, repeat: int, stream: int) -> float:
        return float(ndtri(uniforms((self.seed, number, repeat, stream), 1)[0]))

    def _key(self, prompt: Prompt, place: int, text: str) -> int:
        return int.from_bytes(hashlib.sha256(f"{prompt.shown}|{place}|{text}".encode()).digest()[:6], "big")


@dataclass(frozen=True, kw_only=True)
class NoisyPairs(NoisyReward):
    """The same as a judge of pairs."""

    def comparisons(self, prompt: Prompt, completions: Sequence[Completion], repeat: int) -> list[Comparison]:
        places = range(len(completions))
        return [
            Comparison(first=one, second=other, preferred=self._preferred(prompt, completions, one, other, repeat))
            for a in places
            for b in places[a + 1 :]
            for one, other in ((a, b), (b, a))
        ]

    def _preferred(self, prompt: Prompt, completions: Sequence[Completion], one: int, other: int, repeat: int):  # type: ignore[no-untyped-def]
        ahead = self.truth(completions[one].text) - self.truth(completions[other].text) + self.first
        key = self._key(prompt, 100 * one + other, completions[one].text)
        ahead += self.noise_sd * self._normal(key, repeat, 1)
        return "first" if ahead > 0 else "second"

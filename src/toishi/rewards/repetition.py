"""`repetition`: a penalty for saying the same again.

Decisions:
1. Units are words, signs, and single characters in scripts without spaces, so that one n serves mixed texts.
2. A "word" of more than 40 characters is cut into its characters: "hahaha..." without spaces is a repetition like any other.
3. Case is ignored. Nothing is left out: a repeated sign or number is a repetition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import regex
from pydantic import Field

from toishi.rewards.base import Judgement
from toishi.rewards.scripts import UNSPACED_CLASS
from toishi.types import Completion, Prompt

LONGEST_WORD = 40
_UNIT = regex.compile(rf"[{UNSPACED_CLASS}]|(?:(?![{UNSPACED_CLASS}])\w)+|[^\w\s]")


@dataclass(frozen=True, slots=True, kw_only=True)
class RepetitionReward:
    """Minus the share of n-grams that stood in the answer before: -(1 - different / all).

    n     units in an n-gram
    unit  "words": words and signs, and characters of scripts without spaces (Chinese, Japanese, Thai, ...); "characters": every
          character but space, for which n should be larger (10 or so)

    An answer of fewer than n units is worth 0: it repeats nothing.

    Traps: silence is worth the most, so weigh it below a reward for being right. Lists, tables and sums repeat n-grams by their
    nature: look at what good answers lose before you choose n.

    >>> from toishi.rewards.scripted import answered
    >>> prompt = Prompt(id="a", text="?")
    >>> judged = RepetitionReward(n=2).score_group(prompt, [answered("the cat and the dog"), answered("no no no no")])
    >>> [(round(judgement.value, 3), judgement.reason) for (judgement,) in judged]
    [(0.0, '4 of 4 2-grams differ'), (-0.667, '1 of 3 2-grams differ')]
    """

    name: str = "repetition"
    n: Annotated[int, Field(ge=1)] = 3
    unit: Literal["words", "characters"] = "words"

    @property
    def columns(self) -> tuple[str, ...]:
        return ()

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        return [(self._judge(completion.text),) for completion in completions]

    def _judge(self, text: str) -> Judgement:
        units = _units(text.casefold()) if self.unit == "words" else [*"".join(text.casefold().split())]
        ngrams = [tuple(units[at : at + self.n]) for at in range(len(units) - self.n + 1)]
        if not ngrams:
            return Judgement(value=0.0, reason=f"fewer than {self.n} {self.unit}")
        different = len(set(ngrams))
        value = different / len(ngrams) - 1
        return Judgement(value=value, reason=f"{different} of {len(ngrams)} {self.n}-grams differ")


def _units(text: str) -> list[str]:
    found: list[str] = []
    for unit in _UNIT.findall(text):
        found += unit if len(unit) > LONGEST_WORD else [unit]
    return found

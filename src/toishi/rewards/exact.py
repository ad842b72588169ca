"""`exact`: the answer is the gold text."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from toishi.rewards.base import Judgement
from toishi.rewards.reading import gold_of
from toishi.types import Completion, Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactReward:
    """1 if the answer, without surrounding space, is the gold text and nothing else; else 0. Unicode forms are unified (NFC).

    require_stop  an answer cut off at the token limit is never right

    >>> from toishi.rewards.scripted import answered
    >>> prompt = Prompt(id="a", text="Is 2000 a leap year?", gold="Yes")
    >>> judged = ExactReward(ignore_case=True).score_group(prompt, [answered(" yes\\n"), answered("Yes or no")])
    >>> [(judgement.value, judgement.reason) for (judgement,) in judged]
    [(1.0, "read 'yes', gold 'yes'"), (0.0, "read 'yes or no', gold 'yes'")]
    """

    name: str = "exact"
    ignore_case: bool = False
    require_stop: bool = True
    gold_column: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return () if self.gold_column is None else (self.gold_column,)

    def problem(self, prompt: Prompt) -> str | None:
        """Why this prompt cannot be scored, or None."""
        return _gold_problem(gold_of(prompt, self.gold_column))

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        problem = self.problem(prompt)
        if problem is not None:
            return [(Judgement(value=None, status="failed", reason=problem),)] * len(completions)
        gold = self._plain(str(gold_of(prompt, self.gold_column)))
        return [(self._judge(completion, gold),) for completion in completions]

    def _judge(self, completion: Completion, gold: str) -> Judgement:
        if self.require_stop and completion.is_truncated:
            return Judgement(value=0.0, reason="cut off at the token limit")
        text = self._plain(completion.text)
        return Judgement(value=float(text == gold), reason=f"read {_short(text)}, gold {_short(gold)}")

    def _plain(self, text: str) -> str:
        plain = unicodedata.normalize("NFC", text).strip()
        return plain.casefold() if self.ignore_case else plain


def _gold_problem(gold: Any) -> str | None:
    if gold is None:
        return "the row has no gold"
    if isinstance(gold, bool) or not isinstance(gold, str | int | float | Decimal):
        return f"the gold is a {type(gold).__name__}, not text: {gold!r}"
    return None if str(gold).strip() else "the gold is empty"


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")

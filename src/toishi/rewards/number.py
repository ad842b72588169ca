"""`number`: the number in the answer equals the gold number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field

from toishi.answers.extracting import last_box
from toishi.answers.reasoning import visible
from toishi.rewards.base import Judgement
from toishi.rewards.reading import gold_of, read_gold, read_numbers, read_whole, shown_number, without_echo
from toishi.rewards.surroundings import undressed
from toishi.types import Completion, Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberReward:
    """1 if the answer's number is the gold, else 0.

    where         "last": the last number of the text; "only": the text has one number; "whole": the text is that number
    tolerance     how far off still counts, absolute
    require_stop  an answer cut off at the token limit is never right
    gold_column   a column to compare with instead of the task's gold

    Sentences of the question that the answer repeats word for word are not read: repeating "What is 10 - 5?" is no answer.
    Reasoning in <think> tags is not read. Where there is a `\\boxed{}`, only the last one is. A number that is part of
    something else (`1 / 5`, `5!`, "5 million") is not read either. With where="last" an answer that lists candidates is
    judged by the last of them; "only" refuses it.

    >>> from toishi.rewards.scripted import answered
    >>> prompt = Prompt(id="a", text="What is 5 + 7?", gold=12)
    >>> answers = [answered("5 + 7 is 12."), answered("7"), answered("ten")]
    >>> [judgement.reason for (judgement,) in NumberReward().score_group(prompt, answers)]
    ['read 12, gold 12', 'read 7, gold 12', 'no number found, gold 12']
    """

    name: str = "number"
    where: Literal["last", "only", "whole"] = "last"
    tolerance: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    require_stop: bool = True
    gold_column: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return () if self.gold_column is None else (self.gold_column,)

    def problem(self, prompt: Prompt) -> str | None:
        """Why this prompt cannot be scored, or None."""
        gold = read_gold(gold_of(prompt, self.gold_column))
        return gold if isinstance(gold, str) else None

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        gold = read_gold(gold_of(prompt, self.gold_column))
        if isinstance(gold, str):
            return [(Judgement(value=None, status="failed", reason=gold),)] * len(completions)
        return [(self._judge(prompt, completion, gold),) for completion in completions]

    def _judge(self, prompt: Prompt, completion: Completion, gold: Fraction) -> Judgement:
        if self.require_stop and completion.is_truncated:
            return Judgement(value=0.0, reason="cut off at the token limit", readable=False)
        said = visible(prompt.prefill + completion.text).removeprefix(prompt.prefill)
        value = self._read(without_echo(said, prompt.shown))
        if isinstance(value, str):
            return Judgement(value=0.0, reason=f"{value}, gold {shown_number(gold)}", readable=False)
        right = abs(value - gold) <= Fraction(repr(self.tolerance))
        return Judgement(value=float(right), reason=f"read {shown_number(value)}, gold {shown_number(gold)}", readable=True)

    def _read(self, text: str) -> Fraction | str:
        """The answer's number, or, as text, why there is none."""
        if self.where == "whole":
            whole = read_whole(text)
            return "the text is not just one number" if whole is None else whole
        boxed = last_box(text)
        readings = read_numbers(undressed(text if boxed is None else boxed))
        if not readings:
            return "no number found"
        if self.where == "only" and len(readings) > 1:
            return f"{len(readings)} numbers found where one was asked for"
        last = readings[-1]
        return f"could not read {last.text[:40]!r} as one number" if last.value is None or not last.is_whole else last.value

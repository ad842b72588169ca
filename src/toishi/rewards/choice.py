"""`choice`: the letter that the answer names is the gold's."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from toishi.answers.extracting import Where
from toishi.answers.plain import read_text
from toishi.answers.reading import Gold
from toishi.answers.verifying import Rules
from toishi.rewards.base import Judgement
from toishi.rewards.math import judged, known_gold
from toishi.rewards.reading import gold_of
from toishi.types import Completion, Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceReward:
    """1 if the answer names the gold's letter and no other, else 0: `C`, `(C)`, `C. Paris`, `\\boxed{\\text{C}}`.

    options         how many choices there are: a letter beyond them is no answer, and a gold beyond them is refused
    options_column  a column with the row's list of choices (or how many there are), instead of `options`; a gold may then also
                    be the text of one of them
    where           where an answer may stand: "box", "marked" or "anywhere" (as for `math`)
    require_stop    an answer cut off at the token limit is never right

    Traps: an answer that names two letters names none. Without `options` every letter from A to Z is a choice.

    >>> from toishi.rewards.scripted import answered
    >>> prompt = Prompt(id="a", text="Largest?", gold="C")
    >>> answers = [answered(text) for text in ("The answer is (C).", r"\\boxed{B}", "B or C", "E")]
    >>> [(judgement.value, judgement.readable) for (judgement,) in ChoiceReward(options=4).score_group(prompt, answers)]
    [(1.0, True), (0.0, True), (0.0, False), (0.0, False)]
    """

    name: str = "choice"
    options: Annotated[int, Field(ge=2, le=26)] | None = None
    options_column: str | None = None
    where: Where = "marked"
    require_stop: bool = True
    gold_column: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column for column in (self.gold_column, self.options_column) if column is not None)

    def problem(self, prompt: Prompt) -> str | None:
        """Why this prompt cannot be scored, or None."""
        found = self._known(prompt)
        return found if isinstance(found, str) else None

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        found = self._known(prompt)
        if isinstance(found, str):
            return [(Judgement(value=None, status="failed", reason=found),)] * len(completions)
        gold, letters = found
        return judged(gold, prompt, completions, Rules(where=self.where, letters=letters), require_stop=self.require_stop)

    def _known(self, prompt: Prompt) -> tuple[Gold, str] | str:
        """The gold and the letters that exist, or why the row cannot be used."""
        raw, choices = gold_of(prompt, self.gold_column), self._choices(prompt)
        if isinstance(choices, str):
            return choices
        texts, count = choices
        letters = string.ascii_uppercase[:count]
        named = [letter for letter, text in zip(letters, texts, strict=False) if read_text(text) == read_text(str(raw))]
        gold = known_gold(named[0] if len(named) == 1 else raw, "choice")
        if isinstance(gold, str):
            return gold
        if gold.value.data not in letters:
            return f"the gold is {gold.value.data}, but there are {count} choices ({letters[0]} to {letters[-1]})"
        return gold, letters

    def _choices(self, prompt: Prompt) -> tuple[list[str], int] | str:
        """The texts of the choices, if the row has them, and how many there are; or what is wrong with the column."""
        if self.options_column is None:
            return [], self.options or 26
        value: Any = prompt.columns.get(self.options_column)
        if isinstance(value, list | tuple) and 2 <= len(value) <= 26:
            return [str(item) for item in value], len(value)
        if isinstance(value, int) and not isinstance(value, bool) and 2 <= value <= 26:
            return [], value
        return f"the column '{self.options_column}' must hold a list of 2 to 26 choices or how many there are, got {value!r}"

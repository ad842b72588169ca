"""`text`: the answer is the gold's words."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from toishi.answers.extracting import extract
from toishi.answers.plain import read_text
from toishi.answers.reasoning import visible
from toishi.rewards.base import Judgement
from toishi.rewards.math import without_question
from toishi.rewards.reading import gold_of
from toishi.types import Completion, Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class TextReward:
    """1 if the answer is the gold text, else 0. A gold that is a list names several spellings, of which each is right.

    where           "whole": the completion is the text and nothing else; "marked": the answer may also stand in a box, in
                    <answer> tags, after ####, after "the answer is", or in bold at the end (as for `math`); "box": only there
    normalise       compare without case, a leading article (the, a, an), marks at the ends, double spaces and `\\text{}`;
                    false: letter by letter, in one Unicode form (NFC), without surrounding space
    aliases_column  a column with further spellings (a text or a list)
    require_stop    an answer cut off at the token limit is never right

    Traps: the answer is compared whole, so "it is the Nile" is not "the Nile"; a short last line of a long text is not found.

    >>> from toishi.rewards.scripted import answered
    >>> prompt = Prompt(id="a", text="Which river?", gold=["the Nile", "Nile River"])
    >>> answers = [answered(text) for text in ("Nile.", "The answer is the Nile River.", "Nile or Congo", "")]
    >>> [judgement.reason for (judgement,) in TextReward().score_group(prompt, answers)]
    ["read 'nile', gold 'nile'", "read 'nile river', gold 'nile'", "read 'nile or congo', gold 'nile'", 'no answer found']
    """

    name: str = "text"
    where: Literal["whole", "marked", "box"] = "marked"
    normalise: bool = True
    aliases_column: str | None = None
    require_stop: bool = True
    gold_column: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column for column in (self.gold_column, self.aliases_column) if column is not None)

    def problem(self, prompt: Prompt) -> str | None:
        """Why this prompt cannot be scored, or None."""
        golds = self._golds(prompt)
        return golds if isinstance(golds, str) else None

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        golds = self._golds(prompt)
        if isinstance(golds, str):
            return [(Judgement(value=None, status="failed", reason=golds),)] * len(completions)
        return [(self._judge(completion, prompt, golds),) for completion in completions]

    def _judge(self, completion: Completion, prompt: Prompt, golds: list[str]) -> Judgement:
        if self.require_stop and completion.is_truncated:
            return Judgement(value=0.0, reason="cut off at the token limit", readable=False)
        text = self._extracted(completion.text, prompt)
        if not text:
            return Judgement(value=0.0, reason="no answer found", readable=False)
        plain = self._plain(text)
        return Judgement(value=float(plain in golds), reason=f"read {_short(plain)}, gold {_short(golds[0])}", readable=True)

    def _extracted(self, text: str, prompt: Prompt) -> str:
        if self.where == "whole":
            return visible(prompt.prefill + text).removeprefix(prompt.prefill).strip()
        found = extract(without_question(text, prompt.shown), where=self.where, prefill=prompt.prefill)
        return "" if found is None else found.text

    def _golds(self, prompt: Prompt) -> list[str] | str:
        """Every spelling that is right, as it is compared, or why the row cannot be used."""
        listed = [gold_of(prompt, self.gold_column)]
        if self.aliases_column is not None:
            listed.append(prompt.columns.get(self.aliases_column))
        golds = [item for value in listed for item in (value if isinstance(value, list | tuple) else [value])]
        if not golds or listed[0] is None:
            return "the row has no gold" if listed[0] is None else "the gold is an empty list"
        problem = next((problem for gold in golds if (problem := self._problem(gold)) is not None), None)
        return problem or list(dict.fromkeys(self._plain(str(gold)) for gold in golds))

    def _problem(self, gold: Any) -> str | None:
        if isinstance(gold, bool) or not isinstance(gold, str | int | float | Decimal):
            return f"the gold is a {type(gold).__name__}, not text: {gold!r}"
        if gold != gold or str(gold).casefold() in ("nan", "inf", "-inf", "infinity", "-infinity"):
            return f"the gold is {gold!r}, which stands for a missing value"
        if not str(gold).strip():
            return "the gold is empty"
        if any(unicodedata.category(sign) in ("Cs", "Cc") for sign in "".join(str(gold).split())):
            return f"the gold {gold!a} has signs that cannot be written"
        if not self._plain(str(gold)):
            return f"the gold {gold!r} has nothing left when it is normalised; normalise: false keeps it"
        return None

    def _plain(self, text: str) -> str:
        if not self.normalise:
            return unicodedata.normalize("NFC", text).strip()
        return str(read_text(text).data)


def _short(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")

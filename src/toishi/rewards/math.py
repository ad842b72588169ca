"""`math`: the answer of a completion equals the gold, read and compared by type (number, set, interval, formula, words, ...).

Decisions:
1. A gold is read once, before training; one that cannot be read whole, or would not be right as its own answer, is refused.
2. Three outcomes are kept apart: a wrong answer and no answer are worth 0 (`readable` tells them apart), a comparison that
   could not be made is a failed judgement.
3. A completion that repeats the question is read without it, so a box or a number in the question is no answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any

from pydantic import Field

from toishi.answers.comparing import UnitRule
from toishi.answers.extracting import Where
from toishi.answers.reading import AnswerType, Gold, read_gold
from toishi.answers.things import words_of
from toishi.answers.verifying import Rules, Verdict, check_gold, verify_group
from toishi.errors import DataError
from toishi.rewards.base import Judgement
from toishi.rewards.reading import gold_of, without_echo
from toishi.types import Completion, Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class MathReward:
    """1 if the completion's answer equals the gold, else 0.

    type          how golds are read: "auto" by what they look like, or number, percent, quantity, set, tuple, interval,
                  equation, expression, choice, time, text
    where         where an answer may stand: "box": only in `\\boxed{}`; "marked": also in <answer> tags, after ####, in "the
                  answer is ...", in bold at the end, or alone; "anywhere": also the last formula or number of the text
    unit          "required": a gold with a unit of measure or a percent sign needs one; "optional": it may be left out
    tolerance     how far off a number still counts, relative to the gold (0.01 is one per cent)
    limit_s       seconds that one comparison of formulas may take; over it the judgement has failed
    require_stop  an answer cut off at the token limit is never right
    gold_column   a column to compare with instead of the task's gold

    Traps: a gold with a unit or a percent sign needs one in the answer, unless `unit` is "optional". With `tolerance` 0,
    3.14 is not pi. What could not be compared in time is a failed judgement, not a 0. docs/answers.md has every rule.

    >>> from toishi.rewards.scripted import answered
    >>> prompt = Prompt(id="a", text="Solve x^2 = 9.", gold=r"\\pm 3")
    >>> answers = [answered(text) for text in (r"So \\boxed{\\{-3, 3\\}}.", r"\\boxed{3}", "I am not sure.\\nSorry.")]
    >>> for (judgement,) in MathReward().score_group(prompt, answers):
    ...     print(judgement.value, judgement.readable, judgement.reason)
    1.0 True right: read {-3, 3}, gold {3, -3}
    0.0 True wrong: read 3, gold {3, -3}
    0.0 False no_answer: no answer found, gold {3, -3}
    """

    name: str = "math"
    type: AnswerType = "auto"
    where: Where = "marked"
    unit: UnitRule = "required"
    tolerance: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0.0
    limit_s: Annotated[float, Field(gt=0, le=600, allow_inf_nan=False)] = 5.0
    require_stop: bool = True
    gold_column: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return () if self.gold_column is None else (self.gold_column,)

    @property
    def concurrent(self) -> bool:
        return True

    @property
    def rules(self) -> Rules:
        """The options that say how answers are found and compared."""
        return Rules(where=self.where, unit=self.unit, tolerance=self.tolerance, limit_s=self.limit_s)

    def problem(self, prompt: Prompt) -> str | None:
        """Why this prompt cannot be scored, or None."""
        gold = known_gold(gold_of(prompt, self.gold_column), self.type)
        return gold if isinstance(gold, str) else check_gold(gold)

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        gold = known_gold(gold_of(prompt, self.gold_column), self.type)
        if isinstance(gold, str):
            return [(Judgement(value=None, status="failed", reason=gold),)] * len(completions)
        rules = replace(self.rules, things=words_of(prompt.shown))
        return judged(gold, prompt, completions, rules, require_stop=self.require_stop)


def judged(
    gold: Gold, prompt: Prompt, completions: Sequence[Completion], rules: Rules, *, require_stop: bool
) -> list[tuple[Judgement, ...]]:
    """The verdicts on a group as judgements: right 1, wrong and no answer 0, undecided failed."""
    texts = [without_question(completion.text, prompt.shown) for completion in completions]
    whole = [not (require_stop and completion.is_truncated) for completion in completions]
    asked = [text for text, is_whole in zip(texts, whole, strict=True) if is_whole]
    verdicts = iter(verify_group(gold, asked, rules, prefill=prompt.prefill))
    cut = Judgement(value=0.0, reason="cut off at the token limit", readable=False)
    return [(_judgement(next(verdicts)) if is_whole else cut,) for is_whole in whole]


def without_question(text: str, question: str) -> str:
    """`text` without the question where it is repeated word for word.

    >>> without_question("Put 7 in a box: \\\\boxed{7}. I will: \\\\boxed{8}", "Put 7 in a box: \\\\boxed{7}.")
    '  I will: \\\\boxed{8}'
    """
    words = question.split()
    if len(words) > 1 and len(text) >= len(question.strip()):
        text = re.sub(r"(?<!\w)" + r"\s+".join(map(re.escape, words)) + r"(?!\w)", " ", text)
    return without_echo(text, question)


def known_gold(raw: Any, type: AnswerType) -> Gold | str:
    """The gold, read once for all its rows and steps, or, as text, why it cannot be read."""
    try:
        return _cached_gold(tuple(raw) if isinstance(raw, list) else raw, type, raw.__class__)
    except TypeError:  # a list of lists, or what is no gold at all
        return _read(raw, type)


@lru_cache(maxsize=8192)
def _cached_gold(raw: Any, type: AnswerType, of: Any) -> Gold | str:
    return _read(raw, type)


def _read(raw: Any, type: AnswerType) -> Gold | str:
    try:
        return read_gold(raw, type)
    except DataError as error:
        return str(error)


def _judgement(verdict: Verdict) -> Judgement:
    read = verdict.reason if verdict.answer_read is None else f"read {verdict.answer_read}"
    if verdict.verdict == "undecided":
        return Judgement(value=None, status="failed", reason=f"undecided: {verdict.reason}")
    reason = f"{verdict.verdict}: {read}, gold {verdict.gold_read}"
    return Judgement(value=float(verdict.verdict == "right"), reason=reason, readable=verdict.answer_read is not None)

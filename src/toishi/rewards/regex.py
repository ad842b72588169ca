"""`regex`: a pattern stands in the answer, or what it captures is the gold.

Decisions:
1. Where the pattern matches several times, the last match is read, as the other rewards read the last answer; `which: only`
   refuses several that differ, which closes the door to listing candidates.
2. What is captured is compared as text (NFC, without surrounding space). Numbers with many spellings belong to `number` and
   `math`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

from toishi.errors import ConfigError
from toishi.rewards.base import Judgement
from toishi.rewards.patterns import PatternTooSlow, compiled, is_match, matches
from toishi.rewards.reading import gold_of
from toishi.types import Completion, Prompt

_NO_MATCH = "the pattern does not match"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegexReward:
    r"""1 if the answer matches the pattern, else 0; with `group`, 1 if what the group captured is the gold.

    pattern       a Python regular expression (dot matches newlines); (?i) at its front ignores case
    match         "search": somewhere in the answer; "full": the whole answer without surrounding space
    group         number or name of a group to compare with the gold
    which         of several matches: "last" is read; "only": they have to capture the same
    gold_column   a column to compare with instead of the task's gold
    require_stop  an answer cut off at the token limit is not paid

    Traps: without `group` this is a form and says nothing of being right. A pattern that matches the empty text pays for
    silence, so it is refused. A match that takes longer than 1 s has failed: it is counted and never 0.

    >>> from toishi.rewards.scripted import answered
    >>> prompt = Prompt(id="a", text="Which planet?", gold="Mars")
    >>> reward = RegexReward(pattern=r"Answer: (\w+)", group=1)
    >>> judged = reward.score_group(prompt, [answered("Answer: Venus. No. Answer: Mars"), answered("Mars")])
    >>> [(judgement.value, judgement.reason) for (judgement,) in judged]
    [(1.0, "read 'Mars', gold 'Mars'"), (0.0, 'the pattern does not match')]
    """

    pattern: str
    name: str = "regex"
    match: Literal["search", "full"] = "search"
    group: int | str | None = None
    which: Literal["last", "only"] = "last"
    gold_column: str | None = None
    require_stop: bool = True

    _compiled: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        where = f"reward '{self.name}'"
        pattern = compiled(self.pattern, where=f"{where}.pattern")
        object.__setattr__(self, "_compiled", pattern)
        if self.group is None and self.gold_column is not None:
            raise ConfigError(f"{where}.gold_column: a gold is compared with what a group captures; set group as well")
        groups = [*range(pattern.groups + 1), *pattern.groupindex]
        if self.group is not None and (isinstance(self.group, bool) or self.group not in groups):
            raise ConfigError(f"{where}.group: the pattern {self.pattern!r} has no group {self.group!r}; it has {groups}")
        if self.group is None and pattern.fullmatch("", timeout=1.0):
            raise ConfigError(f"{where}.pattern: {self.pattern!r} matches the empty text, so silence would be paid")

    @property
    def columns(self) -> tuple[str, ...]:
        return () if self.gold_column is None else (self.gold_column,)

    def problem(self, prompt: Prompt) -> str | None:
        """Why this prompt cannot be scored, or None."""
        if self.group is None:
            return None
        gold = gold_of(prompt, self.gold_column)
        if isinstance(gold, bool) or not isinstance(gold, str | int | float | Decimal) or not str(gold).strip():
            return f"expected a gold that is text or a number, got {gold!r:.80}"
        return None

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        problem = self.problem(prompt)
        if problem is not None:
            return [(Judgement(value=None, status="failed", reason=problem, kind="bad_row"),)] * len(completions)
        gold = None if self.group is None else _plain(str(gold_of(prompt, self.gold_column)))
        return [(self._judge(completion, gold),) for completion in completions]

    def _judge(self, completion: Completion, gold: str | None) -> Judgement:
        if self.require_stop and completion.is_truncated:
            return Judgement(value=0.0, reason="cut off at the token limit", readable=False)
        text = completion.text.strip() if self.match == "full" else completion.text
        try:
            if gold is None:
                yes = is_match(self._compiled, text, self.match)
                return Judgement(value=float(yes), reason="matches" if yes else _NO_MATCH, readable=yes)
            return self._compared(text, gold)
        except PatternTooSlow as error:
            return Judgement(value=None, status="failed", reason=str(error), kind="timed_out")

    def _compared(self, text: str, gold: str) -> Judgement:
        read, different = None, set[str]()
        for match in matches(self._compiled, text, self.match):
            read = _plain(match[self.group] or "")
            different.add(read)
            if self.which == "only" and len(different) > 1:
                return Judgement(value=0.0, reason="several different captures, one was asked for", readable=False)
        if read is None:
            return Judgement(value=0.0, reason=_NO_MATCH, readable=False)
        return Judgement(value=float(read == gold), reason=f"read {read[:80]!r}, gold {gold[:80]!r}", readable=True)


def _plain(text: str) -> str:
    return unicodedata.normalize("NFC", text).strip()

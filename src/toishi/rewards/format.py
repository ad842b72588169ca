"""`format`: the answer has the asked-for form. It says nothing about being right: weigh it below a reward that does.

Decisions:
1. The form is judged on what the chat template prefilled plus what was sampled, since a template may write "<think>" itself.
2. Every tag stands once, in order, with something inside; `<think></think>` pays nothing.
3. After a single tag text may follow, since an answer has to stand somewhere when only <think> is asked for; several tags hold
   everything. `outside` says otherwise.
4. A regular expression has a time limit (`patterns`), and over it the score has failed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from toishi.errors import ConfigError
from toishi.rewards.base import Judgement
from toishi.rewards.patterns import PatternTooSlow, compiled, is_match
from toishi.types import Completion, Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatReward:
    """1 if the text has the form, else 0. Either `tags` or `regex`.

    tags     names of tags: ["think", "answer"] asks for <think>...</think> and then <answer>...</answer>
    outside  "nothing" but space may stand outside the tags; "after": text must follow the last tag, as in
             <think>...</think> answer; "anything"; null: nothing, but after a single tag text may follow
    regex    a Python regular expression (dot matches newlines) for the whole text, or for a part with match="search"
    require_stop  an answer cut off at the token limit has no form

    Traps: a form says nothing of being right. Paid as much as a right answer, it is learned first and may be all that is
    learned.

    >>> from toishi.rewards.scripted import answered
    >>> prompt = Prompt(id="a", text="?", prefill="<think>")
    >>> texts = ["2 and 2</think><answer>4</answer>", "</think><answer>4</answer>", "4"]
    >>> judged = FormatReward(tags=("think", "answer")).score_group(prompt, [answered(text) for text in texts])
    >>> [judgement.reason for (judgement,) in judged]
    ['has the form', 'nothing inside <think>', '</think> stands 0 times, expected once']
    """

    name: str = "format"
    tags: tuple[str, ...] = ()
    outside: Literal["nothing", "after", "anything"] | None = None
    regex: str | None = None
    match: Literal["full", "search"] = "full"
    require_stop: bool = True

    def __post_init__(self) -> None:
        where = f"reward '{self.name}'"
        if bool(self.tags) == (self.regex is not None):
            raise ConfigError(
                f"{where}: give either tags (such as [think, answer]) or regex, got {self.tags} and {self.regex!r}"
            )
        bad = [tag for tag in self.tags if not re.fullmatch(r"[A-Za-z][\w-]*", tag) or self.tags.count(tag) > 1]
        if bad:
            raise ConfigError(f"{where}.tags: {bad[0]!r} must be a bare name that is listed once, such as think")
        compiled(self.regex or "", where=f"{where}.regex")

    @property
    def columns(self) -> tuple[str, ...]:
        return ()

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        return [(self._judge(prompt.prefill, completion),) for completion in completions]

    def _judge(self, prefill: str, completion: Completion) -> Judgement:
        if self.require_stop and completion.is_truncated:
            return Judgement(value=0.0, reason="cut off at the token limit")
        text = prefill + completion.text
        try:
            wrong = self._regex_problem(text) if self.regex is not None else self._tags_problem(text)
        except PatternTooSlow as error:
            return Judgement(value=None, status="failed", reason=str(error), kind="timed_out")
        return Judgement(value=float(wrong is None), reason=wrong or "has the form")

    def _regex_problem(self, text: str) -> str | None:
        pattern = compiled(self.regex or "", where=f"reward '{self.name}'.regex")
        found = is_match(pattern, text.strip() if self.match == "full" else text, self.match)
        return None if found else f"does not match {self.regex!r}"

    def _tags_problem(self, text: str) -> str | None:
        marks = [mark for tag in self.tags for mark in (f"<{tag}>", f"</{tag}>")]
        for mark in marks:
            if text.count(mark) != 1:
                return f"{mark} stands {text.count(mark)} times, expected once"
        pieces = re.split("|".join(map(re.escape, marks)), text)
        if [*re.findall("|".join(map(re.escape, marks)), text)] != marks:
            return f"the tags are not in the order {' '.join(marks)}"
        empty = [tag for tag, inside in zip(self.tags, pieces[1::2], strict=True) if not inside.strip()]
        return f"nothing inside <{empty[0]}>" if empty else self._outside_problem(pieces[0::2])

    def _outside_problem(self, between: list[str]) -> str | None:
        *before, after = [piece.strip() for piece in between]
        if self.outside == "anything":
            return None
        if any(before):
            return "text before or between the tags; outside='anything' allows it"
        if self.outside == "after":
            return None if after else "no text after the last tag"
        allowed = self.outside is None and len(self.tags) == 1
        return f"text after </{self.tags[-1]}>; outside='after' asks for it" if after and not allowed else None

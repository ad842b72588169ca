"""`contains`: phrases that have to stand in the answer, or must not.

Decisions:
1. Whole words by default: "art" does not stand in "start". At an edge in a script without spaces nothing marks a word's end, so
   there the characters alone decide.
2. Spaces and line breaks between words are alike, and Unicode forms are unified (NFC).
3. An answer without a letter or digit is never paid, not even when forbidden phrases are missing from it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import regex
from pydantic import Field

from toishi.errors import ConfigError
from toishi.rewards.base import Judgement
from toishi.rewards.scripts import is_unspaced
from toishi.types import Completion, Prompt

Phrases = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainsReward:
    """1 if the answer contains all, any or none of the phrases, else 0.

    phrases         the phrases, the same for every row; or
    phrases_column  a column with a row's own: a text, a whole number or a list of texts
    need            "all", "any" or "none" of them
    whole_words     a phrase must not be part of a longer word
    ignore_case     whether "yes" finds "Yes"
    require_stop    an answer cut off at the token limit is not paid

    Traps: words are found, meaning is not: "it is not Paris" contains "Paris", and so does a list of all capitals. Use it for
    what must be mentioned, not for what must be right.

    >>> from toishi.rewards.scripted import answered
    >>> prompt = Prompt(id="a", text="?")
    >>> answers = [answered("Art in new\\nyork"), answered("a start in New York")]
    >>> judged = ContainsReward(phrases=("art", "New York")).score_group(prompt, answers)
    >>> [(judgement.value, judgement.reason) for (judgement,) in judged]
    [(1.0, 'all of 2 phrases'), (0.0, "without 'art'")]
    """

    name: str = "contains"
    phrases: Phrases | None = None
    phrases_column: str | None = None
    need: Literal["all", "any", "none"] = "all"
    whole_words: bool = True
    ignore_case: bool = True
    require_stop: bool = True

    def __post_init__(self) -> None:
        if (self.phrases is None) == (self.phrases_column is None):
            raise ConfigError(
                f"reward '{self.name}': give either phrases or phrases_column, got {self.phrases} and {self.phrases_column!r}"
            )
        problem = None if self.phrases is None else _problem(self.phrases)
        if problem is not None:
            raise ConfigError(f"reward '{self.name}'.phrases: {problem}")

    @property
    def columns(self) -> tuple[str, ...]:
        return () if self.phrases_column is None else (self.phrases_column,)

    def problem(self, prompt: Prompt) -> str | None:
        """Why this prompt cannot be scored, or None."""
        problem = _problem(self._phrases(prompt))
        return None if problem is None else f"the column '{self.phrases_column}': {problem}"

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        problem = self.problem(prompt)
        if problem is not None:
            return [(Judgement(value=None, status="failed", reason=problem, kind="bad_row"),)] * len(completions)
        phrases = self._phrases(prompt)
        return [(self._judge(completion, phrases),) for completion in completions]

    def _phrases(self, prompt: Prompt) -> Any:
        given = self.phrases if self.phrases_column is None else prompt.columns.get(self.phrases_column)
        if isinstance(given, int) and not isinstance(given, bool):
            return (str(given),)
        return (given,) if isinstance(given, str) else given

    def _judge(self, completion: Completion, phrases: Sequence[str]) -> Judgement:
        if self.require_stop and completion.is_truncated:
            return Judgement(value=0.0, reason="cut off at the token limit")
        text = _plain(completion.text)
        if not any(character.isalnum() for character in text):
            return Judgement(value=0.0, reason="no words")
        found = [phrase for phrase in phrases if self._stands(phrase, text)]
        if self.need == "none":
            return Judgement(value=float(not found), reason=f"with {found[0]!r}" if found else _counted("none", phrases))
        missing = [phrase for phrase in phrases if phrase not in found]
        if self.need == "any":
            return Judgement(value=float(bool(found)), reason=f"with {found[0]!r}" if found else _counted("none", phrases))
        return Judgement(value=float(not missing), reason=f"without {missing[0]!r}" if missing else _counted("all", phrases))

    def _stands(self, phrase: str, text: str) -> bool:
        plain = _plain(phrase)
        inner = r"\s+".join(regex.escape(word, literal_spaces=True) for word in plain.split())
        if self.whole_words:
            before = r"(?<!\w)" if _marks_words(plain[0]) else ""
            after = r"(?!\w)" if _marks_words(plain[-1]) else ""
            inner = f"{before}{inner}{after}"
        return regex.search(inner, text, regex.IGNORECASE if self.ignore_case else 0) is not None


def _marks_words(character: str) -> bool:
    return (character.isalnum() or character == "_") and not is_unspaced(character)


def _plain(text: str) -> str:
    return unicodedata.normalize("NFC", text).strip()


def _counted(how: str, phrases: Sequence[str]) -> str:
    return f"{how} of {len(phrases)} phrase{'s' if len(phrases) > 1 else ''}"


def _problem(phrases: Any) -> str | None:
    if not isinstance(phrases, list | tuple) or not phrases:
        return f"expected a text, a whole number or a list of texts, got {phrases!r:.80}"
    bad = [phrase for phrase in phrases if not isinstance(phrase, str) or not phrase.strip()]
    return f"expected phrases with something in them, got {bad[0]!r:.80}" if bad else None

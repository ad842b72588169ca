"""Where a piece of an answer's text lies among its tokens.

Decisions:
1. A reward gets no tokenizer. One that says something of a part of the answer takes the run's `decode` before the first step
   (`ReadsTokens`); a reward that wraps others passes it on.
2. The map is made from `decode` alone: a token ends where the text of the tokens up to it ends. So it holds for every
   tokenizer, and for tokens that are a part of a character, several characters, or nothing.
3. It is looked up by halving, since a reward needs the ends of a few steps and not those of a thousand tokens.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cache
from typing import Protocol, runtime_checkable

from toishi.rewards.base import Reward
from toishi.types import Completion

Decode = Callable[[Sequence[int]], str]
HALF_A_CHARACTER = "\ufffd"


class NotItsText(ValueError):
    """A completion's text is not what its tokens decode to."""


@runtime_checkable
class ReadsTokens(Protocol):
    """A reward that says which tokens it is about."""

    def with_decode(self, decode: Decode) -> Reward:
        """The same reward, knowing how the run's tokens become text."""
        ...


def with_decode(rewards: Sequence[Reward], decode: Decode) -> tuple[Reward, ...]:
    """`rewards`, of which those that ask for it know how tokens become text (as the engine made `Completion.text`)."""
    return tuple(reward.with_decode(decode) if isinstance(reward, ReadsTokens) else reward for reward in rewards)


def token_spans(completion: Completion, decode: Decode, places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The half-open token range of each half-open, non-empty range of characters of `completion.text`.

    A token that reaches over an end belongs to both sides. Raises NotItsText.

    >>> pieces = ["3+", "4", "=7", "\\nso", " 7", "</s>"]
    >>> from dataclasses import replace
    >>> from toishi.rewards.scripted import answered
    >>> completion = replace(answered("a b c d e"), text="3+4=7\\nso 7")
    >>> token_spans(completion, lambda ids: "".join(pieces[id] for id in ids if id < 5), [(0, 5), (6, 10)])
    [(0, 3), (3, 5)]
    """
    ids = completion.token_ids
    if not decode(ids).startswith(completion.text):
        raise NotItsText("the text is not what its tokens decode to, so no part of it can be found among them")

    @cache
    def end(count: int) -> int:
        """How many characters are settled after `count` tokens."""
        return len(decode(ids[:count]).rstrip(HALF_A_CHARACTER))

    counts = range(len(ids) + 1)
    found = []
    for start, stop in places:
        first = bisect_left(counts, start, key=end)  # so many tokens stand before it
        reaches_over = end(first) > start if first < len(counts) else False
        last = min(bisect_left(counts, stop, key=end), len(ids))
        found.append((min(first - reaches_over, last - 1), last))
    return found

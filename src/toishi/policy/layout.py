"""Which spans of a packed row are prompts, and which are answers to which prompt."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A prompt at `start` in the row and its answers right behind it, each `answer_lengths` fed tokens long (0 included)."""

    start: int
    prompt_length: int
    answer_lengths: tuple[int, ...]

    @property
    def prompt_end(self) -> int:
        """Where the first answer starts."""
        return self.start + self.prompt_length

    @property
    def end(self) -> int:
        """One beyond the last token."""
        return self.prompt_end + sum(self.answer_lengths)


@dataclass(frozen=True)
class Layout:
    """The spans of one row, one behind the other. Answers see their prompt and themselves, prompts only themselves.

    >>> first = Span(start=0, prompt_length=2, answer_lengths=(2, 0, 1))
    >>> layout = Layout((first, Span(start=5, prompt_length=1, answer_lengths=(1,))))
    >>> layout.longest, layout.sequences
    (4, ((0, 2), (2, 2), (4, 1), (5, 1), (6, 1)))
    """

    spans: tuple[Span, ...]

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt with one answer."""
        return max(span.prompt_length + max(span.answer_lengths, default=0) for span in self.spans)

    @cached_property
    def sequences(self) -> tuple[tuple[int, int], ...]:
        """(start, length) of every prompt and every answer that feeds a token: each is causal in itself."""
        found = []
        for span in self.spans:
            found.append((span.start, span.prompt_length))
            start = span.prompt_end
            for length in span.answer_lengths:
                if length:
                    found.append((start, length))
                start += length
        return tuple(found)

    def allowed_LL(self, device: torch.device | str = "cpu") -> Tensor:
        """(L, L) bool, True where the query (row) sees the key (column): the same said as a mask.

        >>> Layout((Span(start=0, prompt_length=1, answer_lengths=(1, 1)),)).allowed_LL().int().tolist()
        [[1, 0, 0], [1, 1, 0], [1, 0, 1]]
        """
        length = self.spans[-1].end
        allowed_LL = torch.zeros(length, length, dtype=torch.bool, device=device)
        for start, size in self.sequences:
            allowed_LL[start : start + size, start : start + size] = True
        for span in self.spans:
            allowed_LL[span.prompt_end : span.end, span.start : span.prompt_end] = True
        return allowed_LL.tril_()

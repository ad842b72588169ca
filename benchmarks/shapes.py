"""The work that every system is given: the same prompts as token ids, the same number of new tokens for every answer.

Standard library only: workers of peers read this in environments of their own.

Decisions:
1. Lengths are decided in advance and forced, so a system cannot win by stopping early. Reward values are fixed and all
   different, so every group teaches and every answer is trained on.
2. V: four answers in five stop between 8 and 32 tokens, one in five runs on, up to 256. The same draw for everybody.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One amount of work: `prompt_lengths` has one entry per prompt, `lengths_B` one per answer, siblings side by side."""

    name: str
    prompt_lengths: tuple[int, ...]
    lengths_B: tuple[int, ...]
    max_new_tokens: int

    @property
    def num_prompts(self) -> int:
        return len(self.prompt_lengths)

    @property
    def group_size(self) -> int:
        return len(self.lengths_B) // self.num_prompts

    @property
    def new_tokens(self) -> int:
        """Tokens that are sampled, and trained on, in a step."""
        return sum(self.lengths_B)

    @property
    def fed_tokens(self) -> int:
        """Tokens that a training pass cannot do without: every prompt once, every answer without its last token.

        >>> even("x", prompt_lengths=(10,), group_size=2, new=4).fed_tokens
        16
        """
        return sum(self.prompt_lengths) + self.new_tokens - len(self.lengths_B)

    def prompts(self, vocab_size: int) -> list[list[int]]:
        """Token ids of the prompts; the first ids, which are often special, are left out."""
        draw = random.Random(f"{self.name} {self.prompt_lengths}")
        return [[draw.randrange(16, vocab_size) for _ in range(length)] for length in self.prompt_lengths]

    def with_lengths(self, longest: int) -> Shape:
        """The same rows, none longer than `longest`; the limit stays. For warming up."""
        return replace(self, lengths_B=tuple(min(longest, length) for length in self.lengths_B))

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Shape:
        return cls(**found | {key: tuple(found[key]) for key in ("prompt_lengths", "lengths_B")})


def even(name: str, *, prompt_lengths: tuple[int, ...], group_size: int, new: int) -> Shape:
    """A shape in which every answer has `new` tokens."""
    return Shape(
        name=name, prompt_lengths=prompt_lengths, lengths_B=(new,) * (group_size * len(prompt_lengths)), max_new_tokens=new
    )


def uneven(name: str, *, prompt_lengths: tuple[int, ...], group_size: int, most: int) -> Shape:
    """A shape in which 80% of the answers have most/32 to most/8 tokens and 20% run on, at least one of them to `most`.

    >>> shape = uneven("V", prompt_lengths=(4, 4), group_size=10, most=256)
    >>> sum(length <= 32 for length in shape.lengths_B), max(shape.lengths_B)
    (16, 256)
    """
    count = group_size * len(prompt_lengths)
    draw = random.Random(f"{name} {count} {most}")
    num_long = round(0.2 * count)
    lengths = [draw.randint(most // 32, most // 8) for _ in range(count - num_long)]
    lengths += [draw.randint(most // 8 + 1, most) for _ in range(num_long - 1)] + [most]
    draw.shuffle(lengths)
    return Shape(name=name, prompt_lengths=prompt_lengths, lengths_B=tuple(lengths), max_new_tokens=most)


def rewards(group_size: int) -> list[float]:
    """A value for each member of a group: squares, so that all differ and none is the mean.

    >>> rewards(4)
    [0.0, 0.0625, 0.25, 0.5625]
    """
    return [(member / group_size) ** 2 for member in range(group_size)]


_SHORT, _LONG = (34, 36, 38, 40), (330, 340, 360, 370)
SHAPES = {
    "S": even("S", prompt_lengths=_SHORT, group_size=8, new=64),
    "L": even("L", prompt_lengths=_LONG, group_size=8, new=64),
    "V": uneven("V", prompt_lengths=_SHORT, group_size=8, most=256),
}
QUICK_SHAPES = {
    "S": even("S", prompt_lengths=(5, 7), group_size=4, new=8),
    "L": even("L", prompt_lengths=(24, 28), group_size=4, new=8),
    "V": uneven("V", prompt_lengths=(5, 7), group_size=4, most=32),
}

"""What a page is made of, before anything is drawn: a terminal and an HTML file draw the same blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

Tone = Literal["", "up", "down", "against", "held", "total"]


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Running text with `code` and **bold**."""

    text: str


@dataclass(frozen=True, slots=True)
class Formula:
    """One line to be set apart."""

    text: str


@dataclass(frozen=True, slots=True)
class Column:
    """A column's title, and whether it holds numbers."""

    title: str
    numeric: bool = True


@dataclass(frozen=True, slots=True)
class Line:
    """A table's row; the tone says what it stands for, colour only repeats it."""

    cells: tuple[str, ...]
    tone: Tone = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and lines, with a caption."""

    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Bars:
    """Probabilities before and after: (word, before, after)."""

    caption: str
    items: tuple[tuple[str, float, float], ...]


@dataclass(frozen=True, slots=True)
class Signed:
    """Numbers around 0: (label, value, value as text)."""

    caption: str
    items: tuple[tuple[str, float, str], ...]


@dataclass(frozen=True, slots=True)
class Heat:
    """A grid of numbers from -1 to 1, each with its text; colour only repeats it."""

    caption: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    levels: tuple[tuple[float, ...], ...]
    texts: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of running text with a number from -1 to 1 behind it; `said` is that number in words."""

    text: str
    level: float
    said: str


@dataclass(frozen=True, slots=True)
class Tokens:
    """A text, token by token, each as strongly marked as its number is far from 0."""

    caption: str
    items: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check came to; `detail` is how, for those who ask."""

    ok: bool
    text: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Folded:
    """Blocks that a reader may pass over: closed at first in HTML, below their title on a terminal."""

    title: str
    blocks: tuple[Block, ...]


Block = Paragraph | Formula | Table | Bars | Signed | Heat | Tokens | Verdict | Folded


def unfolded(blocks: Iterable[Block]) -> Iterator[Block]:
    """All blocks that hold something, those inside folds too.

    >>> [block.text for block in unfolded([Folded("more", (Paragraph("a"), Folded("still more", (Paragraph("b"),)))),])]
    ['a', 'b']
    """
    for block in blocks:
        if isinstance(block, Folded):
            yield from unfolded(block.blocks)
        else:
            yield block


@dataclass(frozen=True, slots=True)
class Section:
    """One thought: a title, a sentence that a person can repeat, and what it rests on."""

    key: str
    title: str
    headline: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """The whole page in one language."""

    language: str
    title: str
    lead: str
    contents: str
    legend: str
    footer: str
    sections: tuple[Section, ...]

"""What a page is made of, before anything is drawn: a terminal and an HTML file draw the same blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Tone = Literal["", "up", "down", "held", "total"]


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
    """What a check came to."""

    ok: bool
    text: str


Block = Paragraph | Formula | Table | Bars | Signed | Tokens | Verdict


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

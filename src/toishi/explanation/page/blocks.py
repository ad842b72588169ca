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
class Case:
    """What a reader of a `Lookup` can choose: the cells that vary, and what is said of it. Texts carry no marks.

    value    what is chosen, as it stands beside the slider
    option   the same as an option of the lookup's command
    cells    for each line those of the columns that vary
    tones    of the lines
    numbers  for each line its numbers, under the names that the lookup has for them
    """

    value: str
    option: str
    said: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    tones: tuple[Tone, ...]
    numbers: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """A slider: its label, the line that it is about, and its cases by their place in the lookup.

    start    the place of the slider at first
    apart    the case of the switch beside it; None where there is none
    why_not  why something cannot be chosen
    """

    label: str
    line: int
    cases: tuple[int, ...]
    start: int
    apart: int | None
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class LookupWords:
    """What a lookup's controls and its picture are called, and what leads to its command."""

    choice: str
    slider: str
    apart: str
    reset: str
    command: str
    picture: str


@dataclass(frozen=True, slots=True)
class Lookup:
    """A table of which some columns change with what the reader chooses. Everything was computed before.

    columns  each with whether it varies
    lines    the cells that do not vary
    marks    for each line a number that stands in its picture whatever is chosen; None: none
    chosen   (choice, place of its slider) at first
    command  what to type for any case: what stands before its option, and after it
    numbers  names of the cases' numbers
    drawn    which two of them are drawn in the line's picture: a middle, and how far it may be off
    """

    columns: tuple[tuple[Column, bool], ...]
    lines: tuple[tuple[str, ...], ...]
    marks: tuple[float | None, ...]
    cases: tuple[Case, ...]
    choices: tuple[Choice, ...]
    chosen: tuple[int, int]
    command: tuple[str, str]
    numbers: tuple[str, ...]
    drawn: tuple[int, int]
    words: LookupWords
    caption: str = ""

    @property
    def first(self) -> Case:
        """The case that is shown at first, and where nothing can be chosen."""
        choice, place = self.chosen
        return self.cases[self.choices[choice].cases[place]]

    def whole_lines(self, case: Case) -> Iterator[tuple[str, ...]]:
        """All cells of each line; those that vary are words without marks."""
        for fixed, varied in zip(self.lines, case.cells, strict=True):
            parts = {False: iter(fixed), True: iter(varied)}
            yield tuple(next(parts[varies]) for _, varies in self.columns)


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


Block = Paragraph | Formula | Table | Bars | Signed | Heat | Tokens | Lookup | Verdict | Folded


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

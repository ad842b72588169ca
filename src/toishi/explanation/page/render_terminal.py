"""The page on a terminal: readable at 80 columns, in a pipe, and without colour."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from toishi.explanation.page.blocks import (
    Bars,
    Block,
    Folded,
    Formula,
    Heat,
    Line,
    Lookup,
    Page,
    Paragraph,
    Section,
    Signed,
    Table,
    Tokens,
    Verdict,
)
from toishi.explanation.page.markup import chance, code, literal, pieces

TONES = {"": "", "up": "green", "down": "red", "against": "yellow", "held": "dim", "total": "bold"}
BAR_WIDTH = 40


def render(page: Page, console: Console) -> None:
    """Prints the whole page."""
    console.print(Text(page.title, style="bold"))
    console.print(styled(page.lead))
    for number, section in enumerate(page.sections, start=1):
        console.print("")
        render_section(section, console, number)
    console.print("")
    console.print(styled(page.footer))


def styled(text: str, style: str = "") -> Text:
    """
    >>> styled("say `ok`").plain
    'say ok'
    """
    styles = {"": style, "code": f"{style} cyan".strip(), "bold": "bold"}
    return Text.assemble(*((piece, styles[mark]) for mark, piece in pieces(text)))


def render_section(section: Section, console: Console, number: int | None = None) -> None:
    """Prints one section, numbered if it is one of several."""
    title = section.title if number is None else f"{number}. {section.title}"
    console.rule(Text(title, style="bold"), align="left", characters="─")
    console.print(styled(section.headline, "bold"))
    for block in section.blocks:
        console.print("")
        _DRAW[type(block)](block, console)


def _paragraph(block: Paragraph, console: Console) -> None:
    console.print(styled(block.text), highlight=False)


def _formula(block: Formula, console: Console) -> None:
    console.print(Padding(Text(block.text, style="cyan"), (0, 0, 0, 4)))


def _table(block: Table, console: Console) -> None:
    if block.caption:
        console.print(styled(block.caption, "italic"))
    table = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for column in block.columns:
        table.add_column(styled(column.title), justify="right" if column.numeric else "left", overflow="fold")
    for line in block.lines:
        table.add_row(*(styled(cell, TONES[line.tone]) for cell in line.cells))
    console.print(table, highlight=False)


def _bars(block: Bars, console: Console) -> None:
    console.print(styled(block.caption, "italic"))
    width = max((Text(word).cell_len for word, _, _ in block.items), default=0)
    for word, before, after in block.items:
        tone = "green" if after > before else "red"
        label = Text(word)
        label.pad_right(width - label.cell_len)
        console.print(Text.assemble(label, " ", (_bar(before), "dim"), f" {chance(before)}"), highlight=False)
        console.print(Text.assemble(" " * width, " ", (_bar(after), tone), f" {chance(after)}"), highlight=False)


def _signed(block: Signed, console: Console) -> None:
    console.print(styled(block.caption, "italic"))
    largest = max((abs(value) for _, value, _ in block.items), default=0.0) or 1.0
    width, half = max((Text(label).cell_len for label, _, _ in block.items), default=0), BAR_WIDTH // 2
    for name, value, number in block.items:
        label = Text(name)
        label.pad_right(width - label.cell_len)
        bar = "█" * round(abs(value) / largest * half)
        left, right = (bar.rjust(half), " " * half) if value < 0 else (" " * half, bar.ljust(half))
        tone = "red" if value < 0 else "green"
        console.print(Text.assemble(label, " ", (left, tone), "│", (right, tone), f" {number}"), highlight=False)


def _heat(block: Heat, console: Console) -> None:
    console.print(styled(block.caption, "italic"))
    table = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("", *block.columns):
        table.add_column(Text(name), justify="right")
    for name, levels, texts in zip(block.rows, block.levels, block.texts, strict=True):
        tones = ("bold " * (abs(level) > 2 / 3) + ("red" if level < 0 else "green") for level in levels)
        table.add_row(Text(name), *(Text(text, style=tone) for text, tone in zip(texts, tones, strict=True)))
    console.print(table, highlight=False)


def _tokens(block: Tokens, console: Console) -> None:
    """The strongest third is bold; the sign is the colour's, and the table beside it has the numbers."""
    console.print(styled(block.caption, "italic"))
    tones = {1: "green", -1: "red", 0: "dim"}
    parts = []
    for token in block.items:
        side = (token.level > 0) - (token.level < 0)
        parts.append((token.text, f"bold {tones[side]}" if abs(token.level) > 2 / 3 else tones[side]))
    console.print(Padding(Text.assemble(*parts), (0, 0, 0, 2)), highlight=False)


def _lookup(block: Lookup, console: Console) -> None:
    """Its first case, and the command for all others."""
    case = block.first
    for text in case.said:
        console.print(Text(text))
    varied = [varies for _, varies in block.columns]
    lines = (
        Line(tuple(literal(cell) if varies else cell for cell, varies in zip(cells, varied, strict=True)), tone)
        for cells, tone in zip(block.whole_lines(case), case.tones, strict=True)
    )
    _table(Table(tuple(column for column, _ in block.columns), tuple(lines), block.caption), console)
    console.print(styled(f"{block.words.command} {code(case.option.join(block.command))}"), highlight=False)


def _verdict(block: Verdict, console: Console) -> None:
    console.print(styled(f"{'✓' if block.ok else '✗'} {block.text}", "green" if block.ok else "bold red"), highlight=False)
    if block.detail:
        console.print(Padding(styled(block.detail, "dim"), (0, 0, 0, 2)), highlight=False)


def _folded(block: Folded, console: Console) -> None:
    console.print(styled(block.title, "bold"))
    for inner in block.blocks:
        _DRAW[type(inner)](inner, console)


def _bar(share: float) -> str:
    """
    >>> _bar(0.1)
    '████'
    """
    return "█" * round(share * BAR_WIDTH) or "▏"


_DRAW: Mapping[type[Block], Callable[[Any, Console], None]] = {
    Paragraph: _paragraph,
    Formula: _formula,
    Table: _table,
    Bars: _bars,
    Signed: _signed,
    Heat: _heat,
    Tokens: _tokens,
    Lookup: _lookup,
    Verdict: _verdict,
    Folded: _folded,
}

"""Algorithms as a table, and one of them as a page."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group as Lines
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from toishi.algorithms.note import AlgorithmNote
from toishi.algorithms.rows import Algorithm

_CHOICES = ("reward_map", "baseline", "scale", "filter", "ratio_level", "surrogate", "reduction", "kl", "truncation")
_PLAIN = ("none", "keep", "identity")


def algorithms_table(rows: Mapping[str, Algorithm], notes: Mapping[str, AlgorithmNote]) -> Lines:
    """Every row with its title and the choices that it makes."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for name, row in rows.items():
        table.add_row(name, Text.assemble(notes[name].title, "\n", (choices_in_words(row), "dim")))
    hint = Text.assemble("\nOne in full:  ", ("toishi algorithms NAME", "green"), "\nIn a recipe:  ")
    hint.append("algorithm: {name: grpo, scale: none}", style="green").append("   any choice can be changed")
    return Lines(table, hint)


def choices_in_words(row: Algorithm) -> str:
    """What the row chose, without what it leaves out.

    >>> from toishi.algorithms.rows import algorithm
    >>> choices_in_words(algorithm("dr_grpo"))
    'baseline group mean · ratio level token · surrogate clipped · reduction constant length'
    """
    chosen = [(name, getattr(row, name)) for name in _CHOICES]
    return " · ".join(f"{_words(name)} {_words(value)}" for name, value in chosen if value not in _PLAIN)


def note_page(row: Algorithm, note: AlgorithmNote) -> Lines:
    """Meaning, equation, symbols, choices, paper, traps, differences."""
    parts: list[Text | Padding | Table] = [Text(note.title, style="bold"), Text(note.meaning), _heading("Equation")]
    parts.append(Padding(Text(note.equation, style="cyan"), (0, 0, 0, 2)))
    parts += [Padding(_pairs(dict(note.symbols)), (0, 0, 0, 2)), _heading("The row")]
    chosen = {key: str(value) for key, value in row.model_dump().items() if key != "name"}
    parts += [Padding(_pairs(chosen), (0, 0, 0, 2)), _heading("Paper"), Padding(Text(note.paper), (0, 0, 0, 2))]
    for title, lines in (("Traps", note.traps), ("Where others differ", note.differences)):
        if lines:
            parts.append(_heading(title))
            parts += [_bullet(line) for line in lines]
    return Lines(*parts)


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _bullet(text: str) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column()
    table.add_row("  •", Text(text))
    return table


def _pairs(pairs: Mapping[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for name, text in pairs.items():
        table.add_row(name, Text(text))
    return table


def _words(choice: str) -> str:
    return choice.replace("_", " ")

"""`toishi label`: people judge pairs blind, in the terminal."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toishi.cli.common import AsJson, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from toishi.collecting.labelling import Agreement, Shown

HELP = "1 left, 2 right, = equally good, s skip (comes again), q quit"


def label(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Pairs: rows with prompt, chosen, rejected.", show_default=False)
    ],
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Who labels (default: the user's name).", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Where labels go (default: FILE.labels.jsonl).", show_default=False),
    ] = None,
    agreement: Annotated[bool, typer.Option("--agreement", help="How far the labellers agree, instead of labelling.")] = False,
    as_json: AsJson = False,
) -> None:
    """Judge pairs of answers yourself: blind, side by side, one key each. Quit at any time; the next call goes on there.

    Keys: 1 left, 2 right, = equally good, s skip, q quit. Without a terminal the keys are read from stdin. With --agreement:
    Cohen's kappa of every two labellers, Krippendorff's alpha of all, and how often each prefers what the file calls chosen.

    Example:  toishi label pairs.jsonl --name ada
    """
    from toishi.collecting.labelling import agreement as agreement_of
    from toishi.collecting.labelling import label as label_items
    from toishi.collecting.labelling import labels_path, read_items, read_labels
    from toishi.consoles import make_console, visible

    path = out or labels_path(file)
    items = read_items(file)
    if agreement:
        report = agreement_of(items, read_labels(path))
        print_json(report.as_record()) if as_json else print_agreement(report, make_console())
        return
    console = make_console(stderr=as_json)
    who = name or getpass.getuser()
    done, left = label_items(items, path, who, _keys(), lambda shown: show(shown, console))
    if as_json:
        print_json({"file": str(path), "name": who, "labelled": done, "left": left})
        return
    said = visible(f"{done} labelled by {who}, {left} to do; labels: {path}")
    console.print(said, markup=False, highlight=False, soft_wrap=True)


def _keys() -> Iterator[str]:
    """Single keys of a terminal, or what stands in stdin."""
    from toishi.collecting.labelling import keys_of

    if not sys.stdin.isatty():
        yield from keys_of(sys.stdin)
        return
    import click

    while True:
        yield from keys_of([click.getchar()])


def show(shown: Shown, console: Console) -> None:
    """A pair, every sign of it: side by side where there is room, else one below the other. Long words are folded."""
    from rich.columns import Columns
    from rich.panel import Panel
    from rich.text import Text

    from toishi.consoles import visible

    console.print(Text(f"\npair {shown.number} of {shown.total}", style="bold"))
    console.print(Text(visible(shown.prompt), overflow="fold"))
    width = (console.width - 1) // 2 if console.width >= 80 else None
    texts = [Text(visible(text), overflow="fold") for text in (shown.left, shown.right)]
    sides = [Panel(text, title=key, width=width) for key, text in zip("12", texts, strict=True)]
    console.print(Columns(sides, padding=(0, 0)) if width is not None else sides[0])
    if width is None:
        console.print(sides[1])
    console.print(Text(HELP, style="dim"))


def print_agreement(report: Agreement, console: Console) -> None:
    """Who labelled how much, and how far they agree."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from toishi.consoles import visible

    people = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("name", "labels", "ties", "prefers the chosen one", "prefers the left one"):
        people.add_column(column)
    for one in report.people:
        people.add_row(Text(visible(one.name)), str(one.count), str(one.ties), str(one.agrees or "-"), str(one.left or "-"))
    console.print(people, highlight=False)
    if report.two:
        two = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in ("both labelled", "pairs", "agreement [95%]", "kappa [95%]"):
            two.add_column(column)
        for found in report.two:
            names = Text(visible(f"{found.first}, {found.second}"))
            two.add_row(names, str(found.count), str(found.raw), str(found.kappa))
        console.print(two, highlight=False)
    alpha = "not defined" if report.alpha is None else f"{report.alpha:.3f} (.80 and more is called reliable)"
    console.print(f"Krippendorff's alpha of {len(report.people)} labellers: {alpha}", highlight=False, soft_wrap=True)

"""What `toishi replay` prints: one row a link, and what it comes to in a sentence."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from toishi.record.trace import Trace
from toishi.record.trace_files import trace_folder
from toishi.replay.links import LinkCheck
from toishi.replay.redo import ReplayReport


@dataclass
class _Row:
    """A link over all steps and updates that were done again."""

    compared: int = 0
    same_bits: int = 0
    largest: float = 0.0
    ok: bool = True

    def add(self, link: LinkCheck) -> None:
        self.compared += link.compared
        self.same_bits += link.same_bits
        self.largest = max(self.largest, link.largest)
        self.ok = self.ok and link.ok


def replay_texts(report: ReplayReport) -> Iterator[RenderableType]:
    """The table of links, the notes and the verdict."""
    yield _table(report)
    for fact in report.elsewhere:
        yield Text(
            f"other machine or versions: {fact}; bits need not agree, the bounds are {bounds_in_words(report)}", "yellow"
        )
    for note in report.notes:
        yield Text(f"note: {note}", "yellow")
    yield verdict(report)


def verdict(report: ReplayReport) -> Text:
    """What the replay found, in a sentence."""
    if report.difference is not None:
        return Text(f"first link that differs: {report.difference.text}", "red")
    if report.bit_for_bit:
        return Text(f"step {report.step} came out again bit for bit, on every link", "green")
    return Text(f"step {report.step} came out again within the bounds, on every link", "green")


def trace_text(run_folder: Path, step: int, trace: Trace | None) -> str:
    """Where the trace is, or why there is none."""
    if trace is None:
        return "no trace was written: a replay that does not agree with the record is another step"
    return f"traced: {trace_folder(run_folder, step)}"


def bounds_in_words(report: ReplayReport) -> str:
    """The bounds that were applied."""
    bounds = report.bounds
    return (
        f"{bounds.nats:g} nats for log-probs, {bounds.gradient:.2g} (relative) for gradient norms, {bounds.weights:.2g} (of "
        "the way that they moved) for weights"
    )


def _table(report: ReplayReport) -> Table:
    rows: dict[str, _Row] = {}
    for link in report.links:
        rows.setdefault(link.link, _Row()).add(link)
    title = f"steps done again: {_steps(report.steps)}"
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, title=title, title_justify="left")
    for name in ("link", "compared", "same bits", "largest distance", ""):
        table.add_column(name, justify="left" if name in ("link", "") else "right", no_wrap=True)
    for name, row in rows.items():
        if row.compared:
            table.add_row(
                name,
                f"{row.compared:,}",
                f"{row.same_bits:,}",
                f"{row.largest:.3g}" if math.isfinite(row.largest) else "-",
                "" if row.ok else "differs",
            )
    return table


def _steps(steps: tuple[int, ...]) -> str:
    """
    >>> _steps((4,)), _steps((1, 2, 3))
    ('4', '1 to 3')
    """
    return str(steps[0]) if len(steps) == 1 else f"{steps[0]} to {steps[-1]}"

"""Prints what select, collect and pairs found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toishi.collecting import keeping, pairing
from toishi.collecting.history import told
from toishi.collecting.selecting import REASONS, SHOWN
from toishi.consoles import visible
from toishi.display_tables import counted, number

if TYPE_CHECKING:
    from toishi.collecting.history import Lived
    from toishi.collecting.keeping import Kept
    from toishi.collecting.pairing import Lengths, Paired
    from toishi.collecting.selecting import Selection


def print_selection(report: Selection, console: Console) -> None:
    """Pass rates, what was dropped and why, duplicates and overlap."""
    ends = "" if report.rate_interval is None else f" [{report.rate_interval[0]:.3f}, {report.rate_interval[1]:.3f}]"
    console.print(
        Text(
            f"{counted(report.prompts, 'prompt')}, {counted(report.answers, 'answer')}; right: {visible(report.right)}; "
            f"mean pass rate {number(report.rate, 3)}{ends}; {report.truncated:.0%} cut at the limit"
        ),
        soft_wrap=True,
    )
    table = _table(("pass rate", "prompts", "share [95% interval]", "kept"))
    for one in report.bins:
        table.add_row(one.name, str(one.count), str(one.share), str(one.kept))
    console.print(table, highlight=False)
    print_dropped(report.dropped, REASONS, console)
    if report.mixed is not None:
        before, after = report.mixed
        text = f"expected share of mixed groups of {report.group_size}: {before:.2f} of all, {after:.2f} of the kept"
        console.print(Text(text), soft_wrap=True)
    _print_alike(report, console)
    for note in report.notes:
        console.print(Text(visible(note), style="yellow"), soft_wrap=True)


def print_history(lived: Sequence[Lived], right: str, console: Console) -> None:
    """The prompts whose success moved most, with their success at each visit."""
    table = _table(("prompt", "variance", "mean", "visits", f"share of right answers ({visible(right)}) at each"))
    for cells in told(lived):
        table.add_row(*map(visible, cells))
    console.print(table, highlight=False)


def print_kept(report: Kept, console: Console) -> None:
    """What was kept of the sampled answers, and why the others were not."""
    console.print(
        Text(
            f"{report.kept} of {counted(report.answers, 'answer')} kept, for {report.prompts_kept} of "
            f"{counted(report.prompts, 'prompt')}; mean reward {number(report.reward_before, 3)} -> "
            f"{number(report.reward_after, 3)}, mean length {number(report.tokens_before, 1)} -> "
            f"{number(report.tokens_after, 1)} tokens"
        ),
        soft_wrap=True,
    )
    print_dropped(report.dropped, keeping.REASONS, console)
    for note in report.notes:
        console.print(Text(visible(note), style="yellow"), soft_wrap=True)


def print_paired(report: Paired, console: Console) -> None:
    """How many pairs, why others are none, and how long chosen and rejected answers are."""
    of = f"{counted(report.candidates, 'candidate')} ({counted(report.prompts, 'prompt')})"
    text = f"{report.kept} pairs of {of}, by {report.by}"
    console.print(Text(visible(text)), soft_wrap=True)
    print_dropped(report.dropped, pairing.REASONS, console)
    for name, found in (("before balancing", report.before), ("written", report.after)):
        if found is not None:
            console.print(Text(f"{name}: {_lengths(found)}"), soft_wrap=True)
    if report.first_shown is not None:
        text = f"of the judge's decided calls {report.first_shown:.0%} preferred the answer shown first"
        console.print(Text(text), soft_wrap=True)


def _lengths(found: Lengths) -> str:
    return f"chosen {found.chosen:.1f} tokens, rejected {found.rejected:.1f}, the chosen one is longer in {found.longer:.0%}"


def print_dropped(dropped: Mapping[str, int], reasons: Mapping[str, str], console: Console) -> None:
    """Why rows went, and how many."""
    if not dropped:
        return
    table = _table(("dropped", "count", "why"))
    for reason, count in dropped.items():
        table.add_row(reason, str(count), reasons[reason])
    console.print(table, highlight=False)


def _print_alike(report: Selection, console: Console) -> None:
    rows = len({row for row, *_ in report.duplicates})
    lines = [f"near-duplicates: {counted(rows, 'prompt')} alike to an earlier one"]
    lines += [f"  {row} and {other} ({similarity:.2f})" for row, other, similarity in report.duplicates[:SHOWN]]
    lines.append(f"overlap with {counted(report.compared_with, 'held-out or evaluation prompt')}: {len(report.overlap)}")
    lines += [f"  {row} and {other} ({how}, {similarity:.2f})" for row, other, how, similarity in report.overlap[:SHOWN]]
    console.print(Text(visible("\n".join(lines))), soft_wrap=True)


def _table(columns: tuple[str, ...]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in ("prompts", "kept", "count") else "left")
    return table

"""Prints what the attacks on a recipe's rewards found."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toishi.display_tables import number
from toishi.explanation.render import one_line
from toishi.scoring import AttackReport


def print_attacks(report: AttackReport, console: Console) -> None:
    """What paid, reward by reward, and in words what that means."""
    rows = f"{report.num_rows} {'row' if report.num_rows == 1 else 'rows'}"
    title = f"\n{report.num_attacks} attacks on the rewards, {report.num_texts} made-up answers to {rows}"
    console.print(Text(title, style="bold"))
    if report.paid:
        console.print(attack_table(report), highlight=False)
    for line in attack_lines(report):
        console.print(Text(line))


def attack_table(report: AttackReport) -> Table:
    """One line for each reward and attack that it pays more than an honest wrong answer."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("reward", "attack", "paid", "wrong", "right", "for example"):
        table.add_column(column, justify="right" if column in ("paid", "wrong", "right") else "left")
    for row in report.paid:
        example = Text(repr(one_line(row.text, 24)), style="dim")
        table.add_row(row.reward, row.attack, number(row.paid), number(row.wrong), number(row.right), example)
    return table


def attack_lines(report: AttackReport) -> list[str]:
    """What was found, in sentences.

    >>> nothing = AttackReport(num_rows=4, num_attacks=17, num_texts=488, paid=(), hacked=(), form_only=("format",),
    ...                        left_out=(), has_right=True)
    >>> attack_lines(nothing)[0]
    "'format' pays a wrong answer as much as the right one: it looks at form, which attacks can have too. No fault of its own."
    >>> attack_lines(nothing)[1]
    'The sum pays no attack as much as the right answer.'
    """
    lines = []
    for name in report.form_only:
        lines.append(
            f"'{name}' pays a wrong answer as much as the right one: it looks at form, which attacks can have too. "
            "No fault of its own."
        )
    for name in report.left_out:
        lines.append(f"'{name}' compares answers with one another and was left out, and so was the sum; see its probe.")
    if not report.has_right:
        lines.append("No right answer that is paid more than a wrong one is known here, so nothing can be said of the sum.")
    elif not report.hacked:
        lines.append("The sum pays no attack as much as the right answer.")
    return [*lines, *(f"Against {names}: {remedy}." for remedy, names in _remedies(report).items())]


def _remedies(report: AttackReport) -> dict[str, str]:
    """What to do -> the attacks that it helps against."""
    found: dict[str, dict[str, None]] = {}
    for row in report.paid:
        found.setdefault(row.remedy, {})[f"'{row.attack}'"] = None
    return {remedy: ", ".join(names) for remedy, names in found.items()}

"""Prints a judge's audit: the verdict by part, the numbers behind it, the table of signs, and what to do, last."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toishi.display_tables import facts_table
from toishi.judging.audit_parts import Agreement, AuditReport, Mistakes, Word
from toishi.ops.stats import Interval

_FLIP_COLUMNS = (
    "calls\naveraged",
    "noise\nsd",
    "wrong signs\n(formula)",
    "wrong signs\n(simulated)",
    "best answer\nnot first",
    "corr. with\nthe truth",
)
_STYLES: dict[Word, str] = {"good": "green", "usable": "green", "unclear": "yellow", "bad": "red"}


def render_audit(report: AuditReport, console: Console) -> None:
    """The whole report."""
    times = round(report.asked / report.answers)
    asked = f"{report.answers} answers to {report.prompts} prompts, each judged {times} time{'s' * (times != 1)}"
    console.print(Text(f"judge '{report.reward}': {asked}", style="bold"), highlight=False)
    console.print(_verdicts(report), "", highlight=False)
    console.print(facts_table(dict(_facts(report))), highlight=False)
    if report.sign_flips:
        console.print(Text(f"\nWhat its noise does to the signs of advantages at G={report.group_size}", style="bold"))
        console.print(_flips(report), highlight=False)
    console.print(Text.assemble("\n", (report.word, f"bold {_STYLES[report.word]}"), f": {report.advice}"))


def _verdicts(report: AuditReport) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in ("part", "verdict", "why (95% intervals)"):
        table.add_column(name, no_wrap=name != "why (95% intervals)")
    for found in report.findings:
        table.add_row(found.part, Text(found.word, style=_STYLES[found.word]), found.why)
    return table


def _facts(report: AuditReport) -> Iterator[tuple[str, str]]:
    if report.agreement is not None:
        yield "agreement", "; ".join(_agreement(report.agreement, report.threshold))
    if report.mistakes is not None:
        yield "mistakes", _mistakes(report.mistakes, report.group_size)
    if report.length is not None:
        yield "length", f"rank correlation of score and length {shown(report.length.correlation)}"
    if report.own_answers is not None:
        yield "own answers", f"{report.own_answers.own} of its own model, {report.own_answers.other} of others"
    if report.position is not None and report.position.unreadable:
        yield "pairs", f"{report.position.unreadable} of {report.position.pairs} could not be read in both orders"
    if report.noise is not None:
        yield (
            "noise",
            f"sd {shown(report.noise.sd)} from asking to asking; alpha of the askings {report.noise.alpha:.2f}",
        )
    if report.tied_advantage is not None:
        yield "ties", f"equally good answers would get advantages of {report.tied_advantage:.2g} on average, from noise alone"
    if report.used:
        yield "used", ", ".join(f"{key.replace('_', ' ')} {value:g}" for key, value in report.used.items() if value)


def _agreement(found: Agreement, threshold: float) -> Iterator[str]:
    if found.base_rate is not None:
        yield f"{found.base_rate:.0%} of {found.count} are right; score >= {threshold:g} calls an answer right"
    if found.raw is not None:
        yield f"raw {shown(found.raw)}"
    if found.kappa is not None:
        yield f"kappa {shown(found.kappa)}"
    if found.auc is not None:
        yield f"AUC {shown(found.auc)}"
    if found.base_rate is None:
        yield f"Spearman {shown(found.spearman)}, Kendall {found.kendall:.2f}, Pearson {found.pearson:.2f}"
    if found.alpha is not None and found.base_rate is None:
        yield f"Krippendorff's alpha {found.alpha:.2f}"
    if found.calibration is not None:
        yield f"calibration error {found.calibration:.2f}"


def _mistakes(found: Mistakes, group_size: int) -> str:
    perfect = 1 - 1 / group_size
    return (
        f"calls {shown(found.false_positive)} of the wrong answers right and {shown(found.false_negative)} of the right ones "
        f"wrong. A right answer gets an advantage {found.gap:.2f} above a wrong one ({perfect:.2f} from a perfect checker, "
        f"J times as much); {found.wrong_signs:.0%} of the signs in mixed groups are wrong or lost"
    )


def _flips(report: AuditReport) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in _FLIP_COLUMNS:
        table.add_column(name, justify="right")
    for row in report.sign_flips:
        shares = (f"{share:.1%}" for share in (row.closed_form, row.simulated, row.best_not_first))
        table.add_row(str(row.calls), f"{row.noise_sd:.3g}", *shares, f"{row.correlation:.2f}")
    return table


def shown(seen: Interval) -> str:
    """A number with its interval, where it has one.

    >>> shown(Interval(0.5, 0.25, 0.75)), shown(Interval(0.5, math.nan, math.nan))
    ('0.50 [0.25, 0.75]', '0.50')
    """
    bounds = f" [{seen.low:.2f}, {seen.high:.2f}]" if math.isfinite(seen.low) else ""
    return f"{seen.value:.2f}{bounds}"

"""Is a run's record whole, and does every number in it follow from the one before it?

Decisions:
1. Two nets. Seals (sha256) find any change at all; recomputation (scores -> reward -> baseline -> advantage -> token weight ->
   loss) finds numbers that were wrong when they were written, and says what they should have been.
2. An audit never stops at the first finding and never raises for a damaged file: damage is a finding.
3. What cannot be checked is said in `notes`, so that silence is not taken for a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toishi.algorithms.rows import Algorithm
from toishi.errors import RecordError, ToishiError
from toishi.explanation.audit_files import check_files
from toishi.explanation.audit_rows import check_advantages, check_composition, check_scores, check_tables
from toishi.explanation.audit_updates import check_metrics, check_updates
from toishi.explanation.audit_values import check_values
from toishi.explanation.ledger import Finding, Ledger
from toishi.explanation.step import critic_warmup_of, terms_of
from toishi.record import Run
from toishi.record.lines import update_scalars
from toishi.record.schema import shard_name
from toishi.record.source import Source, source_of

MAX_SHOWN = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """What an audit looked at and what it found; `missing` are the links that another program's record does not have."""

    folder: str
    steps: int
    rollouts: int
    tokens: int
    compared: int
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    missing: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.findings

    def as_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rules:
    """What the run was told to do, from run.json."""

    algorithm: Algorithm
    max_new_tokens: int
    whole_support: bool
    inner_epochs: int
    critic_warmup: int
    source: Source | None

    @property
    def missing(self) -> Mapping[str, str]:
        return {} if self.source is None else self.source.missing


def audit(run: Run | str | Path, on_step: Callable[[int, int], None] | None = None) -> AuditReport:
    """Checks the whole folder. `on_step(done, total)` is called after each step, for a progress bar."""
    ledger, counts = Ledger(), {"steps": 0, "rollouts": 0, "tokens": 0}
    try:
        run = run if isinstance(run, Run) else Run.open(run)
    except RecordError as error:
        ledger.found(str(run), "", "readable", error, "a whole run folder")
        return _report(Path(str(run)), counts, ledger)
    check_files(run, ledger)
    rules = _rules(run, ledger)
    if rules is not None and rules.source is not None:
        by = rules.source.trained_by
        ledger.notes += [
            f"{link}: not on record, so not checked. {why} (trained by {by})" for link, why in rules.missing.items()
        ]
        ledger.notes += rules.source.notes
    for number, step in enumerate(run.steps, start=1):
        _check_step(run, step, rules, counts, ledger)
        if on_step is not None:
            on_step(number, len(run.steps))
    return _report(run.folder, counts, ledger, tuple(rules.missing) if rules is not None else ())


def _report(folder: Path, counts: Mapping[str, int], ledger: Ledger, missing: tuple[str, ...] = ()) -> AuditReport:
    return AuditReport(
        folder=str(folder),
        steps=counts["steps"],
        rollouts=counts["rollouts"],
        tokens=counts["tokens"],
        compared=ledger.compared,
        findings=tuple(ledger.findings),
        notes=tuple(ledger.notes),
        missing=missing,
    )


def _rules(run: Run, ledger: Ledger) -> _Rules | None:
    try:
        config = run.run["config"]
        return _Rules(
            algorithm=Algorithm.model_validate(config["algorithm"]),
            max_new_tokens=int(config["sampling"]["max_new_tokens"]),
            whole_support=config["sampling"]["top_p"] == 1
            and not config["sampling"]["top_k"]
            and not config["sampling"]["min_p"],
            inner_epochs=int(config["train"]["inner_epochs"]),
            critic_warmup=critic_warmup_of(config),
            source=source_of(run.run),
        )
    except (KeyError, TypeError, ValueError, ValidationError, RecordError) as error:
        ledger.found("run.json", "config", "algorithm, sampling and train can be read", error, "the configuration of the run")
        return None


def _check_step(run: Run, step: int, rules: _Rules | None, counts: dict[str, int], ledger: Ledger) -> None:
    shard = shard_name(step)
    try:
        rollouts, tokens = run.rollout_rows(step), run.token_rows(step)
        scalars = update_scalars(run.line(step))
    except (RecordError, KeyError, IndexError, TypeError, ValueError) as error:
        ledger.found(shard, f"step {step}", "readable", error, "whole shards and a whole line in metrics.jsonl")
        return
    counts["steps"] += 1
    counts["rollouts"] += len(rollouts)
    counts["tokens"] += sum(row["num_tokens"] or 0 for row in rollouts)
    broken = len(ledger.findings)
    check_tables(step, len(scalars), rollouts, tokens, shard, ledger)
    check_scores(rollouts, shard, ledger)
    if rules is None or len(ledger.findings) > broken:
        ledger.notes.append(f"step {step}: advantages and token weights were not recomputed, see its findings")
        return
    _check_numbers(run, step, rules, shard, ledger)


def _check_numbers(run: Run, step: int, rules: _Rules, shard: str, ledger: Ledger) -> None:
    try:
        report = run.step(step)
        check_composition(report.groups, terms_of(run, report.groups), shard, ledger)
        single = rules.source is not None and rules.source.single_precision
        if "advantage" not in rules.missing:
            check_advantages(report.groups, rules.algorithm, rules.max_new_tokens, shard, ledger, single=single)
        check_metrics(report, ledger, whole_support=rules.whole_support)
        if "weights" in rules.missing:
            return
        if any(update.streams for update in report.updates):
            row, epochs = rules.algorithm.at(step, rules.critic_warmup), rules.inner_epochs
            elsewhere = rules.source is not None
            check_updates(report, row, rules.max_new_tokens, epochs, shard, ledger, everyone=elsewhere)
            check_values(report, row, shard, ledger)
        elif report.updates:
            ledger.notes.append(f"step {step}: token weights were not recorded (record.tokens: false), so they are not checked")
    except (ToishiError, ValueError, TypeError) as error:
        ledger.found(shard, f"step {step}", "can be recomputed", f"{type(error).__name__}: {error}", "the step's numbers again")


def render_audit(report: AuditReport, console: Console) -> None:
    """The report as a person reads it."""
    looked = f"{report.steps} steps, {report.rollouts} rollouts, {report.tokens:,} tokens; {report.compared:,} comparisons"
    console.print(Text(f"audit of {report.folder}: {looked}"))
    for note in report.notes:
        console.print(Text(f"note: {note}", style="yellow"))
    if report.ok:
        what = "What is on record" if report.missing else "Everything"
        console.print(Text(f"{what} is whole and follows from the stored scores.", style="green"))
        return
    console.print(_table(report.findings))
    more = len(report.findings) - MAX_SHOWN
    if more > 0:
        console.print(Text(f"... and {more} more (all of them: --json)"))
    console.print(
        Text(f"{len(report.findings)} findings: this record is not what the run wrote, or the run wrote wrong numbers.")
    )


def _table(findings: tuple[Finding, ...]) -> Table:
    table = Table(show_edge=False, pad_edge=False)
    for name in ("file", "row", "what", "got", "expected"):
        table.add_column(name, overflow="fold")
    for finding in findings[:MAX_SHOWN]:
        table.add_row(*(Text(text) for text in (finding.file, finding.row, finding.what, finding.got, finding.expected)))
    return table

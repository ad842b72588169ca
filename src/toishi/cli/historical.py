"""`toishi select --history RUN`: the prompts of a run whose success moved most."""

from __future__ import annotations

from pathlib import Path

import typer

from toishi.cli.collect_tables import print_history
from toishi.cli.common import print_json
from toishi.collecting.history import history
from toishi.collecting.samples import write_rows
from toishi.consoles import make_console
from toishi.record.reader import Run


def by_history(out: Path, folder: Path, reward: str | None, threshold: float, count: int, as_json: bool) -> None:
    """Ranks, writes the first `count` rows, and says so."""
    run = Run.open(folder)
    right, lived = history(run, reward=reward, threshold=threshold)
    rows = [one.row(run, right) for one in lived[:count]]
    write_rows(out, rows)
    if as_json:
        print_json({"file": str(out), "rule": right.words, "prompts": len(lived), "chosen": rows})
        return
    print_history(lived, right.words, make_console())
    typer.echo(f"{len(rows)} of {len(lived)} prompts written to {out}")

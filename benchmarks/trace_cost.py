"""What looking at a step costs: CPU-seconds of a traced step and of the recorder, as ratios to the same step made plainly.

    python -m benchmarks.trace_cost [--recipe sums] [--steps 8] [--influence] [--set model.dtype=float32] [--json FILE]

Every step is made twice from the same weights, optimizer and prompts: once plainly, once traced, in alternating order. Both
end in the same bits, which is checked. With --influence the trace also says who moved what. The recorder's part is what writing
the step and checksumming the weights take.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from toishi.config import Config, parse_override
from toishi.display import Display
from toishi.loop import train_step
from toishi.ops.checksum import weights_checksum
from toishi.recipes import load_recipe
from toishi.session import Session, gather, start
from toishi.tracing.snapshot import Snapshot
from toishi.types import StepReport


def main() -> None:
    """Measures and prints a line a step, then the medians."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--recipe", default="sums")
    options.add_argument("--steps", type=int, default=8)
    options.add_argument("--influence", action="store_true")
    options.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="changes")
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    changes = {"record.trace_influence": given.influence} | dict(map(parse_override, given.changes))
    config = load_recipe(given.recipe, changes)
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(config, Path(folder) / "run", given.steps)
    result = {"recipe": given.recipe, "changes": given.changes, "steps": rows, "medians": medians(rows)}
    print("\n".join(f"{name:24} median {value:.4f}" for name, value in result["medians"].items()))
    if given.json:
        given.json.write_text(json.dumps(result, indent=2), encoding="utf-8")


def measure(config: Config, folder: Path, steps: int) -> list[dict[str, float]]:
    """CPU-seconds of each step: plain, traced, and what the recorder took."""
    session = start(config, gather(config), folder)
    with session.writer:
        return [_one(session, number) for number in range(steps)]


def medians(rows: list[dict[str, float]]) -> dict[str, float]:
    """Medians and extremes of the ratios, and the ratio of the sums."""
    traced = [row["traced_s"] / row["plain_s"] for row in rows]
    return {
        "traced / plain": statistics.median(traced),
        "traced / plain, largest": max(traced),
        "traced / plain, summed": sum(row["traced_s"] for row in rows) / sum(row["plain_s"] for row in rows),
        "recorder / plain": statistics.median(row["recorder_s"] / row["plain_s"] for row in rows),
        "recorder / plain, largest": max(row["recorder_s"] / row["plain_s"] for row in rows),
    }


def _one(session: Session, number: int) -> dict[str, float]:
    before, position = Snapshot.take(session.policy, session.optimizer), session.next_prompt

    def make(trace_every: int) -> tuple[float, StepReport]:
        before.put_back(session.policy, session.optimizer)
        session.next_prompt = position
        record = session.config.record.model_copy(update={"trace_every": trace_every})
        session.config = session.config.model_copy(update={"record": record})
        return cpu_seconds(lambda: train_step(session, Display.silent()))

    order = [0, 1] if number % 2 == 0 else [1, 0]
    seconds, reports = {}, {}
    for trace_every in order:
        seconds[trace_every], reports[trace_every] = make(trace_every)
    sums = [report.metrics["update/weights_checksum"] for report in reports.values()]
    assert sums[0] == sums[1], f"step {number + 1}: traced and plain end in other weights: {sums}"
    writing, _ = cpu_seconds(lambda: session.writer.write_step(reports[0], session.renderer.pieces, streams=True))
    checking, _ = cpu_seconds(lambda: weights_checksum(session.policy.masters))
    session.step = number + 1
    row = {"plain_s": seconds[0], "traced_s": seconds[1], "recorder_s": writing + checking}
    print(
        f"step {number + 1}: plain {seconds[0]:6.2f} CPU-s   traced {seconds[1]:6.2f} ({seconds[1] / seconds[0]:.2f}x)   "
        f"recorder {row['recorder_s']:.3f} ({row['recorder_s'] / seconds[0]:.1%})",
        flush=True,
    )
    return row


def cpu_seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    """CPU time of all threads of this process while `call` runs, and what it returned."""
    begin = time.process_time()
    result = call()
    return time.process_time() - begin, result


if __name__ == "__main__":
    main()

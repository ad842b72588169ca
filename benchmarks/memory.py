"""The estimate of `toishi check` beside the memory that whole runs really took, each in a fresh process.

    python -m benchmarks.memory                     every kind of run: estimate, peak, their ratio (minutes)
    python -m benchmarks.memory --kinds adapters    some of them

The peak is the largest resident size of the process (VmHWM), so Linux only.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ONE_RUN = """
import json, sys
from pathlib import Path
import toishi.loop, toishi.session
from benchmarks.protocol import peak_bytes
from toishi.recipes import load_recipe
plans = []
planned = toishi.session.planned
toishi.session.planned = lambda *given: plans.append(planned(*given)) or plans[-1]
toishi.loop.train(load_recipe("sums", json.loads(sys.argv[1])), Path(sys.argv[2]))
plan = plans[0]
print(json.dumps({"estimate": plan.estimate.needed, "phase": plan.estimate.peak.name, "peak": peak_bytes()}))
"""
BASE: dict[str, Any] = {
    "train.steps": 2, "evaluation.prompts": 0, "model.dtype": "bfloat16", "sampling.max_new_tokens": 64,
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "all weights, bfloat16": {},
    "all weights, float32": {"model.dtype": "float32"},
    "adapters": {"model.lora": {}},
    "SGD": {"optimizer.name": "sgd"},
    "gradient checkpointing": {"train.gradient_checkpointing": True},
    "rows of 4,096 tokens": {"train.micro_batch_tokens": 4096},
    "traced steps": {"record.trace_every": 1},
}


def measured(kind: str, folder: Path) -> dict[str, Any]:
    """Bytes estimated and taken by a run of this kind, and the phase in which it is estimated to need most."""
    given = json.dumps(BASE | KINDS[kind])
    done = subprocess.run([sys.executable, "-c", ONE_RUN, given, str(folder)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the run {kind!r} ended with exit code {done.returncode}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def line(kind: str, found: dict[str, Any]) -> str:
    """A row of the table.

    >>> line("SGD", {"estimate": 3_000_000_000, "peak": 2_500_000_000, "phase": "update"})
    '| SGD | 3.00 | update | 2.50 | 1.20 |'
    """
    estimate, peak = found["estimate"], found["peak"]
    return f"| {kind} | {estimate / 1e9:.2f} | {found['phase']} | {peak / 1e9:.2f} | {estimate / peak:.2f} |"


def main() -> None:
    """Measures and prints the table of docs/memory.md."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--kinds", nargs="*", default=list(KINDS), choices=KINDS, help="which runs")
    print("| run | estimate, GB | in phase | peak, GB | estimate / peak |\n|---|---|---|---|---|")
    for kind in options.parse_args().kinds:
        with tempfile.TemporaryDirectory() as folder:
            print(line(kind, measured(kind, Path(folder) / "run")), flush=True)


if __name__ == "__main__":
    main()

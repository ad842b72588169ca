"""toishi beside TRL and vLLM on this machine, in one run: `make bench`.

    python -m benchmarks.bench                           the whole table, and how cost grows
    python -m benchmarks.bench --quick                   a tiny random model: does everything work? (a minute)
    python -m benchmarks.bench --shapes S --systems toishi,trl --repeats 1
    python -m benchmarks.bench --write-docs              docs/benchmarks.md from benchmarks/results/*.json, nothing is measured

A system that cannot be installed or fails is a row that says so. Exit code 1: a system failed; bars that are missed are
printed, and do not change the exit code.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from benchmarks.acceptance import bars
from benchmarks.growth import measure_growth, points
from benchmarks.report import show, with_results, write_plots
from benchmarks.shapes import QUICK_SHAPES, SHAPES
from benchmarks.systems import ROOT, SYSTEMS, System
from benchmarks.table import Bench, Setting

RESULTS, PAGE = ROOT / "benchmarks" / "results", ROOT / "docs" / "benchmarks.md"
T = TypeVar("T")
PACKAGES = ("toishi", "torch", "transformers")
DEFAULT_SYSTEMS = "toishi,trl,trl-plain,trl-bf16,trl-batching,vllm"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures what is asked for; the exit code."""
    given = options().parse_args(arguments)
    if given.write_docs:
        return write_docs(PAGE, RESULTS)
    return run(given, SYSTEMS, "cpu")


def options() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--shapes", default="S,L,V", help="which amounts of work (default S,L,V)")
    found.add_argument("--systems", default=DEFAULT_SYSTEMS, help=f"rows, of {', '.join(SYSTEMS)}")
    found.add_argument("--repeats", type=int, default=3, help="alternating repetitions; settings of TRL beside its own get one")
    found.add_argument("--threads", type=int, default=2, help="threads of every system")
    found.add_argument("--json", type=Path, help="where to write everything that was measured")
    found.add_argument("--growth", action="store_true", help="also measure how cost grows with G, lengths, vocabulary, size")
    found.add_argument("--growth-systems", default="toishi", help="toishi, or toishi,trl (a new trainer for every point)")
    found.add_argument("--plots", type=Path, help="folder for the curves")
    found.add_argument("--model", type=Path, help="a folder of transformers; by default the bundled SmolLM2-135M-Instruct")
    found.add_argument("--quick", action="store_true", help="a tiny random model and few tokens; its numbers mean nothing")
    found.add_argument("--logs", type=Path, help="folder for what the workers print (default: a temporary one)")
    found.add_argument("--write-docs", action="store_true", help="only write docs/benchmarks.md from the results on disk")
    return found


def run(given: argparse.Namespace, systems: Mapping[str, System], device: str) -> int:
    """The tables, then growth; printed and written."""
    wanted = _chosen(given.systems, systems, "system")
    shapes = _chosen(given.shapes, QUICK_SHAPES if given.quick else SHAPES, "shape")
    growing = _chosen(given.growth_systems, systems, "system") if given.growth else []
    load, began = os.getloadavg()[0], time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        setting = Setting(
            model=_model(given, Path(scratch)), device=device, threads=given.threads, repeats=given.repeats,
            logs=_logs(given, Path(scratch)), decode_new=(33, 41) if given.quick else (32, 96),
            decode_rows=8 if given.quick else 64, say=lambda line: print(line, file=sys.stderr, flush=True),
        )  # fmt: skip
        with Bench(wanted, setting) as bench:
            tables = {shape.name: bench.measure(shape) for shape in shapes}
        growth = measure_growth(growing, setting, points(is_quick=given.quick), Path(scratch)) if growing else None
    result: dict[str, Any] = {"about": about(given, device, load), "tables": tables}
    result |= {"growth": growth} if growth else {}
    result["about"]["minutes"] = round((time.perf_counter() - began) / 60, 1)
    result["bars"] = [bar.as_json() for bar in bars(result)]
    write(result, given)
    return int(any("error" in row for found in tables.values() for row in found["rows"]))


def write(result: dict[str, Any], given: argparse.Namespace) -> None:
    """On the terminal, as JSON, as curves."""
    console = Console()
    show(result, console if console.is_terminal else Console(width=128))
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if given.plots and "growth" in result:
        print("\n".join(str(path) for path in write_plots(result["growth"], given.plots)), file=sys.stderr)


def write_docs(page: Path, results: Path) -> int:
    """docs/benchmarks.md with the tables of all results on disk; each also in words for people who read the JSON."""
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(results.glob("*.json"))}
    for result in found.values():
        if "growth" in result:
            write_plots(result["growth"], page.parent / "benchmarks")
    page.write_text(with_results(page.read_text(encoding="utf-8"), found), encoding="utf-8")
    return 0


def about(given: argparse.Namespace, device: str, load: float) -> dict[str, Any]:
    """The machine, the moment and the versions."""
    return {
        "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "cpu": _cpu(), "cores": os.cpu_count(),
        "threads": given.threads, "device": device, "repeats": given.repeats, "load": round(load, 2), "quick": given.quick,
        "model": "random, tiny" if given.quick else str(given.model or "SmolLM2-135M-Instruct (bundled)"),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
    }  # fmt: skip


def _model(given: argparse.Namespace, scratch: Path) -> Path:
    if given.model:
        return Path(given.model)
    if given.quick:
        from benchmarks.models import save_random

        return save_random(scratch / "tiny")
    from toishi.policy.bundled import bundled_model_folder

    return bundled_model_folder()


def _logs(given: argparse.Namespace, scratch: Path) -> Path:
    folder = Path(given.logs or scratch / "logs")
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def _chosen(names: str, known: Mapping[str, T], what: str) -> list[T]:
    missing = [name for name in names.split(",") if name not in known]
    if missing:
        raise SystemExit(f"unknown {what} {missing[0]!r}; expected one of: {', '.join(known)}")
    return [known[name] for name in names.split(",")]


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    sys.exit(main())

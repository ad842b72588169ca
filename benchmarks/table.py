"""The measurement of one shape: the main systems loaded, then taken in turn, so that whatever the machine does meets them all.

Other settings of a system follow one at a time, each alone in memory: several trainers beside one another would not fit.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.protocol import Message
from benchmarks.shapes import Shape
from benchmarks.systems import PeerMissing, System
from benchmarks.workers import Worker, WorkerError

WARM_UP_TOKENS = 4
Row = dict[str, Any]
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What holds for the whole run."""

    model: Path
    device: str
    threads: int
    repeats: int
    logs: Path
    decode_new: tuple[int, int]
    decode_rows: int = 64
    say: Say = print


class Bench:
    """Systems by name; those that serve all shapes stay loaded from one to the next. As a context it ends them."""

    def __init__(self, systems: Sequence[System], setting: Setting) -> None:
        self.systems, self.setting = systems, setting
        self.kept: dict[str, Worker] = {}
        self.stack = ExitStack()

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *about: Any) -> None:
        self.stack.close()

    def measure(self, shape: Shape) -> dict[str, Any]:
        """One row per system, and the limits that toishi's worker found; a system that failed is a row that says how."""
        rows = {system.name: Row(system=system.name, runs=[]) for system in self.systems}
        limits: dict[str, Any] = {}
        with ExitStack() as stack:
            workers = self._started([system for system in self.systems if system.main], shape, rows, stack)
            for repeat in range(self.setting.repeats):
                self._once(_turned(workers, repeat), shape, rows, repeat)
            if "toishi" in workers and "error" not in rows["toishi"]:
                limits = self._limits(workers["toishi"], shape)
        for system in self.systems:
            if not system.main:
                with ExitStack() as stack:
                    self._once(self._started([system], shape, rows, stack), shape, rows, 0)
        finished = [_summary(row) for row in rows.values()]
        return {"shape": shape.as_json(), "rows": finished, "limits": limits}

    def _started(self, systems: Sequence[System], shape: Shape, rows: dict[str, Row], stack: ExitStack) -> dict[str, Worker]:
        """Workers of these systems, loaded and warmed up, until the stack is closed."""
        workers: dict[str, Worker] = {}
        for system in systems:
            self.setting.say(f"{shape.name}: starting {system.name}")
            self._guarded(rows[system.name], lambda s=system: workers.update({s.name: self._worker(s, shape, stack)}))  # type: ignore[misc]
        for name, worker in workers.items():
            rows[name]["settings"] = worker.ready["settings"]
            self._guarded(rows[name], lambda w=worker: w.step(shape.with_lengths(WARM_UP_TOKENS)))  # type: ignore[misc]
        return workers

    def _once(self, workers: Mapping[str, Worker], shape: Shape, rows: dict[str, Row], repeat: int) -> None:
        """One step by each, in turn."""
        for name, worker in workers.items():
            if "error" not in rows[name]:
                self._guarded(rows[name], lambda n=name, w=worker: rows[n]["runs"].append(w.step(shape)))  # type: ignore[misc]
                self.setting.say(f"{shape.name}: {name}, repetition {repeat + 1}: {_short(rows[name])}")

    def _limits(self, worker: Worker, shape: Shape) -> dict[str, Any]:
        self.setting.say(f"{shape.name}: products of toishi's own shapes")
        found: dict[str, Any] = {"training": worker.ask("limits", shape=shape.as_json())}
        if shape.name == "S":
            setting = self.setting
            found["decode"] = worker.ask(
                "decode", rows=setting.decode_rows, new=list(setting.decode_new), repeats=setting.repeats
            )
        return found

    def _worker(self, system: System, shape: Shape, stack: ExitStack) -> Worker:
        if system.name in self.kept:
            return self.kept[system.name]
        setting = self.setting
        made = Worker(
            system, system.interpreter(), setting.model, shape, log=setting.logs / f"{system.name}-{shape.name}.log",
            device=setting.device, threads=setting.threads,
        )  # fmt: skip
        if system.keeps:
            self.kept[system.name] = self.stack.enter_context(made)
            return made
        return stack.enter_context(made)

    def _guarded(self, row: Row, call: Callable[[], Any]) -> None:
        try:
            call()
        except (PeerMissing, WorkerError) as error:
            row["error"] = str(error)
            self.setting.say(f"{row['system']}: {error}")


def _turned(workers: Mapping[str, Worker], repeat: int) -> dict[str, Worker]:
    """The workers, beginning with another one in every repetition."""
    names = list(workers)
    start = repeat % max(1, len(names))
    return {name: workers[name] for name in names[start:] + names[:start]}


def _summary(row: Row) -> Row:
    """A row with the medians of its runs."""
    runs: list[Message] = row["runs"]
    if not runs:
        return row | {"error": row.get("error", "nothing was measured")}
    names = ("step_s", "generation_s", "training_s", "cpu_s", "peak_bytes", "device_peak_bytes")
    medians = {name: _median([run[name] for run in runs]) for name in names}
    rate = runs[0]["tokens"] / medians["generation_s"] if medians["generation_s"] else None
    return row | medians | {"tokens": runs[0]["tokens"], "tokens_per_s": rate}


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _short(row: Row) -> str:
    if "error" in row:
        return str(row["error"])
    last = row["runs"][-1]
    step = "" if last["step_s"] is None else f"step {last['step_s']:.2f} s, "
    return f"{step}sampling {last['generation_s']:.2f} s, {last['cpu_s']:.1f} CPU-s, peak {last['peak_bytes'] / 2**30:.2f} GiB"

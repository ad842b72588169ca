"""Starting workers, asking them, and ending them."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.protocol import Message
from benchmarks.shapes import Shape
from benchmarks.systems import ROOT, System

TIMEOUT_S = 1200.0


class WorkerError(Exception):
    """A worker ended, or did not answer in time; the last line of what it said is in the message."""


def same_for_all(threads: int) -> dict[str, str]:
    """The environment in which everybody works: so many threads, and whatever their runtime does by itself while they wait.

    GNU's waits actively for a short moment and then sleeps: on a machine without other work that is the fastest for all.
    """
    own = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    return own | {
        "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        "PYTHONPATH": str(ROOT),
    }  # fmt: skip


class Worker:
    """A process that is asked one thing at a time. As a context it ends when the context does."""

    def __init__(
        self, system: System, interpreter: Path, model: Path, shape: Shape, *, log: Path, device: str, threads: int
    ) -> None:
        self.system, self.log = system, log
        words = [
            str(interpreter), "-m", system.worker, "--model", str(model), "--shape", json.dumps(shape.as_json()),
            "--device", device, "--options", json.dumps(system.options),
        ]  # fmt: skip
        self._errors = log.open("ab")
        self.process = subprocess.Popen(
            words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
            env=same_for_all(threads) | system.variables,
        )  # fmt: skip
        try:
            self.ready: Message = self._answer(TIMEOUT_S)["ready"]
        except WorkerError:
            self.close()
            raise

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def ask(self, do: str, **what: Any) -> Message:
        """The answer to one command. Raises WorkerError."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"do": do, **what}).encode() + b"\n")
            self.process.stdin.flush()
        except OSError as error:
            raise WorkerError(f"{self.system.name} {_ended(self.process.wait())}: {self._last_line()}") from error
        return self._answer(TIMEOUT_S)

    def step(self, shape: Shape) -> Message:
        """One step of this shape (for a sampler: its samples)."""
        return self.ask("step", shape=shape.as_json())

    def close(self) -> None:
        """Let it go: it ends when its stdin does; after a while it is ended."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.close()
            self.process.wait(timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self._errors.close()

    def _answer(self, timeout_s: float) -> Message:
        assert self.process.stdout is not None
        until = time.monotonic() + timeout_s
        while not select.select([self.process.stdout], [], [], 1.0)[0]:
            if time.monotonic() > until:
                raise WorkerError(f"{self.system.name} gave no answer in {timeout_s:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            raise WorkerError(f"{self.system.name} {_ended(self.process.returncode)}: {self._last_line()}")
        found: Message = json.loads(line)
        return found

    def _last_line(self) -> str:
        lines = [line for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        named = [line for line in lines if "Error" in line or "error:" in line]
        return (named or lines or ["it said nothing"])[-1].strip()[:300]


def _ended(code: int) -> str:
    """
    >>> _ended(1), _ended(-9)
    ('ended with exit code 1', 'was killed by signal 9 (out of memory, most likely)')
    """
    if code == -signal.SIGKILL:
        return "was killed by signal 9 (out of memory, most likely)"
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"

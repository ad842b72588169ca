"""How the driver talks to a worker: one JSON object a line, over the worker's stdin and stdout. Standard library only.

A worker says {"ready": {...}} when it is loaded, answers every command with one line, and waits, blocked on its stdin, while
another system works. What libraries print goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Message = dict[str, Any]


class Channel:
    """A worker's end. Takes stdout for itself: prints of libraries go to stderr from then on."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def send(self, message: Message) -> None:
        print(json.dumps(message), file=self._out, flush=True)

    def commands(self) -> Iterator[Message]:
        """Commands until the driver goes away."""
        while (command := self.receive()) is not None:
            yield command

    def receive(self) -> Message | None:
        """The next command; None when there will be no more."""
        line = sys.stdin.readline()
        return json.loads(line) if line.strip() else None


class Meter:
    """Wall seconds and CPU-seconds of all threads of this process."""

    wall_s: float = 0.0
    cpu_s: float = 0.0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.wall_s, self.cpu_s = time.perf_counter() - wall, time.process_time() - cpu


def peak_bytes() -> int:
    """The most memory that this process ever held (VmHWM), loading included."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no line VmHWM; the peak can be read on Linux only")


def device_peak_bytes(device: str) -> int | None:
    """The most memory that torch held on the GPU; None on a CPU."""
    if device == "cpu":
        return None
    import torch

    return int(torch.cuda.max_memory_allocated())


def job_options(description: str | None) -> argparse.Namespace:
    """What every worker is started with: the model's folder, the shape as JSON, the device, and options as JSON."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--model", required=True)
    options.add_argument("--shape", required=True, type=json.loads)
    options.add_argument("--device", default="cpu")
    options.add_argument("--options", default={}, type=json.loads)
    return options.parse_args()

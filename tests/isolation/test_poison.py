"""Poisonous programs one after the other: nothing is left, and clean ones run as fast as before."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice

import pytest

from tests.isolation.leftovers import belongings, settled
from toishi.isolation.levels import Sandbox
from toishi.isolation.limits import Limits
from toishi.isolation.programs import Program
from toishi.isolation.sandbox import run_program

POISONS = (
    "import os; os._exit(0)",
    "raise SystemExit(0)",
    "bytearray(50 << 30)",
    "import os\nwhile True: os.fork()",
    "import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork(): os._exit(0)\n  time.sleep(600)",
    "while True: print('x' * 10000)",
    "f = open('f', 'wb')\nwhile True: f.write(bytes(1 << 20))",
    "import os\nwhile True: os.dup(0)",
    "while True: input()",
    "import os\nos.symlink('/', 'root'); os.mkdir('d'); os.chmod('.', 0)",
    "def f(): return f()\nf()",
    "import os; os.kill(os.getpid(), 9)",
    "import os; os.kill(os.getppid(), 9); os.kill(0, 9)",
    "import ctypes; ctypes.string_at(0)",
    "syntax error",
    "while True: pass",
)
LIMITS = Limits(wall_s=0.2, cpu_s=5, memory_mb=256, processes=12, disk_mb=2, output_bytes=10_000)
CLEAN = Limits(wall_s=60, cpu_s=60)


def best_s(sandbox: Sandbox) -> float:
    """Seconds of the fastest of some clean runs."""
    times = []
    for number in range(8):
        start = time.perf_counter()
        outcome = run_program(Program(command=(*sandbox.python, "-c", f"print({number})")), limits=CLEAN, kind=sandbox.kind)
        times.append(time.perf_counter() - start)
        assert outcome.stdout == f"{number}\n"
    return min(times)


def poison(sandbox: Sandbox, count: int) -> None:
    before, before_s = belongings(), best_s(sandbox)

    def run(code: str) -> bool:
        program = Program(command=(*sandbox.python, "p.py"), files={"p.py": code}, stdin="1\n")
        outcome = run_program(program, limits=LIMITS, kind=sandbox.kind)
        return outcome.limit is not None or outcome.exit_code is not None

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(run, islice(cycle(POISONS), count)))
    after_s = best_s(sandbox)
    assert settled(before) == ""
    assert after_s < 2 * before_s


def test_poisonous_programs_leave_nothing(best: Sandbox) -> None:
    poison(best, len(POISONS))


@pytest.mark.slow
def test_a_thousand_poisonous_programs_leave_nothing(sandbox: Sandbox) -> None:
    poison(sandbox, 1000)

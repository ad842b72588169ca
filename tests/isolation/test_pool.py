"""Calls that can be killed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.isolation.leftovers import belongings, descendants, settled
from toishi.errors import ConfigError
from toishi.isolation.limits import Killed, Limits, Raised
from toishi.isolation.pool import Pool, call_each, call_killable, shared_pool

QUICK = Limits(wall_s=0.3, cpu_s=30, memory_mb=512)
WORK = "tests.isolation.work"

KILLED = {
    "power tower": "took longer than 0.3 s",
    "long loop": "took longer than 0.3 s",
    "sleep": "took longer than 0.3 s",
    "with children": "took longer than 0.3 s",
    "50 GB": "used more than 512 MB",
    "exit": "ended itself with exit code 0",
    "crash": "died: signal 11 (SIGSEGV)",
    "2 MB answer": "answered with more than 1,000,000 bytes",
}
RAISED = {
    "SystemExit": "SystemExit: 0",
    "deep recursion": "RecursionError",
    "many digits": "ValueError: Exceeds the limit",
    "no JSON": "TypeError",
    "raises": "ZeroDivisionError: division by zero",
}


def in_worker(function: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(function).result()


@pytest.fixture(params=["main thread", "worker thread"])
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[], Any]], Any]:
    return in_worker if request.param == "worker thread" else lambda function: function()


@pytest.mark.parametrize("kind", KILLED)
def test_what_goes_over_a_limit_is_killed_and_the_next_call_works(kind: str, run: Callable[[Callable[[], Any]], Any]) -> None:
    with pytest.raises(Killed) as caught:
        run(lambda: call_killable(f"{WORK}:poison", kind, limits=QUICK))
    assert str(caught.value) == KILLED[kind]
    assert run(lambda: call_killable(f"{WORK}:square", 12)) == 144


@pytest.mark.parametrize("kind", RAISED)
def test_what_raises_is_told_and_the_child_goes_on(kind: str, run: Callable[[Callable[[], Any]], Any]) -> None:
    pool = Pool(1)
    pids = [pool.call_each(f"{WORK}:seen", [0], limits=QUICK)[0]["pid"]]
    (raised,) = run(lambda: pool.call_each(f"{WORK}:poison", [kind], limits=Limits()))
    assert isinstance(raised, Raised)
    assert str(raised).startswith(RAISED[kind])
    pids += [pool.call_each(f"{WORK}:seen", [0], limits=QUICK)[0]["pid"]]
    pool.close()
    assert pids[0] == pids[1]


def test_one_poison_does_not_take_the_others_along() -> None:
    answers = call_each(f"{WORK}:poison", ["raises", "exit", "deep answer", "sleep", "50 GB", "many digits"], limits=QUICK)
    assert [type(answer).__name__ for answer in answers] == ["Raised", "Killed", "list", "Killed", "Killed", "Raised"]


def test_a_limit_of_processor_time_is_told_apart_from_the_clock() -> None:
    with pytest.raises(Killed, match=r"^used more than 1 s of processor time$"):
        call_killable(f"{WORK}:poison", "long loop", limits=Limits(wall_s=30, cpu_s=1))


def test_limits_hold_for_each_call_of_a_child_anew() -> None:
    pool = Pool(1)
    slow, quick = Limits(wall_s=20, cpu_s=20), Limits(wall_s=20, cpu_s=1, memory_mb=300)
    burn = "tests.isolation.test_pool:burn"
    answers = [pool.call_each(burn, [0.6], limits=limits)[0] for limits in (quick, quick, slow)]
    pool.close()
    assert len(set(answers)) == 1  # one child: no call was charged with the time of those before


def burn(seconds: float) -> int:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    return os.getpid()


def test_values_pass_unchanged() -> None:
    value = {"a": [1, 2.5, None, True, "é\ud83d\x00"], "b": {"c": float("inf")}}
    assert call_killable(f"{WORK}:identity", value) == value


def test_a_text_of_two_megabytes_goes_in() -> None:
    assert call_killable("builtins:len", "x" * 2_000_000) == 2_000_000


def test_a_function_or_module_that_does_not_exist_is_said() -> None:
    with pytest.raises(Raised, match="no attribute 'nothing'"):
        call_killable(f"{WORK}:nothing", 0)
    with pytest.raises(Raised, match="No module named 'no_such_module'"):
        call_killable("no_such_module:f", 0)


def test_limits_have_to_be_positive_numbers() -> None:
    with pytest.raises(ConfigError, match="memory_mb"):
        Limits(memory_mb=0)
    with pytest.raises(ConfigError, match="wall_s"):
        Limits(wall_s=float("nan"))


def test_a_child_has_a_clean_environment_and_a_session_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    pool = Pool(1)
    (seen,) = pool.call_each(f"{WORK}:seen", [0], limits=QUICK)
    (descriptors,) = pool.call_each(f"{WORK}:open_descriptors", [0], limits=QUICK)
    pool.close()
    assert "SECRET_TOKEN" not in seen["environment"]
    assert seen["session"] == seen["pid"]
    assert seen["parent"] == os.getpid()
    assert descriptors == 5  # three standard ones to nowhere, the socket, and the folder that was listed


def test_children_are_kept_and_their_number_is_bounded() -> None:
    pool = Pool(2)
    with ThreadPoolExecutor(8) as threads:
        seen = list(threads.map(lambda _: pool.call_each(f"{WORK}:seen", [0], limits=QUICK)[0]["pid"], range(40)))
    pool.close()
    assert len(set(seen)) <= 2


def test_a_child_that_was_killed_while_idle_is_replaced() -> None:
    pool = Pool(1)
    (seen,) = pool.call_each(f"{WORK}:seen", [0], limits=QUICK)
    os.kill(seen["pid"], 9)
    time.sleep(0.05)
    assert pool.call_each(f"{WORK}:square", [3], limits=QUICK) == [9]
    pool.close()


def test_importing_is_not_charged_to_the_first_call() -> None:
    pool = Pool(1)
    answers = pool.call_each("builtins:abs", [-1], limits=Limits(wall_s=0.4), preload=["sympy"])
    pool.close()
    assert answers == [1]


def test_a_power_tower_does_not_hold_up_other_threads() -> None:
    ticks = []
    with ThreadPoolExecutor(1) as thread:
        started = time.monotonic()
        future = thread.submit(lambda: call_each(f"{WORK}:poison", ["power tower"], limits=Limits(wall_s=0.6)))
        while not future.done():
            ticks.append(time.monotonic())
            time.sleep(0.01)
    assert time.monotonic() - started < 5
    assert max(later - earlier for earlier, later in pairwise(ticks)) < 0.4


def test_nothing_is_left_when_a_pool_is_closed() -> None:
    before = belongings()
    pool = Pool(3)
    pool.call_each(f"{WORK}:poison", ["with children", "exit", "raises"], limits=QUICK)
    pool.call_each(f"{WORK}:square", [1, 2], limits=QUICK)
    pool.close()
    assert settled(before) == ""


def test_closing_frees_a_call_that_waits() -> None:
    pool = Pool(1)
    threading.Timer(0.3, pool.close).start()
    started = time.monotonic()
    (answer,) = pool.call_each(f"{WORK}:poison", ["sleep"], limits=Limits(wall_s=20))
    assert isinstance(answer, Killed)
    assert time.monotonic() - started < 5


def test_after_a_fork_the_new_process_has_children_of_its_own() -> None:
    (parents,) = shared_pool().call_each(f"{WORK}:seen", [0], limits=QUICK)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            (own,) = shared_pool().call_each(f"{WORK}:seen", [0], limits=QUICK)
            os.write(write, f"{own['pid']} {own['parent'] == os.getpid()}".encode())
            shared_pool().close()
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        pid, is_own = pipe.read().split()
    os.waitpid(child, 0)
    assert (int(pid) != parents["pid"], is_own) == (True, "True")
    assert shared_pool().call_each(f"{WORK}:square", [5], limits=QUICK) == [25]


@pytest.mark.parametrize("end", ["return", "kill"])
def test_children_end_with_their_parent(end: str) -> None:
    code = f"""
import os, signal, threading, time
from toishi.isolation.limits import Limits
from toishi.isolation.pool import call_each, shared_pool
call_each("{WORK}:square", [2])
threading.Thread(target=lambda: call_each("{WORK}:poison", ["sleep"], limits=Limits(wall_s=1)), daemon=True).start()
time.sleep(0.5)
print(*[child._process.pid for pool in [shared_pool()] for child in pool._all], flush=True)
if {end == "kill"}: os.kill(os.getpid(), signal.SIGKILL)
"""
    root = str(Path(__file__).parents[2])
    finished = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=60)
    pids = [int(word) for word in finished.stdout.split()]
    assert pids
    deadline = time.monotonic() + 8
    while (left := [pid for pid in pids if Path(f"/proc/{pid}").exists()]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


def test_a_thousand_poison_items_leave_nothing_and_slow_nothing_down() -> None:
    pool = Pool(2)
    kinds = ["raises", "deep recursion", "many digits", "no JSON", "deep answer"] * 190
    kinds += ["exit", "50 GB", "2 MB answer", "crash"] * 11 + ["power tower", "with children"] * 3
    assert len(kinds) == 1000

    def best_s() -> float:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            assert pool.call_each(f"{WORK}:square", list(range(300)), limits=QUICK)[-1] == 299 * 299
            times.append(time.perf_counter() - start)
        return min(times)

    pool.call_each(f"{WORK}:square", [1], limits=QUICK)
    before, before_s = belongings(), best_s()
    with ThreadPoolExecutor(2) as threads:
        answers = list(
            threads.map(lambda part: pool.call_each(f"{WORK}:poison", part, limits=QUICK), (kinds[::2], kinds[1::2]))
        )
    outcomes = [type(answer).__name__ for part in answers for answer in part]
    assert (outcomes.count("Raised"), outcomes.count("Killed"), outcomes.count("list")) == (760, 50, 190)
    after_s = best_s()
    pool.close()
    assert after_s < 2 * before_s
    left = settled(before)
    assert left == "", left
    assert len(descendants(os.getpid())) <= len(before.processes)

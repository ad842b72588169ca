"""Programs that try to steer a test from their side, and tests that swallow what they should not."""

from __future__ import annotations

import os
import tempfile
from collections import Counter, OrderedDict, deque, namedtuple
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.isolation.leftovers import belongings, settled
from tests.isolation.test_asserts import check, passed
from toishi.isolation import asserts
from toishi.isolation.asserts import run_asserts
from toishi.isolation.levels import Sandbox, find_sandbox
from toishi.isolation.limits import Limits, NotStarted
from toishi.isolation.programs import Program
from toishi.isolation.sandbox import Running, run_program
from toishi.isolation.values import FrameError, decode, encode

LOOPS = [
    "assert all(map(lambda x: f(x) == x + 1, [1, 2]))",
    "for got, want in zip(map(f, [1, 2]), [2, 3]): assert got == want",
    "assert not any(map(f, [1, 2, 3]))",
]
SWALLOWING = [
    "try:\n  f(1)\nexcept:\n  pass\nelse:\n  assert False",
    "try:\n  ok = f(1) == 2\nexcept BaseException:\n  ok = True\nassert ok",
    "def t():\n  try:\n    assert f(1) == 2\n  finally:\n    return\nt()",
    "import contextlib\nwith contextlib.suppress(BaseException): assert f(1) == 2",
]


@pytest.mark.parametrize("raised", ["StopIteration", "StopAsyncIteration", "GeneratorExit", "KeyboardInterrupt", "SystemExit"])
def test_what_a_program_raises_ends_no_loop_of_a_test(raised: str, best: Sandbox) -> None:
    own = f"class Mine({raised}): pass\ndef f(x): raise Mine"
    for source in (f"def f(x): raise {raised}", own):
        report = check(source, best, *LOOPS)
        assert passed(report) == [False] * 3
        assert all("ProgramError" in result.reason for result in report.results)


def test_no_test_passes_once_the_program_is_lost(best: Sandbox) -> None:
    for test in SWALLOWING:
        report = check("import os\ndef f(x): os._exit(0)", best, test, "assert True")
        assert (report.results, report.stopped) == ((), "the program ended itself")


def test_a_broken_test_that_swallows_that_it_is_broken_is_broken(best: Sandbox) -> None:
    report = check("def f(x): return 1", best, "try: f(object())\nexcept BaseException: pass")
    assert (report.results, "gives the program a object" in report.broken) == ((), True)


@pytest.mark.parametrize(
    "test",
    [
        "assert callable(f())",
        "assert str(f())",
        "assert repr(f())",
        "assert f'{f()}'",
        "import collections.abc as a\nassert isinstance(f(), (a.Iterable, a.Sized, a.Container, a.Callable, a.Hashable))",
        "assert f().__doc__",
        "assert len(f())",
        "assert 1 in f()",
        "assert f() == f()",
        "assert not f() != f()",
        "assert f() < 3",
        "assert f()._held",
    ],
)
def test_an_object_of_the_program_proves_nothing(test: str, best: Sandbox) -> None:
    report = check("class A: pass\ndef f(): return A()", best, test)
    assert (passed(report), report.broken) == ([False], "")


def test_a_handle_leaves_every_name_to_the_program(best: Sandbox) -> None:
    source = "class A:\n  _held, ask, _refuse = 1, 2, 3\nclass F:\n  def __call__(s): return 4\ndef f(): return A()\ng = F()"
    test = "assert (f()._held, f().ask, f()._refuse) == (1, 2, 3)\nassert callable(f) and callable(g) and g() == 4"
    assert passed(check(source, best, test)) == [True]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("import json; json.loads('{')", "ValueError"),
        ("raise type('Mine', (KeyError,), {})('k')", "KeyError"),
        ("open('/no/such/file')", "FileNotFoundError"),
        ("return int('x')", "ValueError"),
        ("return {}['k']", "LookupError"),
    ],
)
def test_exceptions_arrive_as_the_nearest_of_pythons(body: str, expected: str, best: Sandbox) -> None:
    right = f"try: f()\nexcept {expected}: pass\nelse: assert False"
    wrong = "try: f()\nexcept ZeroDivisionError: pass\nelse: assert False"
    assert passed(check(f"def f(): {body}", best, right, wrong)) == [True, False]


def test_arguments_of_exceptions_come_along(best: Sandbox) -> None:
    test = "try: f()\nexcept KeyError as e: assert e.args == ('k', 3)\nelse: assert False"
    assert passed(check("def f(): raise KeyError('k', 3)", best, test)) == [True]


def test_a_future_statement_is_the_programs_own_affair(best: Sandbox) -> None:
    source = "def f(x: int): pass\ndef g(): return f.__annotations__['x'] is int"
    assert passed(check(source, best, "def h(x: int): pass\nassert g() and h.__annotations__['x'] is int")) == [True]
    assert passed(check("\ufeffdef f(): return 1", best, "assert f() == 1")) == [True]


def test_a_name_of_pythons_may_be_the_programs_where_the_caller_says_so(best: Sandbox) -> None:
    tests = [("1", "assert sum(10, 15) == 6")]
    source = "def sum(a, b): return 6"
    limits = Limits(wall_s=5)
    assert passed(run_asserts(source, tests, theirs={"sum"}, limits=limits, sandbox=best)) == [True]
    assert passed(run_asserts(source, tests, limits=limits, sandbox=best)) == [False]


def test_many_tests_with_long_reasons_are_all_reported(best: Sandbox) -> None:
    report = check(
        "def f(): return 1", best, *["assert f() == 2, '\U0001f600' * 1000"] * 2000, limits=Limits(wall_s=60, cpu_s=60)
    )
    assert (len(report.results), any(passed(report)), report.broken, report.stopped) == (2000, False, "", "")


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    "value",
    [Counter("aab"), OrderedDict([("b", 1), ("a", 2)]), deque([1, 2]), date(2020, 2, 29), datetime(2020, 1, 1, 5, tzinfo=UTC),
     time(5, 6, 7), timedelta(days=-1, microseconds=3)],
)  # fmt: skip
def test_more_types_come_back_as_they_were(value: Any) -> None:
    back = decode(encode([value], handle=id), from_handle=id)[0]
    assert (type(back), back) == (type(value), value)


def test_a_named_tuple_keeps_its_names() -> None:
    back = decode(encode(Point(1, [2]), handle=id), from_handle=id)
    assert (back, back.x, back.y, type(back).__name__) == ((1, [2]), 1, [2], "Point")
    for names in (["__eq__"], ["x y", "class"], ["a); import os; ("], ["x", "x"]):
        with pytest.raises(FrameError):
            decode({"named": ["P", names, {"tuple": [1] * len(names)}]}, from_handle=id)


def test_a_sandbox_that_does_not_start_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plain, before = find_sandbox("plain"), belongings()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    for _ in range(3):
        with pytest.raises(NotStarted):
            run_program(Program(command=("true",)), limits=Limits(), kind="plain")
        with pytest.raises(NotStarted):
            run_asserts("", [("1", "assert f()")], limits=Limits(), sandbox=plain)
    monkeypatch.undo()
    assert settled(before) == ""


def test_a_second_sandbox_that_does_not_start_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, before, started = find_sandbox("plain"), belongings(), []

    def second_fails(program: Program, **options: Any) -> Running:
        started.append(program)
        if len(started) % 2 == 0:
            for end in (options["stdin"], options["stdout"]):
                os.close(end)
            raise NotStarted("no more processes")
        return Running(program, **options)

    monkeypatch.setattr(asserts, "Running", second_fails)
    for _ in range(3):
        with pytest.raises(NotStarted):
            run_asserts("", [("1", "assert f()")], limits=Limits(), sandbox=plain)
    assert settled(before) == ""

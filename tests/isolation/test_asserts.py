"""Tests that call a program: the program answers, and can do nothing else."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from tests.isolation.leftovers import belongings, settled
from toishi.isolation.asserts import TestReport, run_asserts
from toishi.isolation.levels import Sandbox, find_sandbox
from toishi.isolation.limits import Limits
from toishi.isolation.values import FrameError, decode, encode

LIMITS = Limits(wall_s=5, cpu_s=5, memory_mb=256, output_bytes=100_000)
TESTS = [("first", "assert add(1, 2) == 3"), ("second", "assert add('a', 'b') == 'ab'")]


def check(source: str, sandbox: Sandbox, *codes: str, setup: str = "", limits: Limits = LIMITS) -> TestReport:
    tests = [(str(number), code) for number, code in enumerate(codes, start=1)] if codes else TESTS
    return run_asserts(source, tests, setup=setup, limits=limits, sandbox=sandbox)


def passed(report: TestReport) -> list[bool]:
    return [result.passed for result in report.results]


def test_a_right_program_passes_and_a_wrong_one_does_not(best: Sandbox) -> None:
    before = belongings()
    assert check("def add(a, b): return a + b", best) == check("add = lambda a, b: a + b", best)
    assert passed(check("def add(a, b): return a + b", best)) == [True, True]
    half = check("def add(a, b): return a + b if a == 1 else None", best)
    assert (passed(half), half.results[1].reason) == ([True, False], "AssertionError: line 1 of the test")
    assert settled(before) == ""


CHEATS = {
    "equal to everything": "class E:\n  __eq__ = lambda s, o: True\n  __bool__ = lambda s: True\n  __hash__ = lambda s: 3\n"
    "def add(a, b): return E()",
    "an int equal to everything": "class E(int):\n  __eq__ = lambda s, o: True\n  __hash__ = int.__hash__\n"
    "def add(a, b): return E(99)",
    "a str equal to everything": "class E(str):\n  __eq__ = lambda s, o: True\n  __hash__ = str.__hash__\n"
    "def add(a, b): return E('z')",
    "a list of such": "class E:\n  __eq__ = lambda s, o: True\ndef add(a, b): return [E()]",
    "a class that is its own type": "class M(type):\n  __eq__ = lambda s, o: True\n  __instancecheck__ = lambda s, o: True\n"
    "  __hash__ = type.__hash__\nclass E(metaclass=M): pass\ndef add(a, b): return E",
    "new builtins": "import builtins\nbuiltins.AssertionError = KeyError\nbuiltins.compile = lambda *a, **k: None\n"
    "builtins.exec = lambda *a: None\ndef add(a, b): return 0",
    "new json": "import json\njson.dumps = lambda *a, **k: '{\"value\": true}'\ndef add(a, b): return 0",
    "new library functions": "import toishi.isolation.answering as here\nhere.encode = lambda *a: True\n"
    "def add(a, b): return 0",
    "exit code 0": "import os\nos._exit(0)",
    "exit code 0 when called": "import os\ndef add(a, b): os._exit(0)",
    "SystemExit": "raise SystemExit(0)",
    "SystemExit when called": "def add(a, b): raise SystemExit(0)",
    "a marker and out": "import os\nprint('passed', flush=True)\n"
    'os.write(2, b\'{"test": "first", "passed": true, "reason": ""}\\n{"end": true}\\n\')\nos._exit(0)',
    "a marker everywhere": 'import os\nfor fd in range(64):\n  try: os.write(fd, b\'{"test": "first", "passed": true}\\n\')\n'
    "  except OSError: pass\ndef add(a, b): return 0",
    "answers before the questions": "import os\nbody = b'{\"value\": 3}'\n"
    "for fd in range(64):\n  try: os.write(fd, (len(body).to_bytes(4, 'big') + body) * 50)\n  except OSError: pass\n"
    "def add(a, b): return 0",
    "looks for the tests": "import glob, os, sys\nwanted, seen = bytes((97, 115, 115, 101, 114, 116, 32, 97, 100, 100)), b''\n"
    "for place in glob.glob('../toishi-run-*/*') + glob.glob('/box/*/*') + glob.glob('/proc/[0-9]*/[ec][nm][vd]*'):\n"
    "  try: seen += open(place, 'rb').read(100_000)\n  except OSError: pass\n"
    "def add(a, b): return 3 if wanted in seen.replace(b'program.py', b'') else 0",
    "reads the frames": "import sys\ndef add(a, b):\n  frame, text = sys._getframe(), ''\n"
    "  while frame: text += repr(frame.f_locals) + repr(frame.f_code.co_consts); frame = frame.f_back\n"
    "  return 3 if ''.join(map(chr, (97, 115, 115, 101, 114, 116))) in text else 0",
    "traces the tests' process": "import ctypes, glob\nlibc, found = ctypes.CDLL(None), []\ndef add(a, b):\n"
    "  for place in glob.glob('/proc/[0-9]*/cmdline'):\n"
    "    try:\n      if b'checking' in open(place, 'rb').read(): found.append(open(place.replace('cmdline', 'mem'), 'r+b'))\n"
    "    except OSError: pass\n  return 3 if found else 0",
    "raises what the test raises": "def add(a, b): raise AssertionError('fine')",
    "endless exception text": "class E(Exception):\n  def __str__(s): raise E\ndef add(a, b): raise E",
    "huge answer": "def add(a, b): return 'x' * 1_000_000",
    "deep answer": "def add(a, b):\n  x = []\n  for _ in range(100_000): x = [x]\n  return x",
    "other types": "def add(a, b): return {'handle': [0, 'int']}",
    "a name of Python's": "def sorted(*a): return [3]\nlen = int = str = type = isinstance = sorted\ndef add(a, b): return 0",
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_no_cheat_passes(cheat: str, best: Sandbox) -> None:
    before = belongings()
    report = check(CHEATS[cheat], best, *(code for _, code in TESTS), "assert add(1, 2) in [3]")
    assert not any(passed(report)), report
    assert report.broken == ""
    assert settled(before) == ""


@pytest.mark.parametrize("cheat", ["looks for the tests", "traces the tests' process", "a marker everywhere"])
def test_not_even_without_namespaces(cheat: str) -> None:
    report = check(CHEATS[cheat], find_sandbox("plain"))
    assert (any(passed(report)), report.broken) == (False, "")


def test_a_module_of_the_same_name_is_pythons(best: Sandbox) -> None:
    source = "class math:\n  isclose = lambda *a: True\ndef add(a, b): return 7"
    assert passed(check(source, best, "assert math.isclose(add(0.1, 0.2), 0.3)")) == [False]
    assert passed(check("def add(a, b): return a + b", best, "assert math.isclose(add(0.1, 0.2), 0.3)")) == [True]


@pytest.mark.parametrize(
    ("source", "stopped"),
    [
        ("def add(a, b) return a", "SyntaxError: expected ':'"),
        ("import no_such_module", "ModuleNotFoundError"),
        ("while True: pass", "took longer than 3 s"),
        ("import os; os._exit(0)", "the program ended itself"),
    ],
)
def test_a_program_that_does_not_load_runs_no_test(source: str, stopped: str, best: Sandbox) -> None:
    report = check(source, best, limits=Limits(wall_s=3, cpu_s=5))
    assert (report.results, report.broken) == ((), "")
    assert stopped in report.stopped


def test_tests_before_an_endless_one_have_run(best: Sandbox) -> None:
    source = "def f(n):\n  while n == 2: pass\n  return n"
    report = check(source, best, "assert f(1) == 1", "assert f(2) == 2", "assert f(3) == 3", limits=Limits(wall_s=3))
    assert (passed(report), report.stopped) == ([True], "took longer than 3 s")


@pytest.mark.parametrize(
    ("source", "test"),
    [
        ("def f(x): return {1: (x, [x]), 'k': {x}}", "assert f(2) == {1: (2, [2]), 'k': {2}}"),
        ("def f(n):\n  yield from range(n)", "assert list(f(3)) == [0, 1, 2]"),
        ("from collections import Counter\ndef f(s): return Counter(s)", "assert f('aab') == {'a': 2, 'b': 1}"),
        ("def f(x): return x ** 100", "assert f(7) == 7 ** 100"),
        ("def f(x): raise ValueError('no')", "try: f(1)\nexcept ValueError as e: assert str(e) == 'no'\nelse: assert False"),
        ("class Bag:\n  def __init__(s): s.x = []\n  def put(s, v): s.x.append(v)", "s = Bag(); s.put(4); assert s.x == [4]"),
        ("def f(x): return x is None", "assert f(None) is True and f(x=0) is False"),
        ("LIMIT = 5", "assert LIMIT == 5"),
        ("def f(x): print('noise'); return x", "assert f(b'raw') == b'raw'"),
        ("import fractions as q\ndef f(): return q.Fraction(1, 3)", "import fractions\nassert f() == fractions.Fraction(1, 3)"),
        ("def make(k): return lambda x: x + k", "assert make(2)(3) == 5"),
        ("from dataclasses import dataclass\n@dataclass\nclass P:\n  x: int\ndef f(): return P(3)", "assert f().x == 3"),
    ],
)  # fmt: skip
def test_what_programs_give_and_take(source: str, test: str, best: Sandbox) -> None:
    report = check(source, best, test)
    assert passed(report) == [True], report


def test_set_up_runs_before_each_test(best: Sandbox) -> None:
    codes = ("values.append(f(1)); assert values == [1]",) * 2
    assert passed(check("def f(x): return x", best, *codes, setup="values = []")) == [True, True]


@pytest.mark.parametrize("test", ["assert f(", "assert f(lambda x: x) == 1", "assert f(object()) == 1"])
def test_a_test_that_cannot_be_run_is_broken_and_not_failed(test: str, best: Sandbox) -> None:
    report = check("def f(x): return 1", best, test)
    assert (report.results, report.broken != "") == ((), True)


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -(2**80), 1.5, float("inf"), "é\ud83d", b"\x00", 1 + 2j, Fraction(1, 3), Decimal("0.1"), [1, (2, {3}), {}],
     {(1, 2): frozenset({"x"})}, range(1, 9, 2), bytearray(b"x")],
)  # fmt: skip
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    back = decode(encode(value, handle=id), from_handle=id)
    assert (type(back), back) == (type(value), value)


@pytest.mark.parametrize(
    "message",
    [{"unknown": 1}, {"int": "zz"}, {}, {"a": 1, "b": 2}, {"set": [[1]]}, {"dict": [[1]]}, {"range": [1, 2, 0]},
     {"fraction": "1/0"}],
)  # fmt: skip
def test_what_no_encoder_wrote_is_refused(message: Any) -> None:
    with pytest.raises(FrameError):
        decode(message, from_handle=id)

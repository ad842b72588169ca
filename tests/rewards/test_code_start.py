"""What the reward `code` refuses before the start, and what it reads from the tests' text."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rewards.judging import judge
from tests.rewards.test_code import ADD, CALLS, PRINTS, fenced, prompt, reward
from toishi.errors import ConfigError, DataError
from toishi.rewards.code_names import helpers_of, names_of_program, why_vacuous
from toishi.types import Prompt

UNITTEST = "import unittest\nclass T(unittest.TestCase):\n  def test_a(self): self.assertEqual(add(1, 2), 3)\n"
CHECK = "def check(candidate):\n  assert candidate(1, 2) == 3\n"


@pytest.mark.parametrize(
    ("test", "why"),
    [
        (CHECK, "nobody calls check"),
        (UNITTEST, "nobody calls T"),
        (UNITTEST + "if __name__ == '__main__': unittest.main()", "nobody calls T"),
        ("def test_add():\n  assert add(1, 2) == 3", "nobody calls test_add"),
        ("test = lambda: add(1, 2) == 3", "asserts nothing"),
        ("add(1, 2) == 3", "asserts nothing"),
        ("print(add(1, 2) == 3)", "asserts nothing"),
        ("assert True, 'never printed'", "asserts nothing"),
        ("assert (add(1, 2) == 3, 'message')", "always true"),
        ("assert add(1, 2) == 3", None),
        (CHECK + "check(add)", None),
        ("def inner(f):\n  assert f(1)\ndef outer(f): inner(f)\nouter(add)", None),
        (UNITTEST + "T('test_a').debug()", None),
        ("import numpy as np\nnp.testing.assert_allclose(add(1, 2), 3)", None),
        ("if add(1, 2) != 3: raise ValueError", None),
    ],
)
def test_tests_that_run_no_assertion(test: str, why: str | None) -> None:
    found = why_vacuous(test, "")
    assert (found is None) if why is None else (found is not None and why in found)
    refused = reward().problem(prompt([test]))
    assert (refused is None) == (why is None)


@pytest.mark.parametrize(
    ("codes", "setup", "named", "theirs"),
    [
        (["assert f(g(1)) == math.pi"], "", [{"f", "g"}], set()),
        (["assert sum(10, 15) == 6", "assert sum(1, 2) == 0"], "", [{"sum"}, {"sum"}], {"sum"}),
        (["assert bisect([1, 3], 2) == 1"], "", [{"bisect"}], {"bisect"}),
        (["from bisect import bisect\nassert bisect([1, 3], 2) == f(1)"], "", [{"f"}], set()),
        (["assert sorted(sum(1, 2)) == [3]"], "", [set()], set()),
        (["assert near(0.1)"], "near = lambda x: close(x)", [{"close"}], set()),
        (["for x in [1]:\n  assert f(x) == x"], "", [{"f"}], set()),
    ],
)
def test_names_that_the_program_has_to_define(codes: list[str], setup: str, named: list[set[str]], theirs: set[str]) -> None:
    assert names_of_program(codes, setup) == (named, theirs)


@pytest.mark.parametrize(
    "test",
    [
        "for x in []: assert add(x) == 1",
        "async def t():\n  assert add(1, 2) == 3\nt()",
        "def t():\n  assert add(1, 2) == 3\n  yield\nt()",
        "try: assert add(1, 2) == 3\nexcept Exception: pass",
        "assert add(1, 2) != 3",
    ],
)
def test_tests_that_programs_pass_which_do_nothing_are_refused_at_the_start(test: str) -> None:
    with pytest.raises(DataError, match="row row 1: its tests are passed by"):
        reward().prepare([prompt([test])])


def test_a_test_that_no_program_can_be_asked_is_refused_at_the_start() -> None:
    with pytest.raises(DataError, match="gives the program a function"):
        reward().prepare([prompt(["assert add(lambda: 1, 2)"])])


@pytest.mark.parametrize(
    "tests", [CALLS, PRINTS, ["assert first(3) is None"], ["assert not is_prime(4)", "assert is_prime(3)"]]
)
def test_tests_that_can_fail_are_taken(tests: Any) -> None:
    reward().prepare([prompt(tests)])


def test_what_cannot_run_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match="no-such-program cannot be started"):
        reward(command=("no-such-program", "program.py")).prepare([])
    with pytest.raises(ConfigError, match="raise timeout_s"):
        reward(timeout_s=0.001).prepare([])  # Python alone takes some milliseconds


def test_an_output_that_no_program_may_print_is_refused() -> None:
    long = prompt([{"input": "", "output": "x" * 101}])
    assert "test 1 expects 101 bytes" in str(reward(output_bytes=100).problem(long))
    assert reward(output_bytes=101).problem(long) is None


def test_a_row_without_its_entry_point_is_refused() -> None:
    options = {"entry_point_column": "entry"}
    assert "entry: expected the name of a function" in str(reward(**options).problem(prompt(CHECK, entry=None)))
    assert reward(**options).problem(prompt(CHECK, entry="add")) is None


def test_functions_named_as_pythons_are_the_programs() -> None:
    assert judge(reward(), fenced("def sum(a, b): return 6"), prompt(["assert sum(10, 15) == 6"])).value == 1.0
    assert judge(reward(), fenced("def sum(a, b): return 7"), prompt(["assert sum(10, 15) == 6"])).value == 0.0
    assert judge(reward(), fenced("\ufeff" + ADD), prompt(CALLS)).value == 1.0


def test_helpers_of_the_beginning_stay_as_they_were() -> None:
    start = "def poly(c, x):\n    return c[0] + c[1] * x\n\ndef solve(c):\n    'The zero.'\n"
    row = Prompt(
        id="a",
        text="?",
        columns={"tests": "def check(f):\n  assert abs(poly([2, 1], f([2, 1]))) < 1e-4\n", "entry": "solve", "start": start},
    )
    options = reward(entry_point_column="entry", start_column="start", whole_text=True)
    assert judge(options, "    return -c[0] / c[1]\n", row).value == 1.0
    assert judge(options, "    return 0\n\ndef poly(*_): return 0\n", row).value == 0.0
    assert "def poly" in helpers_of(start, "solve")
    assert "solve" not in helpers_of(start, "")
    assert helpers_of("def broken(", "") == ""

"""Tests of programs as data sets hold them, read strictly: what is not understood is refused before training.

Decisions:
1. The shape tells the style. [{input, output}, ...] and {inputs: [...], outputs: [...]}, also as JSON text: the program reads
   and prints. A list of Python statements, or one text of Python: the program is called.
2. A test that passes without anything being done (an empty expected output, no test at all, no assertion that is run, none that
   names something of the program) is refused.
3. Two outputs are the same if their lines are, without spaces at the ends of lines and blank lines at the end.
4. A tolerance is for fractions: two whole numbers have to be the same. Only plain decimal numbers in ASCII are numbers.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from toishi.rewards.code_names import names_of_program, why_vacuous

_BLANKS = " \t\r\n\f\v"
_WHOLE = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintTest:
    """One run of the program: what it reads and what it has to print."""

    input: str
    output: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTests:
    """Python tests that call the program's functions: (name, code) each, after the same set-up.

    theirs  names of Python's that mean the program's own in these tests
    """

    tests: tuple[tuple[str, str], ...]
    setup: str = ""
    theirs: frozenset[str] = frozenset()


Tests = tuple[PrintTest, ...] | CallTests


def read_tests(value: Any, *, setup: str = "", entry_point: str = "") -> Tests | str:
    """The tests that a column holds, or why it holds none.

    entry_point  the function that a text of tests hands to its own `check(candidate)`, as in HumanEval

    >>> read_tests([{"input": "1 2", "output": "3"}])
    (PrintTest(input='1 2', output='3'),)
    >>> read_tests(["assert add(1, 2) == 3"])
    CallTests(tests=(('1', 'assert add(1, 2) == 3'),), setup='', theirs=frozenset())
    >>> read_tests("")
    'there is no test'
    """
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        with suppress(ValueError, RecursionError):  # Python may begin so too
            value = json.loads(value)
    if isinstance(value, Mapping):
        pairs = _pairs(value)
        if pairs is None:
            return f"expected as many outputs as inputs and no fn_name (write tests that call as Python), got {value!r:.100}"
        value = pairs
    if isinstance(value, str):
        whole = f"{value}\ncheck({entry_point})" if entry_point else value
        return _call_tests([("check", whole)] if value.strip() else [], setup, entry_point)
    if not isinstance(value, Sequence):
        return f"expected a list of tests, got {value!r:.100}"
    if value and all(isinstance(item, str) for item in value):
        return _call_tests([(str(number), item) for number, item in enumerate(value, start=1)], setup)
    return _print_tests(value)


def same_output(printed: str, expected: str, tolerance: float = 0.0) -> bool:
    """Whether a program printed what was expected.

    tolerance  a number may be off by tolerance * max(1, |expected|), unless both are written as whole numbers; words between
               spaces are compared one by one then

    >>> same_output("1 \\n2\\n\\n", "1\\n2"), same_output("1 2", "1\\n2"), same_output("0.3000001", "0.3", tolerance=1e-6)
    (True, False, True)
    """
    if _lines(printed) == _lines(expected):
        return True
    got, wanted = ([word for word in re.split(f"[{_BLANKS}]+", text) if word] for text in (printed, expected))
    return tolerance > 0 and len(got) == len(wanted) and all(map(lambda a, b: _close(a, b, tolerance), got, wanted))


def _lines(text: str) -> list[str]:
    return [line.rstrip(_BLANKS) for line in text.rstrip(_BLANKS).split("\n")]


def _close(got: str, wanted: str, tolerance: float) -> bool:
    if got == wanted:
        return True
    if not _NUMBER.fullmatch(got) or not _NUMBER.fullmatch(wanted):
        return False
    if _WHOLE.fullmatch(got) and _WHOLE.fullmatch(wanted):
        return Decimal(got) == Decimal(wanted)
    value, target = float(got), float(wanted)
    return math.isfinite(target) and abs(value - target) <= tolerance * max(1.0, abs(target))


def _pairs(value: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """{inputs: [...], outputs: [...]} as a list of pairs; None for anything else."""
    inputs, outputs = value.get("inputs", value.get("input")), value.get("outputs", value.get("output"))
    if value.get("fn_name") or not isinstance(inputs, list) or not isinstance(outputs, list) or len(inputs) != len(outputs):
        return None
    return [{"input": given, "output": wanted} for given, wanted in zip(inputs, outputs, strict=True)]


def _print_tests(items: Sequence[Any]) -> Tests | str:
    if not items:
        return "there is no test"
    tests = []
    for number, item in enumerate(items, start=1):
        if not isinstance(item, Mapping) or not {"input", "output"} <= set(item):
            return f"test {number} is neither a Python statement nor a pair of input and output: {item!r:.100}"
        given, wanted = (_text(item[key]) for key in ("input", "output"))
        if given is None or wanted is None:
            return f"test {number}: input and output have to be texts or lists of lines, got {item!r:.100}"
        if not wanted.strip():
            return f"test {number} expects no output, so any program would pass it"
        tests.append(PrintTest(input=given, output=wanted))
    return tuple(tests)


def _text(value: Any) -> str | None:
    if isinstance(value, list) and all(isinstance(line, str) for line in value):
        return "\n".join(value) + "\n"
    return value if isinstance(value, str) else None


def _call_tests(tests: list[tuple[str, str]], setup: str, entry_point: str = "") -> Tests | str:
    if not tests:
        return "there is no test"
    for name, code in (("the set-up", setup), *tests):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compile(code, "test", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return f"test {name} is not Python: {error}"
    for name, code in tests:
        why = why_vacuous(code, setup)
        if why is not None:
            return f"test {name} {why}: {code!r:.100}"
    named, theirs = names_of_program([code for _, code in tests], setup, entry_point)
    for (name, code), names in zip(tests, named, strict=True):
        if not names:
            return f"test {name} names nothing that only the program can define: {code!r:.100}"
    return CallTests(tests=tuple(tests), setup=setup, theirs=frozenset(theirs))

"""Tests that call a program's functions: the program in one sandbox, the tests in another, two pipes between them.

Decisions:
1. The tests are outside of the program's reach: not in its memory, files, arguments or environment. What it can do to them is
   answer their questions.
2. A result counts only if the tests' side wrote it. A test without a result has not run, and has not passed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toishi.isolation.levels import Sandbox
from toishi.isolation.limits import Limits
from toishi.isolation.programs import Program
from toishi.isolation.sandbox import Running, slots

MAX_RESULTS_BYTES = 1 << 20
RESULT_BYTES = 5_000  # a reason of 400 characters, escaped, and what is around it
_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class TestResult:
    """What one test said."""

    __test__ = False  # not a test of pytest's

    name: str
    passed: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TestReport:
    """The tests that ran, in order.

    stopped  why not all of them ran, or ""
    broken   why the tests themselves cannot be run, whatever the program does, or ""
    """

    __test__ = False

    results: tuple[TestResult, ...]
    stopped: str = ""
    broken: str = ""


def run_asserts(
    source: str,
    tests: Sequence[tuple[str, str]],
    *,
    setup: str = "",
    theirs: Collection[str] = (),
    limits: Limits,
    sandbox: Sandbox,
    readable: tuple[str, ...] = (),
) -> TestReport:
    """Runs named Python tests, (name, code), against the Python program `source`; the limits hold for all of them together.

    setup     Python that runs before each test
    theirs    names of Python's (such as sum) that the tests mean the program's own of
    readable  absolute paths that both sides may read besides the system's

    Raises NotStarted if a sandbox does not start.

    >>> from toishi.isolation.levels import find_sandbox
    >>> tests = [("one", "assert double(2) == 4"), ("two", "assert double('a') == 'aa'")]
    >>> report = run_asserts("def double(x): return x + x", tests, limits=Limits(), sandbox=find_sandbox("plain"))
    >>> [(result.name, result.passed) for result in report.results]
    [('one', True), ('two', True)]
    """
    listed = [{"name": name, "code": code} for name, code in tests]
    spec = {"program": "program.py", "setup": setup, "theirs": [*theirs], "tests": listed, "max_bytes": limits.output_bytes}
    asking = _side("checking", "main('tests.json')", {"tests.json": json.dumps(spec)}, sandbox, readable)
    answering = _side("answering", "main()", {"program.py": source}, sandbox, readable)
    results_bytes = MAX_RESULTS_BYTES + sum(len(json.dumps(name)) + RESULT_BYTES for name, _ in tests)
    with slots(), ExitStack() as stack:
        ends = [end for pair in (os.pipe(), os.pipe()) for end in pair]
        unused = stack.enter_context(_closing(ends))
        questions_out, questions_in, answers_out, answers_in = ends
        unused -= {questions_out, answers_in}
        program = stack.enter_context(
            Running(answering, limits=limits, kind=sandbox.kind, stdin=questions_out, stdout=answers_in)
        )
        unused.clear()
        checker = stack.enter_context(
            Running(asking, limits=limits, kind=sandbox.kind, stdin=answers_out, stdout=questions_in, kept_errors=results_bytes)
        )
        ending = stack.enter_context(ThreadPoolExecutor(1)).submit(program.finish)
        try:
            written = checker.finish()
        finally:
            program.stop("finished")
        ended = ending.result()
    return _report(written.stderr, written.limit, None if ended.over == "finished" else ended.limit)


@contextmanager
def _closing(ends: Sequence[int]) -> Iterator[set[int]]:
    """The descriptors that nobody has taken over yet; those still in the set at the end are closed."""
    unused = set(ends)
    try:
        yield unused
    finally:
        for end in unused:
            os.close(end)


def _side(module: str, call: str, files: dict[str, str], sandbox: Sandbox, readable: tuple[str, ...]) -> Program:
    """A program that runs one of the modules beside this one."""
    names = (module, "values", "syscalls")
    own = {f"toishi/isolation/{name}.py": (_HERE / f"{name}.py").read_text(encoding="utf-8") for name in names}
    empty = {f"{package}/__init__.py": "" for package in ("toishi", "toishi/isolation")}
    boot = f"import sys; sys.path.insert(0, '.'); from toishi.isolation.{module} import main; {call}"
    return Program(command=(*sandbox.python, "-c", boot), files=own | empty | files, readable=readable)


def _report(written: str, checker_limit: str | None, program_limit: str | None) -> TestReport:
    lines: list[dict[str, Any]] = []
    for line in written.splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            return TestReport(results=(), broken=f"the tests' side failed: {written.strip()[-300:]}")
    results = tuple(
        TestResult(name=line["test"], passed=line["passed"], reason=line["reason"]) for line in lines if "test" in line
    )
    last = lines[-1] if lines else {}
    if "broken" in last:
        return TestReport(results=results, broken=last["broken"])
    if "end" in last:
        return TestReport(results=results)
    stopped = program_limit or last.get("unloaded") or checker_limit or last.get("lost") or "the tests' side ended early"
    return TestReport(results=results, stopped=stopped)

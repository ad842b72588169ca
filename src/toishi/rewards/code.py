"""`code`: the program in the answer passes its tests. Docs: docs/sandbox.md.

Decisions:
1. The program runs in a sandbox. Its output is compared outside of it; tests that call it run in a second sandbox. An exit code
   alone is never a pass, and a test that did not run has not passed.
2. A program over a limit is wrong and gets 0 with the reason. A sandbox that does not start, or a test that cannot be run
   whatever the program does, is a failure and no 0.
3. The same program twice in a group runs once.
4. Before the start, the tests of the first rows are tried on programs that do nothing: tests that these pass are refused.
5. What the beginning in `start_column` defines before the last function is also run before each test: the tests use these
   helpers as they were, not as the program may have defined them anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from toishi.errors import ConfigError, DataError
from toishi.isolation.asserts import run_asserts
from toishi.isolation.levels import find_sandbox
from toishi.isolation.limits import NotStarted
from toishi.isolation.programs import Program
from toishi.isolation.sandbox import run_program
from toishi.rewards.base import Judgement
from toishi.rewards.blocks import find_program, missing_program
from toishi.rewards.code_names import helpers_of
from toishi.rewards.code_tests import CallTests, PrintTest, Tests, read_tests, same_output
from toishi.rewards.sandboxed import Sandboxed
from toishi.types import Completion, Prompt

TRIED_ROWS = 4
ANSWERS = "def __getattr__(name): return lambda *_, **__: {}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeReward(Sandboxed):
    """1 if the answer's program passes all its tests, else 0. With `partial`, the share of tests passed.

    tests_column  the tests: [{input, output}, ...] for programs that read and print; a list of Python statements (MBPP), or one
                  text of Python (HumanEval), for programs that are called
    setup_column  a column with Python that runs before each test that calls (imports, helpers)
    entry_point_column  a column with the name of the function that a text of tests is to `check`
    start_column  a column with the beginning of the program, which the answer continues
    whole_text    the answer is the program; otherwise it is the last fenced block with one of the `languages` as its label
    command       how to run the program (for other languages): ["node", "program.js"]; `file` is the name it gets. Tests that
                  call need Python
    tolerance     how far printed numbers may be off, relative for those above 1
    timeout_s     seconds for each run: of one test that prints, of all tests that call

    Traps: tests are the whole of what is wanted, so a program that knows the tested inputs by heart passes them: test with many
    inputs, and hold some back. With partial: true an answer that is right for the easy half is paid for ever. Limits without a
    sandbox (sandbox: plain) do not keep a program from your files.

    >>> from toishi.rewards.scripted import answered
    >>> prompt = Prompt(id="a", text="Write double(x).", columns={"tests": ["assert double(2) == 4", "assert double(3) == 6"]})
    >>> answers = [answered("```python\\ndef double(x):\\n    return 2 * x\\n```"), answered("No.")]
    >>> reward = CodeReward(sandbox="plain")
    >>> [(judgement.value, judgement.reason) for (judgement,) in reward.score_group(prompt, answers)]
    [(1.0, 'passed 2 of 2 tests'), (0.0, 'no code block labelled python, py or python3')]
    """

    name: str = "code"
    tests_column: str = "tests"
    setup_column: str | None = None
    entry_point_column: str | None = None
    start_column: str | None = None
    whole_text: bool = False
    languages: tuple[str, ...] = ("python", "py", "python3")
    command: tuple[str, ...] = ()
    file: str = "program.py"
    partial: bool = False
    tolerance: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0

    def __post_init__(self) -> None:
        where = f"reward '{self.name}'"
        if not self.whole_text and not self.languages:
            raise ConfigError(f"{where}.languages: give the labels of code blocks to look for, or set whole_text: true")
        if not re.fullmatch(r"[\w.-]+", self.file) or self.file in (".", ".."):
            raise ConfigError(f"{where}.file: must be a bare file name such as program.py, got {self.file!r}")
        self.check_readable()

    @property
    def columns(self) -> tuple[str, ...]:
        named = (self.tests_column, self.setup_column, self.entry_point_column, self.start_column)
        return tuple(column for column in named if column is not None)

    def problem(self, prompt: Prompt) -> str | None:
        """Why this prompt's tests cannot be run, or None."""
        tests = self._tests(prompt)
        if isinstance(tests, str):
            return tests
        if isinstance(tests, CallTests):
            return "its tests call Python functions, but the reward's command runs another program" if self.command else None
        for number, test in enumerate(tests, start=1):
            size = len(test.output.encode("utf-8", "surrogatepass"))
            if size > self.output_bytes:
                return f"test {number} expects {size:,} bytes of output; no program may write more than output_bytes allows"
        return None

    def prepare(self, prompts: Sequence[Prompt]) -> None:
        """Raises ConfigError if programs cannot be run here, DataError if tests are passed by programs that do nothing."""
        Sandboxed.prepare(self, prompts)  # super() does not work in a dataclass with slots
        self._check_start()
        for prompt in prompts[:TRIED_ROWS]:
            tests = self._tests(prompt)
            why = self._passed_by_anything(tests) if isinstance(tests, CallTests) else None
            if why is not None:
                raise DataError(f"reward '{self.name}': row {prompt.id}: {why}")

    def _check_start(self) -> None:
        sandbox = find_sandbox(self.sandbox)
        command = self.command or (*sandbox.python, self.file)
        program = Program(command=command, files={self.file: "" if self.command else "print(6 * 7)"}, readable=self.places)
        try:
            outcome = run_program(program, limits=self.limits, kind=sandbox.kind)
        except NotStarted as error:
            remedy = f"install it, name its folder in readable, or give it more than memory_mb: {self.memory_mb}"
            raise ConfigError(f"reward '{self.name}': {command[0]} cannot be started: {error}; {remedy}") from None
        if not self.command and outcome.stdout != "42\n":
            said = outcome.limit or outcome.stderr.strip()[-200:] or f"exit code {outcome.exit_code}"
            raise ConfigError(
                f"reward '{self.name}': a program that prints 42 fails within its limits ({said}); raise timeout_s "
                f"({self.timeout_s:g}) or memory_mb ({self.memory_mb})"
            )

    def _passed_by_anything(self, tests: CallTests) -> str | None:
        """Why these tests tell nothing: an empty program passes them all, or two do that answer the same to everything."""
        everything = []
        for source in (ANSWERS.format("None"), "", ANSWERS.format("0.7310585")):
            try:
                passed, total, _ = self._called(source, tests)
            except NotStarted:  # told when answers are scored
                return None
            except _BrokenTests as error:
                return str(error)
            everything.append(passed == total)
            if everything == [False, False]:
                return None
        if everything[1]:
            return "its tests are passed by an empty program"
        return "its tests are passed by functions that return None and by functions that return 0.73" if everything[2] else None

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        tests = self._tests(prompt)
        if isinstance(tests, str):
            return [(Judgement(value=None, status="failed", reason=tests, kind="no_tests"),)] * len(completions)
        find_sandbox(self.sandbox)
        read = [self._program(prompt, completion) for completion in completions]
        sources = list(dict.fromkeys(source for source in read if isinstance(source, str)))
        with ThreadPoolExecutor(max(1, min(len(sources), os.cpu_count() or 1))) as threads:
            judged = dict(zip(sources, threads.map(lambda source: self._judge(source, tests), sources), strict=True))
        return [(judged[found] if isinstance(found, str) else found,) for found in read]

    def _tests(self, prompt: Prompt) -> Tests | str:
        setup, entry = (self._text(prompt, column) for column in (self.setup_column, self.entry_point_column))
        if self.entry_point_column is not None and not entry.isidentifier():
            return f"{self.entry_point_column}: expected the name of a function, got {entry!r:.100}"
        helpers = helpers_of(self._text(prompt, self.start_column), entry)
        return read_tests(prompt.columns.get(self.tests_column), setup=f"{helpers}\n{setup}".strip("\n"), entry_point=entry)

    @staticmethod
    def _text(prompt: Prompt, column: str | None) -> str:
        value: Any = "" if column is None else prompt.columns.get(column)
        return "\n".join(map(str, value)) if isinstance(value, list | tuple) else str(value or "")

    def _program(self, prompt: Prompt, completion: Completion) -> str | Judgement:
        if self.require_stop and completion.is_truncated:
            return Judgement(value=0.0, reason="cut off at the token limit", readable=False)
        found = find_program(prompt, completion, self.languages, whole_text=self.whole_text)
        if found is None:
            reason = missing_program(self.languages, whole_text=self.whole_text)
            return Judgement(value=0.0, reason=reason, readable=False)
        return self._text(prompt, self.start_column) + found.removeprefix("\ufeff")

    def _judge(self, source: str, tests: Tests) -> Judgement:
        try:
            passed, total, why = self._called(source, tests) if isinstance(tests, CallTests) else self._printed(source, tests)
        except NotStarted as error:
            return Judgement(value=None, status="failed", reason=str(error), kind="no_sandbox")
        except _BrokenTests as error:
            return Judgement(value=None, status="failed", reason=str(error), kind="broken_tests")
        value = passed / total if self.partial else float(passed == total)
        reason = f"passed {passed} of {total} tests" + (f"; {why}" if why else "")
        return Judgement(value=value, reason=reason, readable=True)

    def _called(self, source: str, tests: CallTests) -> tuple[int, int, str]:
        report = run_asserts(
            source,
            tests.tests,
            setup=tests.setup,
            theirs=tests.theirs,
            limits=self.limits,
            sandbox=find_sandbox(self.sandbox),
            readable=self.places,
        )
        if report.broken:
            raise _BrokenTests(report.broken)
        total = len(tests.tests)
        wrong = next((f"test {result.name}: {result.reason}" for result in report.results if not result.passed), "")
        if report.stopped:
            wrong = f"{len(report.results)} of {total} expected tests ran: {report.stopped}"
        return sum(result.passed for result in report.results), total, wrong

    def _printed(self, source: str, tests: tuple[PrintTest, ...]) -> tuple[int, int, str]:
        sandbox = find_sandbox(self.sandbox)
        command = self.command or (*sandbox.python, self.file)
        passed, why = 0, ""
        for number, test in enumerate(tests, start=1):
            program = Program(command=command, files={self.file: source}, stdin=test.input, readable=self.places)
            outcome = run_program(program, limits=self.limits, kind=sandbox.kind)
            wrong = outcome.limit
            if wrong is None and outcome.exit_code != 0:
                last = outcome.stderr.strip().rpartition("\n")[2][:200]
                wrong = f"ended with exit code {outcome.exit_code}" + (f": {last}" if last else "")
            if wrong is None and not same_output(outcome.stdout, test.output, self.tolerance):
                wrong = f"printed {outcome.stdout[:100]!r}, expected {test.output[:100]!r}"
            passed += wrong is None
            why = why or (f"test {number}: {wrong}" if wrong else "")
            if wrong and not self.partial:
                break
        return passed, len(tests), why


class _BrokenTests(Exception):
    """The tests cannot be run, whatever the program does."""

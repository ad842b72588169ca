"""`command`: a program of one's own accepts or rejects the answer: a proof checker, a compiler, a linter, a solver.

Decisions:
1. Exit code 0 accepts and `reject_codes` reject. Any other end (another code, a signal, a limit) says that the checker did not
   get to a verdict: a failure, never 0. `timeout: wrong` is for checkers that search as long as the answer makes them.
2. What a checker prints can confirm (`accept_pattern`): a checker that ends with 0 after a warning has not accepted.
3. The checker works on text that a model wrote, so it runs in the sandbox too. It sees the system's programs, Python, and the
   places named in `readable`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import regex as timed_regex
from pydantic import Field

from toishi.errors import ConfigError
from toishi.isolation.levels import find_sandbox
from toishi.isolation.limits import NotStarted
from toishi.isolation.programs import Outcome, Program
from toishi.isolation.sandbox import run_program
from toishi.rewards.base import Judgement
from toishi.rewards.blocks import find_program, missing_program
from toishi.rewards.sandboxed import Sandboxed
from toishi.types import Completion, Prompt

REGEX_LIMIT_S = 1.0
_SHOWN = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandReward(Sandboxed):
    """1 if the checker accepts the answer, else 0.

    command    the checker and its arguments; "{python}" stands for Python. It starts in an empty folder
    file       the name of the file that holds the answer; without it the checker reads it from standard input
    inputs     further files: name -> data column, such as {statement.txt: theorem}
    languages  the answer is the last fenced block with one of these labels; empty: the whole text outside of the reasoning
    readable   files and folders that the checker needs, such as itself
    accept_pattern  a regular expression (^ and $ match at lines) that has to be found in what an accepting checker prints
    reject_codes    exit codes with which it rejects
    timeout    what a checker that runs out of time says: "failed" (no score) or "wrong" (0)

    Traps: many interpreters end with 1 when the script itself crashes; let your checker reject with a code of its own and name
    it in reject_codes, or a crash is counted as a wrong answer. A proof assistant accepts what it is told to assume (sorry,
    axiom): let accept_pattern ask for what it prints about a finished proof.

    >>> from toishi.rewards.scripted import answered
    >>> reward = CommandReward(command=("grep", "-qx", "qed"), sandbox="plain")
    >>> prompt = Prompt(id="a", text="Prove it.")
    >>> [judgement.value for (judgement,) in reward.score_group(prompt, [answered("trivial\\nqed"), answered("unclear")])]
    [1.0, 0.0]
    """

    name: str = "command"
    command: tuple[str, ...]
    file: str | None = None
    inputs: dict[str, str] = field(default_factory=dict)
    languages: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    accept_pattern: str | None = None
    reject_codes: tuple[int, ...] = (1,)
    timeout: Literal["failed", "wrong"] = "failed"
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = 30.0
    memory_mb: Annotated[int, Field(ge=16)] = 1024
    processes: Annotated[int, Field(ge=1)] = 64
    disk_mb: Annotated[int, Field(ge=1)] = 64

    def __post_init__(self) -> None:
        where = f"reward '{self.name}'"
        if not self.command or not self.command[0]:
            raise ConfigError(f"{where}.command: give the checker and its arguments, such as [lean, answer.lean]")
        names = [*self.inputs, *([self.file] if self.file is not None else [])]
        bad = [name for name in names if Path(name).name != name or name in ("", "..") or names.count(name) > 1]
        if bad:
            raise ConfigError(f"{where}: {bad[0]!r} must be a bare file name that is used once")
        self.check_readable()
        if 0 in self.reject_codes:
            raise ConfigError(f"{where}.reject_codes: 0 accepts; use accept_pattern for a checker that always ends with 0")
        try:
            timed_regex.compile(self.accept_pattern or "")
        except timed_regex.error as error:
            raise ConfigError(f"{where}.accept_pattern: not a regular expression: {error}") from None

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.inputs.values()))

    def prepare(self, prompts: Sequence[Prompt]) -> None:
        """Raises ConfigError if the checker cannot be started: it is tried on an empty answer."""
        Sandboxed.prepare(self, prompts)  # super() does not work in a dataclass with slots
        for prompt in prompts[:1]:
            inputs = {name: str(prompt.columns[column]) for name, column in self.inputs.items()}
            try:
                self._run("", inputs)
            except NotStarted as error:
                raise ConfigError(
                    f"reward '{self.name}': the checker cannot be started: {error}; install it, name its folder in readable, "
                    f"or give it more than memory_mb: {self.memory_mb}"
                ) from None

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        find_sandbox(self.sandbox)
        inputs = {name: str(prompt.columns[column]) for name, column in self.inputs.items()}
        with ThreadPoolExecutor(max(1, min(len(completions), os.cpu_count() or 1))) as threads:
            return [
                (judged,) for judged in threads.map(lambda completion: self._judge(prompt, completion, inputs), completions)
            ]

    def _judge(self, prompt: Prompt, completion: Completion, inputs: Mapping[str, str]) -> Judgement:
        if self.require_stop and completion.is_truncated:
            return Judgement(value=0.0, reason="cut off at the token limit", readable=False)
        whole = not self.languages
        answer = find_program(prompt, completion, self.languages, whole_text=whole)
        if answer is None:
            return Judgement(value=0.0, reason=missing_program(self.languages, whole_text=whole), readable=False)
        try:
            return self._verdict(self._run(answer, inputs))
        except NotStarted as error:
            return Judgement(value=None, status="failed", reason=str(error), kind="no_sandbox")

    def _run(self, answer: str, inputs: Mapping[str, str]) -> Outcome:
        sandbox = find_sandbox(self.sandbox)
        program = Program(
            command=tuple(word for part in self.command for word in (sandbox.python if part == "{python}" else (part,))),
            files={**inputs, **({self.file: answer} if self.file is not None else {})},
            stdin=answer if self.file is None else "",
            readable=self.places,
        )
        return run_program(program, limits=self.limits, kind=sandbox.kind)

    def _verdict(self, outcome: Outcome) -> Judgement:
        said = (outcome.stdout.strip() or outcome.stderr.strip())[-_SHOWN:]
        words = f": {said}" if said else ""
        if outcome.limit is not None:
            if outcome.over in ("wall", "cpu") and self.timeout == "wrong":
                return Judgement(value=0.0, reason=f"the checker {outcome.limit}")
            return Judgement(value=None, status="failed", reason=f"the checker {outcome.limit}", kind="over_limit")
        if outcome.exit_code in self.reject_codes:
            return Judgement(value=0.0, reason=f"rejected{words}", readable=True)
        if outcome.exit_code != 0:
            reason = f"the checker ended with exit code {outcome.exit_code}{words}"
            return Judgement(value=None, status="failed", reason=reason, kind="checker_broke")
        return self._confirmed(outcome.stdout, words)

    def _confirmed(self, printed: str, words: str) -> Judgement:
        if self.accept_pattern is None:
            return Judgement(value=1.0, reason=f"accepted{words}", readable=True)
        try:
            found = timed_regex.search(self.accept_pattern, printed, timed_regex.MULTILINE, timeout=REGEX_LIMIT_S)
        except TimeoutError:
            reason = f"accept_pattern took longer than {REGEX_LIMIT_S:g} s on {len(printed):,} characters"
            return Judgement(value=None, status="failed", reason=reason, kind="over_limit")
        if found is None:
            return Judgement(value=0.0, reason=f"exit code 0, but nothing printed matches accept_pattern{words}", readable=True)
        return Judgement(value=1.0, reason=f"accepted{words}", readable=True)

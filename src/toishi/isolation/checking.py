"""The tests' side: runs tests against a program in another process, through questions and plain answers. Runs in a sandbox.

Decisions:
1. A name that neither the test nor Python defines is asked of the program. Names of Python stay Python's, modules of the
   standard library included, so a program that defines `sorted` or `math` anew changes nothing here.
2. A handle to an object of the program can be called and asked for attributes. It is never true, never false and never equal
   to anything: whatever needs to know raises, and the test has not passed.
3. Each test starts from the set-up anew; the program goes on as it is.
4. Before the program is loaded, the file of the tests is gone and this process cannot be traced: that matters where program and
   tests run as one user without namespaces.
5. A result is written when its test has ended, so that a time-out in one test does not take the others along.
"""

from __future__ import annotations

import builtins
import json
import os
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from toishi.isolation import syscalls
from toishi.isolation.values import FrameError, decode, encode, read_frame, write_frame


class BrokenTest(BaseException):
    """The test itself cannot be run, whatever the program does."""


class LostProgram(BaseException):
    """The program ended or wrote nonsense; no later test can run. No `except Exception` of a test catches it."""


class ProgramError(Exception):
    """The program raised something that is no exception of Python's own."""


def main(tests_file: str) -> None:
    """Runs the tests of the file against the program at the other end of standard input and output; results go to stderr."""
    spec = json.loads(Path(tests_file).read_text(encoding="utf-8"))
    Path(tests_file).unlink()
    if sys.platform == "linux":
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    results = os.fdopen(os.dup(2), "w", encoding="utf-8")
    program = _Program(os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb"), spec["max_bytes"])
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    try:
        program.ask({"load": spec["program"]})
    except (Exception, LostProgram) as error:
        _write(results, {"unloaded": _words(error)})
        return
    for test in spec["tests"]:
        try:
            _run(spec["setup"], test, program)
            _write(results, {"test": test["name"], "passed": True, "reason": "passed"})
        except BrokenTest as error:
            _write(results, {"broken": f"test {test['name']}: {error}"})
            return
        except LostProgram as error:
            _write(results, {"lost": str(error)})
            return
        except BaseException as error:
            _write(results, {"test": test["name"], "passed": False, "reason": _words(error)})
    _write(results, {"end": True})


def _write(results: IO[str], line: dict[str, Any]) -> None:
    results.write(json.dumps(line) + "\n")
    results.flush()


def _run(setup: str, test: dict[str, str], program: _Program) -> None:
    names = _Names(program)
    names["__name__"] = "tests"
    for part in (setup, test["code"]):
        try:
            code = compile(part, "test", "exec")
        except (SyntaxError, ValueError) as error:
            raise BrokenTest(f"{type(error).__name__}: {error}") from None
        exec(code, names)


def _words(error: BaseException) -> str:
    text = str(error) or _asserted(error)
    return f"{type(error).__name__}: {text}"[:400].removesuffix(": ")


def _asserted(error: BaseException) -> str:
    """The line of the test that raised."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "test"]
    return f"line {lines[-1]} of the test" if lines else ""


class _Names(dict[str, Any]):
    """The global names of a test."""

    def __init__(self, program: _Program) -> None:
        super().__init__()
        self._program = program

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name) or name.startswith("__"):
            raise KeyError(name)
        if name in sys.stdlib_module_names:
            self[name] = import_module(name)
        else:
            try:
                self[name] = self._program.ask({"name": name})
            except AttributeError:
                raise NameError(f"the program does not define {name}") from None
        return self[name]


class _Program:
    """The other process."""

    def __init__(self, answers: IO[bytes], questions: IO[bytes], max_bytes: int) -> None:
        self._answers, self._questions, self._max_bytes = answers, questions, max_bytes

    def ask(self, question: dict[str, Any]) -> Any:
        """The answer, of plain types or a handle. Raises what the program raised, LostProgram if nothing more will come."""
        try:
            write_frame(self._questions, question)
            reply = read_frame(self._answers, self._max_bytes)
        except (EOFError, OSError):
            raise LostProgram("the program ended itself") from None
        except FrameError as error:
            raise LostProgram(f"the program wrote into the channel of answers ({error})") from None
        try:
            if "value" in reply:
                return decode(reply["value"], lambda body: _Handle(self, int(body[0]), str(body[1])))
            name, text = reply["raised"]
        except (FrameError, TypeError, KeyError, ValueError, IndexError) as error:
            raise LostProgram(f"the program wrote into the channel of answers ({error})") from None
        raise _exception(str(name), str(text))


def _exception(name: str, text: str) -> Exception:
    """Python's own exception of that name, so that a test may expect it."""
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception) and kind is not AssertionError:
        try:
            return kind(text)
        except TypeError:  # it wants more arguments
            pass
    return ProgramError(f"{name}: {text}")


class _Handle:
    """An object of the program, by number."""

    __slots__ = ("_number", "_program", "_type")

    def __init__(self, program: _Program, number: int, kind: str) -> None:
        self._program, self._number, self._type = program, number, kind

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        sent = {"of": self._number, "arguments": _sent(arguments), "named": _sent(named)}
        return self._program.ask(sent)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._program.ask({"of": self._number, "attribute": name})

    def _refuse(self, *_: object) -> Any:
        raise TypeError(f"the program gave an object of type {self._type} where the test needs a plain value")

    __bool__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __len__ = __iter__ = __contains__ = __getitem__ = _refuse
    __hash__ = None  # type: ignore[assignment]


def _sent(value: Any) -> Any:
    return encode(value, _number_of)


def _number_of(value: Any) -> int:
    if isinstance(value, _Handle):
        return value._number
    raise BrokenTest(f"the test gives the program a {type(value).__name__}, which only plain values can stand for")

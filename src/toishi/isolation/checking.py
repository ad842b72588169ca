"""The tests' side: runs tests against a program in another process, through questions and plain answers. Runs in a sandbox.

Decisions:
1. A name that neither the test nor Python defines is asked of the program. Names of Python stay Python's, modules of the
   standard library included, so a program that defines `sorted` or `math` anew changes nothing here. Only the spec can say of a
   name of Python's that the program is to define it.
2. A handle to an object of the program can be called, if it is a function, and asked for attributes. It is never true, never
   false, never equal to anything and no text: whatever needs to know raises, and the test has not passed. Its class has no
   protocol, so it is no Iterable and no Sized either.
3. Each test starts from the set-up anew; the program goes on as it is.
4. Before the program is loaded, the file of the tests is gone and this process cannot be traced: that matters where program and
   tests run as one user without namespaces.
5. A result is written when its test has ended, so that a time-out in one test does not take the others along.
6. What the program raises never steers the test: StopIteration, GeneratorExit and the like would end a loop or a generator of
   the test's in silence, so they arrive as ProgramError.
7. That the program is lost, or the test broken, is remembered: a test that swallows the exception has not passed.
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

MAX_REASON = 400


class BrokenTest(BaseException):
    """The test itself cannot be run, whatever the program does."""


class LostProgram(BaseException):
    """The program ended or wrote nonsense; no later test can run. No `except Exception` of a test catches it."""


class ProgramError(Exception):
    """The program raised something that is no exception of Python's own, or that would steer the test."""


_STEERING = ("AssertionError", "StopIteration", "StopAsyncIteration", "GeneratorExit", "KeyboardInterrupt", "SystemExit")


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
        reason = _run(spec, test["code"], program)
        if program.broken:
            _write(results, {"broken": f"test {test['name']}: {program.broken}"})
            return
        if program.lost:
            _write(results, {"lost": program.lost})
            return
        _write(results, {"test": test["name"], "passed": reason is None, "reason": "passed" if reason is None else reason})
    _write(results, {"end": True})


def _write(results: IO[str], line: dict[str, Any]) -> None:
    results.write(json.dumps(line) + "\n")
    results.flush()


def _run(spec: dict[str, Any], test: str, program: _Program) -> str | None:
    """Why the test did not pass, or None."""
    names = _Names(program, frozenset(spec["theirs"]))
    names["__name__"] = "tests"
    for part in (spec["setup"], test):
        try:
            code = compile(part, "test", "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            program.broken = f"{type(error).__name__}: {error}"
            return program.broken
        try:
            exec(code, names)
        except BaseException as error:
            return _words(error)
    return None


def _words(error: BaseException) -> str:
    try:
        text = str(error) or _asserted(error)
    except Exception:  # a handle among its arguments
        text = _asserted(error)
    return f"{type(error).__name__}: {text}"[:MAX_REASON].removesuffix(": ")


def _asserted(error: BaseException) -> str:
    """The line of the test that raised."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "test"]
    return f"line {lines[-1]} of the test" if lines else ""


class _Names(dict[str, Any]):
    """The global names of a test."""

    def __init__(self, program: _Program, theirs: frozenset[str]) -> None:
        super().__init__()
        self._program, self._theirs = program, theirs

    def __missing__(self, name: str) -> Any:
        if name not in self._theirs and (hasattr(builtins, name) or name.startswith("__")):
            raise KeyError(name)
        if name not in self._theirs and name in sys.stdlib_module_names:
            self[name] = import_module(name)
        else:
            try:
                self[name] = self._program.ask({"name": name})
            except AttributeError:
                raise NameError(f"the program does not define {name}") from None
        return self[name]


class _Program:
    """The other process.

    lost    why it can answer no more, or ""
    broken  why the test that runs cannot be run, whatever the program does, or ""
    """

    def __init__(self, answers: IO[bytes], questions: IO[bytes], max_bytes: int) -> None:
        self._answers, self._questions, self._max_bytes = answers, questions, max_bytes
        self.lost = self.broken = ""

    def ask(self, question: dict[str, Any]) -> Any:
        """The answer, of plain types or a handle. Raises what the program raised, LostProgram if nothing more will come."""
        if self.lost:
            raise LostProgram(self.lost)
        try:
            write_frame(self._questions, question)
            reply = read_frame(self._answers, self._max_bytes)
        except (EOFError, OSError):
            raise self._lose("the program ended itself") from None
        except FrameError as error:
            raise self._lose(f"the program wrote into the channel of answers ({error})") from None
        try:
            if "value" in reply:
                return decode(reply["value"], self._handle)
            names, arguments = [str(name) for name in reply["raised"]], [_plain(part) for part in reply["arguments"]]
        except (FrameError, TypeError, KeyError, ValueError, IndexError) as error:
            raise self._lose(f"the program wrote into the channel of answers ({error})") from None
        raise _exception(names, arguments)

    def send(self, value: Any) -> Any:
        """`value` as JSON. Raises BrokenTest for what no program can be given."""
        return encode(value, self._number_of)

    def _lose(self, why: str) -> LostProgram:
        self.lost = why
        return LostProgram(why)

    def _handle(self, body: Any) -> _Handle:
        return (_Function if body[2] is True else _Handle)(self, int(body[0]), str(body[1]))

    def _number_of(self, value: Any) -> int:
        if isinstance(value, _Handle):
            return _held(value)[1]
        self.broken = f"the test gives the program a {type(value).__name__}, which only plain values can stand for"
        raise BrokenTest(self.broken)


def _plain(part: Any) -> Any:
    if not isinstance(part, str | int | float | None):
        raise TypeError("an argument of an exception that is not plain")
    return part


def _exception(names: list[str], arguments: list[Any]) -> Exception:
    """An exception of that name, based on the first of `names` that is an exception of Python's own, so that a test may expect
    that one. The names are the class's and those that it is based on."""
    name, text = names[0] if names else "", ", ".join(map(str, arguments))
    for base in () if set(names) & set(_STEERING) else names:
        kind = getattr(builtins, base, None)
        if base == "Exception" or not (isinstance(kind, type) and issubclass(kind, Exception)):
            continue
        try:
            return kind(*arguments) if base == name else type(name, (kind,), {})(*arguments)
        except (TypeError, ValueError):  # it wants other arguments
            continue
    return ProgramError(f"{name}: {text}".removesuffix(": "))


class _Handle:  # an object of the program, by number. No docstring: the program's objects have their own
    __slots__ = ("_held",)

    def __init__(self, program: _Program, number: int, kind: str) -> None:
        _HELD.__set__(self, (program, number, kind))

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        program, number, _ = _held(self)
        return program.ask({"of": number, "attribute": name})

    def _refuse(self, *_: object) -> Any:
        raise TypeError(f"the program gave an object of type {_held(self)[2]} where the test needs a plain value")

    __bool__ = __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __str__ = __repr__ = __format__ = _refuse
    __hash__ = None  # type: ignore[assignment]


_HELD: Any = _Handle.__dict__["_held"]  # by the descriptor: all names belong to the program's object


def _held(handle: _Handle) -> tuple[_Program, int, str]:
    held: tuple[_Program, int, str] = _HELD.__get__(handle)
    return held


class _Function(_Handle):
    __slots__ = ()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        program, number, _ = _held(self)
        return program.ask({"of": number, "arguments": program.send(arguments), "named": program.send(named)})

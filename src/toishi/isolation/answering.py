"""The program's side of tests that call it: loads the program and answers what the other side asks. Runs in a sandbox.

Decisions:
1. The program shares this process and may do here what it likes; all it can reach is its own answers. What is expected, and
   whether it was met, is known on the other side only.
2. What the program prints goes nowhere, so that prints do not disturb the channel.
"""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path
from typing import Any

from toishi.isolation.values import decode, encode, read_frame, write_frame

MAX_QUESTION_BYTES = 1 << 28
MAX_WORDS = 300


def main() -> None:
    """Answers questions from standard input on standard output until there are no more."""
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    objects: list[Any] = []
    module = types.ModuleType("program")
    sys.modules["program"] = module
    while True:
        try:
            question = read_frame(questions, MAX_QUESTION_BYTES)
        except EOFError:
            return
        try:
            reply = {"value": encode(_answer(question, module, objects), lambda value: _kept(value, objects))}
        except BaseException as error:  # SystemExit is an exception of the program like any other
            reply = {"raised": [kind.__name__ for kind in type(error).__mro__][:20], "arguments": _arguments(error)}
        write_frame(answers, reply)


def _kept(value: Any, objects: list[Any]) -> list[Any]:
    objects.append(value)
    return [len(objects) - 1, type(value).__name__[:100], callable(value)]


def _answer(question: dict[str, Any], module: types.ModuleType, objects: list[Any]) -> Any:
    if "load" in question:
        source = Path(question["load"]).read_text(encoding="utf-8-sig", errors="surrogatepass")
        exec(compile(source, question["load"], "exec", dont_inherit=True), module.__dict__)
        return None
    if "name" in question:
        return getattr(module, question["name"])
    target = objects[question["of"]]
    if "attribute" in question:
        return getattr(target, question["attribute"])
    arguments, named = (decode(question[part], lambda body: objects[body]) for part in ("arguments", "named"))
    return target(*arguments, **named)


def _arguments(error: BaseException) -> list[Any]:
    """What the exception was made of, if that is plain and short; else its text."""
    if all(type(part) in (str, int, float, bool, type(None)) for part in error.args) and len(repr(error.args)) < MAX_WORDS:
        return list(error.args)
    try:
        return [str(error)[:MAX_WORDS]]
    except BaseException:  # an exception whose own text raises
        return []

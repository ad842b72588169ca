"""What tests of Python programs name and what of them is run, read from their text: whether they can fail at all.

Decisions:
1. A test has to run an assertion: one at its own level, or in a function or class that is mentioned. A function that nobody
   calls (a unittest class, a test_... for pytest, a check without entry point) asserts nothing.
2. A test has to mention a name that only the program can define.
3. A name of Python's is the program's if the tests could not be meant otherwise: a module that is called (bisect(x)), or the
   one builtin that is called by tests which name nothing else of the program's (sum(10, 15)).
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress

_ASSERTS = re.compile(r"assert|raises|fail|verify|expect", re.IGNORECASE)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PYTHONS = frozenset(dir(builtins)) | sys.stdlib_module_names


def why_vacuous(code: str, setup: str) -> str | None:
    """Why a test asserts nothing, whatever the program does, or None. Both texts have to be Python.

    >>> why_vacuous("assert f(1) == 2", ""), why_vacuous("def check(candidate):\\n    assert candidate(1) == 2", "")
    (None, 'asserts nothing that is run: nobody calls check')
    """
    tree = ast.parse(code)
    run = list(_run_nodes(tree, ast.parse(setup)))
    if any(isinstance(node, ast.Assert) and isinstance(node.test, ast.Tuple) and node.test.elts for node in run):
        return "asserts a tuple, which is always true: write assert condition, message without brackets"
    if not any(map(_can_fail, run)):
        idle = [node.name for node in tree.body if isinstance(node, (*_FUNCTIONS, ast.ClassDef)) and node not in run]
        return "asserts nothing that is run" + (f": nobody calls {', '.join(idle)}" if idle else "")
    return None


def names_of_program(codes: Sequence[str], setup: str, entry_point: str = "") -> tuple[list[set[str]], set[str]]:
    """For each test the names that the program has to define, and which of them are names of Python's too.

    >>> names_of_program(["assert sorted(f(1)) == [2]"], "")
    ([{'f'}], set())
    >>> names_of_program(["assert sum(10, 15) == 6"], "")
    ([{'sum'}], {'sum'})
    """
    before = ast.parse(setup)
    trees = [ast.parse(code) for code in codes]
    bound = [_bound(tree) | _bound(before) for tree in trees]
    named = [_loaded(tree) - own for tree, own in zip(trees, bound, strict=True)]
    of_setup = _loaded(before) - _bound(before)
    asked = [{name for name in names | of_setup if name not in _PYTHONS and not name.startswith("__")} for names in named]
    called = {name for tree, own in zip(trees, bound, strict=True) for name in _called(tree) - own if name in _PYTHONS}
    theirs = {name for name in called if not hasattr(builtins, name)} | ({entry_point} & _PYTHONS)
    if not theirs and not any(asked) and len(called) == 1:
        theirs = called
    return [names | (own & theirs) for names, own in zip(asked, named, strict=True)], theirs


def helpers_of(start: str, entry_point: str) -> str:
    """What the beginning of a program defines besides the function that the answer completes: `entry_point`, or the last one.

    "" if it is no Python by itself.

    >>> helpers_of("import math\\ndef half(x): return x / 2\\ndef solve(x):\\n    'Docs.'\\n", "solve")
    'import math\\n\\ndef half(x):\\n    return x / 2'
    """
    body: list[ast.stmt] = []
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        body = ast.parse(start).body
    if not entry_point and body and isinstance(body[-1], (*_FUNCTIONS, ast.ClassDef)):
        body = body[:-1]
    kept = [
        node
        for node in body
        if not (entry_point and getattr(node, "name", None) == entry_point)
        and not (isinstance(node, ast.ImportFrom) and node.module == "__future__")
    ]
    return ast.unparse(ast.Module(body=kept, type_ignores=[])) if any(_defines(node) for node in kept) else ""


def _defines(node: ast.stmt) -> bool:
    return isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.Assign, ast.AnnAssign))


def _run_nodes(tree: ast.Module, setup: ast.Module) -> Iterator[ast.AST]:
    """The parts of a test that are run, with the functions that these mention."""
    defined: dict[str, list[ast.AST]] = {}
    for node in (*ast.walk(setup), *ast.walk(tree)):
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            defined.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):  # another = check
            for target in node.targets:
                if isinstance(target, ast.Name):
                    defined.setdefault(target.id, []).append(node.value)
    waiting: list[ast.AST] = list(tree.body)
    seen: set[ast.AST] = set()
    while waiting:
        node = waiting.pop()
        is_definition = isinstance(node, (*_FUNCTIONS, ast.ClassDef))
        if node in seen or (is_definition and node in tree.body and not getattr(node, "decorator_list", None)):
            continue
        seen.add(node)
        yield node
        waiting += _below(node)
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        for found in defined.pop(name, ()):
            seen.add(found)
            yield found
            waiting += ast.iter_child_nodes(found)


def _below(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, ast.If) and any(isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test)):
        return list(node.orelse)  # tests are not run as a program
    return list(ast.iter_child_nodes(node))


def _can_fail(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert):
        return not isinstance(node.test, ast.Constant) or not node.test.value
    if isinstance(node, ast.Call):
        return bool(_ASSERTS.search(_name(node.func)))
    return isinstance(node, ast.Raise)


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""


def _loaded(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _called(tree: ast.AST) -> set[str]:
    return {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}


def _bound(tree: ast.AST) -> set[str]:
    """All names that a text gives a meaning, wherever."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name.partition(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            found.add(node.name)
    return found

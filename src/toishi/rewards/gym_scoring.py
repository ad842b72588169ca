"""reasoning_gym's own scorers, made safe to show a model's answer to. Runs in a child process of the pool.

Decisions:
1. Some scorers pass the answer to `eval` (n_queens, spiral_matrix, ...). Here that reads lists and sums of numbers, and no code
   is run. Others have sympy parse it, which evaluates code as well: only arithmetic, symbols and sympy's functions get through.
2. Many scorers pay for a gold with words around it, up to in full: such an answer is worth 0. Words are only what is set off by
   space; "12.50" for "12.5" is the scorer's business.
3. A scorer that pays "no idea" in full cannot tell answers apart; there only the gold itself counts.
4. A scorer that can read the gold and raises on the answer could not read the answer: that is wrong, not broken.
"""

from __future__ import annotations

import ast
import base64
import builtins
import json
import pickle
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

DECOY = "no idea"
_NODES = (
    *(ast.Expression, ast.Call, ast.Name, ast.Load, ast.Constant, ast.BinOp, ast.UnaryOp),
    *(ast.operator, ast.unaryop),
)
_PLAIN = (
    *(ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Load),
    *(ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop),
)
_MAKERS = ("Integer", "Float", "Rational", "Symbol", "Function")
_FUNCTIONS = ("sqrt", "cbrt", "root", "Add", "Mul", "Pow", "max", "min")


def packed(entry: Mapping[str, Any]) -> str:
    """An entry as text for `score`: it may hold tuples, which JSON has not."""
    return base64.b64encode(pickle.dumps(dict(entry))).decode("ascii")


def score(call: Mapping[str, Any]) -> dict[str, Any]:
    """{"value": score or None, "why": words}, for {"dataset", "config", "entry" (packed), "answer"}.

    None says that the scorer is broken for this entry; an answer that it cannot read is worth 0.
    """
    entry = pickle.loads(base64.b64decode(call["entry"]))
    if call["answer"] == entry["answer"]:
        return {"value": 1.0, "why": "the gold itself"}
    scorer = _scorer(call["dataset"], json.dumps(call["config"]))
    with _guarded_sympy():
        return _judged(scorer, call["answer"], entry)


def _judged(scorer: Any, answer: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    gold = entry["answer"]
    try:
        value = float(scorer.score_answer(answer, entry))
    except Exception as error:
        words = f"{type(error).__name__}: {error}"[:200]
        if _scores(scorer, gold, entry) is None:
            return {"value": None, "why": f"the scorer broke: {words}"}
        return {"value": 0.0, "why": f"the scorer cannot read it ({words})"}
    if isinstance(gold, str) and value > 0 and _plain(answer) != _plain(gold):
        if value < 1 and _plain(gold) in _plain(answer):
            return {"value": 0.0, "why": "the gold is only a part of it"}
        if _has_words_around(answer, gold):
            return {"value": 0.0, "why": "the gold has other words around it"}
        if value >= 1 and _scores(scorer, DECOY, entry) == value:
            return {"value": 0.0, "why": f"not the gold, and the scorer pays {DECOY!r} as well"}
    return {"value": value, "why": f"the scorer says {value:g}"}


def _scores(scorer: Any, answer: Any, entry: Mapping[str, Any]) -> float | None:
    """The score, or None when the scorer raises or there is nothing to score."""
    try:
        return None if answer is None else float(scorer.score_answer(answer, entry))
    except Exception:
        return None


def _plain(text: str) -> str:
    return " ".join(text.replace(",", "").casefold().split())


def _has_words_around(answer: str, gold: str) -> bool:
    """Whether the gold's words stand in the answer in one piece, with more words before or after them."""
    words, wanted = _plain(answer).split(), _plain(gold).split()
    for at in range(len(words) - len(wanted) + 1):
        if words[at : at + len(wanted)] == wanted:
            return any(any(map(str.isalnum, word)) for word in words[:at] + words[at + len(wanted) :])
    return False


@lru_cache(maxsize=64)
def _scorer(name: str, config: str) -> Any:
    import reasoning_gym

    dataset = reasoning_gym.create_dataset(name, seed=0, size=1, **json.loads(config))
    for cls in type(dataset).__mro__:
        if cls.__module__.startswith("reasoning_gym."):
            vars(sys.modules[cls.__module__])["eval"] = plain_value
    return dataset


def plain_value(text: str) -> Any:
    """What `eval` gives for lists, texts and sums of numbers. Raises ValueError for anything that has a name in it.

    >>> plain_value("[['Q', '_'], [0x10 | 3]]")
    [['Q', '_'], [19]]
    """
    tree = ast.parse(text.strip(), mode="eval")
    strange = [node for node in ast.walk(tree) if not isinstance(node, _PLAIN)]
    if strange:
        raise ValueError(f"not a plain value: {type(strange[0]).__name__}")
    return eval(compile(tree, "<answer>", "eval"), {"__builtins__": {}})


@contextmanager
def _guarded_sympy() -> Iterator[None]:
    """Inside the block sympy's parser refuses code. The child serves other callers as well, who get the parser as it was."""
    from sympy.parsing import sympy_parser  # type: ignore[import-untyped]

    transformed = sympy_parser.stringify_expr

    def guarded(*arguments: Any, **named: Any) -> str:
        code = str(transformed(*arguments, **named))
        require_harmless(code)
        return code

    sympy_parser.stringify_expr = guarded
    try:
        yield
    finally:
        sympy_parser.stringify_expr = transformed


def require_harmless(code: str) -> None:
    """Raises ValueError for code that is more than arithmetic with numbers, symbols and sympy's functions.

    >>> require_harmless("Integer (2 )*Symbol ('x')+sin (Integer (1 ))")
    >>> require_harmless("open ('notes.txt')")
    Traceback (most recent call last):
    ...
    ValueError: not a formula: open
    """
    for node in ast.walk(ast.parse(code.strip(), mode="eval")):
        if not isinstance(node, _NODES):
            raise ValueError(f"not a formula: {type(node).__name__}")
        if isinstance(node, ast.Call):
            _require_function(node)
        elif isinstance(node, ast.Name) and hasattr(builtins, node.id) and node.id not in _FUNCTIONS:
            raise ValueError(f"not a formula: {node.id}")


def _require_function(call: ast.Call) -> None:
    import sympy  # type: ignore[import-untyped]

    maker = call.func.func if isinstance(call.func, ast.Call) else call.func  # Function('f')(x)
    name = maker.id if isinstance(maker, ast.Name) else ""
    if call.keywords or not (
        name in _MAKERS or name in _FUNCTIONS or isinstance(getattr(sympy, name, None), sympy.core.function.FunctionClass)
    ):
        raise ValueError(f"not a formula: {name or 'a call'}")
    texts = [given for given in call.args if isinstance(given, ast.Constant) and not isinstance(given.value, int)]
    if texts and name not in _MAKERS:
        raise ValueError(f"not a formula: a text for {name}")

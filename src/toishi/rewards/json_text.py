"""JSON in an answer: where it stands, and a reading stricter than Python's.

Decisions:
1. NaN, Infinity, numbers too large for a float (1e309) and a key given twice are refused: Python reads them, JSON has no such
   values.
2. "whole" takes an answer that is JSON, or one code fence around it. "last" takes the last code fence, or else the JSON that
   ends the answer: what stands before may be words. JSON in the middle of words is not looked for, since an example is no
   answer.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Literal

MAX_STARTS = 200
_FENCED_WHOLE = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n?\s*```", re.DOTALL | re.IGNORECASE)
_FENCED = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)^[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE)
_START = re.compile(r"[{\[]")


class NotJson(ValueError):
    """There is no JSON to read; the message says why, in words."""


def read_json(text: str, where: Literal["whole", "last"] = "whole") -> Any:
    """The JSON value of an answer. Raises NotJson.

    >>> read_json('So: {"a": [1, 2]}', "last")
    {'a': [1, 2]}
    >>> read_json('So: {"a": [1, 2]}')
    Traceback (most recent call last):
    ...
    toishi.rewards.json_text.NotJson: not JSON
    """
    text = text.strip()
    whole = _FENCED_WHOLE.fullmatch(text)
    if whole and "```" not in whole[1]:
        return _strict(whole[1])
    if where == "whole":
        return _strict(text)
    fenced = _FENCED.findall(text)
    return _strict(fenced[-1]) if fenced else _ending(text)


def _ending(text: str) -> Any:
    """The outermost object or list that ends the text."""
    if not text.endswith(("}", "]")):
        return _strict(text)
    problem = NotJson("not JSON")
    for tried, start in enumerate(_START.finditer(text)):
        if tried == MAX_STARTS:
            raise NotJson(f"not JSON: more than {MAX_STARTS} brackets before any JSON that ends the answer")
        try:
            return _strict(text[start.start() :])
        except NotJson as error:
            if str(error) != "not JSON":  # JSON, but with something in it that JSON has not
                raise
            problem = error
    raise problem


def _strict(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once_each, parse_constant=_no_constant, parse_float=_finite)
    except NotJson:
        raise
    except (ValueError, RecursionError):
        raise NotJson("not JSON") from None


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise NotJson("not JSON with each key once")
    return found


def _no_constant(text: str) -> None:
    raise NotJson(f"not JSON: {text}")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise NotJson(f"not JSON: the number {text[:40]} is too large")
    return value

"""Plain values between a program and its tests: written as JSON by one side, rebuilt from plain types by the other.

Decisions:
1. Only plain types are rebuilt, so an object that calls itself equal to everything arrives as a list, a dict or a handle, never
   as itself. A subclass arrives as what it is based on. Counter, OrderedDict, deque, named tuples, dates, times and durations
   arrive as such, made anew from their parts.
2. Anything else becomes a handle: a number by which the other side may ask for attributes and calls, and nothing more.
3. A frame is a length and JSON. Whoever reads one says how long it may be.
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, deque, namedtuple
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from typing import IO, Any

MAX_ITERATED = 100_000
_SAFE_INT = 2**53
_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
_SEQUENCES: dict[type, str] = {tuple: "tuple", set: "set", frozenset: "frozenset", deque: "deque"}
_DICTS: dict[type, str] = {Counter: "Counter", OrderedDict: "OrderedDict"}
_TIMES: dict[type, str] = {datetime: "datetime", date: "date", time: "time"}  # a datetime is a date too: it comes first


class FrameError(Exception):
    """What came over the channel is not a frame."""


def write_frame(file: IO[bytes], message: Any) -> None:
    """Writes one JSON value."""
    body = json.dumps(message).encode()
    file.write(len(body).to_bytes(4, "big") + body)
    file.flush()


def read_frame(file: IO[bytes], max_bytes: int) -> Any:
    """One JSON value. Raises EOFError at the end of the file, FrameError for what is too long or no JSON."""
    head = file.read(4)
    length = int.from_bytes(head, "big")
    if len(head) < 4:
        raise EOFError
    if length > max_bytes:
        raise FrameError(f"a message of more than {max_bytes:,} bytes, or no message")
    body = file.read(length)
    if len(body) < length:
        raise EOFError
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise FrameError(f"not a message: {error}") from None


def encode(value: Any, handle: Callable[[Any], Any]) -> Any:
    """`value` as JSON; `handle` gives a name to what is not plain, or raises.

    >>> encode((1, {"a": {2}}, 1 << 70), handle=id)
    {'tuple': [1, {'dict': [['a', {'set': [2]}]]}, {'int': '0x400000000000000000'}]}
    """
    atom = _atom(value)
    if atom is not value or isinstance(value, str | bool | int | float | None):
        return atom
    if isinstance(value, dict):
        kind = _DICTS.get(type(value), "dict")
        return {kind: [[encode(key, handle), encode(item, handle)] for key, item in dict.items(value)]}
    if isinstance(value, list):
        return [encode(item, handle) for item in list.__iter__(value)]
    if isinstance(value, tuple) and isinstance(fields := getattr(type(value), "_fields", None), tuple):
        parts = [encode(item, handle) for item in tuple.__iter__(value)]
        return {"named": [type(value).__name__, [str(field) for field in fields], {"tuple": parts}]}
    for base, name in _SEQUENCES.items():
        if isinstance(value, base):
            return {name: [encode(item, handle) for item in base.__iter__(value)]}  # type: ignore[attr-defined]
    if isinstance(value, _VIEWS) or hasattr(type(value), "__next__"):
        return {"iterator": [encode(item, handle) for item in islice(value, MAX_ITERATED)]}
    if hasattr(type(value), "tolist"):  # an array or a number of numpy
        return encode(value.tolist(), handle)
    return {"handle": handle(value)}


def _atom(value: Any) -> Any:
    """A value without parts as JSON; other values are given back as they are."""
    if isinstance(value, bool | None):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value) if -_SAFE_INT < value < _SAFE_INT else {"int": hex(value)}
    if isinstance(value, float):
        return float(value)
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, bytes | bytearray):
        return {type(value).__name__: bytes(value).hex()}
    if isinstance(value, Fraction | Decimal):
        return {"fraction" if isinstance(value, Fraction) else "decimal": str(value)}
    if isinstance(value, range):
        return {"range": [value.start, value.stop, value.step]}
    if type(value) is timedelta:
        return {"timedelta": [value.days, value.seconds, value.microseconds]}
    return {_TIMES[type(value)]: value.isoformat()} if type(value) in _TIMES else value


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "int": lambda text: int(text, 16),
    "complex": lambda parts: complex(*parts),
    "bytes": bytes.fromhex,
    "bytearray": bytearray.fromhex,
    "fraction": Fraction,
    "decimal": Decimal,
    "range": lambda parts: range(*parts),
    "timedelta": lambda parts: timedelta(*parts),
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
}


_MAKERS: dict[str, Callable[[Any], Any]] = {name: base for base, name in _SEQUENCES.items()} | {"iterator": iter}
_PAIRED: dict[str, Callable[[Any], Any]] = {"dict": dict, "Counter": Counter, "OrderedDict": OrderedDict}


def decode(message: Any, from_handle: Callable[[Any], Any]) -> Any:
    """The value that `encode` wrote, of plain types. Raises FrameError for what it did not write.

    >>> decode(encode([1, (2.5, {"a": {3}}), 1 << 70, b"x"], handle=id), from_handle=id)
    [1, (2.5, {'a': {3}}), 1180591620717411303424, b'x']
    """
    try:
        return _decoded(message, from_handle)
    except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
        raise FrameError(f"not a value: {error}") from None


def _decoded(message: Any, from_handle: Callable[[Any], Any]) -> Any:
    if isinstance(message, list):
        return [_decoded(item, from_handle) for item in message]
    if not isinstance(message, dict):
        return message
    ((kind, body),) = message.items()
    if kind == "handle":
        return from_handle(body)
    if kind in _PAIRED:
        return _PAIRED[kind]({_decoded(key, from_handle): _decoded(item, from_handle) for key, item in body})
    if kind == "named":
        name, fields, parts = body
        return namedtuple(name, fields)(*_decoded(parts, from_handle))
    if kind in _DECODERS:
        return _DECODERS[kind](body)
    if kind not in _MAKERS:
        raise ValueError(f"a kind {kind!r}")
    return _MAKERS[kind]([_decoded(item, from_handle) for item in body])

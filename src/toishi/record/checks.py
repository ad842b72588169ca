"""What every reader of a run relies on, checked once at the door: the fields of run.json and of each line, with their types.

Decisions:
1. A file that was edited, cut or written by another version ends here, with its name, the key and a remedy, and not in a
   traceback further in.
2. Only what readers use is asked for; further fields are left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

from toishi.errors import RecordError

REQUIRED = ("config", "seed", "decisions", "model", "prompt", "environment")
DTYPES = ("float32", "bfloat16", "float64", "float16")
_NON_FINITE = ("nan", "inf", "-inf")


def check_run(path: Path, run: Mapping[str, Any]) -> None:
    """The fields of run.json. Raises RecordError that names the first one that is missing or odd."""
    missing = [name for name in REQUIRED if name not in run]
    if missing:
        raise _odd(path, f"{', '.join(missing)} is missing" if len(missing) == 1 else f"{', '.join(missing)} are missing")
    for name in ("config", "decisions", "model", "environment"):
        _require(path, name, run[name], isinstance(run[name], Mapping), "a mapping")
    for name in ("versions", "machine"):
        value = run["environment"].get(name, {})
        _require(path, f"environment.{name}", value, isinstance(value, Mapping), "a mapping")
    code = run["environment"].get("code")
    _require(path, "environment.code", code, code is None or isinstance(code, Mapping), "a mapping or null")
    _require(path, "seed", run["seed"], is_whole(run["seed"]), "a whole number")
    _check_decisions(path, run["decisions"])
    for name in ("source", "fingerprint"):
        value = run["model"].get(name)
        _require(path, f"model.{name}", value, isinstance(value, str), "a text")


def _check_decisions(path: Path, decisions: Mapping[str, Any]) -> None:
    dtype, device, threads = (decisions.get(name) for name in ("dtype", "device", "threads"))
    _require(path, "decisions.dtype", dtype, dtype in DTYPES, f"one of {', '.join(DTYPES)}")
    _require(path, "decisions.device", device, isinstance(device, str), "a text such as 'cpu'")
    _require(path, "decisions.threads", threads, is_whole(threads) and threads > 0, "a whole number above 0")
    tokens = decisions.get("micro_batch_tokens", 1)  # older runs say it in their configuration alone
    _require(path, "decisions.micro_batch_tokens", tokens, is_whole(tokens) and tokens > 0, "a whole number above 0")
    unknown = sorted(decisions.keys() - {"dtype", "device", "threads", "micro_batch_tokens"})
    if unknown:
        raise _odd(path, f"decisions.{unknown[0]}: unknown key")


def check_step_line(path: Path, number: int, line: Mapping[str, Any]) -> None:
    """A line of metrics.jsonl."""
    where = f"line {number}"
    step, updates = line.get("step"), line.get("num_updates")
    if not is_whole(step) or not is_whole(updates):
        raise _odd(path, f"{where}: expected whole numbers as step and num_updates, got {step!r} and {updates!r}")
    _require(path, f"{where}, step", step, step > 0, "a whole number above 0")
    _require(path, f"{where}, num_updates", updates, updates >= 0, "a whole number, not below 0")
    _check_non_finite(path, where, line.get("non_finite", {}))
    for key, value in line.items():
        if "/" in key and not key.endswith("checksum"):
            _require(path, f"{where}, {key}", value, value is None or is_number(value), "a number or null")
        if key.startswith("updates/"):
            index = key.split("/")[1]
            known = index.isdecimal() and int(index) < updates and key.count("/") >= 2
            _require(path, f"{where}, {key}", value, known, f"a number of one of the step's {updates} updates")


def check_evaluation_line(path: Path, number: int, line: Mapping[str, Any]) -> None:
    """A line of evaluations.jsonl."""
    where = f"line {number}"
    _require(path, f"{where}, step", line.get("step"), is_whole(line.get("step")), "a whole number")
    _check_non_finite(path, where, line.get("non_finite", {}))
    for key in ("value", "readable", "truncated", "mean_tokens", "change"):
        value = line.get(key)
        _require(path, f"{where}, {key}", value, value is None or is_number(value), "a number or null")
    for key in ("interval", "change_interval"):
        value = line.get(key)
        _require(path, f"{where}, {key}", value, value is None or _is_interval(value), "two numbers or null")
    by_prompt = line.get("by_prompt", {})
    numbers = isinstance(by_prompt, Mapping) and all(map(is_number, by_prompt.values()))
    _require(path, f"{where}, by_prompt", by_prompt, numbers, "a number for every prompt")


def check_event_line(path: Path, number: int, line: Mapping[str, Any]) -> None:
    """A line of events.jsonl."""
    where = f"line {number}"
    step = line.get("step")
    _require(path, f"{where}, step", step, step is None or is_whole(step), "a whole number or null")
    for key in ("kind", "message"):
        _require(path, f"{where}, {key}", line.get(key), isinstance(line.get(key), str), "a text")


def is_whole(value: Any) -> TypeGuard[int]:
    """
    >>> is_whole(3), is_whole(True), is_whole(3.0)
    (True, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """
    >>> is_number(3), is_number(0.5), is_number("3")
    (True, True, False)
    """
    return isinstance(value, int | float)


def _is_interval(value: Any) -> bool:
    """Two numbers; those that JSON has not are named by texts."""
    return isinstance(value, list) and len(value) == 2 and all(is_number(end) or end in _NON_FINITE for end in value)


def _check_non_finite(path: Path, where: str, named: Any) -> None:
    good = isinstance(named, Mapping) and all(value in _NON_FINITE for value in named.values())
    _require(path, f"{where}, non_finite", named, good, "a mapping of keys to 'nan', 'inf' or '-inf'")


def _require(path: Path, key: str, got: Any, holds: bool, expected: str) -> None:
    if not holds:
        raise _odd(path, f"{key}: expected {expected}, got {got!r:.80}")


def _odd(path: Path, what: str) -> RecordError:
    return RecordError(
        f"{path} is damaged, or was written by another version of toishi: {what}. Restore it from a copy, or read it with the "
        "version that wrote it"
    )

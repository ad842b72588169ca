"""Loading and calling functions that users wrote, under a time limit.

Decisions:
1. An async function runs on one event loop that lives as long as the process, so that a client it keeps (an HTTP session)
   stays usable between calls, and calls for several groups overlap.
2. A plain function with a time limit runs in a thread. A thread cannot be killed: a function that never returns is reported
   as timed out and goes on using its core until the process ends; nor can it use signals. `timeout_s: null` calls it directly.
3. A function that calls sys.exit() has failed; it does not end the training.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import importlib
import importlib.util
import inspect
import sys
import threading
from collections.abc import Callable, Coroutine
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from toishi.errors import ConfigError, nearest


class TimedOut(Exception):
    """A function did not return in time."""


def load_function(spec: str, *, where: str) -> Callable[..., Any]:
    """The function that "path/to/file.py:name" or "package.module:name" names; paths are relative to the current directory.

    >>> load_function("math:sqrt", where="reward 'root'")(9)
    3.0
    """
    source, colon, name = spec.rpartition(":")
    if not colon or not source or not name:
        raise ConfigError(f"{where}.function: expected 'path/to/file.py:name' or 'package.module:name', got {spec!r}")
    try:
        module = _load_file(Path(source).resolve()) if source.endswith(".py") else importlib.import_module(source)
    except Exception as error:
        raise ConfigError(f"{where}.function: {source} could not be loaded: {type(error).__name__}: {error}") from error
    try:
        function = attrgetter(name)(module)
    except AttributeError:
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise ConfigError(f"{where}.function: {source} has no '{name}'; {nearest(name, known)}") from None
    if not callable(function):
        raise ConfigError(f"{where}.function: {spec} is a {type(function).__name__}, not a function")
    return function  # type: ignore[no-any-return]


def _load_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"_toishi_user_{path.stem}_{abs(hash(str(path)))}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    return module


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine; objects with an async `__call__` too."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def call_sync(function: Callable[[], Any], timeout_s: float | None) -> Any:
    """What `function()` returns or raises; TimedOut when it is still running after `timeout_s`."""
    if timeout_s is None:
        return function()
    outcome: concurrent.futures.Future[Any] = concurrent.futures.Future()
    threading.Thread(target=_run_into, args=(outcome, function), daemon=True, name="toishi-reward").start()
    return _result(outcome, timeout_s)


def call_async(coroutine: Coroutine[Any, Any, Any], timeout_s: float | None) -> Any:
    """What `coroutine` returns or raises; cancelled, and TimedOut, when it is still running after `timeout_s`."""
    return _result(asyncio.run_coroutine_threadsafe(coroutine, _event_loop()), timeout_s)


def _result(outcome: concurrent.futures.Future[Any], timeout_s: float | None) -> Any:
    concurrent.futures.wait([outcome], timeout_s)
    if not outcome.done():
        outcome.cancel()
        raise TimedOut(f"timed out after {timeout_s:g} s")
    return outcome.result()


def _run_into(outcome: concurrent.futures.Future[Any], function: Callable[[], Any]) -> None:
    try:
        result = function()
    except BaseException as error:
        if outcome.set_running_or_notify_cancel():  # False when the caller has given up waiting
            outcome.set_exception(error)
    else:
        if outcome.set_running_or_notify_cancel():
            outcome.set_result(result)


@lru_cache(maxsize=1)
def _event_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True, name="toishi-async-rewards")
    thread.start()
    atexit.register(_stop, loop, thread)
    return loop


def _stop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    thread.join(timeout=1)
    if not loop.is_running():
        loop.close()

"""Replies kept on disk by the content of the call, so that no question is paid for twice.

Decisions:
1. The key is a digest of everything that can change the reply: the model, where it runs, the whole call with its repeat, and
   how it is asked. The server's key is not part of it.
2. One SQLite file in WAL mode: several processes may use it at once, and one that is killed loses at most the reply it was
   writing. No reply is worth a failed step or a long wait: a cache that cannot be used, or that another process holds for
   longer than `BUSY_TIMEOUT_S`, is left alone until `close`, and `problem` says so.
3. Every entry carries a checksum. One that does not match is not there; the next reply replaces it. A file that is no database
   is renamed aside and begun again.
4. Failures are never kept: `put` takes replies only.
5. At most `MAX_ENTRIES` replies stay (about 1 KB each); the oldest go first.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from toishi.judging.base import JudgeCall, JudgeReply

MAX_ENTRIES = 1_000_000
_TRIM_EVERY = 1000
BUSY_TIMEOUT_S = 1.0
_LAYOUT = 1
_TABLE = "CREATE TABLE IF NOT EXISTS replies (digest TEXT PRIMARY KEY, reply TEXT NOT NULL, sha256 TEXT NOT NULL, made_s REAL)"


def digest_of(call: JudgeCall, asked: Mapping[str, Any]) -> str:
    """The key of a call: sha256 over all its fields and over `asked`, which says whom and how (plain JSON values).

    >>> call = JudgeCall(messages=({"role": "user", "content": "?"},))
    >>> digest_of(call, {"model": "a"}) == digest_of(dataclasses.replace(call, repeat=1), {"model": "a"})
    False
    """
    fields = {field.name: getattr(call, field.name) for field in dataclasses.fields(call)}
    fields["messages"] = [dict(message) for message in call.messages]
    fields["json_schema"] = None if call.json_schema is None else dict(call.json_schema)
    text = json.dumps({"layout": _LAYOUT, "call": fields, "asked": dict(asked)}, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


class ReplyCache:
    """Replies by digest in one file. Callable from any thread.

    problem  why the cache cannot be used, for a person; "" while it can

    >>> import tempfile
    >>> cache = ReplyCache(Path(tempfile.mkdtemp()) / "replies.sqlite")
    >>> cache.put("some digest", JudgeReply(text="7"))
    >>> cache.get("some digest").text, cache.get("another digest")
    ('7', None)
    >>> cache.close()
    """

    def __init__(self, path: Path, *, max_entries: int = MAX_ENTRIES) -> None:
        self.path = path
        self.problem = ""
        self._is_given_up = False
        self._max_entries = max_entries
        self._puts = 0
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def get(self, digest: str) -> JudgeReply | None:
        """The reply, marked as cached; None when there is none that can be trusted."""
        rows = self._run("SELECT reply, sha256 FROM replies WHERE digest = ?", (digest,))
        if not rows:
            return None
        text, checksum = rows[0]
        if not isinstance(text, str) or _checksum(digest, text) != checksum:
            return None
        return _reply_in(text)

    def put(self, digest: str, reply: JudgeReply) -> None:
        """Keeps a reply; when this returns, another process can read it and a kill does not lose it."""
        kept = {"text": reply.text, "finish_reason": reply.finish_reason, "probabilities": reply.probabilities}
        text = json.dumps(kept | {"probabilities": None if reply.probabilities is None else dict(reply.probabilities)})
        self._run("INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?)", (digest, text, _checksum(digest, text), time.time()))
        self._puts += 1
        if self._puts % _TRIM_EVERY == 1:
            self._trim()

    def close(self) -> None:
        """Lets go of the file; the next call opens it again."""
        with self._lock:
            if self._connection is not None:
                with suppress(sqlite3.Error):
                    self._connection.close()
            self._connection = None
            self._is_given_up = False

    def _trim(self) -> None:
        self._run(
            "DELETE FROM replies WHERE digest IN (SELECT digest FROM replies ORDER BY made_s DESC LIMIT -1 OFFSET ?)",
            (self._max_entries,),
        )

    def _run(self, statement: str, values: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """The rows, or none with `problem` set; a file that is no database is set aside and the statement run once more."""
        with self._lock:
            for _ in range(0 if self._is_given_up else 2):
                try:
                    return self._opened().execute(statement, values).fetchall()
                except (sqlite3.OperationalError, OSError) as error:
                    self._give_up(f"the cache of replies {self.path} cannot be used ({error}): every question is asked again")
                    return []
                except sqlite3.DatabaseError:
                    self._set_aside()
            if not self._is_given_up:
                self._give_up(f"the cache of replies {self.path} is damaged and could not be replaced: delete it")
            return []

    def _give_up(self, problem: str) -> None:
        self.problem = problem
        self._is_given_up = True

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # isolation_level None: every statement is its own transaction
            connection = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, check_same_thread=False, isolation_level=None)
            connection.text_factory = lambda kept: kept.decode("utf-8", "replace")  # damaged text fails its checksum
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.execute(_TABLE)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
            self.problem = ""
        return self._connection

    def _set_aside(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
        self._connection = None
        for ending in ("", "-wal", "-shm"):
            damaged = Path(f"{self.path}{ending}")
            with suppress(OSError):
                os.replace(damaged, f"{damaged}.damaged")


def _reply_in(text: str) -> JudgeReply | None:
    """The reply of a row; None for a row that was written in another form (by another version)."""
    try:
        kept = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(kept, dict) or set(kept) != {"text", "finish_reason", "probabilities"}:
        return None
    said, finish, found = kept["text"], kept["finish_reason"], kept["probabilities"]
    if not isinstance(said, str) or finish not in ("stop", "length") or not (found is None or _are_probabilities(found)):
        return None
    return JudgeReply(text=said, finish_reason=finish, probabilities=found, cached=True)


def _are_probabilities(found: object) -> bool:
    return isinstance(found, dict) and all(type(p) in (int, float) and 0 <= p <= 1.001 for p in found.values())


def _checksum(digest: str, text: str) -> str:
    return hashlib.sha256(f"{digest} {text}".encode()).hexdigest()


def open_cache(cache: bool | str) -> ReplyCache | None:
    """The cache that the option `cache` names: none (false), the one in the cache folder (true), or a file.

    >>> open_cache(False) is None
    True
    """
    if cache is False:
        return None
    if isinstance(cache, str):
        return ReplyCache(Path(cache).expanduser())
    from toishi.policy.bundled import cache_folder

    return ReplyCache(cache_folder() / "judge" / "replies.sqlite")

"""Files of sealed lines that one process appends to: samples, verdicts, labels.

A line is on the disk before the next thing is done; a refused write leaves the file as it was. A cut last line is taken off;
a file that nobody began as such a file is refused instead, whatever stands at its end.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any

from toishi.errors import RecordError
from toishi.record.files import cut_bytes, json_line, seal_of, trim_cut_line

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class JournalWriter:
    """Appends sealed lines to a file that nobody else writes meanwhile; a context.

    Raises RecordError when the disk refuses, when another process writes the file, or when it is a file of something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: FileIO | None = None

    def __enter__(self) -> JournalWriter:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("ab", buffering=0)  # a buffer would be written again on closing, after a refusal
            if fcntl is not None:
                fcntl.flock(self._file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            _require_own(self.path)
            trim_cut_line(self.path)
        except RecordError:
            self.__exit__()
            raise
        except BlockingIOError:
            self.__exit__()
            raise RecordError(f"{self.path} is being written by another process; let it finish, or stop it") from None
        except OSError as error:
            self.__exit__()
            raise refused(self.path, error) from error
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()

    def append(self, values: Mapping[str, Any]) -> None:
        """One line; it is on the disk when this returns. A refused write leaves the file as it was."""
        assert self._file is not None
        size = self.path.stat().st_size
        try:
            rest = json_line(values).encode("ascii")
            while rest:
                rest = rest[self._file.write(rest) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            with suppress(OSError):
                os.truncate(self.path, size)
            raise refused(self.path, error) from error


def _require_own(path: Path) -> None:
    """Raises RecordError where what would be taken off as a cut line was never the beginning of a sealed one."""
    cut = cut_bytes(path)
    tail = path.read_bytes()[-cut:] if cut else b""
    begun = tail.startswith(b'{"') or b'{"'.startswith(tail)
    unsealed = _is_whole(tail) and b'"seal": ' not in tail
    ended = tail.endswith(b"\n") and b"\0" not in tail  # zeros are what a power cut leaves
    if tail.strip(b"\0\n") and (ended or unsealed or not begun):
        raise RecordError(
            f"{path} is another kind of file: it ends with {tail[-60:]!r}, expected a JSON object with its seal on each line. "
            "Nothing was changed; choose another place"
        )


def _is_whole(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def require_seals(path: Path, lines: Sequence[Mapping[str, Any]], otherwise: str) -> None:
    """Raises RecordError for a line that was changed; `otherwise` is what can be done there without a copy."""
    for number, line in enumerate(lines, start=1):
        if line.get("seal") != seal_of(line):
            raise RecordError(
                f"{path}, line {number}: changed after it was written (its seal does not hold). Restore the file from a copy; "
                f"{otherwise}"
            )


def refused(path: Path, error: OSError) -> RecordError:
    """The error for a disk that refuses."""
    return RecordError(
        f"{path} could not be written: {error.strerror or error}. Choose another place, free space or check permissions; what "
        "was written before is kept, and the same command with --continue goes on from there"
    )

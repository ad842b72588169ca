"""Writing so that a kill at any moment leaves either the old or the new file, and reading what such a kill left.

Decisions:
1. A file appears under its name only when it is whole: temporary name, fsync, rename, fsync of the folder.
2. A JSON line is appended in one write and fsynced. Only the last line can be cut, and only that one is tolerated.
3. Lines and files carry a sha256 seal. It finds accidents and careless edits; it is no signature.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from toishi.errors import RecordError

_CHUNK_BYTES = 1 << 20
RESUMES = "or take off this line and all after it, and resume goes on from a checkpoint before that step"


def plain(value: Any) -> Any:
    """`value` with only what standard JSON can hold; non-finite floats become the strings 'nan', 'inf', '-inf'.

    >>> plain({"a": (1, float("inf")), 2: {3}})
    {'a': [1, 'inf'], '2': [3]}
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((plain(item) for item in value), key=str)
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return str(value)


def seal_of(values: Mapping[str, Any]) -> str:
    """sha256 of a JSON object without its own `seal`, whatever the order of its keys."""
    rest = {key: value for key, value in values.items() if key != "seal"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def sealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The object in plain JSON values with its seal as the last key."""
    values = {key: value for key, value in plain(values).items() if key != "seal"}
    return values | {"seal": seal_of(values)}


def sha256_file(path: Path) -> str:
    """Hexadecimal sha256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def sync_folder(folder: Path) -> None:
    """Makes renames inside `folder` durable. Systems that cannot open a folder (Windows) need no such step."""
    with contextlib.suppress(PermissionError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sync_file(path: Path) -> None:
    """Makes a written file durable."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def write_whole(path: Path, write: Callable[[Path], None]) -> None:
    """Lets `write` fill a temporary file and puts it in the place of `path` at once; nothing stays behind on failure.

    Raises RecordError when the disk refuses.
    """
    temporary = path.with_name(f".tmp-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        sync_file(temporary)
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise write_failed(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def write_failed(path: Path, error: OSError) -> RecordError:
    """The error for a disk that refuses, with what to do."""
    return RecordError(
        f"{path} could not be written: {error.strerror or error}. What was recorded before is kept whole. "
        "Free disk space (or check permissions) and continue with: toishi resume"
    )


def remove(path: Path) -> None:
    """Removes a file, or a folder with all that it holds; one that is gone already is no fault."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """`values`, sealed, as an indented JSON file."""
    text = json.dumps(sealed(values), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_whole(path, lambda temporary: write_text(temporary, text))


def write_text(path: Path, text: str) -> None:
    """Writes UTF-8; lone surrogates, which UTF-8 cannot hold, are escaped."""
    path.write_bytes(text.encode("utf-8", "backslashreplace"))


def json_line(values: Mapping[str, Any]) -> str:
    """
    >>> json_line({"step": 1})[:12]
    '{"step": 1, '
    """
    return json.dumps(sealed(values), ensure_ascii=True, allow_nan=False) + "\n"


def append_line(path: Path, values: Mapping[str, Any]) -> str:
    """Appends `values`, sealed, as one durable line, and returns its seal. A refused write leaves the file as it was.

    Raises RecordError when the disk refuses.
    """
    size = path.stat().st_size if path.exists() else 0
    line = json_line(values)
    try:
        with path.open("ab") as file:
            file.write(line.encode("ascii"))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        with contextlib.suppress(OSError):
            os.truncate(path, size)
        raise write_failed(path, error) from error
    return str(json.loads(line)["seal"])


def read_lines(path: Path, *, otherwise: str = RESUMES) -> list[dict[str, Any]]:
    """The JSON objects of a file of lines; a missing file is empty and a cut last line is left out.

    Raises RecordError when a line before the last is damaged; `otherwise` is what can be done there without a copy.
    """
    return _read_lines(path, otherwise)[0]


def cut_bytes(path: Path) -> int:
    """Bytes of a cut last line; 0 when every line is whole."""
    return path.stat().st_size - _read_lines(path)[1] if path.exists() else 0


def trim_cut_line(path: Path) -> None:
    """Takes a cut last line off the file, so that the next append starts on a line of its own."""
    cut = cut_bytes(path)
    if cut:
        os.truncate(path, path.stat().st_size - cut)


def _read_lines(path: Path, otherwise: str = RESUMES) -> tuple[list[dict[str, Any]], int]:
    """The objects, and how many bytes from the start are whole lines."""
    *raw_lines, tail = _bytes(path).split(b"\n")
    values: list[dict[str, Any]] = []
    size = 0
    for number, raw in enumerate(raw_lines, start=1):
        value = _object(raw)
        if value is None and number == len(raw_lines) and not tail:
            break
        if value is None:
            raise RecordError(
                f"{path}, line {number}: expected a JSON object, got {raw[:60]!r}. Only a last line may be cut (by a kill). "
                f"Restore the file from a copy; {otherwise}"
            )
        values.append(value)
        size += len(raw) + 1
    return values, size


def _bytes(path: Path) -> bytes:
    """The file's content; a missing file is empty."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror or error}. Restore it from a copy") from None


def _object(raw: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None

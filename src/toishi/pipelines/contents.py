"""What a stage depends on, as one sha256: its configuration, and the content of everything that it names.

Decisions:
1. Content counts, not paths or times: a file that was rewritten with the same bytes changes nothing, a folder that was moved
   neither.
2. Any text in a configuration that is the path of a file or of a model's folder stands for what lies there. A built-in recipe
   counts by its resolved keys, the bundled model by its weights.
3. A data set of the hub counts by its name: give `revision` where it must not change unseen.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from toishi.collecting.samples import sha256_of
from toishi.policy.bundled import bundled_model_folder
from toishi.record.files import sha256_file

IDENTITY_FREE = ("name", "description")
"""Keys of a configuration that change no number."""


def sha256_at(path: Path) -> str:
    """Of a file's bytes, or of the names and bytes of all files of a folder."""
    if path.is_file():
        return _file(str(path), path.stat().st_mtime_ns, path.stat().st_size)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return sha256_of([[file.relative_to(path).as_posix(), sha256_at(file)] for file in files])


@lru_cache(maxsize=256)
def _file(path: str, changed_ns: int, size: int) -> str:
    return sha256_file(Path(path))


def with_contents(value: Any) -> Any:
    """Nested plain values with every text that names a file or a model's folder replaced by the sha256 of what lies there."""
    if isinstance(value, str):
        return _content(value)
    if isinstance(value, Mapping):
        return {key: with_contents(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [with_contents(item) for item in value]
    return value


def _content(text: str) -> str:
    if text == "bundled":
        return f"sha256:{sha256_at(bundled_model_folder())}"
    if not text or "\n" in text or len(text) > 1000:
        return text
    name, colon, function = text.partition(".py:")
    path = Path(f"{name}.py" if colon else text).expanduser()
    is_model = path.is_dir() and (path / "config.json").is_file()
    if path.is_file() or is_model:
        return f"sha256:{sha256_at(path)}{colon and ':' + function}"
    return text

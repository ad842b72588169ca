"""What a kill would leave: a copy of a folder at each moment at which the process touches the disk for good."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def snapshots(folder: Path, into: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """Copies `folder` before and after every rename and fsync that happens inside the block."""
    taken: list[Path] = []

    def copy() -> None:
        target = into / f"{len(taken):03d}"
        shutil.copytree(folder, target) if folder.exists() else target.mkdir(parents=True)
        taken.append(target)

    def around(function: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            copy()
            result = function(*arguments, **options)
            copy()
            return result

        return wrapped

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", around(os.fsync))
        patched.setattr(Path, "replace", around(Path.replace))
        patched.setattr(Path, "rename", around(Path.rename))
        patched.setattr(shutil, "rmtree", around(shutil.rmtree))
        yield taken

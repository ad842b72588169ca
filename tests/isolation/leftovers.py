"""What may be left behind by killed work: processes, descriptors, folders."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Belongings:
    """What this process holds: numbers of its descendants, its open descriptors, folders of runs."""

    processes: frozenset[int]
    descriptors: int
    folders: frozenset[str]

    def left_by(self, before: Belongings) -> str:
        """What is here that was not there before, in words; "" for nothing."""
        new = {"processes": self.processes - before.processes, "folders": self.folders - before.folders}
        words = [f"{name}: {sorted(map(str, items))}" for name, items in new.items() if items]
        if self.descriptors > before.descriptors:
            words.append(f"{self.descriptors - before.descriptors} descriptors")
        return "; ".join(words)


def belongings() -> Belongings:
    return Belongings(
        processes=frozenset(descendants(os.getpid())),
        descriptors=len(os.listdir("/proc/self/fd")),
        folders=frozenset(map(str, Path(tempfile.gettempdir()).glob("toishi-run-*"))),
    )


def settled(before: Belongings, limit_s: float = 3.0) -> str:
    """What is left when the system had time to clear away what was killed."""
    deadline = time.monotonic() + limit_s
    while (left := belongings().left_by(before)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return left


def descendants(ancestor: int) -> list[int]:
    """Living processes and zombies below one."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found: list[int] = []
    waiting = [ancestor]
    while waiting:
        one = waiting.pop()
        below = [pid for pid, parent in parents.items() if parent == one]
        found += below
        waiting += below
    return found


def with_word(word: str) -> list[int]:
    """Processes of the whole machine that have the word among their arguments."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if word.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found

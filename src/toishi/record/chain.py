"""Lines hold on to one another: a line carries the seal of the line before it, and a checkpoint the last seal of every file.

Decisions:
1. A line that was removed, repeated or moved breaks the chain at the next one; lines cut off at the end are missed by the
   checkpoints that were written after them.
2. Taking steps back removes lines on purpose: the lines that stay are linked anew, but only where the link was whole before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toishi.record.files import seal_of, sealed

Line = Mapping[str, Any]
PREVIOUS = "previous"


@dataclass(frozen=True, slots=True)
class Head:
    """Where a file of lines ends: how many there are, and the seal of the last."""

    lines: int = 0
    seal: str | None = None

    @classmethod
    def of(cls, lines: Sequence[Line]) -> Head:
        return cls(len(lines), lines[-1].get("seal") if lines else None)

    def as_record(self) -> dict[str, Any]:
        """The head as state.json holds it."""
        return {"lines": self.lines, "seal": self.seal}


def unlinked(lines: Sequence[Line]) -> list[int]:
    """Numbers (from 1) of the lines that do not name the seal of the line before them.

    >>> unlinked([{"previous": None, "seal": "a"}, {"previous": "a", "seal": "b"}, {"previous": "x", "seal": "c"}])
    [3]
    """
    seals = [None, *(line.get("seal") for line in lines)]
    return [number for number, line in enumerate(lines, 1) if line.get(PREVIOUS, 0) != seals[number - 1]]


def relinked(lines: Sequence[dict[str, Any]], keep: Iterable[bool]) -> list[dict[str, Any]]:
    """The lines to keep, each linked to the one that is now before it; what was not whole stays as it was."""
    broken = set(unlinked(lines))
    done: list[dict[str, Any]] = []
    for number, (line, kept) in enumerate(zip(lines, keep, strict=True), 1):
        if kept:
            before = done[-1].get("seal") if done else None
            whole = number not in broken and line.get("seal") == seal_of(line)
            done.append(sealed(line | {PREVIOUS: before}) if whole and line[PREVIOUS] != before else line)
    return done


def unkept(promised: Mapping[str, Any], found: Mapping[str, Sequence[Line]]) -> Iterator[tuple[str, str, str]]:
    """(file, got, expected) of every file that no longer holds the lines that a checkpoint saw.

    >>> list(unkept({"events.jsonl": {"lines": 2, "seal": "b"}}, {"events.jsonl": [{"seal": "a"}]}))
    [('events.jsonl', '1 lines', '2 lines or more')]
    """
    for name, head in promised.items():
        count, lines = head["lines"], found.get(name, ())
        if len(lines) < count:
            yield name, f"{len(lines)} lines", f"{count} lines or more"
        elif count and lines[count - 1].get("seal") != head["seal"]:
            yield name, f"line {count} is another one", f"line {count} with the seal {str(head['seal'])[:12]}"

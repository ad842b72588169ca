"""Judge replies with what should be read in them: reported ones, and our own."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "cases"


@dataclass(frozen=True)
class Case:
    """A reply, how it was asked for, and what it gives: a score, scores, or "error:CODE"."""

    text: str
    expected: Any
    why: str
    scale: str
    candidates: int | None
    form: Any

    @property
    def error(self) -> str:
        return self.expected.removeprefix("error:") if isinstance(self.expected, str) else ""

    @property
    def scores(self) -> list[float]:
        if self.error:
            return []
        return self.expected if isinstance(self.expected, list) else [self.expected]


def cases(name: str) -> list[Case]:
    lines = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [_case(json.loads(line)) for line in lines]


def _case(row: dict[str, Any]) -> Case:
    is_group = str(row["expected"]).startswith("error:expected_8")
    return Case(
        text=row["judge_text"],
        expected=row["expected"],
        why=row["why"],
        scale=row.get("scale", "1-10"),
        candidates=row.get("candidates", 8 if is_group else None),
        form=row.get("form", "json"),
    )


REPORTED = cases("judge_texts")
OWN = cases("own_texts")
EVERY = [*REPORTED, *OWN]
IDS = [f"{number}: {case.why}" for number, case in enumerate(EVERY, start=1)]

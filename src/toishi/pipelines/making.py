"""Stages that make something without sampling: rows of several files in one, a student out of a larger model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toishi.collecting.samples import write_rows
from toishi.errors import DataError
from toishi.pipelines.sections import JoinStage, ShrinkStage
from toishi.pipelines.store import Made
from toishi.pipelines.work import Work
from toishi.policy.shrinking import shrink_model
from toishi.record.files import remove
from toishi.tasks.data import read_rows
from toishi.tasks.order import keyed_order

DATA, MODEL = "data.jsonl", "model"
CHAT, TEXT = "messages", "prompt"


def join(work: Work) -> Made:
    """One file of the rows of several, in an order that the seed decides.

    Where any file has chats, a text prompt becomes a chat of one turn. Raises DataError for rows without a prompt, and for
    files that share no column besides it.
    """
    stage: JoinStage = work.stage
    limits = [*stage.limits, *[0] * len(stage.files)]
    listed = [_rows(Path(file))[: limit or None] for file, limit in zip(stage.files, limits, strict=False)]
    rows = [row for of_file in listed for row in of_file]
    as_chat = any(CHAT in row for row in rows)
    asked = [{CHAT: _chat(row)} if as_chat else {TEXT: row[TEXT]} for row in rows]
    shared = sorted(set.intersection(*(set(row) for row in rows)) - {CHAT, TEXT})
    if not shared:
        raise DataError(
            f"its files have no column in common besides the prompt ({', '.join(stage.files)}); join "
            "files of one form, such as rows with `completion`, or rows with `chosen` and `rejected`"
        )
    joined = [one | {name: row[name] for name in shared} for one, row in zip(asked, rows, strict=True)]
    path = work.folder / DATA
    write_rows(path, [joined[place] for place in keyed_order(len(joined), work.seed, "join")])
    counts = {_called(Path(file)): len(of_file) for file, of_file in zip(stage.files, listed, strict=True)}
    return Made(paths={"data": path}, facts={"rows": len(joined), "of": counts, "columns": shared})


def shrink(work: Work) -> Made:
    """A model with fewer layers."""
    stage: ShrinkStage = work.stage
    folder = work.folder / MODEL
    remove(folder)  # what a kill may have left
    facts = shrink_model(stage.model or "", folder, layers=stage.layers)
    return Made(paths={"model": folder}, facts=facts)


def _called(path: Path) -> str:
    """An earlier stage's data by the stage's name (stages/NAME/KEY/data.jsonl), another file by its own."""
    made_here = path.name == DATA and len(path.parts) > 3 and path.parts[-4] == "stages"
    return path.parts[-3] if made_here else path.name


def _rows(path: Path) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for number, row in read_rows(path):
        if not isinstance(row, dict) or (CHAT not in row and not isinstance(row.get(TEXT), str)):
            raise DataError(f"{path}, row {number}: no `messages` and no text in `prompt`; give every row one of the two")
        found.append(row)
    if not found:
        raise DataError(f"{path} has no rows to join")
    return found


def _chat(row: Mapping[str, Any]) -> Sequence[Mapping[str, str]]:
    return row[CHAT] if CHAT in row else [{"role": "user", "content": row[TEXT]}]

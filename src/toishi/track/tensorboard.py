"""`tensorboard`: event files in `track/tensorboard/` of the run folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toishi.track.seen import Seen


class TensorBoardTracker:
    """Scalars under the record's names; answers, alarms and the configuration as text.

    After a resume, what was written of steps that were taken back is purged by TensorBoard when it reads the folder.
    """

    rewinds = True

    def __init__(self) -> None:
        self._writer: Any = None

    def start(self, folder: Path, run: Mapping[str, Any], *, id: str, after: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        where = folder / "track" / "tensorboard"
        self._writer = SummaryWriter(str(where), purge_step=after + 1 if after >= 0 else None)
        if after < 0:
            self._text("config", f"```json\n{json.dumps(run['config'], indent=2)}\n```", 0)

    def send(self, seen: Seen) -> None:
        """The step's numbers and texts, written through to the file."""
        for name, value in seen.numbers.items():
            self._writer.add_scalar(name, value, seen.step)
        for alarm in seen.alarms:
            self._text(f"health/{alarm['rule']}", f"{alarm['message']}. What to do: {alarm['remedy']}.", seen.step)
        if seen.answers:
            lines = [seen.columns, ("---",) * len(seen.columns), *seen.answers]
            self._text("answers", "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines), seen.step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    def _text(self, name: str, text: str, step: int) -> None:
        self._writer.add_text(name, text, step)


def _cell(value: Any) -> str:
    """A cell of a Markdown table.

    >>> _cell("a|b")
    'a\\\\|b'
    """
    return "" if value is None else str(value).replace("|", "\\|").replace("\n", "<br>")

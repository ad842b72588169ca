"""`wandb`: the run at Weights & Biases, online or offline (WANDB_MODE, WANDB_PROJECT, WANDB_ENTITY as everywhere)."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toishi.track.seen import Seen

TIMEOUT_S = 60.0
FLUSH_S = 0.05
"""W&B's own process writes what it was given to its file so often; its default of 15 s loses that much when all is killed."""
LEVELS = {"note": "INFO", "warn": "WARN", "stop": "ERROR"}


class WandbTracker:
    """One W&B run for one run folder, also over resumes; answers as the table `answers`, health rules as alerts."""

    rewinds = False

    def __init__(self) -> None:
        self._wandb: Any = None
        self._run: Any = None

    def start(self, folder: Path, run: Mapping[str, Any], *, id: str, after: int) -> None:
        """Raises what wandb raises, such as for a missing key."""
        import wandb

        self._wandb = wandb
        interval = "x_transaction_log_flush_interval"
        flush: dict[str, Any] = {interval: FLUSH_S} if interval in wandb.Settings.model_fields else {}
        offline = os.environ.get("WANDB_MODE") == "offline"
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "toishi"),
            name=folder.name,
            id=id,
            resume=None if offline else "allow",
            dir=str(folder / "track"),
            config=dict(run["config"]),
            settings=wandb.Settings(
                console="off",
                silent=True,
                login_timeout=TIMEOUT_S,
                init_timeout=TIMEOUT_S,
                x_disable_stats=True,
                save_code=False,
                **flush,
            ),
        )

    def send(self, seen: Seen) -> None:
        """Everything of the step in one call, so that W&B has all of it or nothing; returns when it is in W&B's file."""
        values: dict[str, Any] = dict(seen.numbers)
        if seen.answers:
            rows = [list(row) for row in seen.answers]
            values["answers"] = self._wandb.Table(columns=list(seen.columns), data=rows, allow_mixed_types=True)
        for alarm in seen.alarms:
            values[f"health/{alarm['rule']}"] = 1
            level = getattr(self._wandb.AlertLevel, LEVELS[alarm["action"]])
            text = f"{alarm['message']}. What to do: {alarm['remedy']}."
            self._run.alert(title=f"step {seen.step}, {alarm['rule']}", text=text, level=level)
        self._run.log(values, step=seen.step, commit=True)
        time.sleep(2 * FLUSH_S)

    def close(self) -> None:
        self._run.finish()

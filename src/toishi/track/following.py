"""Trackers follow a run through its record, each in a thread of its own.

Decisions:
1. A tracker reads what is on record and nothing else, so there is no queue that could overflow: one that is slow falls behind,
   and one that was broken, or comes later, catches up at the next resume. Training never waits for it but at the very end.
2. A step is sent when it is whole: when the next one is on record, or the run ends. `track/<name>.json` in the run folder says
   which step was the last, and under which id, so a resumed run goes on in the same place and no step is sent twice.
3. Steps that were sent and then taken back by a kill and a resume stay as they were sent, unless the tracker can put others in
   their place; which, is said.
4. What a tracker raises, and one that hangs at the end, is said once; the run goes on.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from toishi.record.files import write_json
from toishi.record.reader import read_run_file
from toishi.record.schema import ROLLOUT_SCHEMA, shard_name
from toishi.record.tables import read_table
from toishi.track.seen import Seen, Tracker, seen_of

FINISH_S = 60.0
"""So long is waited for trackers when the run ends."""


class Tracking:
    """The trackers of a run while it goes on; a context.

    say  called in the caller's thread with what went wrong or is otherwise than expected, once each
    """

    def __init__(
        self,
        trackers: Mapping[str, Callable[[], Tracker]],
        folder: Path,
        step: int,
        say: Callable[[str], None],
        *,
        finish_s: float = FINISH_S,
    ) -> None:
        self._say, self._finish_s = say, finish_s
        self._followers = [_Follower(name, make, folder, step) for name, make in trackers.items()]

    def __enter__(self) -> Tracking:
        for follower in self._followers:
            follower.thread.start()
        return self

    def advance(self, step: int) -> None:
        """`step` is on record."""
        for follower in self._followers:
            follower.advance(step)
        self._pass_on()

    def __exit__(self, *_: object) -> None:
        for follower in self._followers:
            follower.advance(None)
        for follower in self._followers:
            follower.thread.join(self._finish_s)
            if follower.thread.is_alive():
                follower.said.append(
                    f"tracker '{follower.name}' did not finish within {self._finish_s:g} s; it has the steps up to "
                    f"{follower.sent}. The record is whole: `toishi resume` of the run sends the rest"
                )
        self._pass_on()

    def _pass_on(self) -> None:
        for follower in self._followers:
            while follower.said:
                self._say(follower.said.pop(0))


class _Follower:
    """One tracker and its thread. Steps up to `sent` are with the tracker; -1: none."""

    def __init__(self, name: str, make: Callable[[], Tracker], folder: Path, step: int) -> None:
        self.name, self.said = name, list[str]()
        self.thread = threading.Thread(target=self._run, daemon=True, name=f"toishi-track-{name}")
        self._make, self._folder, self._begun_at = make, folder, step
        self._state = folder / "track" / f"{name}.json"
        self._changed = threading.Condition()
        self._latest, self._ended = step, False
        self.id, self.sent = "", -1

    def advance(self, step: int | None) -> None:
        with self._changed:
            self._latest, self._ended = (self._latest, True) if step is None else (step, self._ended)
            self._changed.notify()

    def _run(self) -> None:
        try:
            self._follow()
        except BaseException as error:
            words = str(error).strip().splitlines()
            self.said.append(
                f"tracker '{self.name}' is off: {type(error).__name__}: {words[0] if words else ''}. It has the steps up to "
                f"{self.sent}. The run goes on and its record is whole; `toishi resume` sends the rest"
            )

    def _follow(self) -> None:
        tracker, files = self._make(), _Files(self._folder)
        self.id, self.sent = _state_of(self._state)
        self._step_back(tracker)
        is_started = False
        while (last := self._wait()) is not None:
            files.read()
            for step in range(self.sent + 1, last + 1):
                seen = files.seen(step)
                if not is_started:
                    self._note()
                    tracker.start(self._folder, read_run_file(self._folder), id=self.id, after=self.sent)
                    is_started = True
                tracker.send(seen)
                self.sent = step
                self._note()
        if is_started:
            tracker.close()

    def _note(self) -> None:
        self._state.parent.mkdir(exist_ok=True)
        write_json(self._state, {"id": self.id, "sent": self.sent})

    def _step_back(self, tracker: Tracker) -> None:
        """After a resume: what was sent of steps that were taken back."""
        if self.sent <= self._begun_at:
            return
        if tracker.rewinds:
            self.sent = self._begun_at
        else:
            self.said.append(
                f"tracker '{self.name}' got the steps {self._begun_at + 1} to {self.sent} before the run was interrupted. They "
                "are done again, but not sent a second time: where they differ, the run folder is right"
            )

    def _wait(self) -> int | None:
        """The last whole step when there is more to send; None when everything was sent and the run has ended."""
        with self._changed:
            while True:
                last = self._latest if self._ended else self._latest - 1
                if last > self.sent:
                    return last
                if self._ended:
                    return None
                self._changed.wait()


class _Files:
    """The files of lines, each read once from where it was read before; only what is not sent yet is kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets = dict.fromkeys(("metrics.jsonl", "evaluations.jsonl", "events.jsonl"), 0)
        self._lines: dict[str, dict[int, list[dict[str, Any]]]] = {name: {} for name in self._offsets}

    def read(self) -> None:
        """Takes in whole lines that were added."""
        for name, offset in self._offsets.items():
            path = self._folder / name
            if not path.exists():
                continue
            with path.open("rb") as file:
                file.seek(offset)
                added = file.read()
            whole = added[: added.rfind(b"\n") + 1]
            self._offsets[name] += len(whole)
            for line in map(json.loads, whole.splitlines()):
                if line["step"] is not None:
                    self._lines[name].setdefault(line["step"], []).append(line)

    def seen(self, step: int) -> Seen:
        """The step's lines, which are then forgotten, and its answers."""
        metrics, evaluations, events = (self._take(name, step) for name in self._offsets)
        rows: Sequence[Mapping[str, Any]] = ()
        if metrics:
            rows = read_table(self._folder / "rollouts" / shard_name(step), ROLLOUT_SCHEMA)
        return seen_of(step, metrics[0] if metrics else None, evaluations, events, rows)

    def _take(self, name: str, step: int) -> list[dict[str, Any]]:
        return self._lines[name].pop(step, [])


def _state_of(path: Path) -> tuple[str, int]:
    """The id that the tracker goes by, and the last step that it has."""
    if not path.exists():
        return secrets.token_hex(6), -1
    state = json.loads(path.read_text(encoding="utf-8"))
    return str(state["id"]), int(state["sent"])

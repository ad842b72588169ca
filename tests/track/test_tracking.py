"""What trackers get is the record, each step once, whatever is killed, breaks or hangs; read back from W&B and TensorBoard."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.test_loop import kill_after, recipe
from tests.tiny import save_tiny
from tests.track.reading import (
    assert_both_hold_the_record,
    assert_equal_to_record,
    numbers_on_record,
    tensorboard_scalars,
    wandb_history,
)
from toishi import loop, tracked
from toishi.recipes import load_recipe
from toishi.record.reader import Run
from toishi.track import Seen, Tracking


@dataclass
class Fake:
    """Keeps what it is given; breaks or hangs at a step."""

    rewinds: bool = False
    breaks_at: int = -1
    hangs_at: int = -1
    release: threading.Event = field(default_factory=threading.Event)
    started: list[tuple[str, int]] = field(default_factory=list)
    sent: list[Seen] = field(default_factory=list)
    closed: int = 0

    def start(self, folder: Path, run: Mapping[str, Any], *, id: str, after: int) -> None:
        assert run["config"]["name"] == "tiny"
        self.started.append((id, after))

    def send(self, seen: Seen) -> None:
        if seen.step == self.breaks_at:
            raise ConnectionError("no network")
        if seen.step == self.hangs_at:
            self.release.wait(30)
        self.sent.append(seen)

    def close(self) -> None:
        self.closed += 1

    @property
    def steps(self) -> list[int]:
        return [seen.step for seen in self.sent]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model") / "llama", "llama")


@pytest.fixture(scope="module")
def finished(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six steps, tracked by nobody."""
    return loop.train(recipe(tiny), tmp_path_factory.mktemp("finished") / "run").folder


def follow(folder: Path, tracker: Fake, *, step: int = 0, until: int = 6, finish_s: float = 20.0) -> list[str]:
    said: list[str] = []
    with Tracking({"fake": lambda: tracker}, folder, step, said.append, finish_s=finish_s) as tracking:
        for number in range(step + 1, until + 1):
            tracking.advance(number)
    return said


def copied(folder: Path, target: Path) -> Path:
    target.mkdir()
    for path in ("run.json", "metrics.jsonl", "evaluations.jsonl", "events.jsonl"):
        (target / path).write_bytes((folder / path).read_bytes())
    for shards in ("rollouts", "tokens"):
        (target / shards).symlink_to(folder / shards)
    return target


def test_a_tracker_gets_the_record_in_order_and_whole(finished: Path, tmp_path: Path) -> None:
    folder, fake = copied(finished, tmp_path / "run"), Fake()
    assert follow(folder, fake) == []
    assert (fake.steps, fake.closed, len(fake.started)) == ([0, 1, 2, 3, 4, 5, 6], 1, 1)
    wanted, run = numbers_on_record(folder), Run.open(folder)
    for seen in fake.sent[1:]:
        assert {key: value for key, value in seen.numbers.items() if not key.startswith("evaluation/")} == wanted[seen.step]
        rollouts = run.step(seen.step).rollouts
        rows = [dict(zip(seen.columns, answer, strict=True)) for answer in seen.answers]
        assert [(row["completion"], row["reward"], row["advantage"], row["score/vowels"]) for row in rows] == [
            (r.completion.text, r.reward, r.advantage, r.scores[0].value) for r in rollouts
        ]
    greedy = [line for line in run.evaluations if line["mode"] == "greedy"]
    measured = {
        seen.step: seen.numbers["evaluation/greedy/value"] for seen in fake.sent if "evaluation/greedy/value" in seen.numbers
    }
    assert measured == {line["step"]: line["value"] for line in greedy}


def test_what_was_not_sent_is_sent_at_the_next_time(finished: Path, tmp_path: Path) -> None:
    """Broken at step 3: said once, and the run of it goes on with step 3 under the same id."""
    folder, broken, mended = copied(finished, tmp_path / "run"), Fake(breaks_at=3), Fake()
    said = follow(folder, broken)
    assert len(said) == 1
    assert "tracker 'fake' is off: ConnectionError: no network. It has the steps up to 2" in said[0]
    assert follow(folder, mended, step=6) == []
    assert (broken.steps, mended.steps) == ([0, 1, 2], [3, 4, 5, 6])
    assert mended.started == [(broken.started[0][0], 2)]


def test_one_that_hangs_holds_nothing_up(finished: Path, tmp_path: Path) -> None:
    fake, started = Fake(hangs_at=2), time.monotonic()
    said = follow(copied(finished, tmp_path / "run"), fake, finish_s=0.2)
    assert time.monotonic() - started < 10
    assert len(said) == 1
    assert "did not finish within 0.2 s; it has the steps up to 1" in said[0]
    fake.release.set()


@pytest.mark.parametrize("rewinds", [False, True])
def test_steps_that_were_taken_back(finished: Path, tmp_path: Path, rewinds: bool) -> None:
    """Steps 4 and 5 were sent, and the run goes on after step 3."""
    folder = copied(finished, tmp_path / "run")
    follow(folder, Fake(), until=5)
    fake = Fake(rewinds=rewinds)
    said = follow(folder, fake, step=3)
    assert fake.steps == ([4, 5, 6] if rewinds else [6])
    assert [("got the steps 4 to 5 before the run was interrupted" in text) for text in said] == ([] if rewinds else [True])


def test_a_damaged_note_of_what_was_sent_stops_nothing(finished: Path, tmp_path: Path) -> None:
    folder = copied(finished, tmp_path / "run")
    (folder / "track").mkdir()
    (folder / "track" / "fake.json").write_text("{")
    assert "is off: JSONDecodeError" in follow(folder, Fake())[0]


def test_a_run_says_what_its_tracker_said(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    makers: dict[str, Callable[[], Any]] = {"wandb": lambda: Fake(breaks_at=1)}
    monkeypatch.setattr(tracked, "TRACKERS", makers)
    result = loop.train(recipe(tiny, **{"train.steps": 2, "track": ["wandb"]}), tmp_path / "run")
    events = [event for event in Run.open(result.folder).events if event["kind"] == "tracker"]
    assert result.finished
    assert len(events) == 1
    assert "tracker 'wandb' is off: ConnectionError" in events[0]["message"]


def of_recipe(name: str) -> dict[str, Any]:
    """Task and rewards of a built-in recipe."""
    values = load_recipe(name).model_dump(mode="json")
    return {"task": values["task"] | {"heldout": 4}, "rewards": values["rewards"]}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "changes", [pytest.param({}, id="sums"), pytest.param(of_recipe("length-short"), id="length-short", marks=pytest.mark.slow)]
)
def test_read_back_after_a_kill(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: Mapping[str, Any]
) -> None:
    """Killed after step 4, one past the checkpoint: both hold every step once, equal to the record."""
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    folder = tmp_path / "run"
    kill_after(tiny, folder, 5, {**changes, "track": ["wandb", "tensorboard"]})
    states = {name: folder / "track" / f"{name}.json" for name in ("wandb", "tensorboard")}
    ids = {name: json.loads(path.read_text())["id"] for name, path in states.items() if path.exists()}
    loop.resume(folder)
    assert [
        event["message"] for event in Run.open(folder).events if event["kind"] == "tracker" and " is off" in event["message"]
    ] == []
    for name, path in states.items():
        state = json.loads(path.read_text())
        assert (state["sent"], state["id"]) == (6, ids.get(name, state["id"])), name
    assert_both_hold_the_record(folder, 6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["wandb", "tensorboard"])
def test_real_trackers_hold_no_step_twice(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Steps 4 and 5 were sent, then the run goes on after step 3."""
    pytest.importorskip(name)
    monkeypatch.setenv("WANDB_MODE", "offline")
    folder = copied(finished, tmp_path / "run")
    for begun, until in ((0, 5), (3, 6)):
        said: list[str] = []
        with Tracking({name: tracked.TRACKERS[name]}, folder, begun, said.append) as tracking:
            for step in range(begun + 1, until + 1):
                tracking.advance(step)
        assert not any("is off" in text for text in said), said
    found = wandb_history(folder) if name == "wandb" else tensorboard_scalars(folder)
    assert set(found) == set(range(7))
    assert_equal_to_record(found, folder, rel=1e-6)


KILLED = """
import json, os, pathlib, signal, sys, time
from toishi import tracked
from toishi.track import Tracking
folder = pathlib.Path(sys.argv[1])
with Tracking({"wandb": tracked.TRACKERS["wandb"]}, folder, 0, print) as tracking:
    for step in range(1, 5):
        tracking.advance(step)
    state = folder / "track" / "wandb.json"
    while not state.exists() or json.loads(state.read_text())["sent"] < 3:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_what_was_noted_as_sent_survives_a_kill(finished: Path, tmp_path: Path) -> None:
    """Killed the moment after step 3 was noted; W&B's own process ends with it."""
    pytest.importorskip("wandb")
    folder = copied(finished, tmp_path / "run")
    environment = os.environ | {"WANDB_MODE": "offline", "PYTHONPATH": os.pathsep.join(["src", "."])}
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", KILLED, str(folder)], cwd=root, env=environment, timeout=120)
    assert done.returncode == -signal.SIGKILL
    assert sorted(wandb_history(folder, 3)) == [0, 1, 2, 3]

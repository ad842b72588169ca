"""A whole checkpoint is on the disk at every instant; a damaged one is passed over with a reason."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.record.snapshots import snapshots
from toishi.checkpoints import latest_checkpoint, load_checkpoint, prune_checkpoints, save_checkpoint
from toishi.errors import RecordError
from toishi.record.files import write_json


def model(number: int) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(bytes([number]) * 1000)
        (folder / "inner").mkdir()
        (folder / "inner" / "config.json").write_text("{}")

    return write


def state(number: int) -> dict[str, Any]:
    moments = {"exp_avg": torch.full((3,), float(number)), "step": torch.tensor(2.0)}
    return {
        "optimizer": {"state": {0: moments}, "param_groups": [{"lr": 0.1}]},
        "next_prompt": number * 4,
        "config_hash": "abc",
        "pair": (1, None, True),
    }


def steps_on_disk(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def test_saved_is_loaded(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 3, model(3), state(3))
    assert path == tmp_path / "checkpoints" / "step_000003"
    got = load_checkpoint(path)
    assert (got.step, got.model_folder) == (3, path / "model")
    assert torch.equal(got.state["optimizer"]["state"][0]["exp_avg"], torch.full((3,), 3.0))
    assert {key: got.state[key] for key in ("next_prompt", "config_hash", "pair")} == {
        "next_prompt": 12, "config_hash": "abc", "pair": (1, None, True)
    }  # fmt: skip
    readable = json.loads((path / "state.json").read_text())
    assert readable["step"] == 3
    assert readable["state"] == {"next_prompt": 12, "config_hash": "abc"}
    assert sorted(readable["files"]) == ["model/inner/config.json", "model/model.safetensors", "state.pt"]
    assert latest_checkpoint(tmp_path) == (path, ())


def test_first_last_and_protected_are_kept(tmp_path: Path) -> None:
    for step in range(0, 60, 10):
        save_checkpoint(tmp_path, step, model(step), state(step), keep_last=2, protect={20})
    assert steps_on_disk(tmp_path) == ["step_000000", "step_000020", "step_000040", "step_000050"]
    assert [path.name for path in prune_checkpoints(tmp_path, keep_last=1)] == ["step_000020", "step_000040"]


@pytest.mark.parametrize("damage", ["flip", "cut", "missing", "extra", "state", "seal"])
def test_damaged_checkpoint_is_passed_over_with_a_reason(tmp_path: Path, damage: str) -> None:
    first = save_checkpoint(tmp_path, 1, model(1), state(1))
    last = save_checkpoint(tmp_path, 2, model(2), state(2))
    weights, facts = last / "model" / "model.safetensors", last / "state.json"
    if damage == "flip":
        weights.write_bytes(b"x" + weights.read_bytes()[1:])
    elif damage == "cut":
        weights.write_bytes(weights.read_bytes()[:-1])
    elif damage == "missing":
        weights.unlink()
    elif damage == "extra":
        (last / "model" / "other.safetensors").write_bytes(b"x")
    elif damage == "state":
        facts.unlink()
    else:
        facts.write_text(facts.read_text().replace('"next_prompt": 8', '"next_prompt": 9'))
    found = latest_checkpoint(tmp_path)
    assert found.folder == first
    reason = {"flip": "is damaged: model/model.safetensors has sha256", "cut": "is damaged", "missing": "is missing",
              "extra": "not part of the checkpoint", "state": "cannot be read", "seal": "was changed"}[damage]  # fmt: skip
    assert len(found.skipped) == 1
    assert reason in found.skipped[0]
    with pytest.raises(RecordError, match="step_000002"):
        load_checkpoint(last)


def test_none_and_all_damaged(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path) == (None, ())
    (tmp_path / "checkpoints" / "step_000001").mkdir(parents=True)
    assert latest_checkpoint(tmp_path).folder is None
    assert len(latest_checkpoint(tmp_path).skipped) == 1


@pytest.mark.parametrize("same_step", [False, True])
def test_killed_at_any_moment_of_a_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, same_step: bool) -> None:
    run = tmp_path / "run"
    save_checkpoint(run, 0, model(0), state(0))
    save_checkpoint(run, 1, model(1), state(1))
    target = 1 if same_step else 2
    with snapshots(run, tmp_path / "kills", monkeypatch) as kills:
        save_checkpoint(run, target, model(9), state(9))
    assert len(kills) >= 10
    positions = set()
    for kill in kills:
        found = latest_checkpoint(kill)
        assert found.folder is not None
        assert found.skipped == ()
        got = load_checkpoint(found.folder)
        positions.add((got.step, got.state["next_prompt"], (got.model_folder / "model.safetensors").read_bytes()[0]))
        save_checkpoint(kill, 3, model(3), state(3))
        assert steps_on_disk(kill) == ["step_000000", "step_000003"]
    assert positions == {(1, 4, 1), (target, 36, 9)}


def test_kill_9_in_the_middle_of_a_big_write(tmp_path: Path) -> None:
    previous = save_checkpoint(tmp_path, 1, model(1), state(1))
    code = f"""
import time
from pathlib import Path
from toishi.checkpoints import save_checkpoint
def write(folder):
    with (folder / "model.safetensors").open("wb") as file:
        while True:
            file.write(b"x" * (1 << 20)); file.flush(); time.sleep(0.05)
save_checkpoint(Path({str(tmp_path)!r}), 2, write, {{"next_prompt": 8}})
"""
    process = subprocess.Popen([sys.executable, "-c", code])
    half = tmp_path / "checkpoints" / ".tmp-step_000002" / "model" / "model.safetensors"
    deadline = time.monotonic() + 120
    while not (half.exists() and half.stat().st_size > 1 << 20):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert half.exists()
    assert latest_checkpoint(tmp_path) == (previous, ())
    assert load_checkpoint(previous).state["next_prompt"] == 4
    save_checkpoint(tmp_path, 2, model(2), state(2))
    assert steps_on_disk(tmp_path) == ["step_000001", "step_000002"]


@pytest.mark.parametrize("where", ["model", "state", "sync"])
def test_disk_full_keeps_the_previous_and_leaves_no_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    previous = save_checkpoint(tmp_path, 1, model(1), state(1))

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        if where == "state":
            patched.setattr(torch, "save", full)
        if where == "sync":
            patched.setattr(os, "fsync", full)
        with pytest.raises(RecordError, match=r"step_000002 could not be written.*No space left.*step_000001.*GB are free"):
            save_checkpoint(tmp_path, 2, full if where == "model" else model(2), state(2))
    assert steps_on_disk(tmp_path) == ["step_000001"]
    assert latest_checkpoint(tmp_path) == (previous, ())


def test_interrupt_leaves_no_rest(tmp_path: Path) -> None:
    def interrupted(folder: Path) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path, 1, interrupted, {})
    assert steps_on_disk(tmp_path) == []


def test_state_that_could_not_be_loaded_again_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"state\['rng'\]\[1\] is a ndarray; expected tensors, numbers, text"):
        save_checkpoint(tmp_path, 1, model(1), {"rng": ("MT19937", np.zeros(3))})
    assert latest_checkpoint(tmp_path) == (None, ())


def test_newer_schema_is_refused(tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, 1, model(1), state(1))
    write_json(path / "state.json", json.loads((path / "state.json").read_text()) | {"schema_version": 2})
    with pytest.raises(RecordError, match="schema version 2; this toishi reads versions up to 1"):
        load_checkpoint(path)

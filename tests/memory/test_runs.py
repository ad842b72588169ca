"""The plan in whole runs on a tiny model: refused before anything is written, decided once, used again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny import save_tiny
from toishi import session
from toishi.config import Config, load_config
from toishi.errors import OutOfMemoryError
from toishi.loop import resume, train
from toishi.record.reader import Run


@pytest.fixture
def small(tmp_path: Path) -> Config:
    return load_config(
        {
            "model": {"name": str(save_tiny(tmp_path / "model")), "dtype": "float32"},
            "task": {"name": "sums", "heldout": 2},
            "sampling": {"max_new_tokens": 4},
            "train": {"steps": 1, "prompts_per_step": 2, "group_size": 2},
            "evaluation": {"prompts": 0},
        },
        {},
    )


def test_a_run_that_does_not_fit_makes_no_folder(small: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "reachable_memory", lambda device: 10**8)
    with pytest.raises(OutOfMemoryError, match=r"0\.10 GB can be had"):
        train(small, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_choice_is_made_once(small: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "reachable_memory", lambda device: None)
    folder = train(small, tmp_path / "run").folder
    assert Run.open(folder).run["decisions"]["micro_batch_tokens"] == 1280
    monkeypatch.setattr(session, "reachable_memory", lambda device: 10**8)
    assert resume(folder).finished

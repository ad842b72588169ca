"""One tiny model, and traced runs of one step: with one optimizer update, and with two."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.explanation.chain.runs import make
from tests.tiny import save_tiny
from toishi.record import Run

SETTINGS = {"record.trace_when": ["first_step"], "record.trace_influence": True, "optimizer": {"lr": 1e-5, "name": "adamw"}}


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model") / "llama", "llama")


@pytest.fixture(scope="session")
def run(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make(tiny, tmp_path_factory.mktemp("run") / "run", **SETTINGS)


@pytest.fixture(scope="session")
def twice(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two optimizer updates in a step."""
    return make(tiny, tmp_path_factory.mktemp("twice") / "run", **SETTINGS, **{"train.inner_epochs": 2})

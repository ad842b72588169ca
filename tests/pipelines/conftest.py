"""One tiny model and one finished pipeline, which no test changes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.pipelines.making import read, run, small
from tests.tiny import save_tiny
from toishi.pipelines.running import PipelineView


@dataclass(frozen=True)
class Done:
    folder: Path
    view: PipelineView


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model") / "llama", "llama")


@pytest.fixture(scope="session")
def done(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Done:
    folder = tmp_path_factory.mktemp("pipeline")
    return Done(folder / "out", run(read(small(tiny), folder), folder / "out"))

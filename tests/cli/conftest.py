"""One tiny model and one finished run, made once by the command itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from tests.tiny import save_tiny
from toishi.cli.app import app


@dataclass(frozen=True)
class Ended:
    """What a command printed, and how it ended."""

    code: int
    out: str
    err: str


Command = Callable[..., Ended]


def run_command(*arguments: str | Path, width: int = 80) -> Ended:
    """Runs `toishi ARGUMENTS` in this process; an unexpected exception is raised, not swallowed."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": str(width)})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ended(result.exit_code, result.stdout, result.stderr)


@pytest.fixture(scope="session")
def toishi() -> Command:
    return run_command


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model") / "llama", "llama")


@pytest.fixture(scope="session")
def recipe(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six steps on sums with a reward that a random model can raise."""
    path = tmp_path_factory.mktemp("recipe") / "vowels.yaml"
    values = {
        "name": "vowels",
        "description": "Answer in vowels",
        "model": {"name": str(tiny), "dtype": "float32"},
        "task": {"name": "sums", "heldout": 4},
        "rewards": [{"name": "vowels", "function": "tests.making:vowels"}],
        "sampling": {"max_new_tokens": 8},
        "train": {"steps": 6, "prompts_per_step": 2, "group_size": 3},
        "optimizer": {"lr": 0.003},
        "evaluation": {"prompts": 4, "samples": 2, "every": 3},
        "checkpoint": {"every": 3},
    }
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path


@dataclass(frozen=True)
class Finished:
    folder: Path
    ended: Ended


@pytest.fixture(scope="session")
def finished(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("runs") / "first"
    return Finished(folder, run_command("train", recipe, "--out", folder))

"""What stands where: one JSON document on stdout, everything else on stderr; narrow encodings and readers that go away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Command, Finished
from toishi.record.reader import Run

NOISY = """
import os, subprocess, sys

def noisy(completions, **columns):
    print("a reward speaks")
    subprocess.run([sys.executable, "-c", "print('its child speaks')"], check=True)
    return [float(len(str(completion)) % 3) for completion in completions]
"""


@pytest.fixture(scope="module")
def noisy(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("noisy")
    (folder / "noisy.py").write_text(NOISY)
    values = yaml.safe_load(recipe.read_text())
    values["rewards"] = [{"name": "noisy", "function": f"{folder}/noisy.py:noisy"}]
    values["train"]["steps"] = 1
    values["evaluation"] = {"prompts": 0}
    values["record"] = {"folder": str(folder / "runs")}
    (folder / "noisy.yaml").write_text(yaml.safe_dump(values))
    return folder / "noisy.yaml"


def started(*arguments: str | Path, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "toishi", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | environment,
    )


def test_with_json_a_talking_reward_is_heard_on_stderr(noisy: Path) -> None:
    process = started("check", noisy, "--no-model", "--json")
    out, err = process.communicate(timeout=300)
    assert json.loads(out)["ok"] is True
    assert b"a reward speaks" in err
    assert b"its child speaks" in err
    assert process.returncode == 0


def test_with_json_a_talking_reward_is_heard_on_stderr_in_the_same_process_too(noisy: Path, toishi: Command) -> None:
    ended = toishi("check", noisy, "--no-model", "--json")
    assert json.loads(ended.out)["ok"] is True
    assert "a reward speaks" in ended.err
    assert "a reward speaks" in toishi("check", noisy, "--no-model").out


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "no_such_recipe"),
        ("train", "sums", "--set", "train=["),
        ("check", "sums", "--set", "train.steps=-1"),
        ("resume", "no_run"),
        ("explain", "no_run"),
        ("explain", "toy", "--first", "x"),
        ("replay", "no_run", "--step", "1"),
        ("evaluate", "no_model/x/y", "--recipe", "sums"),
        ("sample", "no_model/x/y", "hello"),
        ("algorithms", "no_algorithm"),
        ("recipes", "no_recipe"),
    ],
)
def test_with_json_an_error_is_json_too(arguments: tuple[str, ...], toishi: Command) -> None:
    plain, ended = toishi(*arguments), toishi(*arguments, "--json")
    document = json.loads(ended.out)
    assert set(document) == {"error", "kind"}
    assert document["kind"].endswith("Error")
    assert " ".join(document["error"].split()) in " ".join(ended.err.split())
    assert (ended.code, plain.code, plain.out) == (1, 1, "")


def test_a_narrow_encoding_ends_nothing(noisy: Path, finished: Finished, tmp_path: Path) -> None:
    process = started("train", noisy, "--out", tmp_path / "run", PYTHONIOENCODING="ascii")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "2 prompts ? 3 answers" in out.decode("ascii")
    process = started("explain", finished.folder, "--step", "1", "--json", PYTHONIOENCODING="ascii")
    document = json.loads(process.communicate(timeout=300)[0].decode("ascii"))
    assert document == json.loads(json.dumps(document))
    assert process.returncode == 0


def test_a_run_goes_on_when_its_reader_goes_away(recipe: Path, tmp_path: Path) -> None:
    process = started("train", recipe, "--out", tmp_path / "run", "--set", "train.steps=3", PYTHONUNBUFFERED="1")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    _, err = process.communicate(timeout=300)
    assert (process.returncode, b"Traceback" in err, b"BrokenPipe" in err) == (0, False, False), err
    assert Run.open(tmp_path / "run").steps == (1, 2, 3)


@pytest.mark.parametrize("arguments", [("algorithms",), ("algorithms", "--json"), ("recipes", "sums"), ("--help",)])
def test_other_commands_end_quietly_when_their_reader_is_gone(arguments: tuple[str, ...]) -> None:
    process = started(*arguments)
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=300)
    assert err == b""
    assert process.returncode in ((141,) if arguments != ("--help",) else (0, 1, 141))

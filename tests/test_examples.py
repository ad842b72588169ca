"""The ladder of examples runs, says what it should, and stays short enough to read."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
LADDER = sorted(path.name for path in EXAMPLES.glob("[0-9]*.py"))


def output(name: str) -> str:
    """What an example prints; warnings are errors there too."""
    quiet_threads = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "COLUMNS": "120"}
    finished = subprocess.run(
        [sys.executable, "-W", "error", name], cwd=EXAMPLES, env=os.environ | quiet_threads, capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "Warning" not in finished.stderr
    return finished.stdout


def test_the_ladder_is_complete() -> None:
    assert [name[:2] for name in LADDER] == ["01", "02", "03", "04"]


def test_one_step_by_hand() -> None:
    """Numbers of the worked step: computed by hand, by float64 autograd and by finite differences."""
    shown = output("01_one_step_by_hand.py")
    first = shown.split("first word")[1].split("second word")[0]
    for row in (
        "good 0.400 -0.223917 0.514035",
        "ok 0.300 -0.094281 0.297477",
        "bad 0.200 +0.094281 0.136013",
        "<end> 0.100 +0.223917 0.052475",
    ):
        assert row in re.sub(" +", " ", first)
    second = re.sub(" +", " ", shown.split("second word")[1])
    for row in ("good 0.100 +0.011785 0.093424", "bad 0.200 +0.023570 0.182496", "<end> 0.600 -0.047140 0.630656"):
        assert row in second
    for advantage in ("+1.414214", "+0.471405", "-0.942809"):
        assert advantage in shown
    assert "loss 0.000000" in shown
    assert "0.590000 -> 0.646261" in shown


def test_the_inline_loop_is_short_and_its_own() -> None:
    source = (EXAMPLES / "02_whole_loop_inline.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) < 150
    imported = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(source))
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [])
        + ([node.module or ""] if isinstance(node, ast.ImportFrom) else [])
    }
    assert "toishi" not in imported


def test_the_library_gives_the_numbers_of_the_inline_loop() -> None:
    shown = output("03_same_with_the_library.py")
    steps = re.findall(r"step (\d): mean reward (\S+) inline, (\S+) with toishi", shown)
    assert [number for number, _, _ in steps] == ["1", "2", "3"]
    assert all(by_hand == library for _, by_hand, library in steps)
    found = re.search(r"largest difference in any advantage, loss or final weight: (\S+)", shown)
    assert found is not None
    assert float(found.group(1)) < 1e-9


def test_own_reward_is_learned() -> None:
    found = re.search(r"held-out prompts: (\S+) before, (\S+) after 20 steps", output("04_own_reward.py"))
    assert found is not None
    assert float(found.group(2)) > float(found.group(1)) + 0.2


@pytest.mark.parametrize("name", LADDER)
def test_an_example_says_how_to_run_it(name: str) -> None:
    docstring = ast.get_docstring(ast.parse((EXAMPLES / name).read_text(encoding="utf-8"))) or ""
    assert f"python examples/{name}" in docstring

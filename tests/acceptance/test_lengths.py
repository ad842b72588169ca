"""The length tutorial on the bundled model: both recipes reach for their targets, and their trackers hold the record.

Thresholds, stated before the runs, on held-out prompts: each model's mean length, sampled as in training, has moved by more
than half of the way from the base model's to its target; the 95% intervals of short, base and long do not overlap; at most 5%
of a trained model's sampled answers are cut; greedy, the intervals of short and long do not overlap; a training takes at most
15 minutes on two cores that do nothing else (held here by CPU seconds / 2).

Half an hour on two cores; `make test-all` runs it.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.track.reading import assert_both_hold_the_record
from toishi.recipes import load_recipe
from toishi.record.reader import Run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.bundled,
    pytest.mark.timeout(7200),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

CPU_S = 2 * 15 * 60
TARGETS = {name: load_recipe(f"length-{name}").rewards[0].options["target"] for name in ("short", "long")}


def start(*arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {"WANDB_MODE": "offline", "PYTHONPATH": os.pathsep.join(["src", "."])}
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-m", "toishi", *arguments], cwd=root, env=environment, text=True, stdout=subprocess.PIPE
    )


def lines_of(folder: Path) -> int:
    path = folder / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float]]:
    """Both runs with both trackers (the short one killed after step 8 and resumed), and the CPU seconds of each."""
    folder, spent = tmp_path_factory.mktemp("lengths"), {}
    for name in TARGETS:
        before = cpu_seconds()
        run = folder / name
        process = start("train", f"length-{name}", "--out", str(run), "--set", "track=[wandb,tensorboard]")
        if name == "short":
            while process.poll() is None and lines_of(run) < 8:
                time.sleep(0.2)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            process = start("resume", str(run))
        process.communicate()
        assert process.returncode == 0
        spent[name] = cpu_seconds() - before
    return folder, spent


@pytest.fixture(scope="module")
def compared(trained: tuple[Path, dict[str, float]]) -> dict[tuple[str, str], dict[str, Any]]:
    """(model, mode) -> what `toishi compare --json` says."""
    folder = trained[0]
    process = start("compare", "bundled", str(folder / "short"), str(folder / "long"), "--json")
    out, _ = process.communicate()
    assert process.returncode == 0
    return {(found["model"], found["mode"]): found for found in json.loads(out)["models"]}


@pytest.mark.parametrize("name", TARGETS)
def test_a_model_has_moved_more_than_half_of_the_way(compared: Any, name: str) -> None:
    base, found = (compared[model, "sampled"]["mean_tokens"] for model in ("bundled", name))
    assert (found - base) / (TARGETS[name] - base) > 0.5, f"{base:.1f} -> {found:.1f}, target {TARGETS[name]}"


@pytest.mark.parametrize(("mode", "models"), [("sampled", ("short", "bundled", "long")), ("greedy", ("short", "long"))])
def test_the_intervals_are_disjoint(compared: Any, mode: str, models: tuple[str, ...]) -> None:
    intervals = [compared[model, mode]["interval"] for model in models]
    for shorter, longer in pairwise(intervals):
        assert shorter[1] < longer[0]


@pytest.mark.parametrize("name", TARGETS)
def test_few_answers_are_cut(compared: Any, name: str) -> None:
    assert compared[name, "sampled"]["truncated"] <= 0.05


def test_the_targets_are_half_and_1_6_times_the_base_length(compared: Any) -> None:
    base = compared["bundled", "sampled"]["mean_tokens"]
    assert TARGETS["short"] == pytest.approx(0.5 * base, rel=0.1)
    assert TARGETS["long"] == pytest.approx(1.6 * base, rel=0.1)


@pytest.mark.parametrize("name", TARGETS)
def test_time(trained: tuple[Path, dict[str, float]], name: str) -> None:
    assert trained[1][name] <= CPU_S


@pytest.mark.parametrize("name", TARGETS)
def test_trackers_hold_the_record(trained: tuple[Path, dict[str, float]], name: str) -> None:
    folder = trained[0] / name
    run = Run.open(folder)
    assert [event for event in run.events if event["kind"] == "tracker" and " is off" in event["message"]] == []
    assert_both_hold_the_record(folder, run.steps[-1])

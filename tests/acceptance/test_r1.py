"""The shipped pipeline r1 on the bundled model: killed in the middle of its RL, gone on, ended, and judged.

A quarter of an hour on two quiet cores; `make test-all` runs it. Which stages help is what the report is for, not this test.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from toishi.record.reader import Run

pytestmark = [pytest.mark.slow, pytest.mark.bundled, pytest.mark.timeout(3600)]
ROOT = Path(__file__).parents[2]


def start(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [sys.executable, "-m", "toishi", "pipeline", "r1", "--out", str(folder), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)


def steps_of(folder: Path, stage: str) -> int:
    return sum(path.read_bytes().count(b"\n") for path in folder.glob(f"stages/{stage}/*/run/metrics.jsonl"))


def test_r1_ends_after_a_kill_and_says_what_each_stage_gained(tmp_path: Path) -> None:
    folder, began = tmp_path / "r1", time.monotonic()
    first = start(folder, "--json")
    while steps_of(folder, "rl_reasoning") < 8 and first.poll() is None:
        time.sleep(0.2)
    first.send_signal(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    told, _ = start(folder, "--json").communicate()
    report = json.loads(told)
    assert time.monotonic() - began < 3600
    assert report["finished"]
    states = {stage["name"]: (stage["state"], stage["sittings"]) for stage in report["stages"]}
    assert states["cold_start"] == states["sft_cold"] == ("kept", 1)
    assert states["rl_reasoning"] == ("finished", 2)
    aims = {(stage["name"], aim) for stage in report["stages"] for aim in stage["aim"]}
    assert aims <= {(gain["stage"], gain["measure"]) for gain in report["gains"]}
    for gain in report["gains"]:
        assert gain["interval"][0] <= gain["change"] <= gain["interval"][1]
    for run in folder.glob("stages/*/*/run"):
        assert Run.open(run).steps == tuple(range(1, steps_of(folder, run.parents[1].name) + 1))
    assert "<h1>Pipeline r1</h1>" in (folder / "report.html").read_text("utf-8")

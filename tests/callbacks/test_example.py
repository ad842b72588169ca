"""examples/trl_recorder.py runs, and says that its folder is whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_example_runs() -> None:
    done = subprocess.run(
        [sys.executable, "trl_recorder.py"],
        cwd=EXAMPLES,
        env=os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "steps on record: 4; audit: whole\nnot on record: sft\n" in done.stdout
    assert "after the step it is" in done.stdout

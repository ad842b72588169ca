"""The estimate against the peak resident size of whole runs, each in a fresh process. Minutes; `make test-all` runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.bundled,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from /proc"),
]

ONE_RUN = """
import json, sys
from pathlib import Path
import toishi.loop, toishi.session
plans = []
planned = toishi.session.planned
toishi.session.planned = lambda *given: plans.append(planned(*given)) or plans[-1]
from toishi.recipes import load_recipe
toishi.loop.train(load_recipe("sums", json.loads(sys.argv[1])), Path(sys.argv[2]))
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(json.dumps({"needed": plans[0].estimate.needed, "peak": int(peak.split()[1]) * 1024}))
"""
BASE = {"train.steps": 2, "evaluation.prompts": 0, "model.dtype": "bfloat16", "sampling.max_new_tokens": 64}
SHAPES: dict[str, dict[str, object]] = {
    "all weights": {},
    "fp32": {"model.dtype": "float32"},
    "adapters": {"model.lora": {}},
    "sgd": {"optimizer.name": "sgd"},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_estimate_is_within_a_fifth_of_the_peak(shape: str, tmp_path: Path) -> None:
    given = json.dumps(BASE | SHAPES[shape])
    done = subprocess.run(
        [sys.executable, "-c", ONE_RUN, given, str(tmp_path / "run")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["needed"] == pytest.approx(found["peak"], rel=0.2)

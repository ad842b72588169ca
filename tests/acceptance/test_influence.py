"""Who moved what, on a real model: accounts of ten updates by four optimizers, and what an account costs.

Minutes on two cores; `make test-all` runs it.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toishi.api import train
from toishi.record.influence import Influence
from toishi.record.influence_files import read_influence

pytestmark = [pytest.mark.slow, pytest.mark.bundled, pytest.mark.timeout(3600)]

SMALL: dict[str, Any] = {
    "model.dtype": "float32",
    "rewards": [{"name": "vowels", "kind": "function", "function": "tests.making:vowels"}],
    "train.prompts_per_step": 1,
    "train.group_size": 8,
    "sampling.max_new_tokens": 24,
    "evaluation.prompts": 0,
    "checkpoint.every": 0,
    "record.trace_influence": True,
}
RUNS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "sgd": ({"optimizer.name": "sgd", "optimizer.lr": 2e-3}, (1, 2, 3)),
    "fresh adamw": ({"optimizer.lr": 1e-6, "seed": 1}, (1,)),
    "warmed adamw": ({"optimizer.lr": 1e-6, "seed": 2}, (4, 5, 6)),
    "lora": ({"optimizer.lr": 3e-5, "model.lora": {"rank": 16}}, (1, 2, 3)),
}


@pytest.fixture(scope="module")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Influence]:
    """Ten updates: name and step -> account."""
    found: dict[str, Influence] = {}
    for name, (changes, steps) in RUNS.items():
        folder = tmp_path_factory.mktemp(name.replace(" ", "-")) / "run"
        every = {"record.trace_every": 1, "train.steps": max(steps)}
        train("sums", overrides=SMALL | every | changes, folder=folder, quiet=True)
        found |= {f"{name} {step}": read_influence(folder, step) for step in steps}
    return found


def test_straight_lines_explain_what_was_measured(accounts: dict[str, Influence]) -> None:
    assert len(accounts) == 10
    too_far = [name for name, account in accounts.items() if account.trust == "too_far"]
    assert len(too_far) <= 2, too_far
    for name, account in accounts.items():
        if name not in too_far:
            assert account.gap <= 0.01 + 0.06 * account.largest, name


def test_the_answers_gradients_add_up_to_the_updates(accounts: dict[str, Influence]) -> None:
    for name, account in accounts.items():
        print(f"{name}: sum error {account.sum_error:.2e}, gap {account.gap:.4f}, largest change {account.largest:.3f} nats")
    for name, account in accounts.items():
        assert account.sum_error <= 1e-5, name
        assert account.norm_from_products == pytest.approx(account.gradient_norm, rel=1e-4), name


def test_causes_and_shares_add_up(accounts: dict[str, Influence]) -> None:
    for name, account in accounts.items():
        assert account.refused == "", name
        assert math.fsum(text.share for text in account.texts) + account.fixed_share == pytest.approx(1.0, abs=1e-9), name
        for text in account.texts:
            causes = (text.own, text.others, text.fixed, text.history, text.decay, text.rounding, text.rest)
            assert math.fsum(causes) == pytest.approx(text.measured, abs=1e-9), name


COST = """
import json, sys, time
from pathlib import Path
from benchmarks.protocol import peak_bytes
from toishi import api, loop
steps, plain = [], loop.train_step
def clocked(*args, **named):
    begin = time.process_time()
    found = plain(*args, **named)
    steps.append(time.process_time() - begin)
    return found
loop.train_step = clocked
overrides, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
api.train("sums", overrides=overrides, folder=folder, quiet=True)
print(json.dumps({"seconds": steps, "peak": peak_bytes()}))
"""


def cost(folder: Path, changes: dict[str, Any]) -> tuple[float, float]:
    """CPU-seconds of the second step, and the process's peak memory."""
    overrides = json.dumps(SMALL | {"train.steps": 2, "optimizer.lr": 1e-6} | changes)
    command = [sys.executable, "-c", COST, overrides, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return found["seconds"][1], found["peak"]


def test_an_account_costs_less_than_three_more_steps(tmp_path: Path) -> None:
    plain_s, plain_bytes = cost(tmp_path / "plain", {})
    traced_s, traced_bytes = cost(tmp_path / "traced", {"record.trace_every": 1})
    print(f"CPU-seconds: traced {traced_s:.2f}, plain {plain_s:.2f}, {traced_s / plain_s:.2f}x")
    print(f"GB at most: traced {traced_bytes / 1e9:.2f}, plain {plain_bytes / 1e9:.2f}, {traced_bytes / plain_bytes:.2f}x")
    assert traced_s < 4 * plain_s, (traced_s, plain_s)
    assert traced_bytes < 1.5 * plain_bytes, (traced_bytes, plain_bytes)

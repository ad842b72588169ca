"""Forecasts of 30 random changes on a real model, each beside the step really done again with the change.

Five prompts, each with its own optimizer: SGD, a fresh AdamW, a warmed one with weight decay, LoRA, and a KL term. Minutes on
two cores; `make test-all` runs it. The half-width is `ops.influence_bounds.half_widths` as it stands; nothing is fitted here.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from toishi.api import train
from toishi.counterfactual.answering import answer, with_real
from toishi.counterfactual.change import Change, change_of
from toishi.counterfactual.model import Moved, WhatIf
from toishi.counterfactual.recorded import RecordedStep, read_step
from toishi.counterfactual.redo import redo_changed, redone
from toishi.record import Run
from toishi.replay.plan import plan_replay

pytestmark = [pytest.mark.slow, pytest.mark.bundled, pytest.mark.timeout(3600)]

SMALL: dict[str, Any] = {
    "model.dtype": "float32",
    "rewards": [{"name": "vowels", "kind": "function", "function": "tests.making:vowels"}],
    "train.prompts_per_step": 1,
    "train.group_size": 8,
    "sampling.max_new_tokens": 24,
    "evaluation.prompts": 0,
    "checkpoint.every": 1,
    "checkpoint.keep_last": 2,
    "record.trace_influence": True,
}
RUNS: dict[str, tuple[int, dict[str, Any]]] = {
    "sgd": (1, {"optimizer.name": "sgd", "optimizer.lr": 2e-3, "seed": 11}),
    "fresh adamw": (1, {"optimizer.lr": 1e-6, "seed": 12}),
    "warmed adamw": (5, {"optimizer.lr": 1e-6, "optimizer.weight_decay": 0.1, "seed": 13}),
    "lora": (1, {"optimizer.lr": 3e-5, "model.lora": {"rank": 16}, "seed": 14}),
    "kl": (2, {"optimizer.lr": 1e-6, "algorithm": {"name": "grpo", "kl": "k3", "kl_coef": 0.1}, "seed": 15}),
}
CHANGES = 6


def changes_of(step: RecordedStep, seed: int) -> Iterator[Change]:
    """Random scores for one to three answers; one in six has another scale, one leaves an answer out where that is exact."""
    rng = random.Random(seed)
    members = [rollout.id.member for rollout in step.report.rollouts]
    for number in range(CHANGES):
        picked = rng.sample(members, rng.randint(1, 3))
        drop = [picked.pop()] if number == 4 and len(picked) > 1 and not step.settings.algorithm.moves_without_advantage else []
        scores: dict[int | str | tuple[str, int], float] = {member: round(rng.random(), 2) for member in picked}
        yield change_of(scores, drop, {"algorithm.scale": "none"} if number == 5 else None)


@dataclass(frozen=True)
class Case:
    """A change forecast and redone; CPU-seconds of the forecast, after the record was read."""

    name: str
    found: WhatIf
    cpu_s: float

    @property
    def moved(self) -> list[Moved]:
        return [each.moved for each in self.found.answers]

    @property
    def error(self) -> float:
        """|forecast - real| / |real| over the group's answers."""
        apart = math.hypot(*((one.forecast or 0.0) - (one.real or 0.0) for one in self.moved))
        return apart / math.hypot(*(one.real or 0.0 for one in self.moved))


def cases(name: str, folder: Path) -> list[Case]:
    """Trains, then asks and redoes."""
    number, settings = RUNS[name]
    overrides = SMALL | settings | {"train.steps": number, "record.trace_every": number}
    run = Run.open(train("sums", overrides=overrides, folder=folder, quiet=True).folder)
    step = read_step(run, number, 0)
    asked = list(changes_of(step, settings["seed"]))
    answer(step, 0, asked[0])  # what is kept of the real step is made once
    done, report = redo_changed(step, plan_replay(run, number), [(0, change) for change in asked])
    assert report.bit_for_bit
    found = []
    for change, real in zip(asked, done, strict=True):
        started = time.process_time()
        plain = answer(step, 0, change)
        spent = time.process_time() - started
        found.append(Case(name, with_real(plain, real.changes, redone=redone(real, report)), spent))
    return found


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    return [case for name in RUNS for case in cases(name, tmp_path_factory.mktemp("run") / "run")]


def judge(found: list[Case]) -> dict[str, float]:
    """The numbers that are promised, over all forecasts of all changes."""
    given = [case for case in found if case.found.refused == "" and case.found.trust != "too_far"]
    moved = [one for case in given for one in case.moved]
    determined = [one for one in moved if one.verdict in ("up", "down")]
    inside = [abs((one.forecast or 0.0) - (one.real or 0.0)) <= (one.half_width or 0.0) for one in moved]
    return {
        "changes": len(found),
        "with numbers": len(given),
        "forecasts": len(moved),
        "inside": sum(inside) / len(moved),
        "wrong signs": sum((one.verdict == "up") != ((one.real or 0.0) > 0) for one in determined),
        "undetermined": 1 - len(determined) / len(moved),
        "median error": statistics.median(case.error for case in given),
        "worst error": max(case.error for case in given),
        "median half-width": statistics.median(one.half_width or 0.0 for one in moved),
        "median cpu_s": statistics.median(case.cpu_s for case in found),
    }


def table(found: list[Case]) -> str:
    """The same numbers for each kind of run, and for all."""
    rows = {name: judge([case for case in found if case.name == name]) for name in RUNS} | {"all": judge(found)}
    lines = [f"{'':18}" + "".join(f"{name:>14}" for name in rows)]
    lines += [f"{what:18}" + "".join(f"{row[what]:14.4g}" for row in rows.values()) for what in rows["all"]]
    return "\n" + "\n".join(lines)


def test_forecasts_hold_what_they_say(everything: list[Case]) -> None:
    found = judge(everything)
    print(table(everything))
    assert found["changes"] == len(RUNS) * CHANGES
    assert found["with numbers"] >= 0.9 * found["changes"], found
    assert found["inside"] >= 0.95, found
    assert found["wrong signs"] == 0, found
    assert found["undetermined"] <= 0.15, found
    assert found["median error"] <= 0.05, found


def test_an_answer_takes_less_than_a_twentieth_of_a_second(everything: list[Case]) -> None:
    assert judge(everything)["median cpu_s"] < 0.05

"""`toishi whatif` on a real run of a tiny model: forecasts beside the step really done again, and what cannot be answered."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import toishi
from tests.cli.conftest import Ended, run_command
from tests.counterfactual.conftest import SETTINGS
from tests.explanation.chain import runs
from tests.explanation.chain.runs import make
from toishi.counterfactual.model import AnswerChange, WhatIf
from toishi.counterfactual.render import render_whatif
from toishi.counterfactual.words import times
from toishi.errors import ConfigError, RecordError
from toishi.record import Run
from toishi.record.trace_files import trace_folder


def asked(run: Run, *options: str, width: int = 160) -> Ended:
    return run_command("whatif", run.folder, "--step", "1", "--group", "0", *options, width=width)


def member(found: WhatIf, number: int) -> AnswerChange:
    return next(each for each in found.answers if each.member == number)


def test_forecast_and_redo_agree(run: Run) -> None:
    found = toishi.whatif(
        run.folder, step=1, group=0, scores={("judge", 0): 0.1, "judge:2": 1.0}, drop=[1], real=True, quiet=True
    )
    assert found.redone is not None
    assert found.redone.bit_for_bit
    assert found.refused == ""
    third = member(found, 2)
    assert (third.reward_before, third.reward_after) == (None, 2.25)
    assert third.left_out == ""
    assert third.advantage_after == pytest.approx(max(float(each.advantage_after or 0.0) for each in found.answers))  # type: ignore[arg-type]
    assert member(found, 1).left_out == "left out (what if)"
    moved = [each.moved for each in found.answers] + [one for one in found.others if one.kind == "rollout"]
    largest = max(abs(one.real or 0.0) for one in moved)
    for one in moved:
        assert one.forecast == pytest.approx(one.real, abs=0.05 * largest)
        assert one.verdict in ("direction not determined", "up" if (one.real or 0.0) > 0 else "down")
    assert [one.real is None for one in found.others if one.kind != "rollout"] == [True] * 3


def test_json_holds_what_is_printed(run: Run) -> None:
    ended = asked(run, "--score", "judge:0=0.1", "--json")
    assert ended.code == 0
    found = json.loads(ended.out)
    assert found["question"] == "If #0 had got 0.1 from judge"
    assert found["answers"][0]["scores"][0] == {"reward": "judge", "before": 0.75, "after": 0.1}
    assert found["answers"][0]["moved"]["half_width"] > 0
    assert found["redone"] is None
    shown = asked(run, "--score", "judge:0=0.1")
    assert "0.75 -> 0.1" in shown.out
    assert "estimate" in shown.out
    assert "If #0 had got 0.1 from judge: #0 would go from" in shown.out
    assert "4 answers of other groups" in shown.out


@pytest.mark.parametrize("width", [80, 100, 160])
def test_numbers_have_room_beside_long_answers(width: int, run: Run) -> None:
    found = toishi.whatif(run.folder, step=1, group=0, scores={"judge:0": 0.1}, quiet=True)
    long = tuple(
        replace(each, text="a long answer " * 40, moved=replace(each.moved, real=each.moved.forecast)) for each in found.answers
    )
    shown = StringIO()
    render_whatif(replace(found, answers=long), Console(width=width, file=shown))
    lines = shown.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    words = " ".join(shown.getvalue().split())
    assert "score advantage measured new real" in words
    for each in found.answers:
        assert each.moved.forecast is not None
        assert any(times(each.moved.forecast) in line and "a long answer"[:9] in line for line in lines)


def test_an_answer_needs_no_transformers(run: Run) -> None:
    """The model is not loaded, so neither is what loads it: it would take longer than everything else."""
    command = ["whatif", str(run.folder), "--step", "1", "--group", "0", "--score", "judge:0=0.1"]
    code = (
        f"import sys\nfrom toishi.cli.app import app\napp({command!r}, standalone_mode=False)\n"
        "print(sorted({'transformers', 'peft', 'toishi.engines.torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "#0 would go from" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_cost_of_a_redo_is_said_first(run: Run) -> None:
    ended = asked(run, "--score", "judge:0=0.1", "--real")
    assert ended.code == 0
    assert "doing 1 step (1) again from checkpoint step_000000" in ended.err
    assert "then step 1 once more with the change" in ended.err
    assert "really redone" in ended.out


def test_a_tied_group_is_explained(run: Run) -> None:
    ended = asked(run, *(part for place in range(4) for part in ("--score", f"judge:{place}=0.5")))
    assert ended.code == 0
    assert "Nothing would be left to compare in this group" in " ".join(ended.out.split())
    assert "no optimizer step would be made" in " ".join(ended.out.split())


def test_another_learning_rate_needs_a_redo(run: Run) -> None:
    found = toishi.whatif(run.folder, step=1, group=0, set={"optimizer.lr": 2e-5}, real=True, quiet=True)
    assert "optimizer.lr is another one" in found.refused
    assert "--real" in found.refused
    best = member(found, 0).moved
    assert best.forecast is None
    assert best.verdict == "no number"
    assert best.real is not None
    assert best.measured is not None
    assert best.real == pytest.approx(2 * best.measured, rel=0.1)


def test_a_limit_that_holds_nothing_back(run: Run) -> None:
    found = toishi.whatif(run.folder, step=1, group=0, set={"optimizer.max_grad_norm": None}, quiet=True)
    assert found.refused == ""
    assert found.clip_factor[1] == 1.0


def test_several_updates_need_a_redo(twice: Run) -> None:
    ended = asked(twice, "--score", "judge:0=0.1", "--update", "1")
    assert ended.code == 0
    words = " ".join(ended.out.split())
    assert "the step made 2 optimizer updates, and update 1 starts from weights that the change would have moved" in words
    found = toishi.whatif(twice.folder, step=1, group=0, scores={"judge:0": 0.1}, real=True, quiet=True)
    assert "an account of the first does not say what all of them did" in found.refused
    assert member(found, 0).moved.real is not None
    with pytest.raises(ConfigError, match="has 2 optimizer updates"):
        toishi.whatif(twice.folder, step=1, group=0, scores={"judge:0": 0.1}, update=2, quiet=True)


def test_without_an_account_advantages_are_given_all_the_same(run: Run, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run.folder, tmp_path / "copy"))
    (trace_folder(folder, 1) / "influence.json").unlink()
    found = toishi.whatif(folder, step=1, group=0, scores={"judge:0": 0.1}, quiet=True)
    assert "who moved what in step 1 is not on record" in found.refused
    assert "--influence" in found.refused
    weights = member(found, 0)
    assert weights.advantage_after != weights.advantage_before
    assert weights.token_weights_after is not None


def test_a_rule_that_no_score_moves_is_answered(run: Run) -> None:
    """Entropy alone: no token's log-prob is pushed, whatever the advantages."""
    ended = asked(run, "--set", "algorithm=entropy_only", "--json")
    assert ended.code == 0
    found = json.loads(ended.out)
    assert {weight for answer in found["answers"] for weight in answer["token_weights_after"] or ()} == {0.0}


def test_a_step_that_taught_nothing_says_so(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "MIXED", (0.5,) * 4)
    tied = make(tiny, tmp_path / "run", **SETTINGS)
    found = toishi.whatif(tied.folder, step=1, group=0, scores={"judge:0": 0.1}, quiet=True)
    assert found.refused.startswith("step 1 taught nothing, so its update moved nothing and nothing was measured. Do the step")
    assert member(found, 0).advantage_after != 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--score", "0=1"], "which reward's score? Say --score NAME:0=1; the rewards are: judge, style"),
        (["--score", "judge:9=1"], "group 0 has no answer 9; it has: 0, 1, 2, 3"),
        (["--drop", "0", "--drop", "1"], "1 of 4 answers count (3)"),
        (["--set", "train.steps=3"], "only algorithm.* and optimizer.* can change"),
        (["--set", "algorithm.scle=none"], "did you mean 'scale'?"),
        (["--set", "optimizer.name=sgd"], "the step's optimizer is adamw"),
        (["--set", "algorithm={name: grpo, kl: k3, kl_coef: 0.1}"], "kept no log-probs under the reference model"),
        ([], "nothing is changed"),
    ],
)
def test_messages(options: list[str], words: str, run: Run) -> None:
    ended = asked(run, *options)
    assert ended.code == 1
    assert words in " ".join(ended.err.split())


def test_a_step_or_group_that_is_not_there(run: Run) -> None:
    given: dict[str, Any] = {"scores": {"judge:0": 1.0}, "quiet": True}
    with pytest.raises(RecordError, match="step 7 is not on record"):
        toishi.whatif(run.folder, step=7, group=0, **given)
    with pytest.raises(ConfigError, match="the step has no group 5; it has: 0, 1"):
        toishi.whatif(run.folder, step=1, group=5, **given)


def test_too_large_a_step_has_no_numbers(tiny: Path, tmp_path: Path) -> None:
    far = make(tiny, tmp_path / "far", **SETTINGS | {"optimizer": {"lr": 0.3}})
    found = toishi.whatif(far.folder, step=1, group=0, scores={"judge:0": 0.1}, quiet=True)
    assert found.trust == "too_far"
    assert all(each.moved.forecast is None for each in found.answers)
    assert "too large for a linear story" in asked(far, "--score", "judge:0=0.1").out
    assert math.isfinite(found.seconds)

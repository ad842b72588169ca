"""What explain says of a step is what the record holds, with formulas that come out."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.explanation.builders import CONFIG, build, write_run
from tests.record.builders import RUN_FIELDS
from toishi.algorithms.apply import assign_advantages
from toishi.algorithms.rows import ROWS, Algorithm
from toishi.errors import RecordError
from toishi.explanation.curve import reward_curve, sparkline
from toishi.explanation.formula import formula, worked
from toishi.explanation.overview import overview, render_overview, worth_a_look
from toishi.explanation.render import _score_cell, render_step
from toishi.explanation.step import step_report
from toishi.record import Run, RunWriter
from toishi.record.files import write_json
from toishi.types import Group, Score, StepReport


def printed(render: Any, view: Any, width: int = 100) -> str:
    console = Console(width=width, record=True, file=StringIO())
    render(view, console)
    return str(console.export_text())


def run_with(folder: Path, report: StepReport, **row: Any) -> Run:
    config = CONFIG | {"algorithm": CONFIG["algorithm"] | row}
    RunWriter.create(folder, {**RUN_FIELDS, "config": config}).write_step(report)
    return Run.open(folder)


def test_step_view_holds_the_records_numbers(tmp_path: Path) -> None:
    view = step_report(write_run(tmp_path / "run"), 1)
    first = view.groups[0]
    assert view.formula == "advantage = (reward - mean) / (std + 0.0001)"
    assert [member.reward for member in first.members] == [2.125, 0.125, None, 0.625]
    assert (first.prompt, first.gold, first.count) == ("What is 0 + 6?", "6", 3)
    assert first.mean == pytest.approx(2.875 / 3, abs=1e-12)
    assert first.worked == "member 0: (2.125 - 0.9583) / (1.0408 + 0.0001) = +1.1208"
    assert first.summary == "mean 0.958, std 1.041 over 3 of 4 answers (the others are left out)"
    assert first.members[2].left_out == "reward number: timed out"
    assert first.members[2].weight_sum is None
    streams = build(1).updates[0].streams
    assert first.members[0].weight_sum == sum(streams[0].token_weight)
    tied = view.groups[1]
    assert tied.summary.endswith("all equal, so there is nothing to compare: advantage 0")
    assert tied.worked == ""
    assert view.sentence.startswith(
        "step 1 (grpo): 6 answers to 2 prompts, mean reward 1.025, 1 without a reward, 1 of 2 groups mixed"
    )


@pytest.mark.parametrize("width", [80, 100, 140])
def test_step_is_printed_within_the_width(tmp_path: Path, width: int) -> None:
    text = printed(render_step, step_report(write_run(tmp_path / "run"), 1), width)
    assert max(map(len, text.splitlines())) <= width
    for piece in ("number", "×2", "failed", "it abstained", "member 2 is left out: reward number: timed out", "limit"):
        assert piece in text
    assert "\x1b" not in text
    assert "it is [six]" in text, "square brackets of an answer are no markup"


def test_step_as_json(tmp_path: Path) -> None:
    view = json.loads(json.dumps(step_report(write_run(tmp_path / "run"), 1).as_dict()))
    assert view["groups"][0]["members"][0]["scores"][0]["reason"] == "read 1.0"
    assert view["updates"][1]["update/tokens"] == 12.0


def test_dropped_groups_say_why(tmp_path: Path) -> None:
    report = build(1)
    groups = tuple(
        replace(group, baseline=replace(group.baseline, kept=False, why="tied: both got 1.125")) if number else group
        for number, group in enumerate(report.groups)
        if group.baseline
    )
    view = step_report(run_with(tmp_path / "run", replace(report, groups=groups), filter="drop_tied"), 1)
    assert view.groups[1].summary == "mean 1.125, std 0.000 over 2 answers; dropped: tied: both got 1.125"
    assert "dropped: tied: both got 1.125" in printed(render_step, view)


def test_masked_abstained_and_empty_answers_say_why(tmp_path: Path) -> None:
    report = build(1)
    group = report.groups[0]
    silent = replace(group.rollouts[3], reward=None, scores=(), completion=replace(group.rollouts[3].completion, text=""))
    groups = (replace(group, rollouts=(*group.rollouts[:3], silent)), replace(report.groups[1], baseline=None))
    view = step_report(run_with(tmp_path / "run", replace(report, groups=groups), truncation="mask"), 1)
    assert [member.left_out for member in view.groups[0].members] == [
        "", "cut by the token limit (truncation: mask)", "reward number: timed out", "no reward applies to it (all abstained)"
    ]  # fmt: skip
    assert view.groups[1].summary == "no baseline was computed"
    assert "(empty)" in printed(render_step, view)


def test_many_rewards_and_parts_share_a_column(tmp_path: Path) -> None:
    report = build(1)
    group = report.groups[0]
    score = group.rollouts[0].scores[0]
    many = tuple(replace(score, reward=name, weight=1.0) for name in ("a", "b", "c", "d", "d"))
    groups = (replace(group, rollouts=(replace(group.rollouts[0], scores=many, advantage=(0.5, -0.5)),)), report.groups[1])
    text = printed(render_step, step_report(run_with(tmp_path / "run", replace(report, groups=groups, updates=())), 1), 140)
    assert "+0.500…-0.500" in text
    assert re.search(r"a 1, b 1, c 1, d 2", " ".join(text.split()))


def test_unreadable_config_is_an_error(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    write_json(run.folder / "run.json", dict(run.run) | {"config": {}})
    with pytest.raises(RecordError, match=r"config\.algorithm or config\.sampling cannot be read"):
        step_report(Run.open(run.folder), 1)
    with pytest.raises(RecordError, match="step 9 is not on record"):
        step_report(run, 9)


FORMULAS = {
    "reinforce": "advantage = reward",
    "reinforce_pp": "advantage of a token = (reward from it on - mean of the step) / (std of the step + 1e-08)",
    "rloo": "advantage = reward - mean of its siblings",
    "grpo": "advantage = (reward - mean) / (std + 0.0001)",
    "dr_grpo": "advantage = reward - mean",
    "dapo": "advantage = (reward - mean) / (std + 0.0001)",
    "gspo": "advantage = (reward - mean) / (std + 0.0001)",
    "cispo": "advantage = (reward - mean) / (std + 0.0001)",
    "raft": "advantage = 1 for the best answers of a group if their reward is above 0, and 0 for the others",
    "reinforce_rej": "advantage = 2·reward - 1",
    "entropy_only": "advantages are not used: only the entropy and KL terms teach",
}


@pytest.mark.parametrize("name", sorted(FORMULAS))
def test_formula_of_a_row(name: str) -> None:
    assert formula(ROWS[name]) == FORMULAS[name]


def test_formula_of_changed_choices() -> None:
    row = ROWS["dr_grpo"]
    assert formula(row.model_copy(update={"filter": "keep_positive"})).endswith("reward - mean, and 0 where that is negative")
    assert formula(row.model_copy(update={"truncation": "soft_penalty"})) == "advantage = reward + length penalty - mean"
    kl = row.model_copy(update={"kl": "k1_in_reward", "kl_coef": 0.1})
    assert formula(kl) == "advantage = reward - 0.1·Σ(log p - log p_ref) - mean"
    assert formula(row.model_copy(update={"scale": "group_std", "std_epsilon": 0.0})) == "advantage = (reward - mean) / std"


def value_of(expression: str) -> float:
    assert re.fullmatch(r"[-+*/(). 0-9e]+", expression)
    return float(eval(expression))


CHANGES: list[dict[str, Any]] = [{}, {"filter": "keep_positive"}, {"truncation": "soft_penalty", "soft_penalty_tokens": 7}]


COMPARING = {name for name, row in ROWS.items() if row.credit != "preference" and not row.needs_teacher}
WORKED = [(name, changes) for name in sorted(COMPARING - {"raft", "raft_pp", "entropy_only"}) for changes in CHANGES]


@pytest.mark.parametrize(("name", "changes"), [pair for pair in WORKED if pair != ("maxrl", CHANGES[2])])
def test_worked_line_comes_out(name: str, changes: dict[str, Any]) -> None:
    row = Algorithm.model_validate(ROWS[name].model_dump() | changes)
    groups = assign_advantages(build(1).groups, row, max_new_tokens=8)
    line = worked(groups[0], groups, row, 8)
    match = re.fullmatch(r"(?:first token of )?member (\d): (.*) = ([-+][0-9.]+)", line)
    assert match, line
    rollout = groups[0].rollouts[int(match[1])]
    assert value_of(match[2]) == pytest.approx(rollout.advantage_per_token[0], abs=2e-3)
    assert float(match[3]) == pytest.approx(rollout.advantage_per_token[0], abs=5e-5)


def test_no_worked_line_where_it_would_not_come_out() -> None:
    groups = build(1).groups
    row = Algorithm.model_validate(CONFIG["algorithm"])
    assert worked(groups[0], groups, row, 8) != ""
    wrong = replace(groups[0], rollouts=(replace(groups[0].rollouts[0], advantage=1.2), *groups[0].rollouts[1:]))
    assert worked(wrong, groups, row, 8) == ""
    for other in ("raft", "entropy_only"):
        assert worked(groups[0], groups, ROWS[other], 8) == ""
    nobody: Group = replace(groups[0], rollouts=(groups[0].rollouts[2],))
    assert worked(nobody, groups, row, 8) == ""


def test_overview_of_a_run(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", steps=3)
    view = overview(run)
    text = printed(render_overview, view)
    for piece in (
        "3 steps on record, algorithm grpo",
        "reward/mean",
        "0.625 [0.525, 0.725]",
        "health: step 1: one reward failed",
        "step 1 is worth a look: 1 answers without a reward; health warning",
        f"toishi explain {run.folder} --step 1",
    ):
        assert piece in text
    assert json.loads(json.dumps(view.as_dict()))["steps"][2]["reward/mean"] == run.step(3).metrics["reward/mean"]


def test_the_overviews_evaluations_keep_their_numbers_at_80_columns(tmp_path: Path) -> None:
    line = {
        "step": 30, "mode": "sampled", "num_prompts": 64, "value": -0.8125, "interval": [-0.9125, -0.7125], "readable": 0.5,
        "mean_tokens": 123.4, "change": -0.52, "change_interval": [-0.64, -0.38],
    }  # fmt: skip
    view = replace(overview(write_run(tmp_path / "run")), evaluations=(line, line | {"interval": None, "change": -0.0001}))
    for width, kept in ((80, "readable"), (60, "mean reward"), (200, "prompts")):
        text = printed(render_overview, view, width)
        for piece in ("-0.812 [-0.912, -0.713]", "-0.520 [-0.640, -0.380]", "0.000 [-0.640, -0.380]", kept):
            assert piece in text, width
        assert "…" not in text.partition("held-out evaluations")[2]
    assert "too few prompts" in text


def test_a_run_that_taught_nothing_says_so(tmp_path: Path) -> None:
    view = overview(write_run(tmp_path / "run"))
    tied = tuple(dict(step) | {"update/grad_norm": 0.0} for step in view.steps)
    assert "No step had a gradient" in printed(render_overview, replace(view, steps=tied))
    assert "No step had a gradient" not in printed(render_overview, view)


def test_overview_of_an_empty_run(tmp_path: Path) -> None:
    RunWriter.create(tmp_path / "run", {**RUN_FIELDS, "config": CONFIG})
    text = printed(render_overview, overview(Run.open(tmp_path / "run")))
    assert text.strip().endswith("0 steps on record, algorithm grpo")


def test_long_runs_are_thinned_out(tmp_path: Path) -> None:
    steps = tuple({"step": step, "reward/mean": step / 1000} for step in range(1, 1001))
    view = replace(overview(write_run(tmp_path / "run")), steps=steps, evaluations=(), events=(), look_at=())
    text = printed(render_overview, view)
    assert "every 25th step" in text
    assert len(text.splitlines()) < 60
    assert re.search(r"^ *1000 +1\.000", text, re.MULTILINE)


def test_steps_worth_a_look() -> None:
    quiet = [{"step": step, "reward/mean": 0.5, "update/grad_norm": 1.0, "answers/unscored": 0} for step in range(1, 6)]
    assert worth_a_look(quiet, []) == []
    loud = [*quiet, {"step": 6, "reward/mean": 0.25, "update/grad_norm": 9.0, "answers/unscored": 2}]
    events = [{"kind": "health", "step": 2}, {"kind": "checkpoint", "step": 3}, {"kind": "health", "step": 4, "action": "note"}]
    assert worth_a_look(loud, events) == [
        (2, "health warning"),
        (6, "largest fall of the mean reward (-0.250); largest gradient norm (9); 2 answers without a reward"),
    ]
    assert worth_a_look([], []) == []


def test_curve_shows_every_step_once_and_fits() -> None:
    lines = [{"step": step, "reward/mean": step / 300} for step in range(1, 301)]
    chart = reward_curve(lines, 60)
    assert max(map(len, chart.splitlines())) <= 60 + len("  step")
    assert chart.splitlines()[1].startswith("1.00 ┤")
    assert chart.splitlines()[-1].split() == ["1", "300", "step"]
    assert reward_curve([], 60) == ""
    assert reward_curve([{"step": 1, "reward/mean": None}], 60) == ""
    flat = reward_curve([{"step": 1, "reward/mean": 0.5}, {"step": 2}, {"step": 3, "reward/mean": 0.5}], 60, height=2)
    assert flat.splitlines()[1:3] == ["0.50 ┤███   ███", "     │███   ███"]
    one = reward_curve([{"step": 7, "reward/mean": -0.001}], 60, height=2)
    assert one.splitlines()[1:] == ["0.00 ┤███", "     │███", "     └───", "      7  step"]


def test_curve_heights_are_the_values() -> None:
    lines = [{"step": step, "reward/mean": value} for step, value in enumerate((0.0, 0.25, 0.5, 0.75, 1.0), start=1)]
    chart = reward_curve(lines, 11, height=2).splitlines()
    assert chart[1] == "1.00 ┤   ▄█"
    assert chart[2] == "0.00 ┤▁▄███"
    close = reward_curve([{"step": 1, "reward/mean": 0.5101}, {"step": 2, "reward/mean": 0.5199}], 40, height=2)
    assert [line[:6] for line in close.splitlines()[1:3]] == ["0.5199", "0.5101"]
    assert sparkline([0.0, 1.0]) == "▁█"
    assert sparkline([]) == ""


def test_what_was_done_to_a_score_stands_beside_it() -> None:
    scores = (
        Score(reward="style", value=0.5, use="gated", paid=0.0),
        Score(reward="style", value=0.25, use="left_out"),
    )
    assert _score_cell(scores, "style") == "0.75 (2 parts, gated, left out)"
    assert _score_cell(scores[:1], "style") == "0.5 (gated)"
    held = Score(reward="style", value=1.0, weight=2.0, use="capped", paid=0.5)
    assert _score_cell([held], "style") == "1 (capped, pays 0.5)"
    assert _score_cell([replace(held, use="levelled", paid=-0.0)], "style") == "1 (levelled, pays 0)"


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("advantage", [0.5, (-0.5, 0.25)])
def test_no_word_or_number_is_broken_at_80_columns(tmp_path: Path, count: int, advantage: Any) -> None:
    view = step_report(write_run(tmp_path / "run"), 1)
    scores = (
        Score(reward="number", value=1.0, use="levelled", paid=0.4),
        Score(reward="format", value=1.0, weight=2.0, use="capped", paid=0.5),
        Score(reward="length", value=0.0),
    )[:count]
    members = tuple(
        replace(member, scores=scores, reward=-1.25, advantage=advantage, num_tokens=1024, weight_sum=-1e-9, left_out="")
        for member in view.groups[0].members
    )
    text = printed(render_step, replace(view, groups=(replace(view.groups[0], members=members),)), 80)
    rows = [line for line in text.splitlines() if "-1.250" in line]
    assert len(rows) == len(members)
    assert all("0.0000" in row and "-0.0000" not in row and "1024" in row for row in rows)
    assert all(word in text for word in ("(levelled,", "0.4)", "+0.500" if advantage == 0.5 else "-0.500…+0.250"))
    assert ("(capped," in text) == (count > 1)

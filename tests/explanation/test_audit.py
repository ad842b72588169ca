"""A record worked out by hand passes; any altered value is found, by its seal and, where it follows from others, by number."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from rich.console import Console

from tests.explanation.builders import CONFIG, build, write_run
from tests.record.builders import RUN_FIELDS
from toishi.checkpoints import save_checkpoint
from toishi.explanation.audit import AuditReport, audit, render_audit
from toishi.explanation.ledger import Tolerance, weight_tolerance
from toishi.record import Run, RunWriter
from toishi.record.files import json_line, read_lines, sha256_file, write_json
from toishi.record.schema import ROLLOUT_SCHEMA, TOKEN_SCHEMA
from toishi.record.tables import read_table, write_table

SCHEMAS: dict[str, pa.Schema] = {"rollouts": ROLLOUT_SCHEMA, "tokens": TOKEN_SCHEMA}
SHARD = "step_000001.parquet"


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("pristine") / "run", steps=1).folder


@pytest.fixture
def folder(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "run"))


def change_rows(folder: Path, table: str, change: Callable[[list[dict[str, Any]]], None], *, reseal: bool) -> None:
    """Writes a shard anew with changed rows; `reseal` makes the seals agree, as if the run had written it so."""
    path = folder / table / SHARD
    rows = read_table(path, SCHEMAS[table])
    change(rows)
    write_table(path, rows, SCHEMAS[table])
    if reseal:
        change_line(folder / "metrics.jsonl", {f"{table}_sha256": sha256_file(path)}, reseal=True)


def change_line(path: Path, changes: dict[str, Any], *, reseal: bool) -> None:
    lines = read_lines(path)
    lines[0] |= changes
    text = json_line(lines[0]) if reseal else json.dumps(lines[0]) + "\n"
    path.write_text(text + "".join(json_line(line) for line in lines[1:]))


def whats(report: AuditReport) -> str:
    return "\n".join(f"{f.file} | {f.row} | {f.what} | {f.got} | {f.expected}" for f in report.findings)


def test_a_record_worked_out_by_hand_passes(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", steps=3)
    report = audit(run)
    assert whats(report) == ""
    assert report.ok
    assert (report.steps, report.rollouts, report.tokens) == (3, 18, 54)
    assert report.notes == ()
    assert report.compared > 1000


def set_cell(
    row: int, column: str, value: Any, index: int | None = None, key: str | None = None
) -> Callable[[list[Any]], None]:
    def change(rows: list[Any]) -> None:
        holder, last = (rows[row], column) if index is None else (rows[row][column], index)
        holder, last = (holder[last], key) if key is not None else (holder, last)
        assert holder[last] != value
        holder[last] = value

    return change


DERIVED = [
    ("rollouts", set_cell(0, "num_tokens", 3), "length of token_ids"),
    ("rollouts", set_cell(0, "reward", 2.126), "reward (sum of contributions)"),
    ("rollouts", set_cell(2, "reward", 0.0), "reward (sum of contributions)"),
    ("rollouts", set_cell(3, "scores", 0.26, 0, "value"), "score 'number': contribution"),
    ("rollouts", set_cell(3, "scores", 1.0, 0, "weight"), "score 'number': contribution"),
    ("rollouts", set_cell(3, "scores", 0.51, 0, "contribution"), "score 'number': contribution"),
    ("rollouts", set_cell(3, "scores", "gated", 0, "use"), "score 'number': use"),
    ("rollouts", set_cell(3, "scores", "failed", 0, "status"), "score 'number': has a value"),
    ("rollouts", set_cell(3, "scores", 5, 1, "span_start"), "span inside the answer"),
    ("rollouts", set_cell(1, "status", "completed"), "status"),
    ("rollouts", set_cell(1, "finish_reason", "stop"), "status"),
    ("rollouts", set_cell(0, "advantage", 1.1208), "advantage"),
    ("rollouts", set_cell(2, "advantage", 0.1), "advantage"),
    ("rollouts", set_cell(0, "advantage", None), "advantage"),
    ("rollouts", set_cell(0, "token_advantages", [1.0, 1.0]), "advantage"),
    ("rollouts", set_cell(1, "group_mean", 0.9), "group_mean"),
    ("rollouts", set_cell(0, "group_count", 4), "group_count"),
    ("rollouts", set_cell(4, "group_kept", False), "group_kept"),
    ("rollouts", set_cell(5, "prompt", "What?"), "prompt, same as its siblings'"),
    ("rollouts", set_cell(5, "step", 2), "step"),
    ("rollouts", set_cell(5, "member", 0), "rows of this rollout"),
    ("rollouts", set_cell(5, "gold", "{"), "gold, same as its siblings'"),
    ("rollouts", lambda rows: rows.pop(), "rollout is in rollouts/"),
    ("tokens", lambda rows: rows.pop(), "has a row"),
    ("tokens", set_cell(0, "update", 1), "rows of this rollout and update"),
    ("tokens", set_cell(0, "update", 7), "update is one of the step's 2"),
    ("tokens", set_cell(0, "token_ids", 99, 1), "token_ids, same in every update"),
    ("tokens", set_cell(0, "loss_mask", 1, 1), "loss_mask, same in every update"),
    ("tokens", set_cell(0, "ratio", [1.0]), "length of ratio"),
    ("tokens", set_cell(6, "old_logprob", -0.3, 0), "old_logprob, as before the first update"),
    ("tokens", set_cell(6, "logprob", -0.2, 0), "ratio of token 0"),
    ("tokens", set_cell(6, "ref_logprob", -0.2, 0), "kl_policy_ref of token 0"),
    ("tokens", set_cell(6, "ratio", 1.2, 1), "ratio of token 1"),
    ("tokens", set_cell(7, "clip", 1, 0), "clip of token 0"),
    ("tokens", set_cell(6, "kl_policy_ref", 0.03, 0), "kl_policy_ref of token 0"),
    ("tokens", set_cell(6, "token_weight", 0.0, 0), "token_weight of token 0"),
    ("tokens", set_cell(6, "advantage", 0.5, 0), "advantage of token 0"),
    ("tokens", set_cell(6, "computed", False), "computed"),
]  # fmt: skip


@pytest.mark.parametrize(("table", "change", "what"), DERIVED, ids=[f"{table}-{what}" for table, _, what in DERIVED])
def test_what_follows_from_other_numbers_is_found_without_seals(
    folder: Path, table: str, change: Callable[[list[Any]], None], what: str
) -> None:
    change_rows(folder, table, change, reseal=True)
    report = audit(folder)
    assert what in whats(report)
    assert "sha256" not in whats(report)


@pytest.mark.parametrize("column", ["group_mean", "group_std", "group_why"])
def test_a_whole_group_changed_alike_is_found(folder: Path, column: str) -> None:
    def change(rows: list[Any]) -> None:
        for row in rows[:4]:
            row[column] = "none" if column == "group_why" else row[column] * (1 + 1e-8)

    change_rows(folder, "rollouts", change, reseal=True)
    assert f"1/0 | {column}" in whats(audit(folder))


FOLLOWING = (
    "reward/mean", "answers/count", "answers/unscored", "answers/mean_tokens", "tokens/sampled", "groups/count",
    "groups/dropped", "entropy/mean_nats", "update/loss", "updates/0/loss", "updates/1/loss", "updates/1/tokens",
    "updates/0/rollouts",
)  # fmt: skip


@pytest.mark.parametrize("key", FOLLOWING)
def test_metrics_that_follow_from_rows_are_found_without_seals(folder: Path, key: str) -> None:
    value = read_lines(folder / "metrics.jsonl")[0][key]
    change_line(folder / "metrics.jsonl", {key: value + 1e-3}, reseal=True)
    report = audit(folder)
    assert len(report.findings) >= 1
    assert all(finding.file == "metrics.jsonl" for finding in report.findings)


def test_sampler_gap_of_a_step_with_one_update(tmp_path: Path) -> None:
    one_epoch = CONFIG | {"train": {"inner_epochs": 1}}
    report = build(1)
    first = report.updates[0]
    report = replace(report, updates=(first,), metrics={**report.metrics, "update/loss": first.scalars["update/loss"]})
    RunWriter.create(tmp_path / "run", {**RUN_FIELDS, "config": one_epoch}).write_step(report)
    assert whats(audit(tmp_path / "run")) == ""
    change_line(tmp_path / "run" / "metrics.jsonl", {"sampler_gap/mean_abs": 0.002}, reseal=True)
    assert "sampler_gap/mean_abs | 0.002" in whats(audit(tmp_path / "run"))


def test_advantages_per_token_are_recomputed(tmp_path: Path) -> None:
    """Without a baseline, what a token's answer earns from it on is the whole reward, for every token."""
    row = {"name": "to_go", "credit": "reward_to_go", "baseline": "none", "scale": "none"}
    report = build(1)
    groups = tuple(
        replace(
            group,
            rollouts=tuple(
                replace(rollout, advantage=(rollout.reward or 0.0,) * rollout.completion.num_tokens)
                for rollout in group.rollouts
            ),
        )
        for group in report.groups
    )
    metrics = {key: value for key, value in report.metrics.items() if key != "update/loss"}
    writer = RunWriter.create(tmp_path / "run", {**RUN_FIELDS, "config": CONFIG | {"algorithm": row}})
    writer.write_step(replace(report, groups=groups, updates=(), metrics=metrics))
    assert whats(audit(tmp_path / "run")) == ""
    change_rows(tmp_path / "run", "rollouts", set_cell(0, "token_advantages", 2.0, 1), reseal=True)
    assert "1/0/0 | token_advantages of token 1 | 2.000000000 | 2.125000000" in whats(audit(tmp_path / "run"))
    change_rows(tmp_path / "run", "rollouts", set_cell(0, "token_advantages", None), reseal=True)
    assert "1/0/0 | advantage | nothing | (2.125, 2.125)" in whats(audit(tmp_path / "run"))


def test_a_missing_participant_is_found_without_seals(folder: Path) -> None:
    def change(rows: list[Any]) -> None:
        (row,) = [row for row in rows if (row["group"], row["member"], row["update"]) == (1, 1, 1)]
        rows.remove(row)

    change_rows(folder, "tokens", change, reseal=True)
    assert "updates 1 to 1 | rollouts that took part | 1/0/0 1/0/1 1/0/3 1/1/0 | 1/0/0 1/0/1 1/0/3 1/1/0 1/1/1" in whats(
        audit(folder)
    )


def test_evaluation_mean_is_recomputed(folder: Path) -> None:
    change_line(folder / "evaluations.jsonl", {"value": 0.51}, reseal=True)
    assert "evaluations.jsonl | line 1 | value (mean over prompts)" in whats(audit(folder))


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if items is None:
        yield path, value
    else:
        for key, item in items:
            yield from leaves(item, (*path, key))


def altered(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * (1 + 1e-12) + 1e-300
    return None if isinstance(value, str) and value == "null" else f"{value}x"


def alter_one(folder: Path, file: str, pick: Callable[[int], int]) -> str:
    """Changes one value anywhere in the file by as little as there is; returns where."""
    path = folder / file
    schema = SCHEMAS.get(path.parent.name)
    content = read_table(path, schema) if schema else [json.loads(line) for line in path.read_text().splitlines()]
    found = [(where, value) for where, value in leaves(content) if value is not None]
    where, value = found[pick(len(found))]
    holder: Any = content
    for key in where[:-1]:
        holder = holder[key]
    holder[where[-1]] = altered(value)
    if schema:
        write_table(path, content, schema)
    else:
        path.write_text("".join(json.dumps(line) + "\n" for line in content))
    return f"{file} {where}: {value!r}"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    file=st.sampled_from(
        [f"rollouts/{SHARD}", f"tokens/{SHARD}", "metrics.jsonl", "evaluations.jsonl", "events.jsonl", "run.json"]
    ),
    fraction=st.floats(0, 1, exclude_max=True),
)
def test_any_altered_value_anywhere_is_found(
    pristine: Path, tmp_path_factory: pytest.TempPathFactory, file: str, fraction: float
) -> None:
    folder = Path(shutil.copytree(pristine, tmp_path_factory.mktemp("altered") / "run"))
    if file == "run.json":
        (folder / file).write_text(json.dumps(json.loads((folder / file).read_text())) + "\n")
        assert audit(folder).ok, "other white space is no alteration"
    where = alter_one(folder, file, lambda count: int(fraction * count))
    assert not audit(folder).ok, where


def test_repeated_missing_and_unordered_steps(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", steps=3)
    path = run.folder / "metrics.jsonl"
    one, two, three = path.read_text().splitlines(keepends=True)
    path.write_text(one + two + two + three)
    assert "metrics.jsonl | line 3 | step | 2 | 3" in whats(audit(run.folder))
    path.write_text(one + three)
    report = audit(run.folder)
    assert "metrics.jsonl | line 2 | step | 3 | 2" in whats(report)
    assert any("step_000002.parquet without a line" in note for note in report.notes)


def test_cut_line_is_a_note_and_a_damaged_file_a_finding(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", steps=2)
    path = run.folder / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    report = audit(run.folder)
    assert whats(report) == "evaluations.jsonl | line 2 | its step is in metrics.jsonl | step 2 | at most 1"
    evaluations = run.folder / "evaluations.jsonl"
    evaluations.write_bytes(evaluations.read_bytes().splitlines(keepends=True)[0])
    report = audit(run.folder)
    assert report.ok
    assert any("metrics.jsonl: the last line is cut" in note for note in report.notes)

    (run.folder / "tokens" / SHARD).write_bytes(b"PAR1")
    assert "readable" in whats(audit(run.folder))
    (run.folder / "tokens" / SHARD).unlink()
    assert "no such file" in whats(audit(run.folder))
    (run.folder / "run.json").write_text("{")
    assert "run.json is damaged" in whats(audit(run.folder))
    assert "no such run folder" in whats(audit(tmp_path / "nothing"))


def test_line_without_a_step_is_damage(folder: Path) -> None:
    (folder / "metrics.jsonl").write_text('{"a": 1}\n{"b": 2}\n')
    assert "line 1: expected whole numbers as step and num_updates" in whats(audit(folder))


def test_checkpoints_are_checked(folder: Path) -> None:
    def write_model(model: Path) -> None:
        (model / "config.json").write_text("{}")

    path = save_checkpoint(folder, 1, write_model, {"next_prompt": 4})
    assert audit(folder).ok
    (path / "model" / "config.json").write_text("{ }")
    assert "checkpoints/step_000001 |  | whole" in whats(audit(folder))


def test_config_that_cannot_be_read_is_a_finding(folder: Path) -> None:
    info = json.loads((folder / "run.json").read_text())
    write_json(folder / "run.json", info | {"config": {"algorithm": "grpo"}})
    report = audit(folder)
    assert "algorithm, sampling and train can be read" in whats(report)
    assert any("were not recomputed" in note for note in report.notes)


def test_what_cannot_be_formed_again_is_a_finding(folder: Path) -> None:
    info = json.loads((folder / "run.json").read_text())
    row = CONFIG["algorithm"] | {"truncation": "soft_penalty", "soft_penalty_tokens": 99}
    write_json(folder / "run.json", info | {"config": CONFIG | {"algorithm": row}})
    assert "can be recomputed | ConfigError" in whats(audit(folder))


def test_without_streams_it_says_what_was_not_checked(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run", {**RUN_FIELDS, "config": CONFIG})
    report = build(1)
    writer.write_step(report, streams=False)
    done = audit(tmp_path / "run")
    assert done.ok
    assert done.notes == ("step 1: token weights were not recorded (record.tokens: false), so they are not checked",)


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    audit(write_run(tmp_path / "run", steps=2), on_step=lambda done, total: told.append((done, total)))
    assert told == [(1, 2), (2, 2)]


def test_rendering_names_file_row_got_and_expected(folder: Path) -> None:
    console = Console(width=120, record=True, file=StringIO())
    render_audit(audit(folder), console)
    assert "Everything is whole and follows from the stored scores." in console.export_text()
    change_rows(folder, "rollouts", set_cell(0, "advantage", 0.5), reseal=True)
    render_audit(audit(folder), console)
    text = console.export_text()
    assert "1/0/0" in text
    assert "0.5000000000" in text
    assert "1.120789" in text, "(2.125 - 2.875/3) / (sqrt(13/12) + 1e-4)"


def test_json_form(folder: Path) -> None:
    change_rows(folder, "rollouts", set_cell(0, "advantage", 0.5), reseal=True)
    done = json.loads(json.dumps(audit(Run.open(folder)).as_dict()))
    assert done["ok"] is False
    assert done["findings"][0].keys() == {"file", "row", "what", "got", "expected"}


def test_tolerances() -> None:
    assert Tolerance(1e-6, 0.0).allows(1.0000009, 1.0)
    assert not Tolerance(1e-6, 0.0).allows(1.0000011, 1.0)
    assert Tolerance(0.0, 0.0).allows(float("inf"), float("inf"))
    assert Tolerance(0.0, 0.0).allows(float("nan"), float("nan"))
    assert not Tolerance(1.0, 1.0).allows(float("nan"), 0.0)
    assert weight_tolerance([1.0, -4.0]).absolute == 4e-7
    assert weight_tolerance([]).absolute == 0.0

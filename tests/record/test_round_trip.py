"""What is written is what is read, and other tools can read it too."""

from __future__ import annotations

import json
import math
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from tests.record.builders import RUN_FIELDS, completion, mixed_group, plain_group, report, streams
from toishi.errors import RecordError
from toishi.record import Run, RunWriter
from toishi.record.columns import Column
from toishi.record.rows import groups_of, rollout_rows, streams_of, token_rows
from toishi.record.schema import ROLLOUT_SCHEMA, TOKEN_COLUMNS, TOKEN_SCHEMA, schema_markdown
from toishi.record.tables import read_table
from toishi.types import Group, StepReport


def written(folder: Path, *reports: StepReport) -> Run:
    writer = RunWriter.create(folder, RUN_FIELDS)
    for step_report in reports:
        writer.write_step(step_report, lambda ids: [f"<{number}>" for number in ids])
    return Run.open(folder)


def test_step_comes_back_equal(tmp_path: Path) -> None:
    run = written(tmp_path / "run", report(1), report(2))
    assert run.steps == (1, 2)
    assert run.step(1) == report(1)
    assert run.step(2) == report(2)


def test_scores_of_the_first_runs_have_neither_kind_nor_use() -> None:
    rows, tokens = rollout_rows(report(1)), token_rows(report(1), None, streams=False)
    for row in rows:
        for cell in row["scores"]:
            del cell["kind"], cell["use"]
    scores = [score for group in groups_of(rows, tokens) for rollout in group.rollouts for score in rollout.scores]
    assert {(score.kind, score.use, score.paid) for score in scores} == {("", "counted", None)}


def test_every_rollout_has_tokens_even_outside_every_update(tmp_path: Path) -> None:
    rows = written(tmp_path / "run", report()).token_rows(1)
    assert {(row["group"], row["member"]) for row in rows} == {(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)}
    outside = [row for row in rows if row["update"] is None]
    assert [(row["group"], row["member"], row["computed"]) for row in outside] == [(1, 1, False)]
    assert rows[0]["token_texts"] == ["<5>", "<6>", "<2>"]


def test_without_streams_what_was_sampled_is_kept(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run", RUN_FIELDS)
    writer.write_step(report(), streams=False)
    got = Run.open(tmp_path / "run").step(1)
    assert got.groups == report().groups
    assert [update.streams for update in got.updates] == [(), ()]
    assert [update.scalars for update in got.updates] == [update.scalars for update in report().updates]


@settings(max_examples=50, deadline=None)
@given(
    numbers=st.lists(st.floats(allow_nan=False), min_size=1, max_size=5),
    text=st.text(),
    gold=st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3)),
)
def test_any_number_text_and_gold_survives(numbers: list[float], text: str, gold: Any) -> None:
    base = mixed_group(1)
    prompt = replace(base.prompt, gold=gold, columns={text: gold})
    answer = replace(completion(tuple(range(len(numbers))), text), sampled_logprobs=tuple(numbers))
    rollout = replace(base.rollouts[0], prompt=prompt, completion=answer, reward=numbers[0], advantage=tuple(numbers))
    group = replace(base, prompt=prompt, rollouts=(rollout,))
    got = through_arrow(replace(report(), groups=(group,), updates=()))
    assert got == (group,)


def through_arrow(step_report: StepReport) -> tuple[Group, ...]:
    rollouts = pa.Table.from_pylist(rollout_rows(step_report), schema=ROLLOUT_SCHEMA).to_pylist()
    tokens = pa.Table.from_pylist(token_rows(step_report, None, streams=True), schema=TOKEN_SCHEMA).to_pylist()
    assert streams_of(tokens).keys() == {update.index for update in step_report.updates}
    return groups_of(rollouts, tokens)


def test_numbers_survive_the_file_bit_for_bit(tmp_path: Path) -> None:
    values = (0.1, 1e-308, -0.0, math.pi, float(np.float32(0.1)), 5e-324, -1.7976931348623157e308)
    group = mixed_group(1)
    answer = replace(completion(tuple(range(7)), "x"), sampled_logprobs=values)
    rollout = replace(group.rollouts[0], completion=answer, advantage=values)
    run = written(tmp_path / "run", replace(report(), groups=(replace(group, rollouts=(rollout,)),), updates=()))
    got = run.step(1).groups[0].rollouts[0]
    bits = [struct.pack("<d", value) for value in values]
    assert [struct.pack("<d", value) for value in got.completion.sampled_logprobs] == bits
    assert [struct.pack("<d", value) for value in got.advantage_per_token] == bits


def test_values_that_json_cannot_hold_become_readable(tmp_path: Path) -> None:
    group = mixed_group(1)
    odd: dict[Any, Any] = {
        "array": np.arange(2),
        "inf": math.inf,
        "set": {2, 1},
        "path": Path("a"),
        3: (1, 2),
        "lone": "\ud800",
    }
    prompt = replace(group.prompt, columns=odd, messages=({"role": "user", "content": "lone \ud800"},))
    rollouts = tuple(replace(rollout, prompt=prompt) for rollout in group.rollouts)
    run = written(tmp_path / "run", replace(report(), groups=(replace(group, prompt=prompt, rollouts=rollouts),), updates=()))
    got = run.step(1).groups[0].prompt
    assert got.columns == {"array": [0, 1], "inf": "inf", "set": [1, 2], "path": "a", "3": [1, 2], "lone": "\ud800"}
    assert run.rollout_rows(1)[0]["prompt"] == "lone \\ud800"


def test_metrics_stay_standard_json(tmp_path: Path) -> None:
    broken = replace(report(), metrics={"a": math.nan, "b": -math.inf, "c": np.float32(0.5), "d": np.int64(3)})  # type: ignore[dict-item]
    run = written(tmp_path / "run", broken)
    text = (tmp_path / "run" / "metrics.jsonl").read_text()
    line = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not standard JSON"))
    assert line["a"] is None
    assert line["non_finite"] == {"a": "nan", "b": "-inf"}
    got = run.step(1).metrics
    assert math.isnan(float(got["a"] or 0.0))
    assert (got["b"], got["c"], got["d"]) == (-math.inf, 0.5, 3)


def test_pandas_and_duckdb_open_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    written(folder, report(1), report(2))

    metrics = pd.read_json(folder / "metrics.jsonl", lines=True)
    rollouts = pd.read_parquet(folder / "rollouts")
    tokens = pd.read_parquet(folder / "tokens")
    assert list(metrics["step"]) == [1, 2]
    assert list(metrics["updates/1/loss"]) == [-0.25, -0.25]
    assert list(rollouts.groupby("step").reward.mean()) == [0.5, 0.5]
    assert list(tokens.iloc[0]["token_weight"]) == [-0.1234567891234567] * 3

    best = duckdb.sql(f"SELECT step, prompt, completion, reward FROM '{folder}/rollouts/*.parquet' ORDER BY reward DESC, step")
    assert best.limit(1).fetchall() == [(1, "0 + 1 = ?", "1 [bold]", 1.0)]
    joined = duckdb.sql(
        f"""SELECT step, "group", member, completion, unnest(token_texts) AS token, unnest(token_weight) AS weight
            FROM '{folder}/rollouts/*.parquet' JOIN '{folder}/tokens/*.parquet' USING (step, "group", member)
            WHERE update = 0 ORDER BY ALL"""
    )
    assert joined.limit(1).fetchall() == [(1, 0, 0, "1 [bold]", "<2>", -0.1234567891234567)]
    steps = duckdb.sql(f"SELECT step, \"reward/mean\" FROM '{folder}/metrics.jsonl'").fetchall()
    assert steps == [(1, 0.5), (2, 0.5)]


def test_every_column_is_described_in_the_file_and_in_the_docs(tmp_path: Path) -> None:
    written(tmp_path / "run", report())
    schema = pq.read_schema(tmp_path / "run" / "tokens" / "step_000001.parquet")
    assert {name: schema.field(name).metadata[b"description"].decode() for name in schema.names} == {
        column.name: column.description for column in TOKEN_COLUMNS
    }
    page = Path(__file__).parents[2] / "docs" / "run-folder.md"
    assert page.read_text(encoding="utf-8") == schema_markdown(), "write it anew: see the page's first lines"


def test_a_newer_version_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "run", report())
    path = tmp_path / "run" / "run.json"
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 2'))
    with pytest.raises(RecordError, match=r"schema version 2; this toishi reads versions up to 1.*Upgrade"):
        Run.open(tmp_path / "run")


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no such run folder"):
        Run.open(tmp_path / "nothing")
    with pytest.raises(RecordError, match=r"has no run\.json"):
        Run.open(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(RecordError, match=r"run\.json is damaged"):
        Run.open(tmp_path)
    (tmp_path / "run.json").write_text("[]")
    with pytest.raises(RecordError, match="expected a whole number as schema_version, got None"):
        Run.open(tmp_path)


def test_missing_and_damaged_shards_are_errors(tmp_path: Path) -> None:
    run = written(tmp_path / "run", report())
    shard = tmp_path / "run" / "tokens" / "step_000001.parquet"
    whole = shard.read_bytes()
    shard.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RecordError, match=r"step_000001\.parquet is damaged"):
        run.step(1)
    pq.write_table(pq.read_table(tmp_path / "run" / "rollouts" / shard.name), shard)
    with pytest.raises(RecordError, match=r"lacks update, computed, .* it has step, group, member"):
        run.step(1)
    shard.unlink()
    with pytest.raises(RecordError, match="is missing though its step is on record"):
        run.step(1)
    with pytest.raises(RecordError, match="step 7 is not on record; steps 1 to 1 are"):
        run.step(7)


def test_reports_that_contradict_themselves_are_refused(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run", RUN_FIELDS)
    good = report()
    first = good.groups[0].rollouts[0]
    wrong: dict[str, StepReport] = {
        "taken by the record": replace(good, metrics={"seal": 1}),
        "starts with 'update/'": replace(good, updates=(replace(good.updates[0], scalars={"loss": 1.0}),)),
        "numbered 0, 1": replace(good, updates=good.updates[1:]),
        "appears twice": replace(good, groups=(good.groups[0], good.groups[0])),
        "has no rollouts": replace(good, groups=(replace(good.groups[0], rollouts=()),)),
        "stands with those of prompt": replace(good, groups=(replace(good.groups[0], rollouts=plain_group(1).rollouts), )),
        "streams of rollout 2/0/0": replace(good, updates=report(2).updates),
        "loss_mask has 1 numbers for an answer of 3 tokens": replace(
            good,
            groups=(replace(good.groups[0], rollouts=(replace(first, completion=replace(first.completion, loss_mask=(1,))),)),),
            updates=(),
        ),
        "ratio has 1 numbers for an answer of 3 tokens": replace(
            good, updates=(replace(good.updates[0], streams=(replace(streams(first), ratio=(1.0,)),)),)
        ),
        "reference log-probs differ": replace(
            good,
            updates=(
                replace(good.updates[0], streams=(replace(streams(good.groups[1].rollouts[0]), ref_logprob=(0.0, 0.0)),)),
            ),
        ),
    }  # fmt: skip
    for message, step_report in wrong.items():
        with pytest.raises(RecordError, match=message):
            writer.write_step(step_report)
    assert Run.open(tmp_path / "run").steps == ()
    writer.write_step(good)
    with pytest.raises(RecordError, match="step 1 comes after step 1"):
        writer.write_step(good)


def test_shards_from_before_a_column_was_added_are_read_with_nothing_in_it(tmp_path: Path) -> None:
    later = pa.schema([Column("step", pa.int32(), "step").field, Column("new", pa.float64(), "new", later=True).field])
    pq.write_table(pa.table({"step": pa.array([1, 2], pa.int32())}), tmp_path / "old.parquet")
    assert read_table(tmp_path / "old.parquet", later) == [{"step": 1, "new": None}, {"step": 2, "new": None}]
    pq.write_table(pa.table({"new": pa.array([1.0])}), tmp_path / "broken.parquet")
    with pytest.raises(RecordError, match="lacks step"):
        read_table(tmp_path / "broken.parquet", later)

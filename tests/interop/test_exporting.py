"""Rollouts as rows for others, and UNIPO's document held against its published, annotated schema.

The schema (github.com/poloclub/unipo, docs/canonical_schema.json, commit a9c9acf) is an example with comments, no JSON Schema,
and its repository names no licence in the files looked at. So it is not
copied: its fields and their kinds are written down here.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tests.record.builders import RUN_FIELDS, report
from toishi.cli.app import app
from toishi.config import Config
from toishi.errors import ConfigError, RecordError
from toishi.interop import export_run, import_run
from toishi.record import Run
from toishi.record.writer import RunWriter

HEADER = {
    "task": str, "dataset": str, "reward_strategy": str, "algorithm": str, "totalSteps": int,
    "model_name": str, "reference_model_name": str, "hparams": dict,
}  # fmt: skip
ENTRY = {"step": int, "is_first_step_after_rollout_phase": bool, "metrics": dict, "prompts": list}
RESPONSE = {"id": str, "response_text": str, "response_length": int, "tokens": dict}
REQUIRED_METRICS = ("policy_objective", "reward")
STREAMS = {
    "log_probs",
    "old_log_probs",
    "ref_log_probs",
    "values",
    "advantages",
    "returns",
    "token_kl",
    "rewards",
    "token_objective",
}
"""Streams that UNIPO knows; `ids` and `strings` are required."""


def has(value: dict[str, Any], fields: dict[str, type]) -> None:
    for name, kind in fields.items():
        assert isinstance(value[name], kind), (name, value.get(name))


def check_unipo(document: dict[str, Any]) -> None:
    """What UNIPO's schema asks for, in every entry."""
    assert set(document) == {"header", "entries"}
    has(document["header"], HEADER)
    assert document["header"]["totalSteps"] == len(document["entries"])
    assert [entry["step"] for entry in document["entries"]] == list(range(len(document["entries"])))
    for entry in document["entries"]:
        has(entry, ENTRY)
        assert all(isinstance(entry["metrics"][name], float) for name in REQUIRED_METRICS)
        for prompt in entry["prompts"]:
            assert isinstance(prompt["prompt"], str)
            for response in prompt["responses"]:
                has(response, RESPONSE)
                tokens = response["tokens"]
                assert {"ids", "strings"} <= set(tokens) <= {"ids", "strings", *STREAMS}
                assert {len(values) for values in tokens.values()} == {response["response_length"]}
                assert all(isinstance(text, str) for text in tokens["strings"])


@pytest.fixture
def run(tmp_path: Path) -> Run:
    fields = RUN_FIELDS | {"config": Config().model_dump(mode="json")}
    with RunWriter.create(tmp_path / "run", fields) as writer:
        writer.write_step(report(1), lambda ids: [f"<{one}>" for one in ids])
    return Run.open(tmp_path / "run")


def test_unipo(run: Run, tmp_path: Path) -> None:
    export_run("unipo", run, tmp_path / "u.json", step=1)
    document = json.loads((tmp_path / "u.json").read_text())
    check_unipo(document)
    updates = run.step(1).updates
    assert len(document["entries"]) == len(updates)
    entry, update = document["entries"][0], updates[0]
    assert entry["metrics"]["policy_objective"] == -update.scalars["update/loss"]
    stream = next(stream for stream in update.streams if stream.computed)
    name = f"step1_p{stream.rollout.group}_sample{stream.rollout.member}"
    responses = [response for prompt in entry["prompts"] for response in prompt["responses"]]
    response = next(response for response in responses if response["id"] == name)
    assert response["tokens"]["log_probs"] == list(stream.logprob)
    assert response["tokens"]["old_log_probs"] == list(stream.old_logprob)


def test_unipo_of_one_group(run: Run, tmp_path: Path) -> None:
    export_run("unipo", run, tmp_path / "u.json", step=1, group=0)
    document = json.loads((tmp_path / "u.json").read_text())
    assert {len(entry["prompts"]) for entry in document["entries"]} == {1}
    with pytest.raises(ConfigError, match="no group 9"):
        export_run("unipo", run, tmp_path / "v.json", step=1, group=9)
    assert not (tmp_path / "v.json").exists()


def test_unipo_needs_tokens(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_text(json.dumps({"input": "?", "output": "!", "score": 1.0, "step": 1}) + "\n")
    import_run("verl", tmp_path / "1.jsonl", tmp_path / "run")
    with pytest.raises(RecordError, match="Export it as jsonl instead"):
        export_run("unipo", Run.open(tmp_path / "run"), tmp_path / "u.json")


def test_rows_for_others(run: Run, tmp_path: Path) -> None:
    expected = run.rollout_rows(1)
    for name in ("jsonl", "csv", "parquet"):
        assert export_run(name, run, tmp_path / f"x.{name}") == len(expected)
    rows = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert [row["completion"] for row in rows] == [row["completion"] for row in expected]
    assert rows[0]["columns"] == json.loads(expected[0]["columns"])
    assert pq.read_table(tmp_path / "x.parquet").to_pylist() == expected
    with (tmp_path / "x.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    scores = expected[0]["scores"]
    assert table[0][f"rewards/{scores[0]['reward']}"] == ("" if scores[0]["value"] is None else str(scores[0]["value"]))
    with pytest.raises(ConfigError, match="did you mean 'parquet'"):
        export_run("parqet", run, tmp_path / "y")


def test_the_commands(run: Run, tmp_path: Path) -> None:
    shell = CliRunner()
    (tmp_path / "1.jsonl").write_text(json.dumps({"input": "?", "output": "!", "score": 1.0, "step": 1}) + "\n")
    done = shell.invoke(
        app, ["import", "verl", str(tmp_path / "1.jsonl"), str(tmp_path / "there"), "--weight", "score=2", "--json"]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["steps"] == 1
    assert Run.open(tmp_path / "there").step(1).rollouts[0].reward == 2.0
    assert shell.invoke(app, ["import", "verl", str(tmp_path / "none"), str(tmp_path / "x")]).exit_code == 1
    assert shell.invoke(app, ["import", "verl", str(tmp_path), str(tmp_path / "x"), "--weight", "score"]).exit_code == 2
    done = shell.invoke(app, ["export", str(run.folder), "--format", "csv", "-o", str(tmp_path / "r.csv"), "--json"])
    assert json.loads(done.stdout) == {"file": str(tmp_path / "r.csv"), "rollouts": len(run.rollout_rows(1)), "format": "csv"}

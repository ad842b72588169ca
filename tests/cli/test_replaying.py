"""`toishi replay`: the cost first, a row a link, exit code 1 at a difference, a trace on request."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.cli.conftest import Command, Finished
from tests.replay.forging import forge_step, with_stream
from toishi.record.trace_files import has_trace, read_trace


def test_replay_says_the_cost_and_shows_every_link(toishi: Command, finished: Finished) -> None:
    ended = toishi("replay", finished.folder, "--step", "5")
    assert ended.code == 0
    assert "doing 5 steps (1 to 5) again from checkpoint step_000000, without sampling or scoring: about" in ended.err
    assert "step 5 came out again bit for bit, on every link" in ended.out
    for link in ("reward", "group mean", "advantage", "token weight", "gradient norm", "weights checksum"):
        assert link in ended.out
    assert not has_trace(finished.folder, 5)


def test_replay_as_json_names_the_first_link_that_differs(toishi: Command, finished: Finished, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished.folder, tmp_path / "run"))
    forge_step(folder, 5, lambda report: with_stream(report, "token_weight", 2, lambda weight: weight * 1.5))
    ended = toishi("replay", folder, "--step", "5", "--json", "--trace")
    assert ended.code == 1
    found = json.loads(ended.out)
    assert (found["ok"], found["difference"]["link"], found["difference"]["token"]) == (False, "token weight", 2)
    assert "no trace was written" in ended.err
    assert not has_trace(folder, 5)
    shown = toishi("replay", folder, "--step", "5")
    assert shown.code == 1
    assert "first link that differs: step 5, update 0: token weight of 5/" in " ".join(shown.out.split())


def test_a_damaged_record_is_refused(toishi: Command, finished: Finished, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished.folder, tmp_path / "run"))
    shard = folder / "tokens" / "step_000004.parquet"
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    ended = toishi("replay", folder, "--step", "5")
    assert ended.code == 1
    assert "tokens/step_000004.parquet (token ids, log-probs, token weights) was changed" in ended.err


def test_a_trace_is_made_on_request(toishi: Command, finished: Finished, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished.folder, tmp_path / "run"))
    ended = toishi("replay", folder, "--step", "2", "--trace", width=200)
    assert ended.code == 0
    assert f"traced: {folder / 'traces' / 'step_000002'}" in ended.err
    assert read_trace(folder, 2).contrast is not None


def test_a_group_without_a_trace_is_refused(toishi: Command, finished: Finished) -> None:
    assert toishi("replay", finished.folder, "--step", "2", "--group", "0").code == 2

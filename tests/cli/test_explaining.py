"""`toishi explain RUN --step N --group K --member I`: what it prints and writes, and how it ends."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from tests.cli.conftest import Command, Finished
from toishi.explanation.chain.model import Chain
from toishi.record.schema import ROLLOUT_SCHEMA, shard_name
from toishi.record.tables import read_table, write_table


def test_a_step_ends_with_what_pushed_most(finished: Finished, toishi: Command) -> None:
    ended = toishi("explain", finished.folder, "--step", "2", width=120)
    assert ended.code == 0
    assert "What pushed most: prompt" in ended.out
    assert "links were recomputed" in ended.out
    assert json.loads(toishi("explain", finished.folder, "--step", "2", "--json").out)["chain"]["step"] == 2


def test_one_answer_is_followed(finished: Finished, toishi: Command) -> None:
    ended = toishi("explain", finished.folder, "--step", "2", "--group", "0", "--member", "1", width=100)
    assert ended.code == 0
    assert "Step 2, prompt 0, #1" in ended.out
    assert "toishi replay" in ended.out
    assert "toishi explain" in toishi("explain", finished.folder, "--step", "2", "--group", "0", "--lang", "ja").out


def test_json_is_the_chain(finished: Finished, toishi: Command) -> None:
    ended = toishi("explain", finished.folder, "--step", "3", "--group", "1", "--json")
    found = TypeAdapter(Chain).validate_json(ended.out)
    assert (found.step, found.group, found.member, found.broken) == (3, 1, None, None)


def test_html_is_one_file(finished: Finished, tmp_path: Path, toishi: Command) -> None:
    path = tmp_path / "step.html"
    ended = toishi("explain", finished.folder, "--step", "3", "--html", path)
    assert (ended.code, ended.out) == (0, "")
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert toishi("explain", finished.folder, "--step", "3", "--html", tmp_path / "no" / "x.html").code == 1


def test_a_broken_link_ends_with_1_and_is_named(finished: Finished, tmp_path: Path, toishi: Command) -> None:
    folder = shutil.copytree(finished.folder, tmp_path / "copy")
    path = folder / "rollouts" / shard_name(2)
    rows = read_table(path, ROLLOUT_SCHEMA)
    rows[0]["advantage"] += 0.01
    write_table(path, rows, ROLLOUT_SCHEMA)
    for options in ((), ("--json",), ("--html", str(tmp_path / "x.html"))):
        ended = toishi("explain", folder, "--step", "2", "--group", "0", *options)
        assert ended.code == 1
        assert "the first broken link is 'advantage': #0" in ended.err


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--group", "0"), 2, "add --step N"),
        (("--step", "2", "--member", "0"), 1, "which group"),
        (("--step", "2", "--group", "5"), 1, "has no group 5"),
        (("--step", "2", "--group", "0", "--lang", "jp"), 1, "known: en, ja"),
    ],
)
def test_mistakes_are_named(options: tuple[str, ...], code: int, message: str, finished: Finished, toishi: Command) -> None:
    ended = toishi("explain", finished.folder, *options, width=200)
    assert ended.code == code
    assert message in " ".join(ended.err.split())

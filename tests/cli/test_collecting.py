"""select, collect, pairs, label: end to end with a tiny model; killed and continued; refused."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from tests.cli.conftest import Command
from tests.collecting.making import answer, asked, header
from toishi.cli.app import app
from toishi.cli.labelling import show
from toishi.collecting import asking
from toishi.collecting.journal import JournalWriter
from toishi.collecting.labelling import Shown
from toishi.collecting.samples import append_header, read_samples
from toishi.record.files import read_lines

COUNT = ("--prompts", "6", "-n", "3", "--threshold", "0.2")


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two prompts a chunk."""
    monkeypatch.setattr(asking, "ANSWERS_PER_CHUNK", 6)


@pytest.fixture(scope="module")
def samples(recipe: Path, tmp_path_factory: pytest.TempPathFactory, toishi: Command) -> Path:
    folder = tmp_path_factory.mktemp("samples")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asking, "ANSWERS_PER_CHUNK", 6)
        ended = toishi("select", recipe, *COUNT, "--band", "0-1", "-o", folder / "all.jsonl")
    assert ended.code == 0, ended.err
    return folder / "all.samples.jsonl"


def test_select_writes_rows_that_a_recipe_can_read(samples: Path, tmp_path: Path, toishi: Command) -> None:
    rows = [json.loads(line) for line in samples.with_name("all.jsonl").read_text("utf-8").splitlines()]
    assert len(rows) == 6
    come_from, prompts = read_samples(samples)
    assert [row["id"] for row in rows] == [one.id for one in prompts]
    for row, one in zip(rows, prompts, strict=True):
        values = [answer.reward for answer in one.answers]
        assert row["pass_rate"] == pytest.approx(sum(value >= 0.2 for value in values) / 3)  # type: ignore[operator]
        assert row["pass_rate_source"]["model"]["fingerprint"] == come_from.model["fingerprint"]
    mine = tmp_path / "mine.yaml"
    mine.write_text(f"task: {{name: file, path: {samples.with_name('all.jsonl')}, gold_column: answer, heldout: 1}}\n", "utf-8")
    assert toishi("check", mine, "--no-model", "--no-attacks").code == 0


def test_choosing_again_needs_no_model(samples: Path, tmp_path: Path, toishi: Command) -> None:
    out = tmp_path / "sft.jsonl"
    ended = toishi("collect", "--from", samples, "--keep", "all", "--keep-truncated", "--dedup", "off", "-o", out, "--json")
    report = json.loads(ended.out)
    rows = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert report["kept"] == len(rows)
    assert report["kept"] + sum(report["dropped"].values()) == report["answers"] == 18
    assert {"messages", "completion", "reward", "scores", "source"} <= set(rows[0])


def test_pairs_of_answers_with_known_rewards(tmp_path: Path, toishi: Command) -> None:
    """Of four prompts one gives a pair: in the others the better answer is cut, the rewards are equal, or one has no reward."""
    groups = (
        [answer("worst", 0.0, 4), answer("best", 1.0, 4), answer("middling", 0.5, 9)],
        [answer("short", 0.0), answer("went on and on", 1.0, cut=True)],
        [answer("yes", 0.5), answer("no", 0.5)],
        [answer("fine", 1.0), answer("broken", None)],
    )
    file, out = tmp_path / "by_hand.samples.jsonl", tmp_path / "pairs.jsonl"
    with JournalWriter(file) as journal:
        append_header(journal, header(count=4, samples=3))
        for number, group in enumerate(groups):
            journal.append(asdict(asked(number, group)))
    ended = toishi("pairs", "--from", file, "-o", out, "--json")
    assert ended.code == 0, ended.err
    report = json.loads(ended.out)
    assert (report["prompts"], report["candidates"], report["kept"]) == (4, 3, 1)
    assert report["dropped"] == {"too_few": 1, "cut": 1, "close": 1}
    (row,) = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    assert (row["prompt"], row["chosen"], row["rejected"]) == ("question number 0 of the set", "best", "worst")
    assert (row["margin"], row["chosen_reward"], row["rejected_reward"]) == (1.0, 1.0, 0.0)
    assert (row["source"]["by"], row["source"]["chosen_member"], row["source"]["rejected_member"]) == ("reward", 1, 0)
    ended = toishi("pairs", "--from", file, "--min-margin", "1", "-o", out, "--overwrite")
    assert ended.code == 1
    assert "no pair is left" in " ".join(ended.err.split())
    assert len(out.read_text("utf-8").splitlines()) == 1
    assert "would replace the answers" in " ".join(toishi("pairs", "--from", file, "--overwrite", "-o", file).err.split())


def test_a_killed_command_continues_to_the_same_bytes(samples: Path, recipe: Path, tmp_path: Path, toishi: Command) -> None:
    out = tmp_path / "cut.jsonl"
    file = tmp_path / "cut.samples.jsonl"
    lines = samples.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:4]) + lines[4][:50])  # a kill in the middle of a chunk's second line
    assert toishi("select", recipe, *COUNT, "--band", "0-1", "-o", out).code == 1
    assert "--continue" in toishi("select", recipe, *COUNT, "--band", "0-1", "-o", out).err
    other = toishi("select", recipe, *COUNT, "--band", "0-1", "-o", out, "--continue", "--set", "seed=1")
    assert other.code == 1
    assert "seed: 0 there, 1 now" in " ".join(other.err.split())
    ended = toishi("select", recipe, *COUNT, "--band", "0-1", "-o", out, "--continue")
    assert ended.code == 0, ended.err
    assert file.read_bytes() == samples.read_bytes()
    assert out.read_bytes() == samples.with_name("all.jsonl").read_bytes()


def test_kill_9_and_continue(samples: Path, recipe: Path, tmp_path: Path, toishi: Command) -> None:
    out, file = tmp_path / "killed.jsonl", tmp_path / "killed.samples.jsonl"
    code = (
        "import sys, time\nfrom toishi.collecting import asking\nfrom toishi.cli.app import app\n"
        "asking.ANSWERS_PER_CHUNK = 6\nscored = asking._scored\n"
        "def slow(*given):\n    time.sleep(0.5)\n    return scored(*given)\n"
        "asking._scored = slow\napp(sys.argv[1:])\n"
    )
    command = [sys.executable, "-c", code, "select", str(recipe), *COUNT, "--band", "0-1", "-o", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and process.poll() is None and len(read_lines(file)) < 3:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert 0 < len(read_lines(file)) < 7
    assert not out.exists()
    assert toishi("select", recipe, *COUNT, "--band", "0-1", "-o", out, "--continue").code == 0
    assert file.read_bytes() == samples.read_bytes()
    assert out.read_bytes() == samples.with_name("all.jsonl").read_bytes()


def test_files_that_are_there_are_not_written_over(samples: Path, tmp_path: Path, toishi: Command) -> None:
    out = tmp_path / "there.jsonl"
    out.write_text("mine\n", "utf-8")
    arguments = ("select", "--from", samples, "--band", "0-1", "--threshold", "0.2", "-o", out)
    ended = toishi(*arguments)
    assert (ended.code, out.read_text("utf-8")) == (1, "mine\n")
    assert "is there already" in " ".join(ended.err.split())
    assert toishi(*arguments, "--continue", "--overwrite").code == 1
    assert toishi(*arguments, "--overwrite").code == 0
    assert out.read_bytes() == samples.with_name("all.jsonl").read_bytes()


def test_nothing_left_is_an_error_with_its_reason(samples: Path, tmp_path: Path, toishi: Command) -> None:
    out = tmp_path / "none.jsonl"
    ended = toishi("collect", "--from", samples, "--threshold", "99", "--keep-truncated", "-o", out)
    assert ended.code == 1
    assert "not right" in ended.err
    assert not out.exists()


def test_a_place_that_cannot_be_written_is_told_before_anything_is_sampled(
    recipe: Path, tmp_path: Path, toishi: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    monkeypatch.setattr(asking, "_scored", lambda *given: pytest.fail("sampled"))
    ended = toishi("select", recipe, *COUNT, "-o", tmp_path / "file" / "out.jsonl")
    assert ended.code == 1
    assert "could not be written" in " ".join(ended.err.split())


def test_options_that_contradict_each_other(samples: Path, recipe: Path, tmp_path: Path, toishi: Command) -> None:
    out = tmp_path / "x.jsonl"
    assert "leave RECIPE out" in " ".join(toishi("select", recipe, "--from", samples, "-o", out).err.split())
    assert "say what is asked of whom" in " ".join(toishi("select", "-o", out).err.split())
    assert "there is no reward" in " ".join(toishi("collect", "--from", samples, "--reward", "x", "-o", out).err.split())
    damaged = tmp_path / "damaged.samples.jsonl"
    damaged.write_bytes(samples.read_bytes().replace(b'"seed": 0', b'"seed": 1', 1))
    assert "seal does not hold" in " ".join(toishi("select", "--from", damaged, "-o", out).err.split())


def test_rows_of_a_file_without_a_recipe(tiny: Path, tmp_path: Path, toishi: Command) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text('{"prompt": "1 + 1?", "answer": 2}\n{"prompt": "2 + 2?", "answer": 4}\n', "utf-8")
    out = tmp_path / "kept.jsonl"
    given = ("--set", "task.gold_column=answer", "--set", "sampling.max_new_tokens=4", "--set", "model.dtype=float32")
    arguments = ("select", "--model", tiny, "--data", data, "-n", "2", "--band", "0-1", "-o", out, *given)
    ended = toishi(*arguments, "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["prompts"] == 2
    data.write_text('{"prompt": 7}\n', "utf-8")
    assert toishi(*arguments, "--overwrite").code == 1
    assert len(out.read_text("utf-8").splitlines()) == 2  # what was there is still there


def typed(keys: str, *arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=keys, env={"COLUMNS": "100"})
    return result.exit_code, result.stdout


def test_people_label_quit_and_go_on(tmp_path: Path, toishi: Command) -> None:
    pairs = tmp_path / "pairs.jsonl"
    rows = [{"prompt": f"q{n}", "chosen": f"good {n}", "rejected": f"bad {n}"} for n in range(4)]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    code, out = typed("1\nx2q\n", "label", pairs, "--name", "ada")
    assert code == 0
    assert "pair 1 of 4" in out
    assert "2 labelled by ada, 2 to do" in out
    assert "chosen" not in out.split("labels:")[0]
    code, out = typed("=s", "label", pairs, "--name", "ada")
    assert "pair 1 of 2" in out
    assert "1 labelled by ada, 1 to do" in out
    assert "4 labelled by bob, 0 to do" in typed("1111", "label", pairs, "--name", "bob")[1]
    report = json.loads(toishi("label", pairs, "--agreement", "--json").out)
    assert [(one["name"], one["count"], one["ties"]) for one in report["people"]] == [("ada", 3, 1), ("bob", 4, 0)]
    assert report["people"][1]["left"]["value"] == 1.0
    assert report["two"][0]["count"] == 3
    assert "Krippendorff" in toishi("label", pairs, "--agreement", width=120).out
    pairs.write_text('{"prompt": "q"}\n', "utf-8")
    assert "cannot be labelled" in " ".join(toishi("label", pairs).err.split())


@pytest.mark.parametrize("width", [100, 60])
def test_every_sign_of_a_pair_is_shown_and_none_is_obeyed(width: int) -> None:
    unspaced = "これは砥石という道具で、刃物を研ぐために使われるものです。長い文章でも折り返されるはずです。"
    address = "https://example.org/a/very/long/path/that/does/not/fit/into/a/panel/of/half/a/terminal/END"
    console = Console(file=io.StringIO(), width=width)
    show(Shown(number=1, total=1, prompt=address * 2, left=unspaced, right=address), console)
    show(Shown(number=1, total=1, prompt="[/] \x1b[2J", left="[red]a[/red]\x1b[31m", right="b\r\nc\x07\u202ed"), console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    boxed = [line.split("│")[1::2] for line in text.splitlines() if "│" in line]
    read = ["".join(line[side].strip() for line in boxed if side < len(line)) for side in range(len(boxed[0]))]
    assert "…" not in text
    assert address * 2 in text.replace("\n", "")
    assert unspaced in read[0]
    assert address in read[-1]
    assert "[/] \\x1b[2J" in text
    assert "[red]a[/red]\\x1b[31m" in text
    assert "c\\x07\\u202ed" in text
    assert not {"\x1b", "\x07", "\r", "\u202e"} & set(text)


def test_a_name_is_shown_as_it_was_typed(tmp_path: Path, toishi: Command) -> None:
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"prompt": "q", "chosen": "good", "rejected": "bad"}\n', "utf-8")
    assert "1 labelled by [/a]\\x1b[1m," in typed("1", "label", pairs, "--name", "[/a]\x1b[1m")[1]
    assert typed("1", "label", pairs, "--name", "[b]")[0] == 0
    said = toishi("label", pairs, "--agreement", width=160).out
    assert "[/a]\\x1b[1m, [b]" in said
    assert "\x1b" not in said


@pytest.mark.parametrize("turn", [{"role": "user"}, {"role": "user", "content": None}, "text", {"content": "q"}])
def test_a_turn_without_text_cannot_be_labelled(tmp_path: Path, toishi: Command, turn: object) -> None:
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text(json.dumps({"messages": [turn], "chosen": "a", "rejected": "b"}) + "\n", "utf-8")
    ended = toishi("label", pairs)
    assert ended.code == 1
    assert "rows 1 cannot be labelled" in " ".join(ended.err.split())


def test_an_error_shows_what_a_terminal_would_obey(toishi: Command) -> None:
    ended = toishi("label", "no\x1b[2J[/b].jsonl")
    assert ended.code == 1
    assert "no\\x1b[2J[/b].jsonl" in ended.err
    assert "\x1b" not in ended.err


@pytest.mark.parametrize("value", ["nan", "inf"])
@pytest.mark.parametrize(
    ("command", "option"),
    [("select", "--threshold"), ("collect", "--threshold"), ("collect", "--min-reward"), ("pairs", "--min-margin")],
)
def test_a_limit_that_is_no_number_is_refused(
    command: str, option: str, value: str, samples: Path, tmp_path: Path, toishi: Command
) -> None:
    ended = toishi(command, "--from", samples, option, value, "-o", tmp_path / "x.jsonl", width=160)
    assert ended.code == 2
    assert option in ended.err
    assert not (tmp_path / "x.jsonl").exists()

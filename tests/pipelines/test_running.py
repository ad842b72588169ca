"""Order, cache, going on after a kill."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tests.making import vowels
from tests.pipelines.conftest import Done
from tests.pipelines.making import read, run, small
from toishi.errors import ConfigError, DataError, RecordError
from toishi.pipelines.running import PipelineView, look_at
from toishi.record.lock import LOCK_FILE
from toishi.record.reader import Run


def states(view: PipelineView) -> dict[str, str]:
    return {stage.name: stage.state for stage in view.stages}


def weights(view: PipelineView, stage: str) -> dict[str, Any]:
    (found,) = [one for one in view.stages if one.name == stage]
    return load_file(found.paths["model"] / "model.safetensors")


def same_weights(one: PipelineView, other: PipelineView, stage: str) -> bool:
    first, second = weights(one, stage), weights(other, stage)
    return first.keys() == second.keys() and all(first[name].equal(second[name]) for name in first)


@pytest.fixture
def copied(done: Done, tmp_path: Path) -> Path:
    """The finished pipeline's folder at another place."""
    return Path(shutil.copytree(done.folder, tmp_path / "out"))


def test_stages_run_in_the_order_of_the_file_and_take_from_one_another(done: Done, tiny: Path) -> None:
    assert list(states(done.view)) == ["answers", "sft", "rl", "student"]
    assert set(states(done.view).values()) == {"finished"}
    answers, sft, rl, student = done.view.stages
    told = [json.loads((stage.folder / "stage.json").read_text())["finished"] for stage in done.view.stages if stage.folder]
    assert told == sorted(told)
    config = Run.open(rl.folder / "run").run["config"] if rl.folder else {}
    assert config["model"]["name"] == str(sft.paths["model"])
    assert (rl.start, student.start) == (sft.model, sft.model)
    rows = [json.loads(line) for line in answers.paths["data"].read_text().splitlines()]
    texts = [row["completion"] for row in rows]
    shares = vowels([[{"role": "assistant", "content": text}] for text in texts])
    assert all(share >= 0.1 for share in shares)
    assert len(rows) == answers.facts["rows"] > 0
    assert json.loads((student.paths["model"] / "config.json").read_text())["num_hidden_layers"] == 1


def test_nothing_is_done_twice(done: Done, copied: Path, tiny: Path, tmp_path: Path) -> None:
    """In a folder that was moved, too."""
    before = {path: path.stat().st_mtime_ns for path in copied.rglob("*") if path.is_file()}
    view = run(read(small(tiny), tmp_path), copied)
    assert set(states(view).values()) == {"kept"}
    changed = [path.name for path, when in before.items() if path.stat().st_mtime_ns != when]
    assert set(changed) <= {"pipeline.json"}


@pytest.mark.parametrize(
    ("key", "value", "again"),
    [
        ("rl.optimizer.lr", 0.001, {"rl"}),
        ("student.layers", 2, set()),  # refused: the model has two
        ("sft.optimizer.lr", 0.001, {"sft", "rl", "student"}),
        ("answers.max_tokens", 6, {"answers"}),  # the same answers are kept: nothing after it changes
        ("rl.about", "other words", set()),
    ],
)
def test_a_change_runs_again_what_depends_on_it(
    key: str, value: Any, again: set[str], copied: Path, tiny: Path, tmp_path: Path
) -> None:
    if key == "student.layers":
        with pytest.raises(Exception, match=r"stage 'student': .* has 2 layers: a student has from 1 to 1 of them, got 2"):
            run(read(small(tiny), tmp_path, {key: value}), copied)
        return
    view = run(read(small(tiny), tmp_path, {key: value}), copied)
    assert {name for name, state in states(view).items() if state == "finished"} == again
    back = run(read(small(tiny), tmp_path), copied)
    assert set(states(back).values()) == {"kept"}


def test_a_changed_file_counts_by_its_content(tiny: Path, tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text('{"prompt": "a", "completion": "b"}\n{"prompt": "c", "completion": "d"}\n')
    values = small(tiny)
    values["stages"] = {"joined": {"kind": "join", "files": ["${folder}/rows.jsonl"]}}
    values["measure"] = {}
    pipeline = read(values, tmp_path)
    assert states(run(pipeline, tmp_path / "out")) == {"joined": "finished"}
    os.utime(data, (1, 1))
    assert states(run(pipeline, tmp_path / "out")) == {"joined": "kept"}
    data.write_text(data.read_text().replace("d", "e"))
    assert states(run(pipeline, tmp_path / "out")) == {"joined": "finished"}


def test_an_output_that_was_changed_is_refused(done: Done, copied: Path, tiny: Path, tmp_path: Path) -> None:
    (data,) = copied.glob("stages/answers/*/data.jsonl")
    data.write_text(data.read_text() + "\n")
    with pytest.raises(RecordError, match=r"what stage 'answers' made \(data\) was changed or removed since"):
        run(read(small(tiny), tmp_path), copied)


def run_until_killed(tiny: Path, folder: Path) -> None:
    """Ends by SIGKILL inside the second step of the stage `rl`."""
    from toishi import loop

    plain = loop.train_step

    def deadly(session: Any, display: Any) -> Any:
        if "rl" in session.writer.folder.parts and session.step == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(session, display)

    loop.train_step = deadly
    run(read(small(tiny), folder), folder / "out")


def test_kill_9_inside_a_train_stage_and_again(done: Done, tiny: Path, tmp_path: Path) -> None:
    child = multiprocessing.get_context("spawn").Process(target=run_until_killed, args=(tiny, tmp_path))
    child.start()
    child.join(120)
    assert child.exitcode == -signal.SIGKILL
    pipeline = read(small(tiny), tmp_path)
    assert states(look_at(pipeline, tmp_path / "out")) == {"answers": "kept", "sft": "kept", "rl": "begun", "student": "next"}
    view = run(pipeline, tmp_path / "out")
    assert states(view) == {"answers": "kept", "sft": "kept", "rl": "finished", "student": "finished"}
    rl = view.stages[2]
    assert rl.sittings == 2
    assert rl.folder is not None
    events = [event for event in Run.open(rl.folder / "run").events if event["kind"] == "resumed"]
    assert [event["message"] for event in events] == ["from step_000001"]
    assert Run.open(rl.folder / "run").steps == (1, 2, 3)
    for stage in ("sft", "rl", "student"):
        assert same_weights(view, done.view, stage)


def test_killed_after_a_run_and_before_it_was_noted(done: Done, copied: Path, tiny: Path, tmp_path: Path) -> None:
    """What a kill between two stages leaves: a whole run without stage.json, and nothing of the stages after it."""
    (noted,) = copied.glob("stages/rl/*/stage.json")
    noted.unlink()
    shutil.rmtree(copied / "stages" / "student")
    view = run(read(small(tiny), tmp_path), copied)
    assert states(view) == {"answers": "kept", "sft": "kept", "rl": "finished", "student": "finished"}
    assert same_weights(view, done.view, "rl")
    assert same_weights(view, done.view, "student")


def test_killed_inside_sampling(done: Done, copied: Path, tiny: Path, tmp_path: Path) -> None:
    """A samples file that ends inside a line: what is there is not asked again, and the same rows come out."""
    (folder,) = (copied / "stages" / "answers").iterdir()
    rows = (folder / "data.jsonl").read_bytes()
    (folder / "data.jsonl").unlink()
    (folder / "stage.json").unlink()
    samples = folder / "data.samples.jsonl"
    whole = samples.read_bytes()
    samples.write_bytes(whole[: len(whole) * 2 // 3])
    view = run(read(small(tiny), tmp_path), copied)
    assert states(view)["answers"] == "finished"
    assert (folder / "data.jsonl").read_bytes() == rows
    assert samples.read_bytes() == whole
    assert states(view)["sft"] == "kept"


def test_killed_while_a_student_was_written(done: Done, copied: Path, tiny: Path, tmp_path: Path) -> None:
    """Half a file of weights, no tokenizer, no stage.json."""
    (folder,) = (copied / "stages" / "student").iterdir()
    (folder / "stage.json").unlink()
    (folder / "model" / "tokenizer.json").unlink()
    half = folder / "model" / "model.safetensors"
    half.write_bytes(half.read_bytes()[:100])
    view = run(read(small(tiny), tmp_path), copied)
    assert states(view)["student"] == "finished"
    assert same_weights(view, done.view, "student")


def test_killed_before_the_run_had_its_first_file(done: Done, copied: Path, tiny: Path, tmp_path: Path) -> None:
    (folder,) = (copied / "stages" / "rl").iterdir()
    (folder / "stage.json").unlink()
    shutil.rmtree(folder / "run")
    (folder / "run").mkdir()
    view = run(read(small(tiny), tmp_path), copied)
    assert states(view) == {"answers": "kept", "sft": "kept", "rl": "finished", "student": "kept"}
    assert same_weights(view, done.view, "rl")


def test_killed_while_measuring(done: Done, copied: Path, tiny: Path, tmp_path: Path) -> None:
    """What is there is kept, what is not is measured again, to the same numbers."""
    files = sorted((copied / "measured").iterdir())
    before = [file.read_text("utf-8") for file in files]
    assert len(files) == 4
    files[1].unlink()
    (copied / "measured" / f".tmp-{files[1].name}").write_text("{")
    view = run(read(small(tiny), tmp_path), copied)
    assert set(states(view).values()) == {"kept"}
    assert [file.read_text("utf-8") for file in files] == before


def test_a_second_process_is_refused(copied: Path, tiny: Path, tmp_path: Path) -> None:
    holds = (
        "import fcntl, os, sys; lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT); fcntl.flock(lock, fcntl.LOCK_EX); "
        "print('ready', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", holds, str(copied / LOCK_FILE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        with pytest.raises(RecordError, match="is being written by"):
            run(read(small(tiny), tmp_path), copied)
        holder.communicate()


def test_a_folder_of_something_else_is_refused(copied: Path, tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is the folder of pipeline 'small', not of 'other'; choose another --out"):
        run(read(small(tiny) | {"name": "other"}, tmp_path), copied)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("words")
    with pytest.raises(ConfigError, match="is no folder of a pipeline and not empty; choose another --out"):
        run(read(small(tiny), tmp_path), tmp_path / "mine")


def test_nothing_left_to_learn_from_is_said_with_the_stage(tiny: Path, tmp_path: Path) -> None:
    values = small(tiny)
    values["measure"] = {}
    values["stages"] = {"answers": values["stages"]["answers"] | {"threshold": 2.0}}
    with pytest.raises(DataError, match=r"stage 'answers': no answer is left \(16: not right\), so the pipeline cannot go on"):
        run(read(values, tmp_path), tmp_path / "out")


def test_faults_of_late_stages_stop_the_first(tiny: Path, tmp_path: Path) -> None:
    values = small(tiny)
    values["stages"]["rl"]["set"] = {"train.grop_size": 3}
    values["stages"]["sft"]["set"] = {"task.path": "nowhere.jsonl"}
    with pytest.raises(ConfigError) as caught:
        run(read(values, tmp_path), tmp_path / "out")
    assert "2 to mend before the first stage begins" in str(caught.value)
    assert "stage 'rl': train.grop_size: unknown key; did you mean 'group_size'?" in str(caught.value)
    assert "stage 'sft': task.path: there is no file nowhere.jsonl" in str(caught.value)
    assert not (tmp_path / "out" / "stages").exists()

"""A run goes on as the same run or not at all: other data, another model, missing lines, damaged files are met at the door."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.test_loop import assert_same_run, longer, recipe
from tests.tiny import save_tiny
from toishi import api, loop
from toishi.display import Display
from toishi.errors import DataError, ModelError, RecordError
from toishi.explanation.audit import audit
from toishi.record.files import seal_of, write_json
from toishi.record.reader import Run
from toishi.resuming import where_to_go_on
from toishi.sampler import Source, measure_model, run_config

QUICK: dict[str, Any] = {"evaluation.every": 0, "evaluation.prompts": 2, "train.steps": 2, "checkpoint.every": 1}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model") / "llama", "llama")


@pytest.fixture(scope="module")
def straight(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six steps, checkpoints at 0, 3 and 6."""
    return loop.train(recipe(tiny, **{"checkpoint.keep_last": 9}), tmp_path_factory.mktemp("straight") / "run").folder


@pytest.fixture
def folder(straight: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(straight, tmp_path / "run"))


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def said_on_resume(folder: Path) -> str:
    text = StringIO()
    loop.resume(folder, Display(Console(file=text, width=1000)))
    return text.getvalue()


def cut_lines(path: Path, keep: int) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:keep]))


def edit_line(path: Path, number: int, change: Callable[[dict[str, Any]], Any]) -> None:
    lines = path.read_text().splitlines()
    values = json.loads(lines[number])
    change(values)
    lines[number] = json.dumps(values)
    path.write_text("\n".join(lines) + "\n")


def edit_run(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Changes run.json and seals it again, as another version might have written it."""
    run = json.loads((folder / "run.json").read_text())
    change(run)
    write_json(folder / "run.json", run)


# another model, other data, another reward


@pytest.mark.parametrize(
    "overrides",
    [{"model.lora": {"rank": 2}}, {"algorithm": {"name": "grpo", "kl": "k3", "kl_coef": 0.1}}],
    ids=["lora", "kl"],
)
def test_another_base_model_at_the_same_path_is_refused(tmp_path: Path, overrides: dict[str, Any]) -> None:
    model = save_tiny(tmp_path / "model", "llama", seed=0)
    folder = loop.train(recipe(model, **QUICK, **overrides), tmp_path / "run").folder
    longer(folder, 3)
    before = content(folder)
    shutil.rmtree(model)
    save_tiny(model, "llama", seed=5)
    fingerprint = Run.open(folder).run["model"]["fingerprint"]
    with pytest.raises(ModelError, match=f"not the model that this run started from: .* run.json says {fingerprint[:12]}"):
        loop.resume(folder)
    assert content(folder) == before
    if "model.lora" in overrides:
        opened = Source.find(str(folder))
        config = run_config(Run.open(folder)).model_copy(update={"model": opened.model})
        with pytest.raises(ModelError, match="not the model that this run started from"):
            measure_model(config, step=opened.step, run=opened.run)


def own_data(tmp_path: Path, texts: list[str]) -> dict[str, Any]:
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    return {"task": {"name": "file", "path": str(path), "as_chat": True, "heldout": 2}}


@pytest.mark.parametrize("now", ["other texts", "one row more"])
def test_changed_data_is_refused_before_anything_is_written(tiny: Path, tmp_path: Path, now: str) -> None:
    texts = [f"say {number}" for number in range(12)]
    folder = loop.train(recipe(tiny, **QUICK, **own_data(tmp_path, texts)), tmp_path / "run").folder
    longer(folder, 3)
    before = content(folder)
    own_data(tmp_path, [text.upper() + "!" for text in texts] if now == "other texts" else [*texts, "say more"])
    with pytest.raises(DataError, match=r"the data of task 'file' changed since this run was started: .*Put the rows back"):
        loop.resume(folder)
    assert content(folder) == before
    own_data(tmp_path, texts)
    assert loop.resume(folder).finished


def test_a_changed_reward_is_said_and_recorded(tiny: Path, tmp_path: Path) -> None:
    source = tmp_path / "reward.py"
    source.write_text("def score(completions):\n    return [float(len(str(c)) % 5) for c in completions]\n")
    reward = {"name": "mine", "kind": "function", "function": f"{source}:score"}
    folder = loop.train(recipe(tiny, **QUICK, rewards=[reward]), tmp_path / "run").folder
    assert len(Run.open(folder).run["rewards"]["mine"]) == 64
    assert "another source" not in said_on_resume(folder)
    source.write_text(source.read_text().replace("% 5", "% 7"))
    longer(folder, 3)
    assert "reward 'mine' has another source" in said_on_resume(folder)
    (event,) = [event for event in Run.open(folder).events if event["kind"] == "changed"]
    assert (event["step"], "'mine'" in event["message"]) == (2, True)
    assert audit(folder).ok


# lines and checkpoints that are gone


def remove(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def drop_line(name: str, number: int) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        lines = (folder / name).read_bytes().splitlines(keepends=True)
        (folder / name).write_bytes(b"".join(lines[:number] + lines[number + 1 :]))

    return change


def cut(name: str, keep: int) -> Callable[[Path], None]:
    return lambda folder: cut_lines(folder / name, keep)


def rename(folder: Path) -> None:
    (folder / "checkpoints" / "step_000006").rename(folder / "checkpoints" / "step_000009")


MISSING = {
    "metrics cut": (cut("metrics.jsonl", 2), "its step is in metrics.jsonl"),
    "last metrics line cut": (cut("metrics.jsonl", 5), "lines that checkpoints/step_000006 saw"),
    "metrics emptied": (cut("metrics.jsonl", 0), "its step is in metrics.jsonl"),
    "metrics deleted": (remove("metrics.jsonl"), "its step is in metrics.jsonl"),
    "evaluations deleted": (remove("evaluations.jsonl"), "lines that checkpoints/step_000006 saw"),
    "an evaluation dropped": (drop_line("evaluations.jsonl", 1), "previous (seal of the line before it)"),
    "last evaluation dropped": (drop_line("evaluations.jsonl", 4), "lines that checkpoints/step_000006 saw"),
    "events deleted": (remove("events.jsonl"), "lines that checkpoints/step_000006 saw"),
    "an event dropped": (drop_line("events.jsonl", 0), "previous (seal of the line before it)"),
    "checkpoints deleted": (remove("checkpoints"), "checkpoint of step 6, which events.jsonl tells of"),
    "first checkpoint deleted": (remove("checkpoints/step_000000"), "checkpoint of step 0, which events.jsonl tells of"),
    "newest checkpoint deleted": (remove("checkpoints/step_000006"), "checkpoint of step 6, which events.jsonl tells of"),
    "checkpoint renamed": (rename, "was renamed: it holds step 6"),
}


@pytest.mark.parametrize("case", MISSING)
def test_audit_finds_what_is_missing(folder: Path, case: str) -> None:
    assert audit(folder).ok
    damage, what = MISSING[case]
    damage(folder)
    findings = audit(folder).findings
    assert any(what in f"{finding.what} {finding.got}" for finding in findings), findings


def checkpoint_to_go_on_from(folder: Path) -> tuple[str | None, str]:
    found = where_to_go_on(Run.open(folder))
    return found.folder.name if found.folder else None, "; ".join(found.skipped)


@pytest.mark.parametrize(
    ("damage", "name", "reason"),
    [
        (cut("metrics.jsonl", 4), "step_000003", "stands after step 6, but metrics.jsonl lacks step 5 and 1 more"),
        (cut("metrics.jsonl", 0), "step_000000", "stands after step 3, but metrics.jsonl lacks step 1 and 2 more"),
        (drop_line("metrics.jsonl", 1), "step_000000", "stands after step 6, but metrics.jsonl lacks step 2"),
        (rename, "step_000003", "was renamed: it holds step 6"),
    ],
)
def test_goes_on_from_the_newest_checkpoint_whose_steps_are_on_record(
    folder: Path, damage: Callable[[Path], None], name: str, reason: str
) -> None:
    damage(folder)
    found, why = checkpoint_to_go_on_from(folder)
    assert found == name
    assert reason in why


def test_steps_that_were_cut_off_are_done_again(straight: Path, folder: Path) -> None:
    cut_lines(folder / "metrics.jsonl", 4)
    assert "passed over: " in said_on_resume(folder)
    assert_same_run(folder, straight)
    assert audit(folder).ok


def test_lost_evaluations_are_said_and_steps_are_kept(folder: Path) -> None:
    (folder / "evaluations.jsonl").unlink()
    assert "evaluations.jsonl is not as it was" in said_on_resume(folder)
    assert Run.open(folder).steps == (1, 2, 3, 4, 5, 6)


def test_steps_without_a_checkpoint_cannot_go_on(folder: Path) -> None:
    shutil.rmtree(folder / "checkpoints")
    before = content(folder)
    with pytest.raises(RecordError, match=r"has steps on record but no intact checkpoint.*start a new run in another folder"):
        loop.resume(folder)
    (folder / "metrics.jsonl").unlink()
    with pytest.raises(RecordError, match="has steps on record but no intact checkpoint"):
        loop.resume(folder)
    assert content(folder) == {name: data for name, data in before.items() if name != "metrics.jsonl"}


def test_changed_run_json_cannot_go_on(folder: Path) -> None:
    path = folder / "run.json"
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 1'))
    with pytest.raises(RecordError, match=r"run\.json was changed after it was written.*for other settings start a new run"):
        loop.resume(folder)


# before the first checkpoint, without any score, at the same time


def test_stopped_before_the_first_checkpoint_begins_again(tiny: Path, straight: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    shutil.copy(straight / "run.json", folder)
    with pytest.raises(RecordError, match=r"already holds a run\. Continue it with `toishi resume"):
        loop.train(recipe(tiny), folder)
    assert loop.resume(folder).finished
    assert_same_run(folder, straight)
    assert audit(folder).ok
    assert Run.open(folder).events[0]["message"] == "from the start"


def test_begins_again_with_the_same_model_only(tiny: Path, straight: Path, tmp_path: Path) -> None:
    shutil.copy(straight / "run.json", tmp_path)
    edit_run(tmp_path, lambda run: run["model"].update(fingerprint="0" * 64))
    with pytest.raises(ModelError, match="not the model that this run started from"):
        loop.resume(tmp_path)


def test_a_run_without_any_score_is_resumed_and_shown(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "silent.py").write_text("def score(completions):\n    return [None] * len(completions)\n")
    reward = {"name": "silent", "kind": "function", "function": f"{tmp_path / 'silent.py'}:score"}
    overrides = QUICK | {"evaluation.every": 1, "rewards": [reward]}
    folder = loop.train(recipe(tiny, **overrides), tmp_path / "run").folder
    assert [line["value"] for line in Run.open(folder).evaluations] == [None] * 5
    assert "step 2 held-out" not in said_on_resume(folder)
    longer(folder, 4)
    assert "step 4 held-out, greedy: -" in said_on_resume(folder)
    assert Source.find(str(folder), "last").step == 4
    assert audit(folder).ok
    api.explain(folder, quiet=True)


RESUME = "import sys; from toishi import loop; loop.resume(sys.argv[1])"


def test_a_second_process_cannot_resume_what_is_being_written(folder: Path) -> None:
    class Asking(Display):
        def ended(self, session: Any, finished: bool) -> None:
            environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
            command = [sys.executable, "-c", RESUME, str(folder)]
            done.append(subprocess.run(command, env=environment, capture_output=True, text=True, check=False))

    done: list[Any] = []
    loop.resume(folder, Asking.silent())
    assert f"is being written by process {os.getpid()} on" in done[0].stderr
    assert not (folder / "writer.lock").exists()


# odd files


def line(name: str, number: int, **values: Any) -> Callable[[Path], None]:
    return lambda folder: edit_line(folder / name, number, lambda found: found.update(values))


def run_json(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    return lambda folder: edit_run(folder, change)


def into_folder(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).mkdir()

    return change


ODD = {
    "config gone": (run_json(lambda run: run.pop("config")), "config is missing"),
    "config a list": (run_json(lambda run: run.update(config=[])), "config: expected a mapping"),
    "decisions gone": (run_json(lambda run: run.pop("decisions")), "decisions is missing"),
    "decisions odd": (run_json(lambda run: run["decisions"].update(new=1)), "decisions.new: unknown key"),
    "no such dtype": (run_json(lambda run: run["decisions"].update(dtype="float7")), "decisions.dtype: expected one of"),
    "no threads": (run_json(lambda run: run["decisions"].update(threads=0)), "decisions.threads: expected a whole number"),
    "fingerprint gone": (run_json(lambda run: run["model"].pop("fingerprint")), "model.fingerprint: expected a text"),
    "seed a text": (run_json(lambda run: run.update(seed="x")), "seed: expected a whole number"),
    "environment odd": (run_json(lambda run: run["environment"].update(versions=3)), "environment.versions: expected"),
    "run.json a list": (lambda folder: (folder / "run.json").write_text("[]"), "run.json is damaged"),
    "run.json a folder": (into_folder("run.json"), "run.json is damaged"),
    "metrics a folder": (into_folder("metrics.jsonl"), "metrics.jsonl cannot be read"),
    "step a truth": (line("metrics.jsonl", 3, step=True), "line 4: expected whole numbers"),
    "step 0": (line("metrics.jsonl", 3, step=0), "line 4, step: expected"),
    "updates below 0": (line("metrics.jsonl", 3, num_updates=-1), "num_updates: expected"),
    "fewer updates": (line("metrics.jsonl", 3, num_updates=0), "updates/0/"),
    "metric a text": (line("metrics.jsonl", 1, **{"reward/mean": "x"}), "line 2, reward/mean: expected a number or null"),
    "non_finite a list": (line("metrics.jsonl", 1, non_finite=["x"]), "line 2, non_finite: expected a mapping"),
    "non_finite odd": (line("metrics.jsonl", 1, non_finite={"a": "x"}), "line 2, non_finite: expected a mapping"),
    "evaluation step": (line("evaluations.jsonl", 0, step="x"), "evaluations.jsonl .* line 1, step: expected"),
    "evaluation value": (line("evaluations.jsonl", 0, value="x"), "line 1, value: expected a number or null"),
    "evaluation interval": (line("evaluations.jsonl", 0, interval=[1]), "line 1, interval: expected two numbers"),
    "evaluation prompts": (line("evaluations.jsonl", 0, by_prompt=[1]), "line 1, by_prompt: expected a number for every"),
    "event kind": (line("events.jsonl", 0, kind=None), "events.jsonl .* line 1, kind: expected a text"),
}  # fmt: skip


@pytest.mark.parametrize("case", ODD)
def test_odd_files_are_errors_with_file_key_and_remedy(folder: Path, case: str) -> None:
    damage, what = ODD[case]
    damage(folder)
    for read in (loop.resume, Run.open, lambda path: api.explain(path, quiet=True)):
        with pytest.raises(RecordError, match=what) as error:
            read(folder)
        assert "Restore it" in str(error.value)
    assert not audit(folder).ok


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda run: run["config"].update(zzz=7), r"run\.json, config: zzz: unknown key.*written by toishi"),
        (lambda run: run["config"]["train"].update(steps="ten"), r"run\.json, config: train\.steps: .*written by toishi"),
        (lambda run: run["config"].update(train=3), r"run\.json, config: train"),
        (lambda run: run["config"].update(algorithm=[]), r"run\.json, config: algorithm"),
        (
            lambda run: run["decisions"].update(device="cuda:63"),
            r"decisions\.device: the run was made on cuda:63.*new run here",
        ),
        (lambda run: run["decisions"].update(device="tpu"), r"decisions\.device: the run was made on tpu"),
    ],
)
def test_a_configuration_or_device_that_is_not_for_here(folder: Path, change: Callable[[Any], Any], what: str) -> None:
    edit_run(folder, change)
    before = content(folder)
    with pytest.raises(RecordError, match=what):
        loop.resume(folder)
    assert content(folder) == before


@pytest.mark.parametrize("key", ["mode", "by_prompt", "samples"])
def test_an_evaluation_that_lacks_a_field_stops_before_anything_is_moved(folder: Path, key: str) -> None:
    edit_line(folder / "evaluations.jsonl", 0, lambda found: found.pop(key))
    before = content(folder)
    with pytest.raises(RecordError, match=rf"evaluations\.jsonl: the line of step 0 lacks {key}"):
        loop.resume(folder)
    assert content(folder) == before


def test_a_health_event_without_its_rule_is_no_obstacle(folder: Path) -> None:
    edit_line(folder / "events.jsonl", 0, lambda found: found.update(kind="health"))
    assert loop.resume(folder).finished


@pytest.mark.parametrize("change", ["schema_version", "step", "files"])
def test_a_checkpoint_whose_facts_are_odd_is_passed_over(folder: Path, change: str) -> None:
    path = folder / "checkpoints" / "step_000006" / "state.json"
    facts = json.loads(path.read_text())
    facts.pop(change)
    path.write_text(json.dumps(facts | {"seal": seal_of(facts)}))
    name, why = checkpoint_to_go_on_from(folder)
    assert name == "step_000003"
    assert "lacks schema_version, step or files" in why

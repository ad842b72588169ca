"""Stages that a pipeline alone has, and kinds that the small pipeline leaves out: join, select, pairs, a reward model."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.making import VOWELS, read, run, small
from toishi import loop
from toishi.errors import DataError
from toishi.pipelines.gains import gains_of
from toishi.pipelines.story import facts_in_words
from toishi.record.reader import Run


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def joined(values: dict[str, Any], folder: Path, **keys: Any) -> list[dict[str, Any]]:
    values["measure"] = {}
    values["stages"] = {"joined": {"kind": "join", **keys}}
    (stage,) = run(read(values, folder), folder / "out").stages
    return [json.loads(line) for line in stage.paths["data"].read_text("utf-8").splitlines()]


def test_texts_and_chats_become_chats_of_one_form(tiny: Path, tmp_path: Path) -> None:
    lines(tmp_path / "chats.jsonl", [{"messages": [{"role": "user", "content": "a"}], "completion": "b", "reward": 1.0}] * 2)
    lines(tmp_path / "texts.jsonl", [{"prompt": f"c{number}", "completion": "d", "answer": "d"} for number in range(5)])
    files = ["${folder}/chats.jsonl", "${folder}/texts.jsonl"]
    rows = joined(small(tiny), tmp_path, files=files, limits=[0, 3])
    assert len(rows) == 2 + 3
    assert all(set(row) == {"messages", "completion"} for row in rows)
    asked = sorted(row["messages"][0]["content"] for row in rows)
    assert asked == ["a", "a", "c0", "c1", "c2"]
    other = joined(small(tiny) | {"seed": 1}, tmp_path, files=files, limits=[0, 3])
    assert sorted(map(str, other)) == sorted(map(str, rows))
    assert other != rows


def test_inputs_are_counted_by_the_stage_that_made_them(tiny: Path, tmp_path: Path) -> None:
    lines(tmp_path / "a.jsonl", [{"prompt": "a", "completion": "b"}])
    values = small(tiny)
    values["measure"] = {}
    values["stages"] = {
        "one": {"kind": "join", "files": ["${folder}/a.jsonl"]},
        "two": {"kind": "join", "files": ["${folder}/a.jsonl"]},
        "both": {"kind": "join", "files": ["${stages.one.data}", "${stages.two.data}", "${folder}/a.jsonl"]},
    }
    both = run(read(values, tmp_path), tmp_path / "out").stages[-1]
    assert both.facts["of"] == {"one": 1, "two": 1, "a.jsonl": 1}
    assert facts_in_words(both.facts) == "3 rows; from: one 1, two 1, a.jsonl 1"


def test_files_of_different_forms_are_refused(tiny: Path, tmp_path: Path) -> None:
    lines(tmp_path / "a.jsonl", [{"prompt": "a", "completion": "b"}])
    lines(tmp_path / "b.jsonl", [{"prompt": "a", "chosen": "b", "rejected": "c"}])
    lines(tmp_path / "c.jsonl", [{"question": "a", "completion": "b"}])
    with pytest.raises(DataError, match=r"stage 'joined': its files have no column in common besides the prompt"):
        joined(small(tiny), tmp_path, files=["${folder}/a.jsonl", "${folder}/b.jsonl"])
    with pytest.raises(DataError, match=r"row 1: no `messages` and no text in `prompt`"):
        joined(small(tiny), tmp_path, files=["${folder}/a.jsonl", "${folder}/c.jsonl"])


def test_prompts_pairs_and_a_reward_model_that_rewards(tiny: Path, tmp_path: Path) -> None:
    asking = {"recipe": VOWELS, "samples": 4, "prompts": 8}
    rank = {
        **VOWELS, "algorithm": "reward_model", "rewards": [], "train": {"steps": 2, "prompts_per_step": 2, "group_size": 2},
        "task": {"name": "file", "path": "${stages.pairs.data}", "prompt_column": "messages", "heldout": 1},
        "sampling": {"max_new_tokens": 90}, "evaluation": {"prompts": 1},
    }  # fmt: skip
    values = small(tiny)
    values["measure"] = {}
    values["stages"] = {
        "chosen": {"kind": "select", **asking, "band": "0-1"},
        "pairs": {"kind": "pairs", **asking, "per_prompt": 2, "balance": False, "set": {"sampling.max_new_tokens": 60}},
        "scorer": {"kind": "train", "recipe": rank},
        "rl": {
            "kind": "train", "recipe": VOWELS,
            "set": {
                "task": {"name": "file", "path": "${stages.chosen.data}", "heldout": 0},
                "rewards": [{"name": "liked", "kind": "reward_model", "model": "${stages.scorer.model}"}],
                "train.steps": 1,
            },
        },
    }  # fmt: skip
    view = run(read(values, tmp_path), tmp_path / "out")
    chosen, pairs, scorer, rl = view.stages
    assert chosen.facts["rows"] == 8
    assert all({"chosen", "rejected"} <= set(json.loads(row)) for row in pairs.paths["data"].read_text("utf-8").splitlines())
    assert "held-out pairs ranked right" in facts_in_words(scorer.facts)
    assert rl.folder is not None
    scores = {score.reward for group in Run.open(rl.folder / "run").step(1).groups for score in group.rollouts[0].scores}
    assert scores == {"liked"}


def test_a_start_that_no_stage_made_is_measured_too(tiny: Path, tmp_path: Path) -> None:
    from tests.tiny import save_tiny

    other = save_tiny(tmp_path / "other", "llama", seed=3)
    values = small(tiny)
    values["stages"] = {"student": {"kind": "shrink", "model": str(other), "layers": 1}}
    (gain, *_) = gains_of(run(read(values, tmp_path), tmp_path / "out"))
    assert (gain.stage, gain.measure, gain.prompts) == ("student", "vowels", 12)


def test_ctrl_c_saves_and_the_same_command_goes_on(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = small(tiny)
    values["measure"] = {}
    values["stages"] = {"rl": {"kind": "train", "recipe": VOWELS}}
    plain = loop.train_step

    def interrupting(session: Any, display: Any) -> Any:
        if session.step == 1:
            signal.raise_signal(signal.SIGINT)
        return plain(session, display)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "train_step", interrupting)
        with pytest.raises(KeyboardInterrupt):
            run(read(values, tmp_path), tmp_path / "out")
    (stage,) = run(read(values, tmp_path), tmp_path / "out").stages
    assert (stage.state, stage.sittings) == ("finished", 2)
    assert stage.folder is not None
    record = Run.open(stage.folder / "run")
    assert record.steps == (1, 2, 3)
    assert [event["step"] for event in record.events if event["kind"] == "resumed"] == [2]

"""Worked examples before prompts: shown to the model, and in nothing that is written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tiny import save_tiny
from toishi.collecting.asking import AskPlan, ask_all
from toishi.collecting.keeping import KeepPlan, keep
from toishi.collecting.shots import SEPARATOR, Shot, read_shots, with_shots
from toishi.config import load_config
from toishi.errors import ConfigError, DataError
from toishi.sampler import Sampler
from toishi.types import Prompt

SHOTS = (Shot("1 + 1?", "2"), Shot("2 + 3?", "5"))
VALUES = {
    "task": {"name": "sums", "heldout": 2},
    "rewards": [{"name": "vowels", "function": "tests.making:vowels"}],
    "sampling": {"max_new_tokens": 6},
}


def test_a_system_turn_stays_in_front() -> None:
    turns = ({"role": "system", "content": "Be short."}, {"role": "user", "content": "3 + 3?"})
    shown = with_shots(Prompt(id="a", messages=turns), SHOTS)
    assert shown.messages is not None
    assert [(turn["role"], turn["content"]) for turn in shown.messages] == [
        ("system", "Be short."), ("user", "1 + 1?"), ("assistant", "2"), ("user", "2 + 3?"), ("assistant", "5"),
        ("user", "3 + 3?"),
    ]  # fmt: skip


def test_plain_text_gets_them_as_text() -> None:
    assert with_shots(Prompt(id="a", text="3 + 3?"), SHOTS).text == f"1 + 1? 2{SEPARATOR}2 + 3? 5{SEPARATOR}3 + 3?"
    assert with_shots(Prompt(id="a", text="3 + 3?"), ()).text == "3 + 3?"


def test_answers_are_those_to_the_shown_prompt_and_rows_have_the_plain_one(tmp_path: Path) -> None:
    config = load_config(VALUES, {"model.name": str(save_tiny(tmp_path / "model")), "model.dtype": "float32"})
    plan = AskPlan(recipe="x", config=config, samples=2, prompts=3, shots=SHOTS)
    header, asked = ask_all(plan, tmp_path / "with.samples.jsonl")
    bare, plainly = ask_all(AskPlan(recipe="x", config=config, samples=2, prompts=3), tmp_path / "without.samples.jsonl")
    assert [one.prompt for one in asked] == [one.prompt for one in plainly]
    assert [one.answers for one in asked] != [one.answers for one in plainly]
    _, rows = keep(header, asked, KeepPlan(keep="all", truncated=True, dedup="off"))
    for row in rows:
        assert len(row["messages"]) == 1
        assert row["source"]["shots_sha256"] == header.shots != ""
    assert "shots_sha256" not in bare.provenance
    sampler = Sampler.open(config.model, seed=0)
    first = asked[0].as_prompt
    longer = sampler.renderer.render(with_shots(first, SHOTS)).token_ids
    assert len(longer) > len(sampler.renderer.render(first).token_ids)


def test_going_on_with_other_examples_is_refused(tmp_path: Path) -> None:
    config = load_config(VALUES, {"model.name": str(save_tiny(tmp_path / "model")), "model.dtype": "float32"})
    path = tmp_path / "a.samples.jsonl"
    ask_all(AskPlan(recipe="x", config=config, samples=1, prompts=1, shots=SHOTS), path)
    with pytest.raises(ConfigError, match="shots: "):
        ask_all(AskPlan(recipe="x", config=config, samples=1, prompts=1, shots=SHOTS[:1]), path, go_on=True)


def test_a_file_of_examples(tmp_path: Path) -> None:
    file = tmp_path / "shots.jsonl"
    file.write_text("".join(json.dumps({"prompt": shot.prompt, "completion": shot.completion}) + "\n" for shot in SHOTS))
    assert read_shots(file) == SHOTS
    file.write_text('{"prompt": "a", "completion": 3}\n')
    with pytest.raises(DataError, match=r"row 1: an example has `prompt` and `completion`, both text, got .*3"):
        read_shots(file)
    file.write_text("\n")
    with pytest.raises(DataError, match="has no rows; expected at least one example"):
        read_shots(file)

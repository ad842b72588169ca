"""check, evaluate, sample, fetch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Command, Finished
from toishi.policy import bundled
from toishi.record.reader import Run


def test_check_shows_everything(recipe: Path, toishi: Command) -> None:
    ended = toishi("check", recipe)
    assert ended.code == 0
    for text in (
        "2 prompts × 3 answers = 6 answers a step",
        "Rewards tried on made-up answers",
        "A prompt as the model reads it",
        "<|im_start|>assistant",
        "4 '<|im_end|>'",
        "Sampled answers to:",
        "groups are mixed",
        "Memory, estimated",
    ):
        assert text in ended.out.replace("\n", " ")
    assert all(len(line.rstrip()) <= 80 for line in ended.out.splitlines())


def test_check_tells_what_methods_keep_of_this_model(recipe: Path, toishi: Command) -> None:
    """23,712 weights, 4,096 of them in an output layer that a critic of its own leaves idle: 20 + 16 - 12 · 4,096 / 23,712."""
    plain = toishi("check", recipe, "--no-attacks", width=200)
    assert "GRPO keeps 16.0 bytes a weight where PPO with KL, critic of its own keeps 33.9" in plain.out
    assert "bytes a weight, by method" not in plain.out
    told = toishi("check", recipe, "--no-attacks", "--methods", width=200)
    lines = {line.split("  ")[0].strip(): line.split() for line in told.out.splitlines()}
    assert "33.9" in lines["PPO with KL, critic of its own"]
    assert "20.0" in lines["GRPO with KL"]
    assert "16.0" in lines["this recipe"]
    found = json.loads(toishi("check", recipe, "--no-attacks", "--json").out)["memory"]
    assert found["kept"]["num_bytes"] == 16 * 23_712
    assert [one["method"] for one in found["methods"]][:2] == ["SFT", "reward model"]


def test_check_without_a_model_loads_none(recipe: Path, toishi: Command) -> None:
    ended = toishi("check", recipe, "--no-model", "--set", "model.name=./nowhere")
    assert ended.code == 0
    assert "the model was not looked at" in ended.out
    assert "A prompt as the model reads it" not in ended.out


def test_check_json(recipe: Path, toishi: Command) -> None:
    report = json.loads(toishi("check", recipe, "--json").out)
    assert report["ok"] is True
    assert report["prompt"]["bos_count"] == 0
    assert report["model"]["parameters"] == 23_712
    assert report["forecast"]["num_groups"] == 8
    assert report["num_heldout"] == 4


def test_check_lists_all_errors_at_once(tiny: Path, tmp_path: Path, toishi: Command) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text('{"prompt": "1 + 1?", "answer": 2}\n{"prompt": "x?", "answer": "x+2"}\n', encoding="utf-8")
    path = tmp_path / "mine.yaml"
    path.write_text(
        f"task: {{name: file, path: {data}, gold_column: answer, heldout: 0}}\n"
        f"rewards: [{{name: number}}]\nmodel: {{name: {tiny}, adapter: {tmp_path}/none}}\n",
        encoding="utf-8",
    )
    ended = toishi("check", path, width=200)
    assert ended.code == 1
    assert "the gold 'x+2' cannot be read as one number" in ended.out
    assert "holds no adapter_config.json" in ended.out
    assert "Not ready: 2 errors to mend before training can start." in ended.out
    assert json.loads(toishi("check", path, "--json").out)["ok"] is False


def test_check_shows_how_golds_were_read_why_answers_were_paid_and_the_disk(
    tiny: Path, tmp_path: Path, toishi: Command
) -> None:
    data = tmp_path / "rows.jsonl"
    lines = [f'{{"prompt": "{number} + 1?", "answer": {number + 1}}}\n' for number in range(40)]
    data.write_text("".join([*lines, '{"prompt": "When?", "answer": "3:30"}\n']), encoding="utf-8")
    path = tmp_path / "mine.yaml"
    path.write_text(
        f"task: {{name: file, path: {data}, gold_column: answer, heldout: 0}}\nrewards: [{{name: math}}]\n"
        f"model: {{name: {tiny}}}\nsampling: {{max_new_tokens: 8}}\n",
        encoding="utf-8",
    )
    ended = toishi("check", path, "--no-attacks", width=120)
    assert "How 'math' read the golds" in ended.out
    assert "'3:30' is read as time 03:30" in " ".join(ended.out.split())
    assert "an answer could be read in" in ended.out
    assert "checkpoints: up to" in ended.out
    sampled = ended.out.partition("Sampled answers to:")[2]
    assert "gold 1" in sampled or "cut off at the token limit" in sampled
    report = json.loads(toishi("check", path, "--no-attacks", "--json").out)
    assert report["golds"][0]["types"][0][1] == 40
    assert report["disk"]["needed"] > report["disk"]["first"] > 0
    assert 0 <= report["readable"] <= 1


def test_an_error_names_its_part_once_and_hides_no_other(tmp_path: Path, toishi: Command) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("task: {name: smus}\nrewards: [{name: nmber}, {name: regex, pattern: '('}]\n", encoding="utf-8")
    ended = toishi("check", path, "--no-model", width=200)
    assert ended.code == 1
    assert "error in data: task.name: there is no task 'smus'" in ended.out
    assert "error in rewards: there is no reward 'nmber'; did you mean 'number'? Your own" in ended.out
    assert "is not a regular expression" in ended.out


def test_text_in_brackets_is_no_markup(tiny: Path, tmp_path: Path, toishi: Command) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text('{"prompt": "Close [/bold] this", "answer": "[red]"}\n' * 2, encoding="utf-8")
    path = tmp_path / "mine.yaml"
    path.write_text(
        f"description: '[/x]'\ntask: {{name: file, path: {data}, gold_column: answer, heldout: 0}}\n"
        f"rewards: [{{name: text}}]\nmodel: {{name: {tiny}}}\nsampling: {{max_new_tokens: 8}}\n",
        encoding="utf-8",
    )
    ended = toishi("check", path)
    assert "Close [/bold] this" in ended.out
    assert "'[red]'" in ended.out
    assert "[/x]" in ended.out


def test_evaluate_gives_the_runs_own_numbers_again(finished: Finished, toishi: Command) -> None:
    ended = toishi("evaluate", finished.folder, "--json")
    assert ended.code == 0
    recorded = [line for line in Run.open(finished.folder).evaluations if line["step"] == 6]
    for mine, theirs in zip(json.loads(ended.out)["evaluations"], recorded, strict=True):
        for key in ("mode", "step", "value", "interval", "change", "change_interval", "by_prompt"):
            assert mine[key] == theirs[key]


def test_evaluate_of_another_checkpoint_and_of_a_model(finished: Finished, tiny: Path, recipe: Path, toishi: Command) -> None:
    first = json.loads(toishi("evaluate", finished.folder, "--checkpoint", "0", "--json").out)["evaluations"]
    model = json.loads(toishi("evaluate", tiny, "--recipe", recipe, "--json").out)["evaluations"]
    assert [line["by_prompt"] for line in first] == [line["by_prompt"] for line in model]
    shown = toishi("evaluate", tiny, "--recipe", recipe)
    assert shown.code == 0
    assert "step 0 held-out, greedy:" in shown.out


def test_evaluate_asks_for_what_it_needs(finished: Finished, tiny: Path, recipe: Path, toishi: Command) -> None:
    model = toishi("evaluate", tiny)
    assert model.code == 1
    assert "--recipe sums" in model.err
    step = toishi("evaluate", finished.folder, "--checkpoint", "2")
    assert step.code == 1
    assert "expected last, best, or a step of 0," in step.err
    nothing = toishi("evaluate", tiny, "--recipe", recipe, "--set", "task.heldout=0")
    assert nothing.code == 1
    assert "nothing to measure on" in nothing.err


def test_sample_is_repeatable(finished: Finished, toishi: Command) -> None:
    asked = ("sample", finished.folder, "What is 7 + 8?", "-n", "3", "--max-new-tokens", "5", "--json")
    answers = json.loads(toishi(*asked).out)
    assert len(answers) == 3
    assert answers == json.loads(toishi(*asked).out)
    assert answers != json.loads(toishi(*asked, "--seed", "1").out)


def test_sample_greedy_and_plain(tiny: Path, toishi: Command) -> None:
    greedy = toishi("sample", tiny, "hello", "--temperature", "0", "--max-new-tokens", "4")
    assert greedy.code == 0
    assert "answer 1 (" in greedy.out
    assert "answer 2" not in greedy.out
    plain = json.loads(toishi("sample", tiny, "hello", "--plain", "-n", "1", "--max-new-tokens", "4", "--json").out)
    assert len(plain[0]["token_ids"]) <= 4


def test_fetch_says_what_it_does(tmp_path: Path, toishi: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled, "fetch", lambda progress: progress(f"ready: {tmp_path}"))
    ended = toishi("fetch")
    assert (ended.code, ended.out) == (0, f"ready: {tmp_path}\n")

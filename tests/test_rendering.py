"""Everything that a row can do wrong is found by `check` and by `train`, before a run folder exists and a weight changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.tiny import CHATML, save_tiny, tiny_model, tiny_tokenizer
from toishi import loop, rendering
from toishi.check import check
from toishi.config import Config, load_config
from toishi.display import Display
from toishi.errors import DataError, ModelError, ToishiError
from toishi.given import given_objects, with_given
from toishi.policy.capabilities import PositionLimit, position_limit
from toishi.policy.chat import Renderer
from toishi.tasks import task_from_rows
from toishi.types import Prompt

NO_SYSTEM = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system turns here') }}{% endif %}" + CHATML


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    for family in ("llama", "gpt2"):
        save_tiny(folder / family, family)
    tiny_model("llama").save_pretrained(folder / "no_system")
    tiny_tokenizer(chat_template=NO_SYSTEM).save_pretrained(folder / "no_system")
    return {path.name: path for path in folder.iterdir()}


def recipe(folder: Path, model: Path, rows: list[dict[str, Any]], **task: Any) -> Config:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return load_config(
        {
            "model": {"name": str(model), "dtype": "float32"},
            "task": {"name": "file", "path": str(path), "as_chat": True, "heldout": 2} | task,
            "rewards": [{"name": "length", "target": 5}],
            "sampling": {"max_new_tokens": 8, "max_prompt_tokens": 300},
            "train": {"steps": 30, "prompts_per_step": 2, "group_size": 2},
            "evaluation": {"prompts": 2, "samples": 1},
        }
    )


def refused(config: Config, folder: Path, error: type[ToishiError] = DataError) -> str:
    """The message of `train`, which is also what `check` found; nothing was written."""
    with pytest.raises(error) as caught:
        loop.train(config, folder / "run")
    assert not (folder / "run").exists()
    found = [finding.message for finding in check(config).findings if finding.level == "error"]
    assert found == [str(caught.value)]
    return str(caught.value)


ROWS = [{"id": f"r{number}", "prompt": f"say {number}"} for number in range(20)]


def test_long_prompts_are_listed_with_their_rows(models: dict[str, Path], tmp_path: Path) -> None:
    config = recipe(tmp_path, models["llama"], [*ROWS, {"id": "A", "prompt": "x" * 400}, {"id": "B", "prompt": "y" * 500}])
    message = refused(config, tmp_path)
    assert "2 prompts cannot be used (looked at: all 20 training prompts, 2 held-out prompts):" in message
    for name, count in (("A", 400), ("B", 500)):
        tokens = int(message.partition(f"row {name} has ")[2].split()[0])
        assert count < tokens < count + 20  # the template's own tokens
    assert "more than sampling.max_prompt_tokens=300" in message


def test_at_most_ten_are_listed_and_all_are_counted(models: dict[str, Path], tmp_path: Path) -> None:
    rows = [{"id": f"long{number}", "prompt": "x" * (400 + number)} for number in range(13)]
    message = refused(recipe(tmp_path, models["llama"], [*ROWS, *rows]), tmp_path)
    assert message.startswith("13 prompts cannot be used")
    assert message.count("row long") == 10
    assert message.endswith("... and 3 more")


def test_a_row_that_the_template_refuses(models: dict[str, Path], tmp_path: Path) -> None:
    chats: list[dict[str, Any]] = [{"prompt": [{"role": "user", "content": row["prompt"]}]} for row in ROWS]
    system = {"id": "S", "prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "x"}]}
    message = refused(recipe(tmp_path, models["no_system"], [*chats, system], as_chat=False), tmp_path, ModelError)
    assert "refuses row S (roles: system, user): no system turns here" in message


def test_two_beginnings_of_text_in_one_row(models: dict[str, Path], tmp_path: Path) -> None:
    rows = [*ROWS, {"id": "D", "prompt": "<s><s>x"}, {"id": "E", "prompt": "<s><s><s>x"}]
    message = refused(recipe(tmp_path, models["llama"], rows, as_chat=False), tmp_path)
    assert "row D begins with 2 beginning-of-text tokens" in message
    assert "row E begins with 3 beginning-of-text tokens" in message


def test_half_a_character_in_any_column(models: dict[str, Path], tmp_path: Path) -> None:
    for broken in ({"prompt": "a \ud800 b"}, {"id": "\udfff", "prompt": "a"}, {"prompt": "a", "tags": [{"x": "\ud800"}]}):
        message = refused(recipe(tmp_path, models["llama"], [*ROWS, broken]), tmp_path)
        assert "row 21: " in message
        assert "lone surrogate" in message
        message.encode()


def test_half_a_character_from_a_task_in_python(models: dict[str, Path]) -> None:
    renderer = Renderer(tiny_tokenizer(), tiny_model("llama"))
    for prompt in (Prompt(id="a", text="x\ud800"), Prompt(id="a", messages=({"role": "user", "content": "x\ud800"},))):
        with pytest.raises(DataError, match=r"row a: character 1 of its text, .*lone surrogate"):
            renderer.render(prompt)


def test_an_answer_that_would_pass_the_last_learned_position(models: dict[str, Path], tmp_path: Path) -> None:
    tokens = len(Renderer(tiny_tokenizer(), tiny_model("gpt2")).render(_asked("x" * 200)).token_ids)
    fits = "x" * (200 + 256 - 8 - tokens)
    config = recipe(tmp_path, models["gpt2"], [*ROWS, {"id": "F", "prompt": fits}, {"id": "P", "prompt": fits + "x"}])
    message = refused(config, tmp_path)
    assert "row P has 249 tokens; with sampling.max_new_tokens=8 that is 257, and the model has 256 positions" in message
    assert "row F" not in message


def test_rotary_positions_beyond_the_models_length_are_a_note_that_train_shows(models: dict[str, Path], tmp_path: Path) -> None:
    config = recipe(tmp_path, models["llama"], [*ROWS, {"prompt": "x" * 260}])
    found = [finding for finding in check(config).findings if finding.part == "prompts"]
    assert [finding.level for finding in found] == ["warning"]
    assert "1 prompts with sampling.max_new_tokens=8 are longer than the 256 positions" in found[0].message
    short = config.model_copy(update={"train": config.train.model_copy(update={"steps": 0})})
    session_notices: list[str] = []

    class Listening(Display):
        def started(self, session: Any) -> None:
            session_notices.extend(session.notices)

    loop.train(short, tmp_path / "run", Listening(Display.silent().console))
    assert found[0].message in session_notices


def _asked(text: str) -> Prompt:
    return Prompt(id="a", messages=({"role": "user", "content": text},))


@pytest.mark.parametrize(
    ("family", "limit"),
    [
        ("gpt2", PositionLimit(tokens=256, is_hard=True)),
        ("opt", PositionLimit(tokens=256, is_hard=True)),
        ("gpt_bigcode", PositionLimit(tokens=256, is_hard=True)),
        ("llama", PositionLimit(tokens=256, is_hard=False)),
        ("gemma", PositionLimit(tokens=256, is_hard=False)),
    ],
)
def test_what_limits_a_models_length(family: str, limit: PositionLimit) -> None:
    assert position_limit(tiny_model(family, attn_implementation="eager")) == limit


def test_a_model_that_states_no_length_has_no_limit() -> None:
    model = torch.nn.Linear(2, 2)
    model.config = SimpleNamespace()  # type: ignore[assignment]
    assert position_limit(model) is None


@dataclass(frozen=True)
class Endless:
    """Prompt `bad` and those after it are too long."""

    bad: int
    name: str = "endless"
    columns: frozenset[str] = frozenset()
    gold_column: None = None
    num_train: None = None

    def train_prompt(self, index: int) -> Prompt:
        return Prompt(id=f"p{index}", text="x" * (5 if index < self.bad else 400))

    def heldout_prompts(self) -> Sequence[Prompt]:
        return ()


def test_of_an_endless_task_the_first_are_looked_at_and_the_report_says_so(models: dict[str, Path], tmp_path: Path) -> None:
    config = recipe(tmp_path, models["llama"], ROWS)
    renderer, module = Renderer(tiny_tokenizer(), tiny_model("llama")), tiny_model("llama")
    report = rendering.render_all(config, Endless(bad=297), renderer, module)
    assert report.looked_at == "the first 300 training prompts of an endless task"
    assert str(report.error).startswith(
        "3 prompts cannot be used (looked at: the first 300 training prompts of an endless task)"
    )
    assert rendering.render_all(config, Endless(bad=300), renderer, module).error is None


def test_of_a_long_list_the_first_rows_are_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(rendering, "MAX_ROWS", 5)
    config = load_config({"evaluation": {"prompts": 2}})
    task = task_from_rows([{"prompt": f"say {number}"} for number in range(20)], heldout=4)
    report = rendering.render_all(config, task, Renderer(tiny_tokenizer(), tiny_model("llama")), tiny_model("llama"))
    assert report.looked_at == "the first 5 of 16 training prompts, 2 held-out prompts"


def test_a_fault_of_every_prompt_is_the_models(tmp_path: Path) -> None:
    tiny_model("llama").save_pretrained(tmp_path / "m")
    tiny_tokenizer(chat_template=None).save_pretrained(tmp_path / "m")
    message = refused(recipe(tmp_path, tmp_path / "m", ROWS), tmp_path, ModelError)
    assert "the tokenizer has no chat template" in message
    assert "cannot be used" not in message


def test_a_task_of_python_is_looked_at_too(models: dict[str, Path], tmp_path: Path) -> None:
    given = given_objects(task_from_rows([{"prompt": "a"}, {"prompt": "x" * 400}]), None)
    config = with_given(recipe(tmp_path, models["llama"], ROWS), given)
    with pytest.raises(DataError, match=r"row rows:2 has 4.. tokens"):
        loop.train(config, tmp_path / "run", given=given)

"""Recipes that are wrong: each kind of mistake is a ConfigError with its place, never another exception and never silence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from toishi.config import Config, load_config, parse_override
from toishi.config.yaml_text import read_yaml
from toishi.errors import ConfigError

INF, NAN = float("inf"), float("nan")


def message(source: Any = None, **overrides: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(source or {}, {key.replace("__", "."): value for key, value in overrides.items()})
    return str(caught.value)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("optimizer.betas", [2, 3], "optimizer.betas.0: Input should be less than 1, got 2"),
        ("optimizer.betas", [0.9, 1.0], "optimizer.betas.1: Input should be less than 1"),
        ("optimizer.betas", [-1, 0.9], "optimizer.betas.0: Input should be greater than or equal to 0"),
        ("sampling.stop", [""], "sampling.stop.0: String should have at least 1 character"),
        ("seed", 2**63, "seed: Input should be less than 9223372036854775808"),
        ("model.name", "", "model.name: String should have at least 1 character"),
        ("train.steps", True, "train.steps: Input should be a valid integer, got True"),
        ("train.steps", "3", "train.steps: Input should be a valid integer, got '3'"),
        ("optimizer.lr", "1e-4", "optimizer.lr: Input should be a valid number, got '1e-4'"),
        ("optimizer.lr", True, "optimizer.lr: Input should be a valid number, got True"),
        ("optimizer.betas", ["0.9", 0.99], "optimizer.betas.0: Input should be a valid number"),
        ("record.tokens", 1, "record.tokens: Input should be a valid boolean, got 1"),
        ("record.tokens", "no", "record.tokens: Input should be a valid boolean, got 'no'"),
        ("algorithm.std_ddof", True, "algorithm.std_ddof: Input should be 0 or 1"),
        ("algorithm.clip_low", "0.2", "algorithm.clip_low: Input should be a valid number"),
        ("health.limits", {"x": True}, "health.limits.x: Input should be a valid number"),
    ],
)
def test_a_value_that_means_nothing_is_refused_with_its_place(key: str, value: Any, expected: str) -> None:
    assert expected in message(**{key: value})


def union_keys(section: type[BaseModel], before: str = "") -> Iterator[str]:
    """Dotted keys whose value may be of two types besides null."""
    for name, field in section.model_fields.items():
        kinds = [kind for kind in get_args(field.annotation) if kind is not type(None)]
        sections = [kind for kind in (field.annotation, *kinds) if isinstance(kind, type) and issubclass(kind, BaseModel)]
        if len(kinds) > 1 and get_origin(field.annotation) in (Union, UnionType):
            yield before + name
        for inner in sections:
            yield from union_keys(inner, f"{before}{name}.")


UNIONS = tuple(union_keys(Config))


@pytest.mark.parametrize("key", UNIONS)
@pytest.mark.parametrize("value", [1.5, True, None, {}, [], [1], ""])
def test_a_key_of_several_types_says_once_what_it_expects(key: str, value: Any) -> None:
    said = message(**{key: value})
    assert said.startswith(f"{key}: expected ")
    assert "\n" not in said
    assert "Input should" not in said


def test_the_keys_of_several_types_take_each_of_them() -> None:
    assert set(UNIONS) >= {"train.micro_batch_tokens", "model.lora.target_modules"}
    for tokens in ("auto", 5):
        assert load_config({"train": {"micro_batch_tokens": tokens}}).train.micro_batch_tokens == tokens
    targets: list[tuple[Any, Any]] = [("all-linear", "all-linear"), (["a", "b"], ("a", "b"))]
    for given, read in targets:
        lora = load_config({"model": {"lora": {"target_modules": given}}}).model.lora
        assert lora is not None
        assert lora.target_modules == read
    for wrong in ("abc", 0, -1):
        expected = f"train.micro_batch_tokens: expected 'auto' or a whole number above 0, got {wrong!r}"
        assert message(train__micro_batch_tokens=wrong) == expected


def test_a_name_that_no_folder_can_have() -> None:
    assert message(name="x" * 201).startswith("name: String should have at most 200 characters, got 'xxx")
    assert load_config({"name": "x" * 200}).name == "x" * 200


def test_a_whole_number_is_taken_for_a_float_and_a_list_for_a_tuple() -> None:
    config = load_config({"sampling": {"temperature": 2, "stop": ["a", "b"]}, "optimizer": {"betas": [0, 0.5]}})
    assert (config.sampling.temperature, config.sampling.stop, config.optimizer.betas) == (2.0, ("a", "b"), (0.0, 0.5))
    assert load_config(config.model_dump(mode="json")) == config
    assert Config.model_validate(config.model_dump(mode="json")) == config


NUMBERS = (
    *("optimizer.lr", "optimizer.eps", "optimizer.weight_decay", "optimizer.max_grad_norm", "sampling.temperature"),
    *(
        "algorithm.kl_coef",
        "algorithm.entropy_coef",
        "algorithm.std_epsilon",
        "algorithm.clip_high",
        "algorithm.off_policy_cap",
    ),
    *(
        "task.size",
        "health.max_sampler_gap",
        "health.limits.reward",
        "model.lora.alpha",
        "rewards.0.weight",
        "rewards.0.option",
    ),
)


@pytest.mark.parametrize("key", NUMBERS)
@pytest.mark.parametrize("value", [INF, -INF, NAN])
def test_no_number_is_infinite_or_nan(key: str, value: float) -> None:
    source = {"rewards": [{"name": "number"}]} if key.startswith("rewards") else {}
    assert f"{key}: expected a finite number, got {value}" in message(source, **{key: value})


def test_a_configuration_made_in_python_holds_no_infinity_either() -> None:
    with pytest.raises(ValueError, match="finite number"):
        Config.model_validate({"rewards": [{"name": "number", "weight": INF}]})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train=[", "the value is not YAML"),
        ("x=!!python/object/apply:os.getcwd []", "the value is not YAML"),
        ("x=&a [*a]", "the anchor of line 1 is used inside itself"),
        ("x={a: 1, a: 2}", "line 1: the key 'a' stands twice"),
        ("x=" + "[" * 100_000, "nested too deeply"),
        ("x=\x00", "the value is not YAML"),
        ("noequals", "expected key=value"),
    ],
)
def test_a_value_of_the_command_line_that_is_not_yaml(text: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(expected)):
        parse_override(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train:\n  steps: 1\n  seed: 4\n  steps: 2\n", "line 4: the key 'steps' stands twice in one mapping (first in line 2"),
        ("seed: 1\nname: a\nseed: 1\n", "line 3: the key 'seed' stands twice"),
        ("rewards:\n  - {name: a, name: b}\n", "line 2: the key 'name' stands twice"),
        ("task: &a\n  x: *a\n", "the anchor of line 1 is used inside itself"),
        ("a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
            f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 10)}]\n" for n in range(8)
        ), "anchors stand for more than 100,000 values"),
        ("- a\n- b\n", "expected key: value lines, got list"),
        ("", "expected key: value lines, got NoneType"),
        ("a: 1\n---\nb: 2\n", "is not YAML that can be used"),
        ("{[1]: 2}\n", "is not YAML that can be used"),
        ("1: 2\n", "Keys should be strings"),
    ],
)  # fmt: skip
def test_a_recipe_file_that_is_wrong_names_file_and_line(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=re.escape(expected)):
        load_config(path)


def test_a_recipe_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    for path, expected in (
        (tmp_path, "cannot be read"),
        (tmp_path / "latin.yaml", "not UTF-8"),
        (tmp_path / "no", "does not exist"),
    ):
        with pytest.raises(ConfigError, match=expected):
            load_config(path)


def test_anchors_merges_and_short_floats_are_read_as_meant() -> None:
    assert read_yaml("a: &x {k: 1, m: 2}\nb: {<<: *x, k: 3}") == {"a": {"k": 1, "m": 2}, "b": {"k": 3, "m": 2}}
    assert read_yaml("[1e-4, 1E5, -2.5e-3, .5e1, '1e-4', e5, 1e, 12]") == [1e-4, 1e5, -2.5e-3, 5.0, "1e-4", "e5", "1e", 12]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("train.steps.x", "'train.steps' is the value 5, so nothing can be set inside it"),
        ("name.x", "'name' is the value 'a'"),
        ("rewards.5.weight", "'5' must be a position from 0 to 0"),
        ("rewards.x", "'x' must be a position"),
        ("algorithm.x", "algorithm.x: unknown key"),
        ("", ": unknown key"),
        ("train..steps", "train.: unknown key"),
    ],
)
def test_a_dotted_key_that_leads_nowhere(key: str, expected: str) -> None:
    source = {"name": "a", "train": {"steps": 5}, "rewards": [{"name": "number"}], "algorithm": "grpo"}
    assert expected in message(source, **{key: 3})


def test_overrides_leave_the_given_mapping_alone() -> None:
    source = {"rewards": [{"name": "number", "weight": 1.0}], "train": {"steps": 5}}
    load_config(source, {"rewards.0.weight": 2.0, "train.steps": 1})
    assert source == {"rewards": [{"name": "number", "weight": 1.0}], "train": {"steps": 5}}


@pytest.mark.parametrize("overrides", [["a=1"], "a=1", 5, {1: 2}])
def test_overrides_of_another_type(overrides: Any) -> None:
    with pytest.raises(ConfigError, match="overrides: expected a mapping"):
        load_config({}, overrides)


def test_settings_that_contradict_one_another() -> None:
    ramp = {"name": "grpo", "truncation": "soft_penalty", "soft_penalty_tokens": 40}
    assert "soft_penalty_tokens=40 is more than sampling.max_new_tokens=8" in message(
        {"algorithm": ramp, "sampling": {"max_new_tokens": 8}}
    )
    assert load_config({"algorithm": ramp, "sampling": {"max_new_tokens": 40}}).algorithm.soft_penalty_tokens == 40
    no_effect = {"name": "entropy_only", "kl": "k1_in_reward", "kl_coef": 0.1}
    assert "which policy_term=false leaves out of the loss" in message({"algorithm": no_effect})


@pytest.mark.parametrize("word", ["off", "no", "on", "yes", "Off", "n", "y"])
def test_a_bare_word_is_a_word_and_no_boolean(word: str) -> None:
    assert read_yaml(f"a: {word}") == {"a": word}
    assert parse_override(f"a={word}") == ("a", word)


def test_true_and_false_are_booleans() -> None:
    assert read_yaml("[true, True, TRUE, false, False, FALSE, 'true', tRue, null]") == [True] * 3 + [False] * 3 + [
        "true",
        "tRue",
        None,
    ]


def test_a_recipe_turns_a_rule_and_a_probe_off_without_quotes(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("health: {actions: {truncation: off}}\nrewards:\n  - name: judge\n    probe: off\n", encoding="utf-8")
    config = load_config(path)
    assert config.health.actions == {"truncation": "off"}
    assert config.rewards[0].options == {"probe": "off"}
    assert load_config({}, dict([parse_override("health.actions.truncation=off")])).health.actions == {"truncation": "off"}
    path.write_text("record: {tokens: no}\n", encoding="utf-8")
    assert "record.tokens: Input should be a valid boolean, got 'no'; write true or false" in message(path)

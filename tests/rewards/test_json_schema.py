"""The reward `json_schema`, and what is read as JSON."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.rewards.judging import asked, judge
from toishi.errors import ConfigError, DataError
from toishi.rewards import check_prompts
from toishi.rewards.json_schema import JsonSchemaReward
from toishi.rewards.json_text import NotJson, read_json

PERSON = {
    "type": "object",
    "required": ["name", "age"],
    "properties": {"name": {"type": "string", "minLength": 1}, "age": {"type": "integer", "minimum": 0}},
    "additionalProperties": False,
}
GOOD = '{"name": "Ada", "age": 36}'


@pytest.mark.parametrize(
    ("text", "reason", "readable"),
    [
        (GOOD, "follows the schema", True),
        (f"\n {GOOD} \n", "follows the schema", True),
        (f"```json\n{GOOD}\n```", "follows the schema", True),
        (f"Sure: {GOOD}", "not JSON", False),
        ("", "not JSON", False),
        (" \n ", "not JSON", False),
        ("{}", "'name' is a required property", True),
        ("[]", "[] is not of type 'object'", True),
        ('{"name": "Ada", "age": "36"}', "age: '36' is not of type 'integer'", True),
        ('{"name": "Ada", "age": true}', "age: True is not of type 'integer'", True),
        ('{"name": "Ada", "age": 36.5}', "age: 36.5 is not of type 'integer'", True),
        ('{"name": "Ada", "age": -1}', "age: -1 is less than the minimum of 0", True),
        ('{"name": "Ada", "age": NaN}', "not JSON: NaN", False),
        ('{"name": "Ada", "age": Infinity}', "not JSON: Infinity", False),
        ('{"name": "Ada", "age": -Infinity}', "not JSON: -Infinity", False),
        ('{"name": "Ada", "age": 1e309}', "not JSON: the number 1e309 is too large", False),
        ('{"name": "Ada", "age": 36, "age": 37}', "not JSON with each key once", False),
        ("{'name': 'Ada', 'age': 36}", "not JSON", False),
        ('{"name": "Ada", "age": 36,}', "not JSON", False),
        (GOOD + GOOD, "not JSON", False),
        ('{"name": "阿达", "age": 36}', "follows the schema", True),
        ('{"name": "Ada", "age": ３６}', "not JSON", False),
        ("[" * 100_000, "not JSON", False),
        ('{"name": "' + "a" * 1_000_000 + '", "age": 1}', "follows the schema", True),
        ('{"name": "Ada", "age": ' + "9" * 5000 + "}", "not JSON", False),
    ],
)
def test_the_whole_answer(text: str, reason: str, readable: bool) -> None:
    judgement = judge(JsonSchemaReward(schema=PERSON), text, asked())
    assert (judgement.value, judgement.readable) == (float(reason == "follows the schema"), readable)
    assert judgement.reason == reason


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (f"I think so. {GOOD}", 1.0),
        (f"```json\n{{}}\n```\nBetter:\n```json\n{GOOD}\n```\nDone.", 1.0),
        (f"```json\n{GOOD}\n```\nBetter:\n```\n{{}}\n```", 0.0),
        (f"<think>maybe {{}} or [1]</think>\n{GOOD}\n", 1.0),
        (f"{GOOD} is my answer", 0.0),
        (f"for f(x) = {{x}} it is {GOOD}", 1.0),
        (f"{GOOD} {{}}", 0.0),
        (f'{{"inner": {GOOD}}}', 0.0),
        ('x {"name": "Ada", "age": NaN}', 0.0),
        ("x [" + "{" * 300 + GOOD, 0.0),
        ("", 0.0),
        ("}", 0.0),
        ("{" * 50_000 + "}", 0.0),
        ("[" * 50_000 + "]" * 50_000, 0.0),
    ],
)
def test_the_last_json_of_an_answer(text: str, value: float) -> None:
    started = time.process_time()
    assert judge(JsonSchemaReward(schema=PERSON, where="last"), text, asked()).value == value
    assert time.process_time() - started < 5


def test_cut_off() -> None:
    assert judge(JsonSchemaReward(schema=PERSON), GOOD, asked(), "length").value == 0.0
    assert judge(JsonSchemaReward(schema=PERSON, require_stop=False), GOOD, asked(), "length").value == 1.0


def test_a_schema_in_a_file_or_in_a_column(tmp_path: Path) -> None:
    path = tmp_path / "person.json"
    path.write_text(json.dumps(PERSON), encoding="utf-8")
    assert judge(JsonSchemaReward(schema=str(path)), GOOD, asked()).value == 1.0
    reward = JsonSchemaReward(schema_column="schema")
    assert reward.columns == ("schema",)
    rows = [asked(columns={"schema": schema}) for schema in (PERSON, json.dumps(PERSON), {"type": "array"})]
    check_prompts([reward], rows)
    assert [judge(reward, GOOD, row).value for row in rows] == [1.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "objekt"}, "no JSON schema: 'objekt' is not valid"),
        ({"$ref": "#/$defs/gone"}, "the reference '#/$defs/gone' leads nowhere in the schema; nothing is fetched"),
        ({"items": {"$ref": "https://example.com/s.json"}}, "leads nowhere in the schema; nothing is fetched"),
        ({"$schema": "https://example.com/mine"}, "jsonschema does not know the draft 'https://example.com/mine'"),
        ("[1]", "expected a JSON schema as an object"),
        ("no json", "expected a JSON schema, got 'no json'"),
        (None, "expected a JSON schema"),
        ({"pattern": "("}, "no JSON schema: '(' is not a 'regex'"),
    ],
)
def test_schemas_that_are_none(schema: Any, message: str) -> None:
    reward = JsonSchemaReward(schema_column="schema")
    with pytest.raises(DataError) as caught:
        check_prompts([reward], [asked(columns={"schema": schema})])
    assert message in str(caught.value)
    assert judge(reward, GOOD, asked(columns={"schema": schema})).status == "failed"
    if isinstance(schema, dict):
        with pytest.raises(ConfigError):
            JsonSchemaReward(schema=schema)


def test_the_options_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give either schema or schema_column"):
        JsonSchemaReward()
    with pytest.raises(ConfigError, match="no readable file"):
        JsonSchemaReward(schema=str(tmp_path / "none.json"))


def test_references_inside_the_schema_are_followed() -> None:
    tree = {"$ref": "#/$defs/t", "$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}}
    reward = JsonSchemaReward(schema=tree)
    assert [judge(reward, text, asked()).value for text in ("[[], [[]]]", "[[1]]")] == [1.0, 0.0]
    quoted = JsonSchemaReward(schema={"const": {"$ref": "#/nowhere"}})
    assert judge(quoted, '{"$ref": "#/nowhere"}', asked()).value == 1.0
    old = JsonSchemaReward(
        schema={
            "$schema": "http://json-schema.org/draft-07/schema#",
            "definitions": {"a": {}},
            "items": {"$ref": "#/definitions/a"},
        }
    )
    assert judge(old, "[1]", asked()).value == 1.0
    deep = judge(reward, "[" * 400 + "]" * 400, asked())
    assert deep.status == "ok"


def test_a_slow_pattern_of_the_schema_fails_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toishi.rewards.patterns.REGEX_LIMIT_S", 0.2)
    reward = JsonSchemaReward(schema={"type": "string", "pattern": "^(a|aa)+$"})
    judgement = judge(reward, json.dumps("a" * 60 + "b"), asked())
    assert (judgement.value, judgement.status, judgement.kind) == (None, "failed", "timed_out")
    assert judge(reward, '"aaa"', asked()).value == 1.0


def test_json_is_read_from_an_answer_that_is_one_value() -> None:
    assert read_json("3", "last") == 3
    assert read_json('a "quoted } brace" then {"a": "}"}', "last") == {"a": "}"}
    with pytest.raises(NotJson):
        read_json("12 and 13", "last")

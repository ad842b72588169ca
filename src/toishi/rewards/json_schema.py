"""`json_schema`: the answer's JSON follows a schema.

Decisions:
1. Validation is the package jsonschema's, draft 2020-12 unless the schema names another in "$schema". References are looked up
   inside the schema alone, never fetched.
2. "format" is checked for the formats that jsonschema can check with what is installed; "pattern" has the time limit of all
   patterns.
3. The reading is stricter than Python's (`json_text`): NaN, 1e309 and a key given twice are no JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from toishi.errors import ConfigError, MissingExtraError
from toishi.rewards.base import Judgement
from toishi.rewards.json_text import NotJson, read_json
from toishi.rewards.patterns import PatternTooSlow, compiled, is_match
from toishi.types import Completion, Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSchemaReward:
    """1 if the answer's JSON follows the schema, else 0.

    schema         the schema itself, or the path of a JSON file that holds it; or
    schema_column  a column with a row's own schema, as JSON text or as an object
    where          "whole": the answer is JSON (a code fence around it is allowed); "last": the last code fence, or else the
                   JSON that ends the answer
    require_stop   an answer cut off at the token limit is not paid

    Traps: a schema says what is allowed, so one without "required" is followed by {}, and one without "additionalProperties":
    false by anything added. Whether the values are right it cannot say.

    >>> from toishi.rewards.scripted import answered
    >>> prompt = Prompt(id="a", text="?")
    >>> schema = {"type": "object", "required": ["age"], "properties": {"age": {"type": "integer"}}}
    >>> answers = [answered(text) for text in ('{"age": 7}', '{"age": "7"}', '{"age": NaN}')]
    >>> [judgement.reason for (judgement,) in JsonSchemaReward(schema=schema).score_group(prompt, answers)]
    ['follows the schema', "age: '7' is not of type 'integer'", 'not JSON: NaN']
    """

    name: str = "json_schema"
    schema: Mapping[str, Any] | str | None = None
    schema_column: str | None = None
    where: Literal["whole", "last"] = "whole"
    require_stop: bool = True

    def __post_init__(self) -> None:
        where = f"reward '{self.name}'"
        if (self.schema is None) == (self.schema_column is None):
            raise ConfigError(f"{where}: give either schema or schema_column, got {self.schema!r} and {self.schema_column!r}")
        try:
            import jsonschema  # noqa: F401
        except ImportError:
            raise MissingExtraError("jsonschema", extra="schema", purpose="the reward 'json_schema'") from None
        if self.schema is not None:
            text = _file(self.schema, where) if isinstance(self.schema, str) else _text(self.schema)
            problem = _schema_problem(text)
            if problem is not None:
                raise ConfigError(f"{where}.schema: {problem}")

    @property
    def columns(self) -> tuple[str, ...]:
        return () if self.schema_column is None else (self.schema_column,)

    def problem(self, prompt: Prompt) -> str | None:
        """Why this prompt cannot be scored, or None."""
        problem = _schema_problem(self._schema_text(prompt))
        return None if problem is None else f"the column '{self.schema_column}': {problem}"

    def score_group(self, prompt: Prompt, completions: Sequence[Completion]) -> list[tuple[Judgement, ...]]:
        problem = self.problem(prompt)
        if problem is not None:
            return [(Judgement(value=None, status="failed", reason=problem, kind="bad_row"),)] * len(completions)
        validator = _validator(self._schema_text(prompt))
        return [(self._judge(completion, validator),) for completion in completions]

    def _schema_text(self, prompt: Prompt) -> str:
        if self.schema_column is not None:
            return _text(prompt.columns.get(self.schema_column))
        return _file(self.schema, f"reward '{self.name}'") if isinstance(self.schema, str) else _text(self.schema)

    def _judge(self, completion: Completion, validator: Any) -> Judgement:
        if self.require_stop and completion.is_truncated:
            return Judgement(value=0.0, reason="cut off at the token limit", readable=False)
        try:
            found = read_json(completion.text, self.where)
        except NotJson as error:
            return Judgement(value=0.0, reason=str(error), readable=False)
        try:
            wrong = next(iter(validator.iter_errors(found)), None)
        except PatternTooSlow as error:
            return Judgement(value=None, status="failed", reason=str(error), kind="timed_out", readable=True)
        except RecursionError:
            return Judgement(value=0.0, reason="nested too deeply to be checked", readable=True)
        if wrong is None:
            return Judgement(value=1.0, reason="follows the schema", readable=True)
        place = ".".join(map(str, wrong.absolute_path))
        return Judgement(value=0.0, reason=f"{place}: {wrong.message}"[:300] if place else wrong.message[:300], readable=True)


def _text(schema: Any) -> str:
    """A schema as JSON text, which is the key under which its validator is kept."""
    try:
        return schema if isinstance(schema, str) else json.dumps(schema)
    except TypeError:
        return repr(schema)


@lru_cache(maxsize=64)
def _file(path: str, where: str) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}.schema: no readable file: {error}") from None


@lru_cache(maxsize=1024)
def _schema_problem(text: str) -> str | None:
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    try:
        schema = read_json(text)
    except NotJson as error:
        return f"expected a JSON schema, got {text[:80]!r} ({error})"
    if not isinstance(schema, dict):
        return f"expected a JSON schema as an object, got {text[:80]!r}"
    from jsonschema import Draft202012Validator

    try:
        if (problem := _lost_reference(schema)) is None:
            validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except SchemaError as error:
        return f"no JSON schema: {error.message[:200]}"
    return problem


def _lost_reference(schema: dict[str, Any]) -> str | None:
    """References are followed only when a value gets there, which would be in the middle of a run."""
    from jsonschema import Draft202012Validator
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import UnknownDialect, specification_with

    asked = str(schema.get("$schema", Draft202012Validator.META_SCHEMA["$schema"]))
    try:
        dialect = specification_with(asked)
    except UnknownDialect:
        return f"jsonschema does not know the draft {asked!r}"
    resolver = Registry().resolver_with_root(dialect.create_resource(schema))
    for reference in _references(schema):
        try:
            resolver.lookup(reference)
        except Unresolvable:
            return f"the reference {reference!r} leads nowhere in the schema; nothing is fetched"
    return None


def _references(schema: Any) -> Iterator[str]:
    """The references of a schema, without those of parts that have an "$id", which are looked up from there."""
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        schema = [part for key, part in schema.items() if key not in ("const", "enum", "default", "examples")]
    if isinstance(schema, list):
        for part in schema:
            if not (isinstance(part, dict) and "$id" in part):
                yield from _references(part)


@lru_cache(maxsize=1024)
def _validator(text: str) -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend, validator_for
    from referencing import Registry

    schema = read_json(text)
    cls = validator_for(schema, default=Draft202012Validator)
    timed = extend(cls, {"pattern": _pattern})  # type: ignore[no-untyped-call]
    return timed(schema, registry=Registry(), format_checker=cls.FORMAT_CHECKER)


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if isinstance(instance, str) and not is_match(compiled(pattern, where="pattern"), instance):
        yield ValidationError(f"{instance[:80]!r} does not match {pattern!r}")

"""From rows of a data set to prompts, with everything that is wrong with them in one report.

Decisions:
1. Every row is looked at before anything is reported, and a bad row is never skipped: the report names rows and remedies.
2. A prompt is text or a chat (a list of {role, content} turns that ends with the user); one data set has one of the two.
3. All columns reach the rewards as they are; the gold is the value of one column, whatever its type.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter
from typing import Any

from toishi.errors import ConfigError, DataError, nearest
from toishi.tasks.listed import user_message
from toishi.types import Message, Prompt

Row = tuple[int, Any]
"""The row's number as a person counts it (a line of the file, from 1), and its columns, or a `RowProblem`."""

ROLES = ("system", "developer", "user", "assistant", "tool")
ROWS_SHOWN = 10


@dataclass(frozen=True, slots=True)
class RowProblem:
    """What is wrong with a row, and what to do about it."""

    what: str
    remedy: str


class BadRow(Exception):
    """Leaves the reading of one row; caught where the report is made."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.problem = RowProblem(what, remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowReading:
    """How rows become prompts.

    prompt_column  holds text or a chat
    template       builds the prompt from columns instead: "{question} Answer with a number."
    gold_column    holds the right answer; None when there is none
    as_chat        wraps text as one user turn
    conversation_column  holds whole chats: the turns before the first of the assistant are the prompt, the rest becomes the
                   column `completion` (a written answer, of which the assistant's turns have loss)
    """

    prompt_column: str = "prompt"
    template: str | None = None
    gold_column: str | None = None
    as_chat: bool = False
    conversation_column: str | None = None

    @property
    def needed(self) -> list[str]:
        """The columns that a row must have."""
        if self.conversation_column is not None:
            return [self.conversation_column] + ([self.gold_column] if self.gold_column is not None else [])
        prompt = [self.prompt_column] if self.template is None else template_columns(self.template)
        return prompt + ([self.gold_column] if self.gold_column is not None else [])


def template_columns(template: str) -> list[str]:
    """The columns that a template names. Raises ConfigError when it is not a plain format string.

    >>> template_columns("{question} ({unit})")
    ['question', 'unit']
    """
    try:
        names = [name for _, name, _, _ in Formatter().parse(template) if name is not None]
    except ValueError as error:
        raise ConfigError(f"task.template: {template!r} is not a format string: {error}; write a brace as {{{{") from None
    bad = [name for name in names if not name or any(mark in name for mark in ".[")]
    if bad or not names:
        raise ConfigError(f"task.template: {template!r} must name columns in braces, such as {{question}}, got {names}")
    return names


def prompts_from_rows(rows: Iterable[Row], reading: RowReading, *, source: str) -> tuple[Prompt, ...]:
    """One prompt for each row.

    Raises one DataError that lists every bad row, its reason and the remedy.

    >>> prompts_from_rows([(1, {"prompt": "2 + 2?", "answer": 4})], RowReading(gold_column="answer"), source="x.jsonl")[0].gold
    4
    >>> prompts_from_rows([(1, {"prompt": 7}), (2, {"prompt": " "})], RowReading(), source="x.jsonl")
    Traceback (most recent call last):
    ...
    toishi.errors.DataError: x.jsonl: 2 of 2 rows cannot be used:
      row 1: the prompt is a number (int), not text or a chat. Put it in quotes
      row 2: the prompt is empty. Fill it or remove the row
    """
    listed = list(rows)
    if not listed:
        raise DataError(f"{source} has no rows; expected at least one")
    _check_columns_exist(listed, reading, source)
    prompts: list[Prompt] = []
    problems: dict[RowProblem, list[int]] = defaultdict(list)
    for number, row in listed:
        try:
            prompts.append(_prompt(number, row, reading, source))
        except BadRow as bad:
            problems[bad.problem].append(number)
    for problem, number in [*_duplicate_ids(listed), *_mixed_kinds(listed, reading)]:
        problems[problem].append(number)
    if problems:
        raise DataError(_report(problems, len(listed), source))
    return tuple(prompts)


def _check_columns_exist(listed: Sequence[Row], reading: RowReading, source: str) -> None:
    """A column that no row has is one mistake in the recipe, not one in every row."""
    known = {str(column) for _, row in listed if isinstance(row, Mapping) for column in row}
    for column in reading.needed:
        if known and column not in known:
            option = "task.gold_column" if column == reading.gold_column else "task.prompt_column"
            option = "task.conversation_column" if column == reading.conversation_column else option
            option = "task.template" if reading.template is not None and option == "task.prompt_column" else option
            raise DataError(f"{source}: no row has the column '{column}' ({option}); {nearest(column, known)}")


def _prompt(number: int, row: Any, reading: RowReading, source: str) -> Prompt:
    if isinstance(row, RowProblem):
        raise BadRow(row.what, row.remedy)
    if not isinstance(row, Mapping):
        raise BadRow(f"the row is a {type(row).__name__}, not an object with columns", "Write {...} on each line")
    columns = dict(row)
    _require_unicode(columns)
    if reading.conversation_column is not None:
        columns |= _conversation(columns, reading.conversation_column)
    asked = _asked(columns, reading)
    gold = _gold(columns, reading.gold_column) if reading.gold_column is not None else None
    id = str(columns["id"]) if _has(columns, "id") else f"{source}:{number}"
    if isinstance(asked, str) and not reading.as_chat:
        return Prompt(id=id, text=asked, gold=gold, columns=columns)
    messages = user_message(asked) if isinstance(asked, str) else asked
    return Prompt(id=id, messages=messages, gold=gold, columns=columns)


def _conversation(columns: Mapping[str, Any], column: str) -> dict[str, Any]:
    """The columns `prompt` and `completion` out of a whole chat."""
    turns = columns.get(column)
    if not isinstance(turns, list | tuple):
        raise BadRow(f"'{column}' is a {type(turns).__name__}, not a chat", "Expected a list of {role, content}")
    _require_turns(turns)
    first = next((place for place, turn in enumerate(turns) if turn["role"] == "assistant"), None)
    if first is None:
        raise BadRow("the chat has no assistant turn", "Add the answer, or remove the row")
    if turns[-1]["role"] != "assistant":
        raise BadRow(f"the chat ends with a {turns[-1]['role']} turn", "Remove it, or add the answer to it")
    if taken := [name for name in ("prompt", "completion") if name in columns and name != column]:
        raise BadRow(f"the row has '{taken[0]}' beside '{column}'", "Keep one of the two forms")
    plain = [{"role": turn["role"], "content": turn["content"]} for turn in turns]
    return {"prompt": plain[:first], "completion": plain[first:]}


def _require_unicode(value: Any) -> None:
    """Raises BadRow for half a character anywhere in the row: no tokenizer reads it, and no file can hold it."""
    if isinstance(value, str):
        if any("\ud800" <= sign <= "\udfff" for sign in value):
            text = value.encode("ascii", "backslashreplace").decode()
            raise BadRow(f"it holds half of a character (a lone surrogate): {text:.60}", "Mend the text or remove the row")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _require_unicode(key)
            _require_unicode(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _require_unicode(item)


def _asked(columns: Mapping[str, Any], reading: RowReading) -> str | tuple[Message, ...]:
    named = reading.needed[: None if reading.gold_column is None else -1]
    for column in named:
        if not _has(columns, column):
            what = "the prompt" if reading.template is None else "a column of the template"
            raise BadRow(f"{what} ('{column}') is missing", "Add it or remove the row")
    prompt_column = reading.prompt_column if reading.conversation_column is None else "prompt"
    asked = columns[prompt_column] if reading.template is None else _filled(reading.template, columns)
    if isinstance(asked, bool | int | float):
        raise BadRow(f"the prompt is a number ({type(asked).__name__}), not text or a chat", "Put it in quotes")
    if isinstance(asked, str):
        if not asked.strip():
            raise BadRow("the prompt is empty", "Fill it or remove the row")
        return asked
    if not isinstance(asked, list | tuple):
        raise BadRow(f"the prompt is a {type(asked).__name__}", "Expected text or a list of {role, content}")
    return _chat(asked)


def _filled(template: str, columns: Mapping[str, Any]) -> str:
    try:
        return template.format_map(columns)
    except (ValueError, TypeError) as error:
        raise BadRow(f"task.template cannot be filled: {error}", "Change the template or the row") from None


def _chat(turns: Sequence[Any]) -> tuple[Message, ...]:
    if not turns:
        raise BadRow("the prompt is empty (a chat without turns)", "Fill it or remove the row")
    _require_turns(turns)
    last = turns[-1]
    if last["role"] == "assistant":
        raise BadRow("the chat ends with an assistant turn", "Remove that turn; a right answer belongs in the gold column")
    if last["role"] not in ("user", "tool"):
        raise BadRow(f"the chat ends with a {last['role']} turn", "Add the user turn to be answered")
    if not last["content"].strip():
        raise BadRow("the prompt is empty (its last turn)", "Fill it or remove the row")
    return tuple({"role": turn["role"], "content": turn["content"]} for turn in turns)


def _require_turns(turns: Sequence[Any]) -> None:
    for turn in turns:
        if not isinstance(turn, Mapping) or turn.get("role") not in ROLES or not isinstance(turn.get("content"), str):
            remedy = f"Each turn is {{role, content}}, role one of {', '.join(ROLES)}, content text"
            raise BadRow(f"the chat has a turn that is not {{role, content}}: {turn!r:.60}", remedy)


def _gold(columns: Mapping[str, Any], gold_column: str) -> Any:
    gold = columns.get(gold_column)
    if gold is None or (isinstance(gold, float) and math.isnan(gold)):
        raise BadRow(f"the gold ('{gold_column}') is missing", "Fill it or remove the row")
    if isinstance(gold, str | list | tuple | dict) and not (gold.strip() if isinstance(gold, str) else gold):
        raise BadRow(f"the gold ('{gold_column}') is empty", "Fill it or remove the row")
    return gold


def _has(columns: Mapping[str, Any], column: str) -> bool:
    return columns.get(column) is not None


def _duplicate_ids(listed: Sequence[Row]) -> list[tuple[RowProblem, int]]:
    rows_of: dict[str, list[int]] = defaultdict(list)
    for number, row in listed:
        if isinstance(row, Mapping) and _has(row, "id"):
            rows_of[str(row["id"])].append(number)
    remedy = "Give each row its own id, or rename the column"
    return [
        (RowProblem(f"the id {id!r} stands in several rows", remedy), number)
        for id, numbers in rows_of.items()
        if len(numbers) > 1
        for number in numbers
    ]


def _mixed_kinds(listed: Sequence[Row], reading: RowReading) -> list[tuple[RowProblem, int]]:
    """Rows of the rarer kind, when some prompts are text and others are chats."""
    if reading.template is not None or reading.as_chat or reading.conversation_column is not None:
        return []
    kinds: dict[str, list[int]] = {"text": [], "a chat": []}
    for number, row in listed:
        asked = row.get(reading.prompt_column) if isinstance(row, Mapping) else None
        if isinstance(asked, str | list):
            kinds["text" if isinstance(asked, str) else "a chat"].append(number)
    rarer, other = sorted(kinds, key=lambda kind: len(kinds[kind]))
    problem = RowProblem(f"the prompt is {rarer} while other rows have {other}", "Use one kind, or set task.as_chat to true")
    return [(problem, number) for number in kinds[rarer]]


def _report(problems: Mapping[RowProblem, list[int]], total: int, source: str) -> str:
    bad = len({number for numbers in problems.values() for number in numbers})
    lines = [f"{source}: {bad} of {total} rows cannot be used:"]
    for problem, numbers in sorted(problems.items(), key=lambda item: item[1]):
        shown = ", ".join(map(str, numbers[:ROWS_SHOWN]))
        more = f" and {len(numbers) - ROWS_SHOWN} more" if len(numbers) > ROWS_SHOWN else ""
        lines.append(f"  row{'s' if len(numbers) > 1 else ''} {shown}{more}: {problem.what}. {problem.remedy}")
    return "\n".join(lines)

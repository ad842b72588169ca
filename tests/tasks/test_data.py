"""Own data: good files in every form, and every bad row in one report."""

from __future__ import annotations

import builtins
import csv
import decimal
import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from toishi.config import TaskConfig
from toishi.errors import ConfigError, DataError, MissingExtraError
from toishi.tasks import Task, build_task
from toishi.types import Prompt

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}]


def jsonl(path: Path, *rows: Any) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def file_task(path: str, **options: Any) -> Task:
    return build_task(TaskConfig(name="file", path=path, **({"heldout": 0} | options)), seed=0)  # type: ignore[call-arg]


def trained(task: Task) -> list[Prompt]:
    return sorted((task.train_prompt(index) for index in range(task.num_train or 0)), key=lambda prompt: prompt.id)


def problems(path: str, **options: Any) -> list[str]:
    """The lines of the report, without its head."""
    with pytest.raises(DataError) as caught:
        file_task(path, **options)
    return [line.strip() for line in str(caught.value).splitlines()[1:]]


def test_a_jsonl_file(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path / "a.jsonl",
        {"prompt": "2 + 2?", "answer": 4, "level": "easy"},
        {"prompt": "3 + 3?", "answer": 6, "level": "easy"},
    )
    task = file_task(path, gold_column="answer")
    assert (task.name, task.gold_column, task.num_train) == ("file", "answer", 2)
    assert task.columns == frozenset({"prompt", "answer", "level"})
    first = trained(task)[0]
    assert first == Prompt(id=f"{path}:1", text="2 + 2?", gold=4, columns={"prompt": "2 + 2?", "answer": 4, "level": "easy"})


@pytest.mark.parametrize("gold", [4, 4.5, "4", [4, 5], {"a": 4}, 0, False])
def test_a_gold_of_any_type_is_kept_as_it_is(tmp_path: Path, gold: Any) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"prompt": "2 + 2?", "answer": gold})
    kept = file_task(path, gold_column="answer").train_prompt(0).gold
    assert kept == gold
    assert type(kept) is type(gold)


def test_chats(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"prompt": CHAT, "id": "first"})
    prompt = file_task(path).train_prompt(0)
    assert (prompt.id, prompt.messages, prompt.text) == ("first", tuple(CHAT), None)


def test_text_as_a_chat(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"prompt": "hi"}, {"prompt": CHAT})
    messages = [prompt.messages for prompt in trained(file_task(path, as_chat=True))]
    assert messages == [({"role": "user", "content": "hi"},), tuple(CHAT)]


def test_a_template_over_columns(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"question": "2 + 2?", "unit": "km"})
    assert file_task(path, template="{question} In {unit}, {{brief}}.").train_prompt(0).text == "2 + 2? In km, {brief}."


def test_byte_order_mark_carriage_returns_and_blank_lines_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "a", "answer": 1}\r\n\r\n{"prompt": "b", "answer": 2}\r\n')
    prompts = trained(file_task(str(path), gold_column="answer"))
    assert [(prompt.id, prompt.text, prompt.gold) for prompt in prompts] == [(f"{path}:1", "a", 1), (f"{path}:3", "b", 2)]


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes('\ufeffprompt,answer\r\n"two\r\nlines, and a comma",4\r\nb,5\r\n'.encode())
    prompts = trained(file_task(str(path), gold_column="answer"))
    assert [(prompt.text, prompt.gold) for prompt in prompts] == [("two\r\nlines, and a comma", "4"), ("b", "5")]


def test_csv_rows_of_the_wrong_width(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("prompt,answer\na,1\nb,2,3\nc\n")
    assert problems(str(path), gold_column="answer") == [
        "row 3: the row has more fields than the header. Quote fields that hold commas",
        "row 4: the row has fewer fields than the header. Write empty fields as well: a,,c",
    ]


def test_csv_that_a_lenient_reader_would_misread(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    for text, message in (
        ('prompt,answer\na,1\n"b,1\nc,3\nd,4\n', "row that begins in line 3: unexpected end of data.*Close every quote"),
        ('prompt,answer\n"a"x,1\n', "row that begins in line 2"),
        ("prompt,x,prompt\na,1,b\n", "the column 'prompt' stands 2 times in the header; rename one"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            file_task(str(path))


def test_csv_with_long_fields_blank_lines_and_line_breaks(tmp_path: Path) -> None:
    before = csv.field_size_limit()
    path = tmp_path / "a.csv"
    path.write_text('prompt,answer\n\n"a ""q""\nline 2",1\n' + "z" * 200_000 + ",2\n")
    prompts = trained(file_task(str(path)))
    assert [prompt.id.rpartition(":")[2] for prompt in prompts] == ["3", "5"]
    assert [(prompt.text or "")[:5] for prompt in prompts] == ['a "q"', "zzzzz"]
    assert csv.field_size_limit() == before


def test_jsonl_lines_that_a_lenient_reader_would_misread(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"prompt": "a", "prompt": "b"}\n{"prompt": "c", "m": {"x": 1, "x": 2}}\n{"prompt": "d", "n": ' + "9" * 5000 + "}\n"
    )
    first, second, third = problems(str(path))
    assert first == "row 1: the key 'prompt' stands twice. Remove one"
    assert second == "row 2: the key 'x' stands twice. Remove one"
    assert third.startswith("row 3: the line is not JSON")


def test_half_a_character_is_refused_in_every_column_and_in_the_id(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path / "a.jsonl", {"prompt": "a\ud800"}, {"id": "\udfff", "prompt": "b"}, {"prompt": "c", "m": [{"k\ud800": 1}]}
    )
    assert [line.partition(" (a lone surrogate)")[0] for line in problems(path)] == [
        f"row {number}: it holds half of a character" for number in (1, 2, 3)
    ]


def test_decimal_golds_of_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"prompt": ["a"], "answer": [decimal.Decimal("1.50")]}), path)
    assert file_task(str(path), gold_column="answer").train_prompt(0).gold == decimal.Decimal("1.50")


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"prompt": [CHAT, CHAT[1:]], "answer": [4.5, 6.0]}), path)
    prompts = trained(file_task(str(path), gold_column="answer"))
    assert [(prompt.messages, prompt.gold) for prompt in prompts] == [(tuple(CHAT), 4.5), (tuple(CHAT[1:]), 6.0)]
    path.write_bytes(b"no parquet")
    with pytest.raises(DataError, match="is not a Parquet file"):
        file_task(str(path))


def test_limit_and_held_out_rows(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", *({"prompt": str(number)} for number in range(100)))
    task = file_task(path, limit=20, heldout=5)
    held, train = {prompt.text for prompt in task.heldout_prompts()}, {prompt.text for prompt in trained(task)}
    assert (len(held), len(train), held & train) == (5, 15, set())
    assert held | train == {str(number) for number in range(20)}


def test_one_row_is_enough_without_held_out_rows(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"prompt": "2 + 2?"})
    task = file_task(path, heldout=0)
    assert [task.train_prompt(index).text for index in range(8)] == ["2 + 2?"] * 8
    with pytest.raises(DataError, match=r"task\.heldout: 64 prompts to hold out of 1 rows .* set task\.heldout to at most 0"):
        file_task(path, heldout=64)


def test_a_held_out_file(tmp_path: Path) -> None:
    train = jsonl(tmp_path / "train.jsonl", {"prompt": "a", "answer": 1}, {"prompt": "b", "answer": 2})
    test = jsonl(tmp_path / "test.jsonl", {"prompt": "c", "answer": 3})
    task = file_task(train, heldout_path=test, gold_column="answer")
    assert (task.num_train, [prompt.gold for prompt in task.heldout_prompts()]) == (2, [3])
    both = jsonl(tmp_path / "both.jsonl", {"prompt": "c"}, {"prompt": "B"})
    with pytest.raises(DataError, match=r"1 training prompts have the same text .*train\.jsonl:2 = .*both\.jsonl:2"):
        file_task(train, heldout_path=both)


def test_every_bad_row_is_listed_once_with_reason_and_remedy(tmp_path: Path) -> None:
    good = {"prompt": "2 + 2?", "answer": 4}
    rows: list[Any] = [
        good,
        {"answer": 4},
        {"prompt": None, "answer": 4},
        {"prompt": 7, "answer": 4},
        {"prompt": " \n", "answer": 4},
        {"prompt": "a", "answer": None},
        {"prompt": "b", "answer": "  "},
        {"prompt": "c", "answer": []},
        {"prompt": {"a": 1}, "answer": 4},
        [1, 2],
        {"prompt": "d", "answer": float("nan")},
    ]
    path = jsonl(tmp_path / "a.jsonl", *rows)
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write("{broken\n")
    assert problems(path, gold_column="answer") == [
        "rows 2, 3: the prompt ('prompt') is missing. Add it or remove the row",
        "row 4: the prompt is a number (int), not text or a chat. Put it in quotes",
        "row 5: the prompt is empty. Fill it or remove the row",
        "rows 6, 11: the gold ('answer') is missing. Fill it or remove the row",
        "rows 7, 8: the gold ('answer') is empty. Fill it or remove the row",
        "row 9: the prompt is a dict. Expected text or a list of {role, content}",
        "row 10: the row is a list, not an object with columns. Write {...} on each line",
        "row 12: the line is not JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1)). "
        "Write one JSON object on each line",
    ]


@pytest.mark.parametrize(
    ("chat", "reason"),
    [
        ([*CHAT, {"role": "assistant", "content": "4"}], "the chat ends with an assistant turn. Remove that turn"),
        (CHAT[:1], "the chat ends with a system turn. Add the user turn"),
        ([], "the prompt is empty (a chat without turns)"),
        ([{"role": "user", "content": " "}], "the prompt is empty (its last turn)"),
        ([{"role": "human", "content": "hi"}], "the chat has a turn that is not {role, content}: {'role': 'human'"),
        ([{"role": "user"}], "the chat has a turn that is not {role, content}: {'role': 'user'}"),
        ([{"role": "user", "content": [{"type": "image"}]}], "the chat has a turn that is not {role, content}"),
        (["hi"], "the chat has a turn that is not {role, content}: 'hi'"),
    ],
)
def test_bad_chats(tmp_path: Path, chat: list[Any], reason: str) -> None:
    (line,) = problems(jsonl(tmp_path / "a.jsonl", {"prompt": chat}))
    assert line.startswith(f"row 1: {reason}")


def test_mixed_kinds_and_repeated_ids_are_listed(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "id": 1}, {"prompt": CHAT, "id": 2}, {"prompt": "b", "id": 1}, {"prompt": "c", "id": "1"}]
    assert problems(jsonl(tmp_path / "a.jsonl", *rows)) == [
        "rows 1, 3, 4: the id '1' stands in several rows. Give each row its own id, or rename the column",
        "row 2: the prompt is a chat while other rows have text. Use one kind, or set task.as_chat to true",
    ]


def test_many_bad_rows_are_counted(tmp_path: Path) -> None:
    (line,) = problems(jsonl(tmp_path / "a.jsonl", {"prompt": "a"}, *({"prompt": ""} for _ in range(25))))
    assert line == "rows 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 15 more: the prompt is empty. Fill it or remove the row"


def test_a_template_that_does_not_fit_a_row(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"q": 7}, {"q": "seven"}, {"q": None})
    assert problems(path, template="{q:d}?") == [
        "row 2: task.template cannot be filled: Unknown format code 'd' for object of type 'str'. "
        "Change the template or the row",
        "row 3: a column of the template ('q') is missing. Add it or remove the row",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prompt_column": "prompts"}, r"no row has the column 'prompts' \(task\.prompt_column\); did you mean 'prompt'"),
        ({"gold_column": "anwser"}, r"no row has the column 'anwser' \(task\.gold_column\); did you mean 'answer'"),
        ({"template": "{promt}"}, r"no row has the column 'promt' \(task\.template\); did you mean 'prompt'"),
    ],
)
def test_a_column_that_no_row_has(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"prompt": "a", "answer": 1}, {"prompt": "b", "answer": 2})
    with pytest.raises(DataError, match=message):
        file_task(path, **options)


def test_an_empty_file(tmp_path: Path) -> None:
    for name in ("a.jsonl", "a.csv"):
        (tmp_path / name).write_text("")
        with pytest.raises(DataError, match="has no rows; expected at least one"):
            file_task(str(tmp_path / name))


def test_a_file_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes('{"prompt": "é"}'.encode("latin-1"))
    with pytest.raises(DataError, match=r"is not UTF-8 \(byte 12\); save it as UTF-8"):
        file_task(str(tmp_path / "a.jsonl"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "trian.jsonl"}, r"task\.path: there is no file trian\.jsonl \(looked in .*\); did you mean 'train\.jsonl'"),
        ({"path": "far/away.jsonl"}, r"task\.path: there is no file far/away\.jsonl \(looked in .*\)$"),
        ({"path": "train.txt"}, r"task\.path: train\.txt ends in '\.txt'; expected one of \.jsonl"),
        ({}, r"task\.path: this option is required"),
        ({"path": "train.jsonl", "template": "{a.__class__}"}, r"task\.template: .*must name columns in braces"),
        ({"path": "train.jsonl", "template": "{}"}, r"task\.template: .*must name columns in braces"),
        ({"path": "train.jsonl", "template": "same"}, r"task\.template: .*must name columns in braces"),
        ({"path": "train.jsonl", "template": "{a"}, r"task\.template: .*is not a format string"),
        ({"path": "train.jsonl", "limit": 0}, r"task\.limit: .*greater than or equal to 1, got 0"),
        ({"path": "train.jsonl", "promt_column": "a"}, r"task\.promt_column: unknown option; did you mean 'prompt_column'"),
    ],
)
def test_wrong_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], message: str) -> None:
    monkeypatch.chdir(tmp_path)
    jsonl(tmp_path / "train.jsonl", {"prompt": "a"})
    with pytest.raises(ConfigError, match=message):
        build_task(TaskConfig(name="file", **options), seed=0)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    datasets = pytest.importorskip("datasets")
    folder = tmp_path_factory.mktemp("hub")
    rows = datasets.Dataset.from_list([{"prompt": f"{number} + 1?", "answer": number + 1} for number in range(8)])
    rows.save_to_disk(str(folder / "one"))
    test = datasets.Dataset.from_list([{"prompt": "9 + 1?", "answer": 10}])
    datasets.DatasetDict({"train": rows, "test": test}).save_to_disk(str(folder / "many"))
    return folder


def hub_task(dataset: Path | str, **options: Any) -> Task:
    return build_task(TaskConfig(name="hub", dataset=str(dataset), gold_column="answer", **options), seed=0)  # type: ignore[call-arg]


def test_a_saved_data_set(saved: Path) -> None:
    task = hub_task(saved / "one", heldout=2)
    assert (task.name, task.num_train, len(task.heldout_prompts())) == ("hub", 6, 2)
    first = trained(task)[0]
    assert first.gold == int(str(first.text).split()[0]) + 1
    assert first.id.startswith(f"{saved / 'one'}[train]:")


def test_a_saved_data_set_with_splits(saved: Path) -> None:
    task = hub_task(saved / "many", heldout_split="test", limit=3)
    assert (task.num_train, [prompt.gold for prompt in task.heldout_prompts()]) == (3, [10])
    with pytest.raises(ConfigError, match=r"task\.split: .* has no split 'tset'; did you mean 'test'"):
        hub_task(saved / "many", split="tset")


def test_a_data_set_that_cannot_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"task\.dataset: '.*empty' could not be loaded: .*save_to_disk works offline"):
        hub_task(tmp_path / "empty")


@pytest.mark.parametrize(("task", "package", "extra"), [("hub", "datasets", "hub"), ("reasoning_gym", "reasoning_gym", "gym")])
def test_a_missing_package_names_its_extra(task: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".")[0] == package:
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=rf"toishi\[{extra}\]"):
        build_task(TaskConfig(name=task, dataset="chain_sum"), seed=0)  # type: ignore[call-arg]

"""Tasks over own data: `file` (JSONL, CSV, Parquet) and `hub` (a data set that the package `datasets` loads)."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from toishi.errors import ConfigError, DataError, MissingExtraError, nearest
from toishi.tasks.listed import ListedTask, split_heldout
from toishi.tasks.rows import BadRow, Row, RowProblem, RowReading, prompts_from_rows, template_columns
from toishi.types import Prompt


@dataclass(frozen=True, kw_only=True)
class _Columns:
    """Options that both tasks share.

    conversation_column  a column of whole chats: their first turns are the prompt, the rest the written answer (SFT)
    heldout  rows set aside (an order fixed by the seed) when no held-out source is given
    limit    use only the first so many rows
    """

    prompt_column: str = "prompt"
    gold_column: str | None = None
    template: str | None = None
    as_chat: bool = False
    conversation_column: str | None = None
    heldout: Annotated[int, Field(ge=0)] = 64
    limit: Annotated[int, Field(ge=1)] | None = None

    def __post_init__(self) -> None:
        if self.template is not None:
            template_columns(self.template)
        if self.conversation_column is not None and (self.template is not None or self.as_chat):
            raise ConfigError("task.conversation_column holds the prompt too; leave out task.template and task.as_chat")

    @property
    def reading(self) -> RowReading:
        return RowReading(
            prompt_column=self.prompt_column,
            template=self.template,
            gold_column=self.gold_column,
            as_chat=self.as_chat,
            conversation_column=self.conversation_column,
        )


@dataclass(frozen=True, kw_only=True)
class FileTask(_Columns):
    """Options of the task `file`: rows of a file of one's own. Paths are relative to the current directory.

    heldout_path  a file with the held-out rows (of the same form); `heldout` is not used then
    """

    path: str
    heldout_path: str | None = None

    def build(self, *, seed: int) -> ListedTask:
        prompts = prompts_from_rows(islice(read_rows(Path(self.path)), self.limit), self.reading, source=self.path)
        if self.heldout_path is None:
            return _listed("file", self, prompts, None, seed)
        heldout = prompts_from_rows(read_rows(Path(self.heldout_path)), self.reading, source=self.heldout_path)
        return _listed("file", self, prompts, heldout, seed)


@dataclass(frozen=True, kw_only=True)
class HubTask(_Columns):
    """Options of the task `hub`: a data set of the hub by id, or a folder that `datasets` saved.

    heldout_split  a split with the held-out rows; `heldout` is not used then
    """

    dataset: str
    config: str | None = None
    split: str = "train"
    revision: str | None = None
    heldout_split: str | None = None

    def build(self, *, seed: int) -> ListedTask:
        prompts = prompts_from_rows(islice(self._rows(self.split), self.limit), self.reading, source=self._source(self.split))
        if self.heldout_split is None:
            return _listed("hub", self, prompts, None, seed)
        source = self._source(self.heldout_split)
        heldout = prompts_from_rows(self._rows(self.heldout_split), self.reading, source=source)
        return _listed("hub", self, prompts, heldout, seed)

    def _source(self, split: str) -> str:
        return f"{self.dataset}[{split}]"

    def _rows(self, split: str) -> Iterator[Row]:
        try:
            import datasets
        except ImportError:
            raise MissingExtraError("datasets", extra="hub", purpose="the task 'hub'") from None
        if Path(self.dataset).is_dir() and any(
            (Path(self.dataset) / mark).exists() for mark in ("state.json", "dataset_dict.json")
        ):
            data = _saved_split(datasets.load_from_disk(self.dataset), split, self.dataset)
        else:
            data = _loaded(lambda: datasets.load_dataset(self.dataset, self.config, split=split, revision=self.revision), self)
        return enumerate(data, start=1)


def read_rows(path: Path) -> Iterable[Row]:
    """The rows of a JSONL, CSV or Parquet file, numbered as a person counts them (lines from 1; a CSV's header is line 1)."""
    readers: dict[str, Callable[[Path], Iterator[Row]]] = {
        ".jsonl": _jsonl_rows,
        ".ndjson": _jsonl_rows,
        ".csv": _csv_rows,
        ".parquet": _parquet_rows,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise ConfigError(f"task.path: {path} ends in {path.suffix!r}; expected one of {', '.join(readers)}")
    if not path.is_file():
        raise ConfigError(f"task.path: there is no file {path} (looked in {Path.cwd()}){_like(path)}")
    try:
        return list(reader(path))
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 (byte {error.start}); save it as UTF-8") from None


def _jsonl_rows(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                yield number, json.loads(line, object_pairs_hook=_object)
            except BadRow as bad:
                yield number, bad.problem
            except (ValueError, RecursionError) as error:  # a number of more than 4300 digits is a plain ValueError
                yield number, RowProblem(f"the line is not JSON ({error})", "Write one JSON object on each line")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object in which every key stands once; the reader would keep the last one without a word."""
    columns = dict(pairs)
    if len(columns) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadRow(f"the key '{twice}' stands twice", "Remove one")
    return columns


def _csv_rows(path: Path) -> Iterator[Row]:
    """Strict: an unclosed quote would swallow the rows after it. The rows are numbered by the line in which they begin."""
    with path.open(encoding="utf-8-sig", newline="") as lines, _long_fields():
        reader = csv.reader(lines, strict=True)
        start = 1
        try:
            header = next(reader, [])
            _check_header(header, path)
            start = reader.line_num + 1
            for fields in reader:
                if fields:
                    yield start, _csv_row(header, fields)
                start = reader.line_num + 1
        except csv.Error as error:
            raise DataError(
                f"{path}, row that begins in line {start}: {error}. Close every quote, and write quotes inside a "
                "quoted field twice"
            ) from None


def _check_header(header: list[str], path: Path) -> None:
    twice = [name for name in header if header.count(name) > 1]
    if twice:
        raise DataError(f"{path}: the column '{twice[0]}' stands {header.count(twice[0])} times in the header; rename one")


def _csv_row(header: list[str], fields: list[str]) -> dict[str, str] | RowProblem:
    if len(fields) > len(header):
        return RowProblem("the row has more fields than the header", "Quote fields that hold commas")
    if len(fields) < len(header):
        return RowProblem("the row has fewer fields than the header", "Write empty fields as well: a,,c")
    return dict(zip(header, fields, strict=True))


@contextmanager
def _long_fields() -> Iterator[None]:
    """Fields of any length; the limit belongs to the whole process, so it is put back."""
    before = csv.field_size_limit(2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _parquet_rows(path: Path) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
    except pyarrow.ArrowInvalid as error:
        raise DataError(f"{path} is not a Parquet file: {error}") from None
    return enumerate(table.to_pylist(), start=1)


def _like(path: Path) -> str:
    beside = [file.name for file in path.parent.iterdir() if file.is_file()] if path.parent.is_dir() else []
    hint = nearest(path.name, beside) if beside else ""
    return f"; {hint}" if hint.startswith("did you mean") else ""


def _saved_split(saved: Any, split: str, folder: str) -> Any:
    """A folder holds either one data set (then its split's name is not asked for) or several splits by name."""
    if not isinstance(saved, dict):
        return saved
    if split not in saved:
        raise ConfigError(f"task.split: {folder} has no split '{split}'; {nearest(split, saved)}")
    return saved[split]


def _loaded(load: Callable[[], Any], options: HubTask) -> Any:
    try:
        return load()
    except Exception as error:
        raise DataError(
            f"task.dataset: '{options.dataset}' could not be loaded: {type(error).__name__}: {error}. "
            "Check task.dataset, task.config, task.split and the network; a folder saved with save_to_disk works offline"
        ) from error


def _listed(
    name: str, options: _Columns, prompts: tuple[Prompt, ...], heldout: tuple[Prompt, ...] | None, seed: int
) -> ListedTask:
    train, aside = split_heldout(prompts, options.heldout, seed=seed, where="task") if heldout is None else (prompts, heldout)
    columns = frozenset.intersection(*(frozenset(prompt.columns) for prompt in prompts + aside))
    return ListedTask(name=name, columns=columns, train=train, heldout=aside, gold_column=options.gold_column, seed=seed)

"""A pipeline's folder: what every stage made, under a name that its content decides.

    FOLDER/pipeline.json                  the file as it was given
    FOLDER/decided.json                   the precision of all its models
    FOLDER/stages/NAME/KEY/stage.json     written last: the stage is finished, and this is what it made
    FOLDER/stages/NAME/KEY/sittings.jsonl a line each time that it was begun
    FOLDER/stages/NAME/KEY/...            a run folder (`run`), a data file, a model
    FOLDER/measured/KEY.json              one model on one set of held-out prompts
    FOLDER/report.html

Decisions:
1. KEY is the beginning of the sha256 of all that the stage depends on (contents.py). A stage whose stage.json stands there is
   not run again; one that changed gets another folder, and changing back finds the old one.
2. A stage without stage.json was interrupted, and goes on in its folder.
3. Outputs are kept as paths inside their folder, with the sha256 of what lay there; one that was changed since is refused.
4. One process writes a pipeline's folder at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toishi.errors import ConfigError, RecordError
from toishi.pipelines.contents import sha256_at
from toishi.record.files import append_line, read_lines, seal_of, trim_cut_line, write_json
from toishi.record.lines import now
from toishi.record.lock import LOCK_FILE, hold

KEY_LENGTH = 12
PIPELINE_FILE = "pipeline.json"
STAGE_FILE, SITTINGS_FILE, DECIDED_FILE = "stage.json", "sittings.jsonl", "decided.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What a stage left behind.

    paths  output -> where it lies
    facts  numbers and words for the report
    """

    paths: Mapping[str, Path]
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A finished stage as its stage.json tells it. `sums`: output -> sha256 of its content."""

    folder: Path
    paths: Mapping[str, Path]
    sums: Mapping[str, str]
    facts: Mapping[str, Any]
    seconds: float
    sittings: int


class Store:
    """The folder of one pipeline."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def writing(self, source: Mapping[str, Any]) -> Iterator[None]:
        """Inside, this process alone writes the folder.

        Raises ConfigError for a folder of something else, RecordError when another process writes it or the disk refuses.
        """
        self._require_own(str(source["name"]))
        release = hold(self.folder)
        try:
            write_json(self.folder / PIPELINE_FILE, source)
            yield
        finally:
            release()

    def _require_own(self, name: str) -> None:
        """Refuses a folder of another pipeline, or of something else."""
        known = self.folder / PIPELINE_FILE
        there = read_sealed(known)["name"] if known.is_file() else None
        if there is None and self.folder.is_dir() and any(file.name != LOCK_FILE for file in self.folder.iterdir()):
            raise ConfigError(f"{self.folder} is no folder of a pipeline and not empty; choose another --out")
        if there not in (None, name):
            raise ConfigError(f"{self.folder} is the folder of pipeline '{there}', not of '{name}'; choose another --out")

    def decided(self) -> str:
        """The precision of everything in this pipeline; "" where it was not decided yet."""
        path = self.folder / DECIDED_FILE
        return str(read_sealed(path)["dtype"]) if path.is_file() else ""

    def decide(self, decide: Callable[[], str]) -> str:
        """The precision, decided now unless it was."""
        if not self.decided():
            write_json(self.folder / DECIDED_FILE, {"dtype": decide()})
        return self.decided()

    def stage_folder(self, name: str, key: str) -> Path:
        """Where a stage of this content works."""
        return self.folder / "stages" / name / key[:KEY_LENGTH]

    def finished(self, name: str, key: str) -> Finished | None:
        """The stage, if it was finished with this content.

        Raises RecordError when what it made is not there any more, or was changed.
        """
        folder = self.stage_folder(name, key)
        if not (folder / STAGE_FILE).is_file():
            return None
        told = read_sealed(folder / STAGE_FILE)
        for output, one in told["made"].items():
            if not (folder / one["path"]).exists() or sha256_at(folder / one["path"]) != one["sha256"]:
                raise RecordError(
                    f"{folder / one['path']}: what stage '{name}' made ({output}) was changed or removed since. Restore it "
                    f"from a copy, or remove {folder} and run the pipeline again, which makes it anew"
                )
        return Finished(
            folder=folder,
            paths={output: folder / one["path"] for output, one in told["made"].items()},
            sums={output: f"sha256:{one['sha256']}" for output, one in told["made"].items()},
            facts=told["facts"],
            seconds=told["seconds"],
            sittings=len(read_lines(folder / SITTINGS_FILE)),
        )

    def is_begun(self, name: str, key: str) -> bool:
        """Whether a stage of this content was begun and not finished."""
        folder = self.stage_folder(name, key)
        return (folder / SITTINGS_FILE).is_file() and not (folder / STAGE_FILE).is_file()

    def begin(self, name: str, key: str) -> Path:
        """The stage's folder, with a note that it is worked on."""
        folder = self.stage_folder(name, key)
        folder.mkdir(parents=True, exist_ok=True)
        trim_cut_line(folder / SITTINGS_FILE)
        append_line(folder / SITTINGS_FILE, {"began": now()})
        return folder

    def finish(self, name: str, key: str, made: Made, *, kind: str, identity: Any, seconds: float) -> None:
        """Writes stage.json: from now on the stage is not run again."""
        folder = self.stage_folder(name, key)
        outputs = {
            output: {"path": path.resolve().relative_to(folder.resolve()).as_posix(), "sha256": sha256_at(path)}
            for output, path in made.paths.items()
        }
        told = {"stage": name, "kind": kind, "key": key, "made": outputs, "facts": dict(made.facts), "seconds": seconds}
        write_json(folder / STAGE_FILE, told | {"identity": identity, "finished": now()})

    def measured(self, key: str) -> list[dict[str, Any]] | None:
        """The evaluations kept under a key, if there are any."""
        path = self._measured_path(key)
        return list(read_sealed(path)["evaluations"]) if path.is_file() else None

    def keep_measured(self, key: str, what: Mapping[str, Any], evaluations: list[dict[str, Any]]) -> None:
        """Keeps evaluations of one model on one set of prompts."""
        write_json(self._measured_path(key), {**what, "key": key, "evaluations": evaluations})

    def _measured_path(self, key: str) -> Path:
        return self.folder / "measured" / f"{key[:KEY_LENGTH]}.json"


def read_sealed(path: Path) -> dict[str, Any]:
    """A sealed JSON file. Raises RecordError when it is none, or was changed."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RecordError(f"{path} cannot be read: {error}. Remove its folder, and the pipeline makes it anew") from None
    if not isinstance(values, dict) or values.get("seal") != seal_of(values):
        raise RecordError(f"{path} was changed after it was written. Restore it, or remove its folder to make it anew")
    return values

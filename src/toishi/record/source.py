"""Where a record comes from when another program trained: who, what its numbers are worth, and which links it cannot have.

Decisions:
1. A link of the chain that the other program did not write down is named with the reason. It is never filled in, and a reader
   that would recompute it says the reason instead.
2. Others compute advantages in single precision. What is compared with a float64 sum is then held to that precision only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from toishi.errors import RecordError

Link = Literal["tokens", "baseline", "advantage", "weights", "gradient", "change", "effect", "sft"]
LINK_NAMES: tuple[Link, ...] = ("tokens", "baseline", "advantage", "weights", "gradient", "change", "effect", "sft")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The `source` of run.json.

    program, version  who trained: 'trl', '1.16.0'
    how               'recorded' while it trained, or 'imported' from files that it wrote
    single_precision  its advantages are float32 numbers
    missing           link -> why it is not on record
    notes             what else a reader should know

    >>> Source(program="verl", version="unknown", how="imported", missing={"tokens": "it writes texts only"}).trained_by
    'verl (version unknown)'
    """

    program: str
    version: str
    how: Literal["recorded", "imported"]
    single_precision: bool = True
    missing: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        unknown = sorted(set(self.missing) - set(LINK_NAMES))
        if unknown:
            raise RecordError(f"source.missing names '{unknown[0]}', which is no link; links are {', '.join(LINK_NAMES)}")

    @property
    def trained_by(self) -> str:
        """The program with its version, for people."""
        return f"{self.program} (version unknown)" if self.version == "unknown" else f"{self.program} {self.version}"

    def as_record(self) -> dict[str, Any]:
        """What run.json holds."""
        return asdict(self)


def source_of(run: Mapping[str, Any]) -> Source | None:
    """Who trained, from run.json; None for a run of toishi's own.

    Raises RecordError when `source` cannot be read.
    """
    found = run.get("source")
    if found is None:
        return None
    try:
        return Source(**{**found, "notes": tuple(found.get("notes", ()))})
    except (TypeError, AttributeError) as error:
        raise RecordError(f"run.json, source: cannot be read ({error}). Restore the file from a copy") from None


def absent_links(run: Mapping[str, Any]) -> dict[str, str]:
    """Link -> why it is not on record.

    >>> absent_links({})
    {}
    """
    found = source_of(run)
    return {} if found is None else dict(found.missing)


def require_own(run: Mapping[str, Any], folder: Path) -> None:
    """Raises RecordError when another program trained: then no step can be done again, whatever is asked.

    run, folder: what run.json says, and where it lies
    """
    source = source_of(run)
    if source is not None:
        raise RecordError(
            f"{folder} was {source.how} from {source.trained_by}: toishi can explain and audit it, but the weights that it "
            "began with and the program that trained are not in it, so no step of it can be done again here"
        )

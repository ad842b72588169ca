"""A column of a parquet table of the run folder, with its meaning."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its arrow type and, in words, what it holds, in which unit or direction, and when it is null."""

    name: str
    type: pa.DataType
    description: str

    @property
    def field(self) -> pa.Field:
        return pa.field(self.name, self.type, metadata={"description": self.description})

"""A column of a parquet table of the run folder, with its meaning."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

ADDED = "added"
"""Key of a field's metadata: shards of the first runs do not have the column."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its arrow type and, in words, what it holds, in which unit or direction, and when it is null.

    added  not in the shards of the first runs: all null when such a shard is read
    """

    name: str
    type: pa.DataType
    description: str
    added: bool = False

    @property
    def field(self) -> pa.Field:
        return pa.field(
            self.name, self.type, metadata={"description": self.description} | ({ADDED: "yes"} if self.added else {})
        )

"""A column of a parquet table of the run folder, with its meaning."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

LATER = b"later"
"""Key of the metadata of a column that was added when there were shards already."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its arrow type and, in words, what it holds, in which unit or direction, and when it is null.

    later  shards of earlier versions have it not, and are read as if it were null
    """

    name: str
    type: pa.DataType
    description: str
    later: bool = False

    @property
    def field(self) -> pa.Field:
        later = {LATER.decode(): "true"} if self.later else {}
        return pa.field(self.name, self.type, metadata={"description": self.description, **later})

"""Parquet shards: written whole with an explicit schema, read with every column that the schema names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from toishi.errors import RecordError
from toishi.record.columns import LATER
from toishi.record.files import write_whole

Row = dict[str, Any]
_FLOATS = pa.list_(pa.float64())


def write_table(path: Path, rows: Sequence[Row], schema: pa.Schema) -> None:
    """Rows as a parquet file, whole or not at all. Lists of floats are split by bytes, everything else by dictionary."""
    table = pa.Table.from_pylist(list(rows), schema=schema)
    floats = [leaf for field in schema if field.type == _FLOATS for leaf in leaf_paths(field)]
    others = [leaf for field in schema if field.type != _FLOATS for leaf in leaf_paths(field)]

    def write(temporary: Path) -> None:
        pq.write_table(table, temporary, compression="zstd", use_byte_stream_split=floats, use_dictionary=others)

    write_whole(path, write)


def leaf_paths(field: pa.Field) -> list[str]:
    """Parquet's names of a column's leaves.

    >>> leaf_paths(pa.field("a", pa.list_(pa.struct([("x", pa.int8()), ("y", pa.string())]))))
    ['a.list.element.x', 'a.list.element.y']
    """
    if pa.types.is_list(field.type):
        return leaf_paths(pa.field(f"{field.name}.list.element", field.type.value_type))
    if pa.types.is_struct(field.type):
        return [leaf for child in field.type for leaf in leaf_paths(pa.field(f"{field.name}.{child.name}", child.type))]
    return [field.name]


def read_table(path: Path, schema: pa.Schema) -> list[Row]:
    """Rows of a shard; a column that shards of earlier versions have not is null.

    Raises RecordError when it is missing, damaged, or lacks another column.
    """
    try:
        table = pq.read_table(path, partitioning=None)
    except FileNotFoundError:
        raise RecordError(f"{path} is missing though its step is on record. Restore it from a copy") from None
    except (pa.ArrowException, OSError) as error:
        raise RecordError(
            f"{path} is damaged: {error}. Restore it from a copy, or resume from a checkpoint before it"
        ) from None
    absent = [name for name in schema.names if name not in table.column_names]
    missing = [name for name in absent if not (schema.field(name).metadata or {}).get(LATER)]
    if missing:
        raise RecordError(f"{path} lacks {', '.join(missing)}; it has {', '.join(table.column_names)}. Restore it from a copy")
    rows: list[Row] = table.select([name for name in schema.names if name not in absent]).to_pylist()
    return [row | dict.fromkeys(absent) for row in rows] if absent else rows

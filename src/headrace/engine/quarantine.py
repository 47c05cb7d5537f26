"""Bad rows that were set aside: they are Arrow files of the location, and the commit log names these files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa

from headrace.engine.store import Store
from headrace.errors import CorruptFileError
from headrace.relation.change import REASON, BadRows
from headrace.relation.schema import STEP, Column, TableSchema
from headrace.relation.types import SqlType
from headrace.runtime.location import write_atomically
from headrace.runtime.program import arrow_schema


def write(store: Store, step: int, bad: Mapping[str, BadRows]) -> dict[str, list[str]]:
    """Write the bad rows of a step; returns the new files of each table, for the step's record."""
    files = {}
    for name, rows in bad.items():
        table = rows.to_arrow()
        table = table.append_column(STEP, pa.array([step] * table.num_rows, pa.int64()))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        file = store.location.new_name(store.snapshot.version + 1, ".arrow")
        write_atomically(store.location.quarantine / file, bytes(sink.getvalue()), fsync=store.fsync)
        files[name] = [file]
    return files


def read(schema: TableSchema, files: Iterable[Path]) -> pa.Table:
    """Read rows of a table that were set aside in some files."""
    wanted = arrow_schema(
        [
            *schema.change_columns,
            Column(REASON, SqlType("string")),
            Column(STEP, SqlType("bigint")),
        ]
    )
    parts = [wanted.empty_table()]
    for path in files:
        try:
            parts.append(pa.ipc.open_file(pa.py_buffer(path.read_bytes())).read_all().cast(wanted))
        except (OSError, pa.ArrowInvalid) as error:
            raise CorruptFileError(
                f"quarantine file {path} is damaged: {error}", way_out="restore it from a backup"
            ) from error
    return pa.concat_tables(parts)

"""Rows that were set aside, read again: they are Arrow files of the location, and the commit log names these files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from headrace.errors import CorruptFileError
from headrace.relation.schema import STEP, Column, TableSchema
from headrace.relation.types import SqlType
from headrace.runtime.aside import aside_columns
from headrace.runtime.program import arrow_schema


def read(schema: TableSchema, files: Iterable[Path]) -> pa.Table:
    """Read rows of a table that were set aside in some files."""
    wanted = arrow_schema([*aside_columns(schema), Column(STEP, SqlType("bigint"))])
    parts = [wanted.empty_table()]
    for path in files:
        try:
            parts.append(pa.ipc.open_file(pa.py_buffer(path.read_bytes())).read_all().cast(wanted))
        except (OSError, pa.ArrowInvalid) as error:
            raise CorruptFileError(
                f"quarantine file {path} is damaged: {error}", way_out="restore it from a backup"
            ) from error
    return pa.concat_tables(parts)

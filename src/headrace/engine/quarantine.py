"""Rows that were set aside, read again: they are Arrow files of the location, and the commit log names these files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from headrace.errors import CorruptFileError
from headrace.relation import disk
from headrace.relation.schema import STEP, Column, TableSchema
from headrace.relation.types import SqlType
from headrace.runtime.aside import aside_columns
from headrace.runtime.program import arrow_schema
from headrace.runtime.recovery import aside_content

T = TypeVar("T")


def read(schema: TableSchema, files: Iterable[Path]) -> pa.Table:
    """Read rows of a table that were set aside in some files."""
    wanted = arrow_schema([*aside_columns(schema), Column(STEP, SqlType("bigint"))])

    def rows(path: Path) -> pa.Table:
        found = pa.ipc.open_file(pa.py_buffer(aside_content(path))).read_all()
        found.validate(full=True)
        return found.cast(wanted)

    return pa.concat_tables([wanted.empty_table(), *(_of(path, rows) for path in files)])


def count(files: Iterable[Path]) -> int:
    """Count the rows that were set aside in some files, without reading them."""
    return sum(_of(path, _rows_in) for path in files)


def _rows_in(path: Path) -> int:
    with disk.opened(path) as source, pa.ipc.open_file(source) as file:
        return sum(file.get_batch(i).num_rows for i in range(file.num_record_batches))


def _of(path: Path, read_file: Callable[[Path], T]) -> T:
    try:
        return read_file(path)
    except (OSError, pa.ArrowException) as error:
        raise CorruptFileError(
            f"quarantine file {path} is damaged: {error}", way_out="restore it from a backup"
        ) from error

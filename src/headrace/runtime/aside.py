"""Rows that a step sets aside, bad ones and late ones: who tells of them, and the files that they are written to.

There may be millions of them, so whoever finds such rows writes them, a task of a job as well as the driver. The driver
only hears of them: how many they are, which files have them, and of bad rows the first few, for an error, and a word
for each, by which all tasks know them again. The commit log names the files; those of attempts that came to nothing are
orphans, as those of runs are.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.errors import BadRowsError
from headrace.relation.change import REASON, BadRows, combine_bad_rows
from headrace.relation.given import SHOWN
from headrace.relation.layout import TableLayout, hash_rows
from headrace.relation.schema import DIFF, STEP, Column, TableSchema
from headrace.relation.types import SqlType
from headrace.runtime.location import Location, write_atomically


@dataclass(frozen=True)
class Aside:
    """Rows of one table that were set aside: how many, and the files of the quarantine that have them."""

    rows: int
    files: tuple[str, ...]


def both_aside(first: Mapping[str, Aside], more: Mapping[str, Aside]) -> dict[str, Aside]:
    """Rows of each table that were set aside at two times."""
    out = dict(first)
    for name, added in more.items():
        before = out.get(name, Aside(0, ()))
        out[name] = Aside(before.rows + added.rows, (*before.files, *added.files))
    return out


@dataclass(frozen=True)
class AsideWriter:
    """Writes rows that a step sets aside, under names that no other attempt can have."""

    root: str
    version: int
    step: int
    fsync: bool

    def write(self, rows: pa.Table) -> str:
        """Write rows with `__diff` and `__reason`, and the number of the step; returns the name of the new file."""
        rows = rows.append_column(STEP, pa.repeat(pa.scalar(self.step, pa.int64()), rows.num_rows))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, rows.schema) as writer:
            writer.write_table(rows)
        data, location = memoryview(sink.getvalue()), Location(self.root)
        name = location.new_name(self.version, f".{zlib.crc32(data):08x}.arrow")
        write_atomically(location.quarantine / name, data, fsync=self.fsync)
        return name


def aside_columns(schema: TableSchema) -> list[Column]:
    """The columns of a table's rows that were set aside, without the number of the step."""
    return [*schema.change_columns, Column(REASON, SqlType("string"))]


@dataclass(frozen=True)
class Found:
    """Bad rows of one table and one judge, as a result tells of them.

    Parameters
    ----------
    first : the first of them, or all.
    identities : of all of them; those of `first` come first.
    files : the files of the quarantine that they are in, if they are set aside.
    """

    first: BadRows
    identities: NDArray[np.uint64]
    files: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.identities)

    def cut(self) -> Found:
        """The same with only those rows that an error would show."""
        return replace(self, first=self.first.take(np.arange(min(SHOWN, len(self.first)))))

    def error(self) -> BadRowsError:
        """Return an error that says how many rows are bad, and why the first of them are."""
        return self.first.error(len(self))


def named_once(found: Iterable[Found]) -> Found:
    """Put the bad rows of one table together; a row that breaks the rules of several judges is named by the first."""
    by_judge: dict[str, list[Found]] = {}
    for part in found:
        by_judge.setdefault(part.first.judge, []).append(part)
    kept: list[Found] = []
    seen = np.zeros(0, np.uint64)
    for judge in sorted(by_judge):
        part = _combined(by_judge[judge])
        new = ~np.isin(part.identities, seen)
        kept.append(replace(part, first=part.first.take(new[: len(part.first)]), identities=part.identities[new]))
        seen = np.concatenate([seen, part.identities])
    return _combined(kept)


def _combined(parts: Sequence[Found]) -> Found:
    first, rest = [p.identities[: len(p.first)] for p in parts], [p.identities[len(p.first) :] for p in parts]
    return Found(
        combine_bad_rows([part.first for part in parts]),
        np.concatenate(first + rest),
        tuple(file for part in parts for file in part.files),
    )


def row_identity(layout: TableLayout, rows: pa.Table, diff: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Hash rows with their sign, by those of the table's columns that they have.

    It serves to find rows again when a step is run a second time without the bad ones.
    """
    columns = [column for column in layout.schema.columns if column.name in rows.column_names]
    signed = rows.select([column.name for column in columns]).append_column(DIFF, pa.array(np.sign(diff)))
    return hash_rows(signed, [*columns, Column(DIFF, SqlType("bigint"))], layout.seed + 3)

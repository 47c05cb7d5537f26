"""How a table's rows are kept: which words identify a row, and which columns are stored beside them.

A row of a table with a key is (key words, hash of the other columns): rows with one key lie together, and an update
is a deletion and an insertion of two different entries. A row of a table without a key is a 128-bit hash of all
columns, and its count is how often it occurs. Either way a table is a relation like any other: a sum of runs with
counts as payloads.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.relation import kernels
from headrace.relation.columns import whole
from headrace.relation.kernels import Words
from headrace.relation.keys import KeyLayout, ordered_words, string_buffers, validity
from headrace.relation.run import Run, Values
from headrace.relation.schema import Column, TableSchema


@dataclass(frozen=True)
class TableLayout:
    """The words and stored values of one table's rows."""

    schema: TableSchema
    seed: int

    @cached_property
    def keys(self) -> KeyLayout:
        """Layout of the key columns."""
        columns = [self.schema.column(name) for name in self.schema.key]
        return KeyLayout(tuple(c.type for c in columns), tuple(False for _ in columns), self.seed)

    @cached_property
    def key_width(self) -> int:
        """How many words identify the key; the rest tell rows with one key apart."""
        return self.keys.width if self.schema.key else 2

    @cached_property
    def stored(self) -> tuple[str, ...]:
        """Columns stored beside the words."""
        readable = {name for i, name in enumerate(self.schema.key) if i not in self.keys.stored}
        return tuple(name for name in self.schema.names if name not in readable)

    def lead(self, rows: pa.Table | pa.RecordBatch) -> NDArray[np.uint64]:
        """Make the first word of each row's words only: it decides the bucket."""
        if not self.schema.key:
            return hash_rows(rows, self.schema.columns, self.seed + 1)
        words: Words = self.keys.encode([whole(rows.column(name)) for name in self.schema.key])
        return np.ascontiguousarray(words[0])

    def words(self, rows: pa.Table | pa.RecordBatch) -> Words:
        """Make the words that identify each row."""
        schema = self.schema
        if not schema.key:
            hashes = np.empty((2, rows.num_rows), np.uint64)
            for i in range(2):
                hashes[i] = hash_rows(rows, schema.columns, self.seed + 1 + i)
            return hashes
        key = self.keys.encode([whole(rows.column(name)) for name in schema.key])
        return np.concatenate([key, self.rest(rows)[None, :]])

    def rest(self, rows: pa.Table | pa.RecordBatch) -> NDArray[np.uint64]:
        """Make the last word of each row of a table with a key: the hash of all columns but the key."""
        others = [column for column in self.schema.columns if column.name not in self.schema.key]
        return hash_rows(rows, others, self.seed + 1)

    def values(self, rows: pa.Table | pa.RecordBatch) -> Values:
        """Pick the columns stored beside the words."""
        return {name: whole(rows.column(name)) for name in self.stored}

    def rows(self, run: Run, names: Collection[str] | None = None) -> dict[str, pa.Array]:
        """Read columns of the rows (all, unless named) back from a run, in the order of the table's columns."""
        columns, names = dict(run.values), self.schema.names if names is None else names
        if any(name in names for name in self.schema.key):
            for name, column in zip(self.schema.key, self.keys.decode(run.words[: self.key_width]), strict=True):
                if column is not None:
                    columns[name] = column
        return {name: columns[name] for name in self.schema.names if name in names}


def hash_rows(
    rows: pa.Table | pa.RecordBatch, columns: list[Column] | tuple[Column, ...], seed: int
) -> NDArray[np.uint64]:
    """Hash some columns of each row into one word; NULL differs from every value."""
    n = rows.num_rows
    out = np.full(n, seed, np.uint64)
    for column in columns:
        array = whole(rows.column(column.name))
        if column.type.kind == "string":
            words = np.empty((2, n), np.uint64)
            kernels.hash_strings(*string_buffers(array), np.uint64(seed), words)
        else:
            words = ordered_words(array, column.type)
        state = np.empty((words.shape[0] + 2, n), np.uint64)
        state[0], state[1:-1], state[-1] = out, words, 0
        if array.null_count:
            missing = ~validity(array)
            state[1:-1, missing] = 0
            state[-1] = missing
        kernels.fold(state, np.uint64(seed), out)
    return out

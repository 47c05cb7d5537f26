"""Columns as runs hold them: the words of their values, which become values only where somebody reads values.

A join reads rows from runs and its reader arranges them in runs again. Between the two nothing looks at most columns,
so decoding and encoding them would be work for nothing. A `Coded` column is what lies in a run; `values` makes an Arrow
array of it, and `coded` makes words of an Arrow array. Equal values of one type have equal words in every view of a
location, so words may be compared, hashed and handed on in place of values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.relation import kernels
from headrace.relation.columns import take_column, whole
from headrace.relation.kernels import Positions, Words
from headrace.relation.keys import KeyLayout, validity, values_of_words
from headrace.relation.types import SqlType


@dataclass(frozen=True, eq=False)
class Coded:
    """A column as words.

    Parameters
    ----------
    words : of each value, one or two; zero where the value is NULL.
    missing : which values are NULL; None if none is.
    text : of a string column, the strings, which cannot be read back from their hashes.
    """

    type: SqlType
    words: Words
    missing: NDArray[np.bool_] | None = None
    text: pa.Array | None = None

    def __len__(self) -> int:
        return int(self.words.shape[1])

    def take(self, at: NDArray[np.integer]) -> Coded:
        """Pick rows by position."""
        return Coded(
            self.type,
            np.take(self.words, at, axis=1),
            None if self.missing is None else self.missing[at],
            None if self.text is None else take_column(self.text, at),
        )


Column: TypeAlias = pa.Array | Coded
"""A column of changed rows, as values or as words."""


def coded(column: Column, kind: SqlType, seed: int) -> Coded:
    """A column as words."""
    if isinstance(column, Coded):
        if column.type == kind:
            return column
        column = values(column)
    column = whole(column)
    layout = KeyLayout((kind,), (False,), seed)
    words = layout.encode([column])[int(layout.has_lead) :]
    missing = ~validity(column) if column.null_count else None
    return Coded(kind, words, missing, column if kind.kind == "string" else None)


def values(column: Column) -> pa.Array:
    """A column as an Arrow array."""
    if not isinstance(column, Coded):
        return whole(column)
    return values_of_words(column.words, column.type, column.missing) if column.text is None else column.text


def take_any(column: Column, at: NDArray[np.integer]) -> Column:
    """Pick rows of a column by position."""
    return column.take(at) if isinstance(column, Coded) else take_column(column, at)


def nulls_of(column: Column) -> NDArray[np.bool_] | None:
    """Tell which values of a column are NULL; None if none is."""
    if isinstance(column, Coded):
        return column.missing if column.missing is not None and column.missing.any() else None
    return ~validity(column) if column.null_count else None


def concatenated(columns: Sequence[Column]) -> Column:
    """Put columns behind one another; they stay words if all of them are."""
    if any(not isinstance(column, Coded) for column in columns):
        return pa.concat_arrays([values(column) for column in columns])
    parts = [column for column in columns if isinstance(column, Coded)]
    missing = None
    if any(part.missing is not None for part in parts):
        missing = np.concatenate([_missing(part) for part in parts])
    text = None
    if parts[0].text is not None:
        text = pa.concat_arrays([part.text for part in parts])
    return Coded(parts[0].type, np.concatenate([part.words for part in parts], axis=1), missing, text)


def _missing(part: Coded) -> NDArray[np.bool_]:
    return np.zeros(len(part), bool) if part.missing is None else part.missing


def lead_of_words(words: Words, seed: int) -> NDArray[np.uint64]:
    """The word that decides in which bucket a row lies, from the words of the columns by which it is partitioned.

    It is the same wherever equal values stand: in a group, on either side of a join, with or without NULLs around.
    """
    if len(words) == 1:
        return np.ascontiguousarray(words[0])
    lead = np.empty(words.shape[1], np.uint64)
    kernels.fold(np.ascontiguousarray(words), np.uint64(seed), lead)
    return lead


def by_bucket(lead: NDArray[np.uint64], buckets: int) -> dict[int, Positions]:
    """The rows of each bucket that has some."""
    codes = np.empty(len(lead), np.int32)
    kernels.buckets_of(lead, buckets, codes)
    order, starts = np.empty(len(lead), np.int64), np.empty(buckets + 1, np.int64)
    kernels.split_by(codes, buckets, order, starts)
    return {b: order[starts[b] : starts[b + 1]] for b in range(buckets) if starts[b] < starts[b + 1]}

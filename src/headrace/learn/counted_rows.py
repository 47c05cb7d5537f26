"""Counts of rows in memory: to try a model over categories on a table, without an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import SchemaError
from headrace.learn.counts import Integers


class CountedRows:
    """How often the levels of columns occur, alone and in pairs; rows in which a column is missing are left out.

    >>> rows = CountedRows({"a": ["x", "y", "x"], "b": [1, 1, 2]})
    >>> rows.levels("a").to_pylist(), rows.level_counts("a"), rows.pair_counts("a", "b")[2]
    (['x', 'y'], array([2, 1]), array([1, 1, 1]))

    Parameters
    ----------
    columns : the values of each column; a pandas DataFrame or an Arrow table will do as well.
    """

    def __init__(self, columns: Mapping[str, Sequence[Any]] | Any) -> None:
        names = list(columns.column_names if isinstance(columns, pa.Table) else columns)
        arrays = [pa.array(_of(columns, name), from_pandas=True) for name in names]
        if len({len(array) for array in arrays}) > 1:
            raise SchemaError("the columns are of different lengths", way_out="give one value per row and column")
        there = np.ones(len(arrays[0]) if arrays else 0, bool)
        for array in arrays:
            there &= np.asarray(array.is_valid())
        self.categorical = tuple(names)
        self.count = float(there.sum())
        self._columns = {name: array.filter(pa.array(there)) for name, array in zip(names, arrays, strict=True)}

    @cached_property
    def _coded(self) -> dict[str, tuple[pa.Array, Integers]]:
        found = {}
        for name, column in self._columns.items():
            coded = column.dictionary_encode()
            found[name] = (coded.dictionary, np.asarray(coded.indices, np.int64))
        return found

    def levels(self, name: str) -> pa.Array:
        return self._coded[name][0]

    def level_counts(self, name: str) -> Integers:
        levels, codes = self._coded[name]
        return np.bincount(codes, minlength=len(levels)).astype(np.int64)

    def pair_counts(self, a: str, b: str) -> tuple[Integers, Integers, Integers]:
        wide = max(len(self.levels(b)), 1)
        pairs, counts = np.unique(self._coded[a][1] * wide + self._coded[b][1], return_counts=True)
        return pairs // wide, pairs % wide, counts.astype(np.int64)

    def pair_sizes(self, a: str, b: str) -> Integers:
        return self.pair_counts(a, b)[2]


def _of(columns: Any, name: str) -> Any:
    return columns.column(name).combine_chunks() if isinstance(columns, pa.Table) else columns[name]

"""Levels of categories in an order that does not depend on when they came, and where values are among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import SchemaError
from headrace.learn.counts import Counts, Integers


@dataclass(frozen=True)
class Ordered:
    """The levels of a feature that occur, in their order; `place` is the place of each level as it is stored."""

    values: list[Any]
    counts: Integers
    place: Integers


def ordered(counts: Counts, name: str) -> Ordered:
    """Sort the levels of a feature, and leave out those that no row has any more."""
    found, times = counts.levels(name), np.asarray(counts.level_counts(name), np.int64)
    there = np.flatnonzero(times > 0)
    order = there[np.asarray(pc.array_sort_indices(found.take(pa.array(there))), np.int64)]
    place = np.zeros(len(times), np.int64)
    place[order] = np.arange(len(order))
    return Ordered(found.take(pa.array(order)).to_pylist(), times[order], place)


def codes(frame: Any, name: str, values: list[Any]) -> Integers:
    """Where each value of a table's column is among some levels; -1 for those that are not, and for missing ones."""
    if isinstance(frame, pd.DataFrame):
        column = pa.array(frame[name], from_pandas=True)
    else:
        found = frame.column(name)
        column = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    known = pa.array(values)
    try:
        kind = known.type if len(known) else column.type
        places = pc.index_in(_cast(column, kind), known)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(
            f"column {name!r} is {column.type}, and the model has learned levels that are {known.type}",
            way_out="give the column the type that it has in the query",
        ) from error
    return np.asarray(places.fill_null(-1), np.int64)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    # Numbers with NULL are doubles in pandas; 1.5 is then no level of an integer, rather than an error.
    if pa.types.is_floating(column.type) and pa.types.is_integer(kind):
        whole = pc.equal(column, pc.floor(column))
        return pc.if_else(whole, column, None).cast(kind)
    return column.cast(kind)


def text(value: Any) -> str:
    """A level as text."""
    return str(value)

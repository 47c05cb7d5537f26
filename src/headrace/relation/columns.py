"""Picking rows of Arrow columns, fast where it matters.

Kernels pick millions of rows of fixed-width columns without NULLs, for which NumPy's indexing takes a fraction of the
time of Arrow's general `take`. Everything else goes to Arrow.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

# Rows that are read from state, or handed to Spark, at a time: a few MB, which is little memory and few calls.
BATCH_ROWS = 1 << 17
_WIDTHS = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def take_column(column: pa.Array, positions: NDArray[np.integer]) -> pa.Array:
    """Pick rows by position.

    >>> take_column(pa.array([10, 20, 30]), np.array([2, 0])).to_pylist()
    [30, 10]
    """
    kind = column.type
    if column.null_count or not (pa.types.is_primitive(kind) or pa.types.is_decimal(kind)) or kind.bit_width < 8:
        return column.take(pa.array(positions))
    n, data = len(column), column.buffers()[1]
    if data is None or not len(positions):
        return column.slice(0, 0)
    if kind.bit_width == 128:
        pairs = np.frombuffer(data, np.uint64)[2 * column.offset : 2 * (column.offset + n)].reshape(n, 2)
        picked: NDArray[np.generic] = pairs[positions]
    else:
        dtype = _WIDTHS[kind.bit_width]
        picked = np.frombuffer(data, dtype)[column.offset : column.offset + n][positions]
    return pa.Array.from_buffers(kind, len(positions), [None, pa.py_buffer(picked)])


def positions_of(chosen: NDArray[np.integer] | NDArray[np.bool_]) -> NDArray[np.integer]:
    """Turn a mask into positions; positions stay as they are."""
    if chosen.dtype == np.bool_:
        return np.flatnonzero(chosen)
    return chosen.astype(np.int64, copy=False)


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """View a column as one contiguous array."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def take_rows(rows: pa.Table, positions: NDArray[np.integer]) -> pa.Table:
    """Pick rows of a table by position."""
    columns = [take_column(whole(column), positions) for column in rows.columns]
    return pa.table(columns, schema=rows.schema)


def for_spark(table: pa.Table) -> list[pa.RecordBatch]:
    """The table as a task hands it to Spark: in batches, with the string offsets of 32 bits that Spark reads."""
    fields = [pa.field(f.name, pa.string()) if pa.types.is_large_string(f.type) else f for f in table.schema]
    batches: list[pa.RecordBatch] = table.cast(pa.schema(fields)).to_batches(max_chunksize=BATCH_ROWS)
    return batches

"""The frames of rows that functions over windows see: for each row, the positions of the first row and behind the last.

Rows stand partition by partition, each in its order. Frames never move back from one row to the next, which compiled
loops over them make use of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba as nb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.plan.over import Frame
from headrace.relation.kernels import Positions
from headrace.relation.keys import decimal_halves, fixed_values, validity
from headrace.relation.types import SqlType

_jit: Any = nb.njit(cache=True, nogil=True)

Keys = NDArray[np.int64] | NDArray[np.float64]


@dataclass(frozen=True)
class Places:
    """Where rows stand: the stretch of each row's partition, and of the rows that tie with it."""

    start: Positions
    end: Positions
    first_tied: Positions
    last_tied: Positions

    @classmethod
    def of(cls, partitions: NDArray[np.bool_], places: NDArray[np.bool_]) -> Places:
        """Make them from which rows begin a partition, and which do not tie with the row before."""
        return cls(*_stretches(partitions), *_stretches(places | partitions))

    @property
    def rows(self) -> int:
        return len(self.start)


def _stretches(begins: NDArray[np.bool_]) -> tuple[Positions, Positions]:
    first = np.flatnonzero(begins)
    sizes = np.diff(first, append=len(begins))
    return np.repeat(first, sizes), np.repeat(first + sizes, sizes)


@dataclass(frozen=True)
class Distances:
    """The values by which rows are ordered, ascending in each partition, as numbers that can be subtracted.

    Parameters
    ----------
    ordinary : which rows have such a number: those with NULL or NaN do not, and stand at an end of their partition.
    """

    keys: Keys
    ordinary: NDArray[np.bool_]

    @classmethod
    def of(cls, values: pa.Array, kind: SqlType, *, descending: bool) -> Distances:
        """Make them from the column of an order."""
        ordinary = validity(values)
        if kind.is_floating:
            doubles = fixed_values(values, kind).astype(np.float64)
            ordinary = ordinary & ~np.isnan(doubles)
            return cls(-doubles if descending else doubles, ordinary)
        if kind.is_decimal:
            low, _ = decimal_halves(values)
            numbers = low.view(np.int64)
        else:
            numbers = fixed_values(values, kind).astype(np.int64)
        return cls(~numbers if descending else np.ascontiguousarray(numbers), ordinary)


def bounds(frame: Frame, places: Places, distances: Distances | None) -> tuple[Positions, Positions]:
    """The frame of each row: the position of its first row, and that behind its last one."""
    at = np.arange(places.rows)
    if frame.by_value:
        low = _by_value(frame.low, places, distances, places.start, places.first_tied, upper=False)
        high = _by_value(frame.high, places, distances, places.end, places.last_tied, upper=True)
    else:
        low = places.start if frame.low is None else np.clip(at + int(frame.low), places.start, places.end)
        high = places.end if frame.high is None else np.clip(at + int(frame.high) + 1, places.start, places.end)
    return low, np.maximum(low, high)


def _by_value(
    offset: float | None,
    places: Places,
    distances: Distances | None,
    without: Positions,
    tied: Positions,
    *,
    upper: bool,
) -> Positions:
    if offset is None:
        return without
    if offset == 0:
        return tied
    assert distances is not None, "a RANGE with a distance has one column in its order"
    # Rows with NULL or NaN see those that tie with them: no distance leads from them to others.
    out = tied.copy()
    at = np.flatnonzero(distances.ordinary)
    if len(at):
        starts, partition = np.unique(places.start[at], return_inverse=True)
        edges = np.searchsorted(partition, np.arange(len(starts) + 1))
        first, last = at[edges[:-1]], at[edges[1:] - 1] + 1
        keys = distances.keys
        _search(keys, at, first[partition], last[partition], keys.dtype.type(offset), upper, out)
    return out


@_jit
def _search(keys, at, first, last, offset, upper, out):  # type: ignore[no-untyped-def]
    """Find, per row, the first row of its stretch whose key is not below (or, with `upper`, above) its own + offset."""
    for n in range(len(at)):
        own = keys[at[n]]
        wanted = own + offset
        # An integer that wraps around lies beyond all others.
        if offset > 0 and wanted < own:
            out[at[n]] = last[n]
            continue
        if offset < 0 and wanted > own:
            out[at[n]] = first[n]
            continue
        low, high = first[n], last[n]
        while low < high:
            middle = (low + high) // 2
            if keys[middle] < wanted or (upper and keys[middle] == wanted):
                low = middle + 1
            else:
                high = middle
        out[at[n]] = low

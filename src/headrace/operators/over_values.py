"""The values of functions over windows of rows, for whole partitions at once.

A value depends on the rows of its frame alone, and never on the rows that happen to be computed together with it: what
a step takes back must be, bit by bit, what an earlier step gave. So integers are summed exactly, as differences of
sums from the beginning, and doubles frame by frame, with the error of each addition carried along.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numba as nb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.operators.average import decimal_averages, double_averages
from headrace.operators.delta import lift_values
from headrace.operators.finish import exact_sum, overflow
from headrace.operators.frames import Distances, Places, bounds
from headrace.operators.layout import sum_ring_of
from headrace.plan.over import AGGREGATES, NUMBERS, PICKS, Frame, OverFunction
from headrace.plan.view import Aggregate
from headrace.relation.kernels import Positions
from headrace.relation.keys import bitmap, decimals_of_halves, fixed_values, ordered_words, validity
from headrace.relation.types import SqlType
from headrace.rings import Integer, Payload

_jit: Any = nb.njit(cache=True, nogil=True)
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True)
class Window:
    """Rows in order, and what functions over them read.

    Parameters
    ----------
    columns : the arguments, by the position of their field.
    types : the types of all fields.
    """

    places: Places
    columns: Mapping[int, pa.Array]
    types: tuple[SqlType, ...]
    distances: Distances | None

    def value(self, function: OverFunction) -> pa.Array:
        """The value of a function for each row."""
        name = function.function
        if name in NUMBERS:
            return pa.array(self.number(name, function.number)).cast(function.type.arrow)
        if name in PICKS:
            return self._picked(function)
        return self._aggregate(function) if name in AGGREGATES else self._shifted(function)

    # -- numbers of places --------------------------------------------------------------------------------------------

    def number(self, name: str, parts: int = 0) -> Any:
        """The number of each row's place in its partition."""
        places, at = self.places, np.arange(self.places.rows)
        size, row = places.end - places.start, at - places.start
        rank: NDArray[np.int64] = places.first_tied - places.start + 1
        if name == "row_number":
            return row + 1
        if name == "rank":
            return rank
        if name == "dense_rank":
            begun = np.cumsum(places.first_tied == at)
            return begun - begun[places.start] + 1
        if name == "percent_rank":
            return np.where(size > 1, (rank - 1) / np.maximum(size - 1, 1), 0.0)
        if name == "cume_dist":
            return (places.last_tied - places.start) / np.maximum(size, 1)
        assert name == "ntile", name
        small, larger = size // parts, size % parts
        within = larger * (small + 1)
        behind = larger + (row - within) // np.maximum(small, 1)
        return np.where(row < within, row // (small + 1), behind) + 1

    # -- values of other rows -----------------------------------------------------------------------------------------

    def _shifted(self, function: OverFunction) -> pa.Array:
        places, at = self.places, np.arange(self.places.rows)
        column, behind = self._argument(function), function.number
        if function.ignores_nulls and behind:
            present = _Present(validity(column))
            wanted = present.before[at + 1] + behind - 1 if behind > 0 else present.before[at] + behind
            found = (wanted >= present.before[places.start]) & (wanted < present.before[places.end])
            source = present.position(wanted)
        else:
            source = at + behind
            found = (source >= places.start) & (source < places.end)
        taken = _taken(column, source, found)
        if function.default is None or found.all():
            return taken
        return pc.if_else(pa.array(found), taken, self.columns[function.default].cast(taken.type))

    def _picked(self, function: OverFunction) -> pa.Array:
        low, high = self._frame(function)
        column, nth = self._argument(function), function.number
        if function.ignores_nulls:
            present = _Present(validity(column))
            first, last = present.before[low], present.before[high]
        else:
            present, first, last = None, low, high
        source = last - 1 if function.function == "last" else first + (nth - 1 if function.function == "nth" else 0)
        found = (source >= first) & (source < last)
        return _taken(column, source if present is None else present.position(source), found)

    # -- aggregates ---------------------------------------------------------------------------------------------------

    def _aggregate(self, function: OverFunction) -> pa.Array:
        low, high = self._frame(function)
        counted = np.ones(self.places.rows, bool)
        if function.where is not None:
            counted &= _is_true(self.columns[function.where])
        if function.argument is not None:
            counted &= validity(self._argument(function))
        before = _Present(counted).before
        count = before[high] - before[low]
        name = function.function
        if name == "count":
            return pa.array(count)
        if name in ("min", "max"):
            return self._extreme(function, counted, low, high)
        kind = self.types[_place(function)]
        if kind.is_floating:
            return self._double(function, counted, low, high, count)
        ring = sum_ring_of(kind)
        assert isinstance(ring, Integer)
        payload = _sums(lift_values(ring, self._argument(function), kind, counted.astype(np.int64)), low, high)
        told = Aggregate(name, function.argument, function.type, function.sql)
        if name == "sum":
            return exact_sum(told, ring, payload, count == 0)
        if function.type.is_floating:  # AVG of integers
            return pa.array(double_averages(ring, payload, count), mask=count == 0)
        shift = 10 ** (function.type.scale - kind.scale)
        halves = decimal_averages(ring, payload, count, shift, 10**function.type.precision)
        if halves is None:
            raise overflow(told)
        return decimals_of_halves(halves[0], halves[1].view(np.int64), function.type, bitmap(count == 0))

    def _double(
        self, function: OverFunction, counted: NDArray[np.bool_], low: Positions, high: Positions, count: Positions
    ) -> pa.Array:
        kind = self.types[_place(function)]
        values = np.where(counted, fixed_values(self._argument(function), kind).astype(np.float64), 0.0)
        frame = function.frame
        assert frame is not None
        out = np.zeros(len(values))
        # From the bound that most frames have in common, so that mostly one value is added per row.
        (_sums_from_end if frame.high is None and frame.low is not None else _sums_from_start)(values, low, high, out)
        if function.function == "avg":
            out = out / np.maximum(count, 1)
        return pa.array(out, mask=count == 0).cast(function.type.arrow)

    def _extreme(self, function: OverFunction, counted: NDArray[np.bool_], low: Positions, high: Positions) -> pa.Array:
        column, kind = self._argument(function), self.types[_place(function)]
        if kind.kind == "string" or kind.precision > 18:
            ranks = pc.rank(column, tiebreaker="dense").to_numpy().astype(np.uint64)
        else:
            ranks = ordered_words(column, kind)[0]
        source = np.full(len(low), -1, np.int64)
        _extremes(~ranks if function.function == "max" else ranks, counted, low, high, source)
        return _taken(column, source, source >= 0)

    # -- what they read -----------------------------------------------------------------------------------------------

    def _argument(self, function: OverFunction) -> pa.Array:
        return self.columns[_place(function)]

    def _frame(self, function: OverFunction) -> tuple[Positions, Positions]:
        assert function.frame is not None
        return self._bounds(function.frame)

    def _bounds(self, frame: Frame) -> tuple[Positions, Positions]:
        found = self._known.get(frame)
        if found is None:
            found = self._known[frame] = bounds(frame, self.places, self.distances)
        return found

    @cached_property
    def _known(self) -> dict[Frame, tuple[Positions, Positions]]:
        return {}


def _place(function: OverFunction) -> int:
    assert function.argument is not None
    return function.argument


@dataclass(frozen=True)
class _Present:
    """Which rows count, and the way from their numbers to their positions."""

    mask: NDArray[np.bool_]

    @cached_property
    def before(self) -> Positions:
        """How many rows before each position count."""
        return np.concatenate([[0], np.cumsum(self.mask)])

    @cached_property
    def _positions(self) -> Positions:
        return np.flatnonzero(self.mask)

    def position(self, number: Positions) -> Positions:
        """The positions of rows that count, by number; anything for numbers that there are none of."""
        if not len(self._positions):
            return np.zeros(len(number), np.int64)
        return self._positions[np.clip(number, 0, len(self._positions) - 1)]


def _taken(column: pa.Array, source: Positions, found: NDArray[np.bool_]) -> pa.Array:
    """Rows of a column; NULL where none was found."""
    return column.take(pa.array(np.where(found, source, 0), mask=~found))


def _is_true(column: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False), bool)


def _sums(payload: Payload, low: Positions, high: Positions) -> Payload:
    """The sums of frames of integers of several limbs, by differences of sums from the beginning, modulo their size.

    Each limb is summed as two halves, which do not overflow 64 bits in two billion rows.
    """
    limbs = [np.ascontiguousarray(limb).view(np.uint64) for limb in payload]
    carry = np.zeros(len(low), np.int64)
    out = []
    for limb in limbs:
        halves = []
        for half in (limb & _LOW, limb >> _HALF):
            before = np.concatenate([[0], np.cumsum(half.view(np.int64))])
            total = before[high] - before[low] + carry
            halves.append(total.view(np.uint64) & _LOW)
            carry = total >> 32
        out.append((halves[0] | (halves[1] << _HALF)).view(payload[0].dtype))
    return tuple(out)


@_jit
def _sums_from_start(values, low, high, out):  # type: ignore[no-untyped-def]
    begun, at = -1, 0
    total = rest = plain = 0.0
    for i in range(len(low)):
        if low[i] != begun or high[i] < at:
            begun = at = low[i]
            total = rest = plain = 0.0
        while at < high[i]:
            value = values[at]
            added = total + value
            rest += (total - added) + value if abs(total) >= abs(value) else (value - added) + total
            total = added
            plain += value
            at += 1
        exact = total + rest
        out[i] = exact if np.isfinite(exact) else plain


@_jit
def _sums_from_end(values, low, high, out):  # type: ignore[no-untyped-def]
    begun, at = -1, 0
    total = rest = plain = 0.0
    for i in range(len(low) - 1, -1, -1):
        if high[i] != begun or low[i] > at:
            begun = at = high[i]
            total = rest = plain = 0.0
        while at > low[i]:
            at -= 1
            value = values[at]
            added = total + value
            rest += (total - added) + value if abs(total) >= abs(value) else (value - added) + total
            total = added
            plain += value
        exact = total + rest
        out[i] = exact if np.isfinite(exact) else plain


@_jit
def _extremes(ranks, counted, low, high, out):  # type: ignore[no-untyped-def]
    """The position of the lowest rank of each frame; rows that may still become the lowest wait in a queue."""
    queue = np.empty(len(ranks), np.int64)
    first = last = 0  # the queue is what lies between
    at = 0
    for i in range(len(low)):
        if at < low[i]:
            at = low[i]
        while at < high[i]:
            if counted[at]:
                while last > first and ranks[queue[last - 1]] > ranks[at]:
                    last -= 1
                queue[last] = at
                last += 1
            at += 1
        while first < last and queue[first] < low[i]:
            first += 1
        if first < last and queue[first] < high[i]:
            out[i] = queue[first]

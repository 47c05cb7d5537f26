"""From the payload of a group to the SQL values of its aggregates.

The result has the columns `k0, k1, ...` and `a0, a1, ...` in exactly the types that Spark gives them. An exact sum
that no longer fits its SQL type is an error, as in Spark's ANSI mode, and never a wrapped number.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.errors import ArithmeticOverflowError
from headrace.operators.asked import LOOKED_UP, PERCENTILES, POWERS, SQUARED, SUMS, is_distinct, plain
from headrace.operators.average import decimal_averages, double_averages
from headrace.operators.layout import ViewLayout
from headrace.operators.looked_up import Found
from headrace.operators.moments import moment, related
from headrace.operators.place import percentile
from headrace.plan.view import IN_RING, Aggregate
from headrace.relation.keys import bitmap, decimals_of_halves
from headrace.relation.run import Run
from headrace.relation.types import SqlType
from headrace.rings import Compensated, Integer, Payload


def group_columns(layout: ViewLayout, run: Run) -> list[pa.Array]:
    """Read the group keys of a run's entries."""
    if not layout.plan.keys:
        return []
    decoded = layout.keys.decode(run.words)
    return [run.values[f"k{i}"] if column is None else column for i, column in enumerate(decoded)]


def finish(layout: ViewLayout, keys: list[pa.Array], payload: Payload, found: Found) -> pa.Table:
    """Make the columns k0.. and a0.. of groups from their keys and payloads."""
    columns = {f"k{i}": key for i, key in enumerate(keys)}
    parts = layout.ring.split(payload)
    for i, aggregate in enumerate(layout.plan.aggregates):
        known = aggregate.function in LOOKED_UP
        columns[f"a{i}"] = found[layout.column_of(i)] if known else value_of(layout, aggregate, parts)
    # A view without columns of its own (SELECT 1 ... GROUP BY s) still has rows.
    columns["__rows"] = pa.array(parts[0][0])
    return pa.table(columns)


def value_of(layout: ViewLayout, aggregate: Aggregate, parts: list[Payload]) -> pa.Array:
    """The SQL values of an aggregate that follows from payloads alone, which are given part by part."""
    index, function = aggregate.argument, plain(aggregate.function)
    if function == IN_RING:
        return _in_ring(layout, aggregate, parts)
    if function in PERCENTILES:
        return percentile(layout, aggregate, parts[layout.components.index(layout.place(aggregate))])
    prefix = "distinct_" if is_distinct(aggregate.function) else ""
    counted, others = ("distinct", aggregate.others) if prefix else ("present", ())
    count_at = None if index is None else layout.component(counted, index, others)
    count: NDArray[np.int64] = parts[0 if count_at is None else count_at][0].astype(np.int64)
    if function == "count":
        return pa.array(count)
    assert index is not None
    if function in POWERS:
        sums = [parts[layout.required(prefix + role, index)] for role in SUMS[: POWERS[function]]]
        return moment(function, count, sums)
    if function in SQUARED:
        return _related(layout, aggregate, parts, count)
    if function == "bit_xor":
        (words,) = parts[layout.required(f"{prefix}parity", index)]
        return pa.array(words.view(np.int64).astype(aggregate.type.arrow.to_pandas_dtype()), mask=count <= 0)
    sum_at = layout.required(f"{prefix}sum", index)
    ring = layout.components[sum_at].ring
    if isinstance(ring, Compensated):
        return _double(aggregate, ring.values(parts[sum_at]), count, function == "avg")
    assert isinstance(ring, Integer)
    if function != "avg":
        return exact_sum(aggregate, ring, parts[sum_at], count == 0)
    return _exact_average(aggregate, ring, parts[sum_at], count, layout.plan.arguments[index].type.scale)


def _related(layout: ViewLayout, aggregate: Aggregate, parts: list[Payload], count: NDArray[np.int64]) -> pa.Array:
    """CORR and its kin, from the sums of two numbers, of their product and of the squares that it needs."""
    left, (right,) = aggregate.argument, aggregate.others
    squares = {i: layout.component("squares", i) for i in (left, right)}
    sides = [(parts[layout.required("sum", i)], None if at is None else parts[at]) for i, at in squares.items()]
    sides = sides if len(sides) == 2 else sides * 2  # of a number with itself
    product = parts[layout.required("cross", left, aggregate.others)]
    return related(aggregate.function, count, sides[0], sides[1], product)


def _in_ring(layout: ViewLayout, aggregate: Aggregate, parts: list[Payload]) -> pa.Array:
    """A sum in a ring of the user, as the ring shows it; NULL where no row has all arguments."""
    ring, own = aggregate.ring, (aggregate.argument, aggregate.others)
    assert ring is not None
    at, count_at = layout.component("product", *own, ring), layout.component("complete", *own)
    assert at is not None
    count = parts[0 if count_at is None else count_at][0].astype(np.int64)
    return ring.show(parts[at], count == 0, aggregate.type.arrow)


def _double(aggregate: Aggregate, values: NDArray[np.float64], count: NDArray[np.int64], averaged: bool) -> pa.Array:
    missing = count == 0
    if averaged:
        values = values / np.where(missing, 1, count)
    if aggregate.type.kind == "float":
        values = values.astype(np.float32)
    return pa.array(np.where(missing, 0, values), aggregate.type.arrow, mask=missing)


def exact_sum(aggregate: Aggregate, ring: Integer, payload: Payload, missing: NDArray[np.bool_]) -> pa.Array:
    """Sums of integers or decimals in their SQL type; raises where one does not fit it."""
    kind = aggregate.type
    if kind.is_integer:
        values = payload[0].view(np.int64)
        if _spills(values, payload[1:]):
            raise overflow(aggregate)
        return pa.Array.from_buffers(
            pa.int64(), len(values), [bitmap(missing), pa.py_buffer(np.ascontiguousarray(values))]
        )
    low, high = payload[0].view(np.uint64), payload[1].view(np.int64)
    if _spills(high, payload[2:]) or not _fits(low, high, kind):
        raise overflow(aggregate)
    return decimals_of_halves(low, high, kind, bitmap(missing))


def _spills(top: NDArray[np.int64], rest: Payload) -> bool:
    """Whether the limbs above the top one hold more than its sign."""
    return any((limb.view(np.int64) != top >> 63).any() for limb in rest)


def _fits(low: NDArray[np.uint64], high: NDArray[np.int64], kind: SqlType) -> bool:
    # -limit < value < limit, compared half by half.
    limit, mask = 10**kind.precision, (1 << 64) - 1
    top, bottom = limit >> 64, -limit >> 64
    above = (high > top) | ((high == top) & (low >= np.uint64(limit & mask)))
    below = (high < bottom) | ((high == bottom) & (low <= np.uint64(-limit & mask)))
    return not (above | below).any()


def _exact_average(
    aggregate: Aggregate, ring: Integer, payload: Payload, count: NDArray[np.int64], scale: int
) -> pa.Array:
    kind, missing = aggregate.type, count == 0
    if kind.is_floating:  # AVG of integers
        return pa.array(double_averages(ring, payload, count), mask=missing)
    halves = decimal_averages(ring, payload, count, 10 ** (kind.scale - scale), 10**kind.precision)
    if halves is None:
        raise overflow(aggregate)
    return decimals_of_halves(halves[0], halves[1].view(np.int64), kind, bitmap(missing))


def overflow(aggregate: Aggregate) -> ArithmeticOverflowError:
    """The error of an aggregate whose value does not fit its type."""
    return ArithmeticOverflowError(
        f"{aggregate.sql} no longer fits {str(aggregate.type).upper()}",
        way_out="cast its argument to DECIMAL(38, s) or DOUBLE in the view; no change was lost",
    )

"""The map side of an aggregate view: from changed rows to changes of its arrangements.

Rows are lifted into the view's rings, scaled by their multiplicity and summed by group before they go anywhere, so what
crosses an exchange is a run of changed groups, split by bucket, however many rows there were.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.operators.kernel import Evaluated
from headrace.operators.layout import COUNT, GROUPS, Component, ViewLayout, ordered
from headrace.plan.expression import Expression
from headrace.relation import kernels
from headrace.relation.columns import take_column
from headrace.relation.kernels import Words
from headrace.relation.keys import decimal_halves, fixed_values, ordered_string_words, ordered_words, validity
from headrace.relation.run import Run, Values, consolidate, take_values
from headrace.relation.types import SqlType
from headrace.rings import Compensated, Group, Integer, Payload

Deltas = dict[str, Run]

_LARGEST_SUMMED = 1e288


def not_summable(layout: ViewLayout, rows: Evaluated) -> dict[int, str]:
    """Find rows whose argument the ring cannot take."""
    summed = [p.argument for p in layout.components if p.role == "sum" and p.argument is not None]
    return too_large([layout.plan.arguments[i] for i in summed], [rows.arguments[i] for i in summed])


def too_large(arguments: Sequence[Expression], columns: Sequence[pa.Array]) -> dict[int, str]:
    """Find rows with doubles that have no inverse (NaN, infinity), or whose sum may come to have none."""
    found: dict[int, str] = {}
    for argument, column in zip(arguments, columns, strict=True):
        if argument.type.is_floating:
            values = fixed_values(column, argument.type).astype(np.float64, copy=False)
            # Also false for NaN. Beyond the limit a sum could reach infinity, from which nothing can be taken away.
            wrong = ~(np.abs(values) <= _LARGEST_SUMMED)
            if wrong.any():
                reason = f"NaN or infinity (or more than 1e288) in {argument}, which the view sums"
                for i in np.flatnonzero(wrong & validity(column)):
                    found.setdefault(int(i), reason)
    return found


def group_words(layout: ViewLayout, rows: Evaluated) -> Words:
    """Make the words of each row's group."""
    return layout.keys.encode(rows.keys) if rows.keys else layout.keys.encode_empty(len(rows.diff))


def deltas(layout: ViewLayout, rows: Evaluated, words: Words) -> Deltas:
    """Sum rows into one run an arrangement. Groups whose sums cancel stay in, with a zero: they were touched."""
    n = len(rows.diff)
    group_of, first = np.empty(n, np.int64), np.empty(n, np.int64)
    groups = kernels.group_hashed(words, group_of, first)
    first = first[:groups].copy()
    heads = np.ascontiguousarray(words[:, first])
    order = kernels.sort_order(heads)
    rank = np.empty(groups, np.int64)
    rank[order] = np.arange(groups)
    group_of = rank[group_of]
    payloads = [part.ring.sum_by(_lift(part, rows, layout), group_of, groups) for part in layout.components]
    stored: Values = {f"k{i}": rows.keys[i] for i in layout.keys.stored}
    run = Run(np.ascontiguousarray(heads[:, order]), layout.ring.join(payloads), take_values(stored, first[order]))
    out = {GROUPS: run}
    for argument in layout.arranged:
        out[ordered(argument)] = _ordered_delta(rows, words, argument, layout.plan.arguments[argument].type)
    return out


def _lift(part: Component, rows: Evaluated, layout: ViewLayout) -> Payload:
    if part.argument is None:
        return (rows.diff,)
    if part.role == "distinct":  # whether a value is new to its group is known only where the state is
        return part.ring.zeros(len(rows.diff))
    array = rows.arguments[part.argument]
    present = rows.diff if not array.null_count else np.where(validity(array), rows.diff, 0)
    if part.role == "present":
        return (present,)
    return lift_values(part.ring, array, layout.plan.arguments[part.argument].type, present)


def lift_values(ring: Group, array: pa.Array, kind: SqlType, times: NDArray[np.int64]) -> Payload:
    """Lift values into a ring of numbers, each as often as `times` says (0 where it is NULL)."""
    if isinstance(ring, Compensated):
        values = fixed_values(array, kind).astype(np.float64)
        if array.null_count:
            values[~validity(array)] = 0.0  # whatever stands under a NULL may be NaN
        return ring.scale(ring.lift(values), times)
    assert isinstance(ring, Integer)
    if kind.is_decimal:
        if len(array) == 0:
            return ring.zeros(0)
        return ring.scale(ring.lift_pairs(*decimal_halves(array)), times)
    return ring.scale(ring.lift(fixed_values(array, kind).astype(np.int64)), times)


def _ordered_delta(rows: Evaluated, words: Words, argument: int, kind: SqlType) -> Run:
    array, diff = rows.arguments[argument], rows.diff
    if array.null_count:
        keep = np.flatnonzero(validity(array))
        array, diff, words = take_column(array, keep), diff[keep], np.ascontiguousarray(words[:, keep])
    values = ordered_string_words(array) if kind.kind == "string" else ordered_words(array, kind)
    return consolidate(COUNT, np.concatenate([words, values]), (diff,), {})


def split(run: Run, buckets: int, lead: NDArray[np.uint64] | None = None) -> dict[int, Run]:
    """Split a run by bucket; one word decides, the first by default, so keys that share it lie in one bucket."""
    if run.rows == 0:
        return {}
    if buckets == 1:
        return {0: run}
    codes = np.empty(run.rows, np.int32)
    kernels.buckets_of(run.words[0] if lead is None else lead, buckets, codes)
    order, starts = np.empty(run.rows, np.int64), np.empty(buckets + 1, np.int64)
    kernels.split_by(codes, buckets, order, starts)
    return {b: run.take(order[starts[b] : starts[b + 1]]) for b in range(buckets) if starts[b] < starts[b + 1]}


def filtered(mask: pa.Array | None, rows: Evaluated) -> Evaluated:
    """Keep rows whose condition is true; NULL is not true."""
    if mask is None:
        return rows
    keep = np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False))
    return rows if len(keep) == len(rows.diff) else rows.take(keep)

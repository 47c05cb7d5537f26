"""The map side of an aggregate view: from changed rows to changes of its arrangements.

Rows are lifted into the view's rings, scaled by their multiplicity and summed by group before they go anywhere, so what
crosses an exchange is a run of changed groups, split by bucket, however many rows changed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.errors import ArithmeticOverflowError
from headrace.operators.kernel import Evaluated
from headrace.operators.layout import GROUPS, Component, ViewLayout
from headrace.plan.expression import Expression
from headrace.relation import kernels
from headrace.relation.columns import take_column
from headrace.relation.kernels import Words
from headrace.relation.keys import decimal_halves, fixed_values, ordered_string_words, ordered_words, validity
from headrace.relation.run import Run, Values, consolidate, take_values
from headrace.relation.types import SqlType
from headrace.rings import COUNT, Compensated, Group, Integer, Payload

Deltas = dict[str, Run]

_LARGEST_SUMMED = 1e288
_LARGEST_SQUARED = 1e135  # the square of a sum of very many such values is still a number


def not_summable(layout: ViewLayout, rows: Evaluated) -> dict[int, str]:
    """Find rows whose argument the ring cannot take."""
    return {i: why for role in ("distinct_sum", "sum", "squares") for i, why in _wrong(layout, rows, role).items()}


def _wrong(layout: ViewLayout, rows: Evaluated, role: str) -> dict[int, str]:
    summed = [p.argument for p in layout.components if p.role == role and p.argument is not None]
    arguments, columns = [layout.plan.arguments[i] for i in summed], [rows.arguments[i] for i in summed]
    return too_large(arguments, columns, squared=role == "squares")


def too_large(arguments: Sequence[Expression], columns: Sequence[pa.Array], *, squared: bool = False) -> dict[int, str]:
    """Find rows with doubles that cannot be subtracted again (NaN, infinity), or whose sum may reach infinity."""
    found: dict[int, str] = {}
    largest = _LARGEST_SQUARED if squared else _LARGEST_SUMMED
    for argument, column in zip(arguments, columns, strict=True):
        if argument.type.is_floating:
            values = fixed_values(column, argument.type).astype(np.float64, copy=False)
            # Also false for NaN. Beyond the limit a sum could reach infinity, from which nothing can be taken away.
            wrong = ~(np.abs(values) <= largest)
            if wrong.any():
                summed = "whose squares the view sums" if squared else "which the view sums"
                reason = f"NaN or infinity (or more than {largest:.0e}) in {argument}, {summed}".replace("e+", "e")
                for i in np.flatnonzero(wrong & validity(column)):
                    found.setdefault(int(i), reason)
    return found


def deltas(layout: ViewLayout, rows: Evaluated, words: Words) -> Deltas:
    """Sum rows into one run per arrangement. Touched groups whose sums cancel stay in the run, with a zero."""
    _check_taken_back(layout, rows)
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
    for name, arguments in layout.values.items():
        out[name] = _values_delta(layout, rows, words, arguments)
    return out


def _check_taken_back(layout: ViewLayout, rows: Evaluated) -> None:
    """Refuse values from other operators that no deletion could undo; those of tables have been refused already."""
    for role in ("squares", "distinct_sum"):
        if found := _wrong(layout, rows, role):
            raise ArithmeticOverflowError(
                f"{next(iter(found.values()))} (in {len(found)} of the rows that reach it)",
                way_out="leave such rows out with WHERE, or correct them; nothing of this step was applied",
            )


def _lift(part: Component, rows: Evaluated, layout: ViewLayout) -> Payload:
    if part.argument is None:
        return (rows.diff,)
    if part.role in ("distinct", "distinct_sum"):
        return part.ring.zeros(len(rows.diff))  # whether a value is new to its group is known only where the state is
    array = rows.arguments[part.argument]
    present = rows.diff if not array.null_count else np.where(validity(array), rows.diff, 0)
    if part.role == "present":
        return (present,)
    kind = layout.plan.arguments[part.argument].type
    if part.role == "sum":
        return lift_values(part.ring, array, kind, present)
    assert isinstance(part.ring, Compensated)
    values = part.ring.lift(_doubles(array, kind))
    return part.ring.scale(part.ring.multiply(values, values), present)


def lift_values(ring: Group, array: pa.Array, kind: SqlType, times: NDArray[np.int64]) -> Payload:
    """Lift values into a ring of numbers, each multiplied by its `times`, which is 0 for a NULL."""
    if isinstance(ring, Compensated):
        return ring.scale(ring.lift(_doubles(array, kind)), times)
    assert isinstance(ring, Integer)
    if kind.is_decimal:
        if len(array) == 0:
            return ring.zeros(0)
        return ring.scale(ring.lift_pairs(*decimal_halves(array)), times)
    return ring.scale(ring.lift(fixed_values(array, kind).astype(np.int64)), times)


def _doubles(array: pa.Array, kind: SqlType) -> NDArray[np.float64]:
    values = fixed_values(array, kind).astype(np.float64)
    if array.null_count:
        values[~validity(array)] = 0.0  # the value stored under a NULL may be NaN
    return values


def _values_delta(layout: ViewLayout, rows: Evaluated, words: Words, arguments: tuple[int, ...]) -> Run:
    """The change of (group, value) -> count, or of (group, combination of values) -> count; NULLs are no values."""
    arrays, diff = [rows.arguments[i] for i in arguments], rows.diff
    if any(array.null_count for array in arrays):
        keep = np.flatnonzero(np.logical_and.reduce([validity(array) for array in arrays]))
        arrays, diff = [take_column(array, keep) for array in arrays], diff[keep]
        words = np.ascontiguousarray(words[:, keep])
    return consolidate(COUNT, np.concatenate([words, _value_words(layout, arrays, arguments)]), (diff,), {})


def _value_words(layout: ViewLayout, arrays: list[pa.Array], arguments: tuple[int, ...]) -> Words:
    if len(arguments) > 1:
        return layout.combination(arguments).encode(arrays)
    kind = layout.plan.arguments[arguments[0]].type
    return ordered_string_words(arrays[0]) if kind.kind == "string" else ordered_words(arrays[0], kind)


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

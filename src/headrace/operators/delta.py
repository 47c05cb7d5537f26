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
from headrace.operators.asked import SUMS
from headrace.operators.bits import bits_of
from headrace.operators.kernel import Evaluated
from headrace.operators.layout import GROUPS, Arranged, Behind, Component, ViewLayout
from headrace.operators.pairs import in_order, pair_words
from headrace.plan.expression import Expression
from headrace.relation import kernels
from headrace.relation.columns import take_column
from headrace.relation.kernels import Words
from headrace.relation.keys import decimal_halves, fixed_values, validity
from headrace.relation.run import Run, Values, consolidate, take_values
from headrace.relation.types import SqlType
from headrace.rings import COUNT, Compensated, Group, Integer, Parity, Payload

Deltas = dict[str, Run]

# The largest doubles that are summed; that power of a sum of very many such values is still a number.
_LARGEST = {1: 1e288, 2: 1e135, 3: 1e85, 4: 1e60}
_SUMMED = {1: "which the view sums", 2: "whose squares the view sums", 3: "whose cubes the view sums"}
_SUMMED |= {4: "whose fourth powers the view sums"}
_POWERS = {name: power for power, name in enumerate(SUMS, 1)}
_RISKS = {f"distinct_{name}": power for name, power in _POWERS.items()} | _POWERS | {"cross": 2}
"""The powers in which parts of the payload sum values. The last one that objects to a row says why it is refused."""


def not_summable(layout: ViewLayout, rows: Evaluated) -> dict[int, str]:
    """Find rows whose argument the ring cannot take."""
    return {i: why for role in _RISKS for i, why in _wrong(layout, rows, role).items()}


def _wrong(layout: ViewLayout, rows: Evaluated, role: str) -> dict[int, str]:
    parts = [p for p in layout.components if p.role == role and p.argument is not None]
    summed = [i for p in parts for i in (p.argument, *(p.others if role == "cross" else ())) if i is not None]
    arguments, columns = [layout.plan.arguments[i] for i in summed], [rows.arguments[i] for i in summed]
    return too_large(arguments, columns, power=_RISKS[role])


def too_large(arguments: Sequence[Expression], columns: Sequence[pa.Array], *, power: int = 1) -> dict[int, str]:
    """Find rows with doubles that cannot be subtracted again (NaN, infinity), or whose sum may reach infinity."""
    found: dict[int, str] = {}
    largest = _LARGEST[power]
    for argument, column in zip(arguments, columns, strict=True):
        if argument.type.is_floating:
            values = fixed_values(column, argument.type).astype(np.float64, copy=False)
            # Also false for NaN. Beyond the limit a sum could reach infinity, from which nothing can be taken away.
            wrong = ~(np.abs(values) <= largest)
            if wrong.any():
                more = f"{largest:.0e}".replace("e+", "e")
                reason = f"NaN or infinity (or more than {more}) in {argument}, {_SUMMED[power]}"
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
    for name, arranged in layout.values.items():
        out[name] = _values_delta(layout, rows, words, arranged)
    return out


def _check_taken_back(layout: ViewLayout, rows: Evaluated) -> None:
    """Refuse values from other operators that no deletion could undo; those of tables have been refused already."""
    for role in _RISKS:
        if role != "sum" and (found := _wrong(layout, rows, role)):
            raise ArithmeticOverflowError(
                f"{next(iter(found.values()))} (in {len(found)} of the rows that reach it)",
                way_out="leave such rows out with WHERE, or correct them; nothing of this step was applied",
            )


def _lift(part: Component, rows: Evaluated, layout: ViewLayout) -> Payload:
    if part.argument is None:
        return (rows.diff,)
    if part.role == "place" or part.role.startswith("distinct"):
        return part.ring.zeros(len(rows.diff))  # whether a value is new to its group is known only where the state is
    array = rows.arguments[part.argument]
    present = rows.diff if not array.null_count else np.where(validity(array), rows.diff, 0)
    if part.role == "present":
        return (present,)
    kinds = layout.plan.arguments
    if part.role == "cross":
        (other,) = part.others
        assert isinstance(part.ring, Compensated)
        sides = _doubles(array, kinds[part.argument].type), _doubles(rows.arguments[other], kinds[other].type)
        return part.ring.scale(part.ring.multiply(*map(part.ring.lift, sides)), present)
    return lift_values(part.ring, array, kinds[part.argument].type, present, power=_POWERS.get(part.role, 1))


def lift_values(ring: Group, array: pa.Array, kind: SqlType, times: NDArray[np.int64], *, power: int = 1) -> Payload:
    """Lift powers of values into a ring, each multiplied by its `times`, which is 0 for a NULL."""
    if isinstance(ring, Compensated):
        value = lifted = ring.lift(_doubles(array, kind))
        for _ in range(1, power):
            lifted = ring.multiply(lifted, value)
        return ring.scale(lifted, times)
    assert power == 1, "powers are kept as doubles"
    if isinstance(ring, Parity):
        return ring.scale(ring.lift(fixed_values(array, kind).astype(np.int64)), times)
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


def _values_delta(layout: ViewLayout, rows: Evaluated, words: Words, arranged: Arranged) -> Run:
    """The change of (group, value) -> count, or of what else is behind the group; NULLs are no values."""
    arrays, diff = [rows.arguments[i] for i in arranged.arguments], rows.diff
    if any(array.null_count for array in arrays):
        # One half of a pair may be missing: which of the two matters depends on the function.
        some = np.logical_or if arranged.behind is Behind.PAIR else np.logical_and
        keep = np.flatnonzero(some.reduce([validity(array) for array in arrays]))
        arrays, diff = [take_column(array, keep) for array in arrays], diff[keep]
        words = np.ascontiguousarray(words[:, keep])
    if arranged.behind is Behind.BIT:
        rows_of, behind = bits_of(arrays[0], layout.plan.arguments[arranged.arguments[0]].type)
        words, diff = words[:, rows_of], diff[rows_of]
    else:
        behind = _words_behind(layout, arrays, arranged)
    return consolidate(COUNT, np.concatenate([words, behind]), (diff,), {})


def _words_behind(layout: ViewLayout, arrays: list[pa.Array], arranged: Arranged) -> Words:
    if arranged.behind is Behind.COMBINATION:
        return layout.combination(arranged.arguments).encode(arrays)
    kinds = [layout.plan.arguments[i].type for i in arranged.arguments]
    if arranged.behind is Behind.PAIR:
        return pair_words(layout, arrays, kinds)
    return in_order(arrays[0], kinds[0])


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

"""The compiled loops under sums by category: levels and pairs of levels, over stretches of entries.

A *stretch* is the entries of one key of a view: the rows of its relational payload. Tables of sums are dense where the
codes of a batch span few cells, and hashed where they span many, so that no table is ever larger than the batch is
worth. Nothing here checks a bound; the callers in `mixed_product` do.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numba as nb
import numpy as np
from numpy.typing import NDArray

Doubles: TypeAlias = NDArray[np.float64]
Positions: TypeAlias = NDArray[np.int64]

_jit: Any = nb.njit(cache=True, nogil=True)
_FREE = np.int64(-1)


@_jit
def sum_stretches(payload: Doubles, starts: Positions, out: Doubles) -> None:
    """Sum the elements of each stretch."""
    for h in range(len(out)):
        for e in range(starts[h], starts[h + 1]):
            for j in range(payload.shape[1]):
                out[h, j] += payload[e, j]


@_jit
def spread(starts: Positions, index: Positions, entries: Positions, owners: Positions) -> None:
    """List the entries of each row's stretch, and the row that each belongs to."""
    at = 0
    for row in range(len(index)):
        for entry in range(starts[index[row]], starts[index[row] + 1]):
            entries[at] = entry
            owners[at] = row
            at += 1


@_jit
def add_levels(ids, entries, owners, payload, degree, first, counts, sums, out):  # type: ignore[no-untyped-def]
    """Add, per entry, its count and sums times what the other factors of its row have.

    `counts` and `sums` are those of the product of the other factors, by row; the features of this factor are columns
    `first` to `first + degree` of the result, where `sums` has zeros.
    """
    m = sums.shape[1]
    for i in range(len(ids)):
        e, r = entries[i], owners[i]
        count, other, to = payload[e, 0], counts[r], out[ids[i]]
        to[0] += count * other
        for j in range(first):
            to[1 + j] += count * sums[r, j]
        for j in range(degree):
            to[1 + first + j] += payload[e, 1 + j] * other
        for j in range(first + degree, m):
            to[1 + j] += count * sums[r, j]


@_jit
def add_pairs(codes, group_of, entries, owners, payload, counts, left, right, sizes, base, out):  # type: ignore[no-untyped-def]
    """Count, per entry, each pair of its own categories: pair p of categories has its cells from `base[p]` on."""
    for i in range(len(entries)):
        e, r = entries[i], owners[i]
        weight, g = payload[e, 0] * counts[r], group_of[r]
        for p in range(len(left)):
            a, b = left[p], right[p]
            out[base[p] + (g * sizes[a] + codes[a, e]) * sizes[b] + codes[b, e]] += weight


@_jit
def add_together(  # type: ignore[no-untyped-def]
    starts,
    index,
    group_of,
    factor,
    others,
    own_codes,
    row_codes,
    own_levels,
    row_levels,
    wide,
    within,
    between,
    rest,
    table,
):
    """Add rows in which all factors but one have a single entry: levels and pairs in one pass.

    The entries of the one factor are gone through; what the others bring is the same for all entries of a row, so their
    own levels and pairs get each row once.

    Parameters
    ----------
    factor, others : payload, degree and first feature of the one factor; the count and sums of the others, by row.
    own_codes, row_codes : codes of the categories of the one factor by entry, and of the others by row.
    own_levels, row_levels : per category, where its levels start in `wide`, and how many there are.
    within, between, rest : pairs of two categories of the one factor, of one of each, and of two of the others: both
        categories, where the cells of the pair start in `table`, those per group, and those per level of each.
    """
    payload, degree, first = factor
    counts, sums = others
    m = sums.shape[1]
    numbers, met = np.empty(1 + m), np.empty(len(between), np.int64)
    for r in range(len(index)):
        other, g = counts[r], group_of[r]
        for p in range(len(between)):
            met[p] = between[p, 2] + g * between[p, 3] + row_codes[between[p, 1], r] * between[p, 5]
        total = 0.0
        numbers[:] = 0.0
        for e in range(starts[index[r]], starts[index[r] + 1]):
            count = payload[e, 0]
            weight = count * other
            total += count
            for j in range(degree):
                numbers[1 + first + j] += payload[e, 1 + j] * other
            for c in range(len(own_levels)):
                if own_levels[c, 0] >= 0:
                    to = wide[own_levels[c, 0] + g * own_levels[c, 1] + own_codes[c, e]]
                    to[0] += weight
                    for j in range(m):
                        to[1 + j] += count * sums[r, j]
                    for j in range(degree):
                        to[1 + first + j] += payload[e, 1 + j] * other
            for p in range(len(within)):
                a, b = own_codes[within[p, 0], e], own_codes[within[p, 1], e]
                table[within[p, 2] + g * within[p, 3] + a * within[p, 4] + b * within[p, 5]] += weight
            for p in range(len(between)):
                table[met[p] + own_codes[between[p, 0], e] * between[p, 4]] += weight
        weight = total * other
        numbers[0] = weight
        for j in range(m):
            numbers[1 + j] += total * sums[r, j]
        for c in range(len(row_levels)):
            if row_levels[c, 0] >= 0:
                to = wide[row_levels[c, 0] + g * row_levels[c, 1] + row_codes[c, r]]
                for j in range(1 + m):
                    to[j] += numbers[j]
        for p in range(len(rest)):
            a, b = row_codes[rest[p, 0], r], row_codes[rest[p, 1], r]
            table[rest[p, 2] + g * rest[p, 3] + a * rest[p, 4] + b * rest[p, 5]] += weight


@_jit
def add_crossed(  # type: ignore[no-untyped-def]
    one, one_starts, one_codes, one_counts, two, two_starts, two_codes, two_counts, group_of, rest, sizes, out
):
    """Count pairs of a category of one factor and a category of another: every entry of a row meets every other."""
    for r in range(len(group_of)):
        g = group_of[r]
        for e in range(one_starts[one[r]], one_starts[one[r] + 1]):
            weight = one_counts[e] * rest[r]
            at = (g * sizes[0] + one_codes[e]) * sizes[1]
            for f in range(two_starts[two[r]], two_starts[two[r] + 1]):
                out[at + two_codes[f]] += weight * two_counts[f]


@_jit
def crossed(  # type: ignore[no-untyped-def]
    one, one_starts, one_codes, one_counts, two, two_starts, two_codes, two_counts, group_of, rest, sizes, rows, ids, to
):
    """The same, written down pair by pair, for the rows from `rows[0]` to `rows[1]`; returns how many there are."""
    at = 0
    for r in range(rows[0], rows[1]):
        g = group_of[r]
        for e in range(one_starts[one[r]], one_starts[one[r] + 1]):
            weight = one_counts[e] * rest[r]
            cell = (g * sizes[0] + one_codes[e]) * sizes[1]
            for f in range(two_starts[two[r]], two_starts[two[r] + 1]):
                ids[at] = cell + two_codes[f]
                to[at] = weight * two_counts[f]
                at += 1
    return at


@_jit
def add_hashed(ids, weights, keys, values):  # type: ignore[no-untyped-def]
    """Add weights to the cells of an open hash table until it is half full; returns how many were added."""
    mask = len(keys) - 1
    taken = 0
    for i in range(len(keys)):
        taken += keys[i] != _FREE
    for i in range(len(ids)):
        at = _cell(ids[i], mask)
        while keys[at] != ids[i] and keys[at] != _FREE:
            at = (at + 1) & mask
        if keys[at] == _FREE:
            if 2 * taken >= len(keys):
                return i
            keys[at] = ids[i]
            taken += 1
        values[at] += weights[i]
    return len(ids)


@_jit
def _cell(key, mask):  # type: ignore[no-untyped-def]
    mixed = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(mask))

"""The compiled loops under the covariance ring: multiplying, lifting and summing payloads, a whole batch per call.

Rows of one group are brought together first, because a sum of products over many rows is a dot product of columns,
which processors do many times faster than one small outer product per row. Short runs go row by row. Nothing here
checks a bound or allocates per row; the callers in `covariance` check.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numba as nb
import numpy as np
from numpy.typing import NDArray

Doubles: TypeAlias = NDArray[np.float64]
Positions: TypeAlias = NDArray[np.int64]

_jit: Any = nb.njit(cache=True, nogil=True)
# A dot product may be summed in any order: each order has the same bound on its error, and none at all while the
# numbers are integers below 2**53. Contraction stays off, since a product that is rounded the same way everywhere
# can cancel to the last bit when its row is deleted; so do the flags that assume away NaN and infinity.
_jit_dots: Any = nb.njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})

RUN = 64  # rows of one group that are summed as dot products at a time; their columns fit the first-level cache
_SHORT = 4  # with fewer rows than this, dot products cost more than one product after the other


@_jit
def multiply(left: Doubles, right: Doubles, m: int, out: Doubles) -> None:
    for i in range(len(out)):
        a, b, o = left[i], right[i], out[i]
        o[0] = a[0] * b[0]
        for j in range(1, 1 + m):
            o[j] = a[0] * b[j] + b[0] * a[j]
        p = 1 + m
        for j in range(1, 1 + m):
            for k in range(j, 1 + m):
                o[p] = (a[0] * b[p] + b[0] * a[p]) + (a[j] * b[k] + b[j] * a[k])
                p += 1


@_jit
def add_rows(into: Doubles, payload: Doubles, positions: Positions, hits: Positions) -> None:
    for i in range(len(positions)):
        to, of = into[hits[i]], payload[positions[i]]
        for j in range(len(to)):
            to[j] += of[j]


@_jit
def lift_rows(values, positions, out):  # type: ignore[no-untyped-def]
    """Lift the rows at some positions: (1, x, upper triangle of x x^T) each."""
    degree = values.shape[0]
    for i in range(len(positions)):
        row = positions[i]
        out[i, 0] = 1.0
        at = 1 + degree
        for a in range(degree):
            x = values[a, row]
            out[i, 1 + a] = x
            for b in range(a, degree):
                out[i, at] = x * values[b, row]
                at += 1


@_jit
def by_group(group_of: Positions, groups: int) -> Positions:
    """Sort rows by group number, keeping their order within a group and leaving out negative numbers."""
    at = np.zeros(groups + 1, np.int64)
    for i in range(len(group_of)):
        if group_of[i] >= 0:
            at[group_of[i] + 1] += 1
    for g in range(groups):
        at[g + 1] += at[g]
    order = np.empty(at[groups], np.int64)
    for i in range(len(group_of)):
        g = group_of[i]
        if g >= 0:
            order[at[g]] = i
            at[g] += 1
    return order


@_jit_dots
def _dots(y: Doubles, x: Doubles, rows: int, n: int, out: Doubles, p: int) -> None:
    """Add the dot products of y with the first n of x; four at a time, to read y once for all of them."""
    j = 0
    while j + 4 <= n:
        x0, x1, x2, x3 = x[j], x[j + 1], x[j + 2], x[j + 3]
        s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
        for i in range(rows):
            t = y[i]
            s0 += t * x0[i]
            s1 += t * x1[i]
            s2 += t * x2[i]
            s3 += t * x3[i]
        out[p + j] += s0
        out[p + j + 1] += s1
        out[p + j + 2] += s2
        out[p + j + 3] += s3
        j += 4
    while j < n:
        x0 = x[j]
        s0 = 0.0
        for i in range(rows):
            s0 += y[i] * x0[i]
        out[p + j] += s0
        j += 1


@_jit
def lift_sum(
    values: Doubles,
    diff: NDArray[np.int64],
    group_of: Positions,
    picked: Positions,
    left: Positions,
    right: Positions,
    at_a_time: int,
    out: Doubles,
) -> None:
    # A lifted row is the triangle of d y y^T with y = (1, x). Rows are first brought together by group (a counting
    # sort of whole rows), so that the sums of a group are dot products and its row of the result is visited once.
    q = values.shape[0]
    groups, n = len(out), len(picked)
    at = np.empty(groups + 1, np.int64)
    together = np.empty((min(at_a_time, n), q + 1))
    x, dx = np.ones((q + 1, RUN)), np.empty((q + 1, RUN))
    one, done = np.ones(q + 1), np.empty(q + 1)
    for start in range(0, n, at_a_time):
        stop = min(n, start + at_a_time)
        lowest, highest = groups, -1
        for i in range(start, stop):
            g = group_of[i]
            if g >= 0:
                lowest, highest = min(lowest, g), max(highest, g)
        at[lowest : highest + 2] = 0
        for i in range(start, stop):
            if group_of[i] >= 0:
                at[group_of[i] + 1] += 1
        for g in range(lowest, highest + 1):
            at[g + 1] += at[g]
        for i in range(start, stop):
            g, r = group_of[i], picked[i]
            if g >= 0:
                to = at[g]
                at[g] = to + 1
                together[to, 0] = diff[r]
                for a in range(q):
                    together[to, a + 1] = values[a, r]
        s = 0
        for g in range(lowest, highest + 1):
            o = out[g]
            while s < at[g]:
                rows = min(at[g] - s, RUN)
                if rows < _SHORT:
                    for i in range(s, s + rows):
                        d = together[i, 0]
                        done[0] = d
                        for a in range(1, q + 1):
                            one[a] = together[i, a]
                            done[a] = d * one[a]
                        for j in range(len(left)):
                            o[j] += done[left[j]] * one[right[j]]
                else:
                    for i in range(rows):
                        d = together[s + i, 0]
                        dx[0, i] = d
                        for a in range(1, q + 1):
                            v = together[s + i, a]
                            x[a, i] = v
                            dx[a, i] = d * v
                    p = 0
                    for a in range(q + 1):
                        _dots(dx[a], x[a:], rows, q + 1 - a, o, p)
                        p += q + 1 - a
                s += rows


@_jit
def product_sum(flat: Doubles, base: Positions, degree: NDArray[np.int64], group_of: Positions, out: Doubles) -> None:
    # With w_c the product of the counts of all factors but c, and w_cd of all but c and d, a product has the count
    # w_c n_c, sums w_c s_c, blocks w_c Q_c on the diagonal and w_cd s_c s_d^T off it. Counts may be zero, so that no
    # w can come from a division: `before` and `after` hold the products of the counts up to and from a factor on.
    k, n = len(degree), len(group_of)
    first = np.zeros(k + 1, np.int64)
    for c in range(k):
        first[c + 1] = first[c] + degree[c]
    run = (
        np.empty((first[k], RUN)),
        np.empty((first[k], RUN)),
        np.empty((k, RUN)),
        np.ones((k + 1, RUN)),
        np.ones((k + 1, RUN)),
        np.empty(RUN),
        np.empty(RUN),
        np.empty(out.shape[1]),
    )
    one = np.empty(first[k]), np.empty(first[k]), np.ones(k + 1), np.ones(k + 1)
    s = 0
    while s < n:
        e = s + 1
        while e < n and e - s < RUN and group_of[e] == group_of[s]:
            e += 1
        if e - s < _SHORT:
            for i in range(s, e):
                _product_one(flat, base, first, i, one, out[group_of[s]])
        else:
            _product_run(flat, base, first, s, e - s, run, out[group_of[s]])
        s = e


@_jit
def _product_one(flat: Doubles, base: Positions, first: Positions, i: int, one_row: Any, out: Doubles) -> None:
    # Positions are unsigned because Numba asks of every signed one whether it counts from the end.
    sums, weighted, before, after = one_row
    k, one = np.uint64(len(first) - 1), np.uint64(1)
    total = np.uint64(first[k])
    for c in range(k):
        before[c + one] = before[c] * flat[_start(base, first, c, i)]
    for passed in range(k):
        last = k - one - passed
        after[last] = after[last + one] * flat[_start(base, first, last, i)]
    out[0] += before[k]
    for c in range(k):
        w = before[c] * after[c + one]
        at = _start(base, first, c, i) + one
        lo, hi = np.uint64(first[c]), np.uint64(first[c + one])
        for a in range(hi - lo):
            x = flat[at + a]
            sums[lo + a] = x
            out[one + lo + a] += w * x
    p = one + total
    for c in range(k):
        between = before[c]
        for d in range(c + one, k):
            w = between * after[d + one]
            between *= flat[_start(base, first, d, i)]
            for a in range(np.uint64(first[d]), np.uint64(first[d + one])):
                weighted[a] = w * sums[a]
        w = before[c] * after[c + one]
        lo, hi = np.uint64(first[c]), np.uint64(first[c + one])
        at = _start(base, first, c, i) + one + (hi - lo)
        for a in range(lo, hi):
            for b in range(hi - a):
                out[p + b] += w * flat[at + b]
            p += hi - a
            at += hi - a
            x = sums[a]
            for b in range(total - hi):
                out[p + b] += x * weighted[hi + b]
            p += total - hi


@_jit
def _start(base: Positions, first: Positions, c: Any, i: int) -> Any:
    m = first[c + np.uint64(1)] - first[c]
    return np.uint64(base[c] + i * (1 + m + m * (m + 1) // 2))


@_jit
def _product_run(
    flat: Doubles, base: Positions, first: Positions, start: int, rows: int, run: Any, out: Doubles
) -> None:
    sums, weighted, counts, before, after, weight, between, own = run
    k = len(first) - 1
    total = first[k]
    for c in range(k):
        m = first[c + 1] - first[c]
        for i in range(rows):
            element = flat[base[c] + (start + i) * (1 + m + m * (m + 1) // 2) :]
            counts[c, i] = element[0]
            for a in range(m):
                sums[first[c] + a, i] = element[1 + a]
        for i in range(rows):
            before[c + 1, i] = before[c, i] * counts[c, i]
    for c in range(k - 1, -1, -1):
        for i in range(rows):
            after[c, i] = after[c + 1, i] * counts[c, i]
    p = 1 + total
    for c in range(k):
        m = first[c + 1] - first[c]
        w = 1 + m + m * (m + 1) // 2
        # Count, sums and diagonal block of c all have the weight w_c, so they are one loop over whole elements.
        own[:w] = 0.0
        for i in range(rows):
            element = flat[base[c] + (start + i) * w :]
            x = before[c, i] * after[c + 1, i]
            for j in range(w):
                own[j] += x * element[j]
        if c == 0:
            out[0] += own[0]
        for a in range(m):
            out[1 + first[c] + a] += own[1 + a]
        between[:rows] = before[c, :rows]
        for d in range(c + 1, k):
            for i in range(rows):
                weight[i] = between[i] * after[d + 1, i]
                between[i] *= counts[d, i]
            for a in range(first[d], first[d + 1]):
                for i in range(rows):
                    weighted[a, i] = weight[i] * sums[a, i]
        at = 1 + m
        for a in range(m):
            for b in range(m - a):
                out[p + b] += own[at + b]
            p += m - a
            at += m - a
            _dots(sums[first[c] + a], weighted[first[c + 1] :], rows, total - first[c + 1], out, p)
            p += total - first[c + 1]

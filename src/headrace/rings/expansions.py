"""The compiled loops under `double`: numbers as unevaluated sums of two or three doubles, a whole batch per call.

They are made of two steps that lose nothing: the sum of two doubles, and their product, each as a double and the error
that rounding made (Knuth's TwoSum, Dekker's product). The compiler may not reorder or fuse them.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]
Positions = NDArray[np.int64]

_jit: Any = nb.njit(cache=True, nogil=True)
# Put into its callers as source: a call, even one that the compiler removes, keeps a loop from using vector registers.
_part: Any = nb.njit(inline="always")

_SPLITTER = 134217729.0  # 2**27 + 1: splits a double into two halves whose products are exact
_NEAR_TOP = 1e290  # values beyond are scaled down first, so that the split cannot overflow


@_part
def _two_sum(a: float, b: float) -> tuple[float, float]:
    s = a + b
    v = s - a
    return s, (a - (s - v)) + (b - v)


@_part
def _two_product(a: float, b: float) -> tuple[float, float]:
    x, y, back = a, b, 1.0
    if abs(x) > _NEAR_TOP:
        x, back = x * 2.0**-64, 2.0**64
    if abs(y) > _NEAR_TOP:
        y, back = y * 2.0**-64, back * 2.0**64
    c = _SPLITTER * x
    xh = c - (c - x)
    xl = x - xh
    c = _SPLITTER * y
    yh = c - (c - y)
    yl = y - yh
    return a * b, (((xh * yh - x * y) + xh * yl + xl * yh) + xl * yl) * back


@_part
def _add_pair(ah: float, al: float, bh: float, bl: float) -> tuple[float, float]:
    s, e = _two_sum(ah, bh)
    t, f = _two_sum(al, bl)
    e += t
    h = s + e
    e = e - (h - s) + f
    high = h + e
    return high, e - (high - h)


@_jit
def sum_pairs(high: Doubles, low: Doubles, group_of: Positions, out_high: Doubles, out_low: Doubles) -> None:
    for i in range(len(high)):
        g = group_of[i]
        out_high[g], out_low[g] = _add_pair(out_high[g], out_low[g], high[i], low[i])


@_jit
def add_pairs(ah: Doubles, al: Doubles, bh: Doubles, bl: Doubles, out_high: Doubles, out_low: Doubles) -> None:
    for i in range(len(ah)):
        out_high[i], out_low[i] = _add_pair(ah[i], al[i], bh[i], bl[i])


@_jit
def multiply_pairs(ah: Doubles, al: Doubles, bh: Doubles, bl: Doubles, out_high: Doubles, out_low: Doubles) -> None:
    for i in range(len(ah)):
        p, e = _two_product(ah[i], bh[i])
        e += ah[i] * bl[i] + al[i] * bh[i]
        h = p + e
        out_high[i], out_low[i] = h, e - (h - p)


@_part
def _add_one(h: float, m: float, t: float, x: float) -> tuple[float, float, float]:
    """Add a double to three; return three again, each below the last digit of the one before."""
    h, e = _two_sum(h, x)
    m, e = _two_sum(m, e)
    t += e  # the only place where anything is rounded
    m, t = _two_sum(m, t)
    h, m = _two_sum(h, m)
    m, t = _two_sum(m, t)
    return h, m, t


@_part
def _add_triple(ah: float, am: float, al: float, bh: float, bm: float, bl: float) -> tuple[float, float, float]:
    h, m, t = _add_one(ah, am, al, bh)
    if bm != 0.0:
        h, m, t = _add_one(h, m, t, bm)
    if bl != 0.0:
        h, m, t = _add_one(h, m, t, bl)
    return h, m, t


@_jit
def sum_triples(
    high: Doubles, middle: Doubles, low: Doubles, group_of: Positions, oh: Doubles, om: Doubles, ol: Doubles
) -> None:
    for i in range(len(high)):
        g = group_of[i]
        oh[g], om[g], ol[g] = _add_triple(oh[g], om[g], ol[g], high[i], middle[i], low[i])


@_jit
def add_triples(
    ah: Doubles, am: Doubles, al: Doubles, bh: Doubles, bm: Doubles, bl: Doubles, oh: Doubles, om: Doubles, ol: Doubles
) -> None:
    for i in range(len(ah)):
        oh[i], om[i], ol[i] = _add_triple(ah[i], am[i], al[i], bh[i], bm[i], bl[i])


@_jit
def multiply_triples(
    ah: Doubles, am: Doubles, al: Doubles, bh: Doubles, bm: Doubles, bl: Doubles, oh: Doubles, om: Doubles, ol: Doubles
) -> None:
    left, right = np.empty(3), np.empty(3)
    for i in range(len(ah)):
        left[0], left[1], left[2] = ah[i], am[i], al[i]
        right[0], right[1], right[2] = bh[i], bm[i], bl[i]
        h, m, t = 0.0, 0.0, 0.0
        for order in range(3):  # products of parts that are smaller than these are below the last digit
            for a in range(order + 1):
                x, y = left[a], right[order - a]
                if x != 0.0 and y != 0.0:
                    p, e = _two_product(x, y)
                    h, m, t = _add_one(h, m, t, p)
                    h, m, t = _add_one(h, m, t, e)
        oh[i], om[i], ol[i] = h, m, t

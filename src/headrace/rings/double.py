"""Sums of doubles that do not drift: each element is an unevaluated sum of two doubles (high + low).

A plain double sum forgets what it rounded away, so inserting a large value and deleting it again leaves residue.
Carrying the rounding error in a second double (Knuth's TwoSum, Dekker's product) brings the value back to one unit
in the last place. NaN and infinities have no inverse, so rows that carry them are refused before they get here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba as nb
import numpy as np
from numpy.typing import NDArray

from headrace.rings.base import Payload, Positions

_SPLITTER = 134217729.0  # 2**27 + 1: splits a double into two halves whose products are exact


@nb.njit(cache=True, nogil=True)
def _add_pair(ah, al, bh, bl):  # type: ignore[no-untyped-def]
    s = ah + bh
    v = s - ah
    e = (ah - (s - v)) + (bh - v)
    t = al + bl
    w = t - al
    f = (al - (t - w)) + (bl - w)
    e += t
    h = s + e
    e = e - (h - s) + f
    high = h + e
    return high, e - (high - h)


@nb.njit(cache=True, nogil=True)
def _sum_pairs(high, low, group_of, out_high, out_low):  # type: ignore[no-untyped-def]
    for i in range(len(high)):
        g = group_of[i]
        out_high[g], out_low[g] = _add_pair(out_high[g], out_low[g], high[i], low[i])


@nb.njit(cache=True, nogil=True)
def _add_pairs(ah, al, bh, bl, out_high, out_low):  # type: ignore[no-untyped-def]
    for i in range(len(ah)):
        out_high[i], out_low[i] = _add_pair(ah[i], al[i], bh[i], bl[i])


@nb.njit(cache=True, nogil=True)
def _multiply_pairs(ah, al, bh, bl, out_high, out_low):  # type: ignore[no-untyped-def]
    for i in range(len(ah)):
        p = ah[i] * bh[i]
        # Split by 2**27 + 1; values near the top of the range are scaled down first so the split cannot overflow.
        x, y, back = ah[i], bh[i], 1.0
        if abs(x) > 1e290:
            x, back = x * 2.0**-64, 2.0**64
        if abs(y) > 1e290:
            y, back = y * 2.0**-64, back * 2.0**64
        c = _SPLITTER * x
        xh = c - (c - x)
        xl = x - xh
        c = _SPLITTER * y
        yh = c - (c - y)
        yl = y - yh
        q = x * y
        e = (((xh * yh - q) + xh * yl + xl * yh) + xl * yl) * back
        e += ah[i] * bl[i] + al[i] * bh[i]
        h = p + e
        out_high[i], out_low[i] = h, e - (h - p)


@dataclass(frozen=True)
class Compensated:
    """Double-double numbers under addition and multiplication.

    >>> ring = Compensated()
    >>> total = ring.zeros(1)
    >>> for x in [0.1, 1e300, -1e300]:
    ...     total = ring.add(total, ring.lift(np.array([x])))
    >>> ring.values(total)
    array([0.1])
    """

    @property
    def dtypes(self) -> tuple[np.dtype[np.generic], ...]:
        return (np.dtype(np.float64), np.dtype(np.float64))

    @property
    def exact(self) -> bool:
        return False

    def zeros(self, n: int) -> Payload:
        return np.zeros(n), np.zeros(n)

    def ones(self, n: int) -> Payload:
        return np.ones(n), np.zeros(n)

    def lift(self, values: NDArray[np.float64]) -> Payload:
        """Make elements from doubles."""
        high = np.ascontiguousarray(values, np.float64)
        return high, np.zeros(len(high))

    def add(self, left: Payload, right: Payload) -> Payload:
        out = np.empty(len(left[0])), np.empty(len(left[0]))
        _add_pairs(*left, *right, *out)
        return out

    def negate(self, payload: Payload) -> Payload:
        return -payload[0], -payload[1]

    def multiply(self, left: Payload, right: Payload) -> Payload:
        out = np.empty(len(left[0])), np.empty(len(left[0]))
        _multiply_pairs(*left, *right, *out)
        return out

    def scale(self, payload: Payload, times: NDArray[np.int64]) -> Payload:
        if (np.abs(times) == 1).all():  # the usual case, and exact: a sign flip
            sign = times.astype(np.float64)
            return payload[0] * sign, payload[1] * sign
        return self.multiply(payload, self.lift(times.astype(np.float64)))

    def is_zero(self, payload: Payload) -> NDArray[np.bool_]:
        zero: NDArray[np.bool_] = (payload[0] == 0) & (payload[1] == 0)
        return zero

    def sum_by(self, payload: Payload, group_of: Positions, groups: int) -> Payload:
        out = np.zeros(groups), np.zeros(groups)
        _sum_pairs(*payload, group_of, *out)
        return out

    def equal(self, left: Payload, right: Payload) -> NDArray[np.bool_]:
        a, b = self.values(left), self.values(right)
        same: NDArray[np.bool_] = np.abs(a - b) <= np.spacing(np.maximum(np.abs(a), np.abs(b)))
        return same

    def sample(self, rng: np.random.Generator, n: int) -> Payload:
        high = rng.normal(size=n) * 10.0 ** rng.integers(-6, 7, n)
        high[: min(n, 4)] = np.array([0.0, 1.0, -1.0, 0.1])[:n]
        return high, np.zeros(n)

    def values(self, payload: Payload) -> NDArray[np.float64]:
        """Round each element to the nearest double."""
        total: NDArray[np.float64] = payload[0] + payload[1]
        return total

"""AVG of integers and of decimals: the exact sum, divided once.

A decimal average is a quotient of integers, rounded half up, as Spark rounds it. Nearly all sums fit 128 bits after
the shift to the scale of the result. A compiled loop divides those, digit by digit in base 2**32; the few that do not
fit are left to Python's own integers.
"""

from __future__ import annotations

from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from headrace.rings import Integer, Payload, take

Halves = NDArray[np.uint64]
Counts = NDArray[np.int64]

_jit: Any = nb.njit(cache=True, nogil=True)
_part: Any = nb.njit(inline="always")

_MASK = (1 << 64) - 1
_LOW = np.uint64(0xFFFFFFFF)
_DIGIT = np.uint64(32)
_SIGN = np.uint64(63)


def double_averages(ring: Integer, payload: Payload, present: Counts) -> NDArray[np.float64]:
    """Divide exact sums, each rounded once to a double, by their counts; 0 where there is nothing to divide."""
    totals = payload[0].view(np.int64).astype(np.float64)
    wide = np.zeros(len(present), bool)
    for limb in payload[1:]:
        wide |= limb.view(np.int64) != payload[0].view(np.int64) >> 63
    beyond = np.flatnonzero(wide)
    totals[beyond] = [float(value) for value in ring.values(take(payload, beyond))]
    return np.where(present == 0, 0.0, totals / np.where(present == 0, 1, present))


def decimal_averages(ring: Integer, payload: Payload, present: Counts, shift: int, limit: int) -> Halves | None:
    """Divide exact sums, times `shift`, by their counts, rounded half up; None if an average is not below `limit`.

    The result is the low and the high halves of 128-bit integers; 0 where there is nothing to divide.
    """
    out = np.zeros((2, len(present)), np.uint64)
    rest = np.zeros(len(present), bool)
    low, high = payload[0].view(np.uint64), _limb(payload, 1)
    top = np.uint64(limit >> 64), np.uint64(limit & _MASK)
    if not _divide(low, high, _limb(payload, 2), present, np.uint64(shift), *top, out[0], out[1], rest):
        return None
    left = np.flatnonzero(rest)
    for i, total in zip(left, ring.values(take(payload, left)), strict=True):
        count = int(present[i])
        rounded = (2 * abs(total) * shift + count) // (2 * count)  # half up, away from zero
        if rounded >= limit:
            return None
        value = rounded if total >= 0 else -rounded
        out[0, i], out[1, i] = value & _MASK, (value >> 64) & _MASK
    return out


def _limb(payload: Payload, at: int) -> Halves:
    """A limb of integers in two's complement; above the last one, there is only the sign."""
    if at < len(payload):
        limb: Halves = payload[at].view(np.uint64)
        return limb
    sign: Halves = (payload[-1].view(np.int64) >> 63).view(np.uint64)
    return sign


@_part
def _times(low: Any, high: Any, factor: Any) -> tuple[Any, Any, bool]:
    """128 bits times 32; and whether the product has more than 127 bits, so that no sign would fit."""
    p0 = (low & _LOW) * factor
    p1 = (low >> _DIGIT) * factor + (p0 >> _DIGIT)
    p2 = (high & _LOW) * factor + (p1 >> _DIGIT)
    p3 = (high >> _DIGIT) * factor + (p2 >> _DIGIT)
    return (p0 & _LOW) | (p1 << _DIGIT), (p2 & _LOW) | (p3 << _DIGIT), p3 >> np.uint64(31) != 0


@_jit
def _divide(
    low: Halves,
    high: Halves,
    above: Halves,
    present: Counts,
    shift: Any,
    limit_high: Any,
    limit_low: Any,
    out_low: Halves,
    out_high: Halves,
    rest: NDArray[np.bool_],
) -> bool:
    """Divide the sums that fit this loop, and mark the others in `rest`; false as soon as an average is too large."""
    zero, one = np.uint64(0), np.uint64(1)
    for i in range(len(low)):
        if present[i] == 0:
            continue
        negative = high[i] >> _SIGN != 0
        a, b = low[i], high[i]
        if negative:
            a = ~a + one
            b = ~b + (one if a == zero else zero)
        a, b, spilled = _times(a, b, np.uint64(2) * shift)
        # A divisor of one digit is enough for a group of less than two thousand million rows.
        if spilled or present[i] >= 2**31 or above[i] != (~zero if negative else zero):
            rest[i] = True
            continue
        count = np.uint64(present[i])
        a += count
        b += one if a < count else zero
        divisor = np.uint64(2) * count
        q3, r = (b >> _DIGIT) // divisor, (b >> _DIGIT) % divisor
        n = (r << _DIGIT) | (b & _LOW)
        q2, r = n // divisor, n % divisor
        n = (r << _DIGIT) | (a >> _DIGIT)
        q1, r = n // divisor, n % divisor
        n = (r << _DIGIT) | (a & _LOW)
        q_low, q_high = (q1 << _DIGIT) | (n // divisor), (q3 << _DIGIT) | q2
        if q_high > limit_high or (q_high == limit_high and q_low >= limit_low):
            return False
        if negative:
            q_low = ~q_low + one
            q_high = ~q_high + (one if q_low == zero else zero)
        out_low[i], out_high[i] = q_low, q_high
    return True

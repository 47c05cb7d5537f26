"""Exact integers: counts, and sums of integers and decimals.

One ring serves them all: integers modulo 2**(64 * limbs), little end first. One limb counts; two limbs hold any sum
of BIGINTs or of DECIMALs up to 28 digits; three limbs hold sums of DECIMAL(38) with room to notice that the result
no longer fits. Addition and multiplication wrap, so a sum that overflows on the way and comes back is still exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba as nb
import numpy as np
from numpy.typing import NDArray

from headrace.rings.base import Payload, Positions

Limbs = NDArray[np.uint64]


@nb.njit(cache=True, nogil=True)
def _sum_single(values, group_of, out):  # type: ignore[no-untyped-def]
    for i in range(len(values)):
        out[group_of[i]] += values[i]


@nb.njit(cache=True, nogil=True)
def _sum_wide(limbs, group_of, out):  # type: ignore[no-untyped-def]
    width = limbs.shape[0]
    for i in range(limbs.shape[1]):
        group = group_of[i]
        carry = np.uint64(0)
        for limb in range(width):
            before = out[limb, group]
            total = before + limbs[limb, i]
            overflow = np.uint64(1) if total < before else np.uint64(0)
            with_carry = total + carry
            if with_carry < total:
                overflow = np.uint64(1)
            out[limb, group] = with_carry
            carry = overflow


@nb.njit(cache=True, nogil=True)
def _multiply_wide(left, right, out):  # type: ignore[no-untyped-def]
    # Schoolbook multiplication in base 2**32, so that every partial product fits 64 bits.
    digits = 2 * left.shape[0]
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    row = np.zeros(digits, np.uint64)
    for i in range(left.shape[1]):
        row[:] = 0
        for a in range(digits):
            x = (left[a // 2, i] >> (half * np.uint64(a % 2))) & mask
            carry = np.uint64(0)
            for b in range(digits - a):
                y = (right[b // 2, i] >> (half * np.uint64(b % 2))) & mask
                total = x * y + row[a + b] + carry
                row[a + b] = total & mask
                carry = total >> half
        for limb in range(digits // 2):
            out[limb, i] = row[2 * limb] | (row[2 * limb + 1] << half)


@dataclass(frozen=True)
class Integer:
    """Integers modulo 2**(64 * limbs).

    >>> ring = Integer(2)
    >>> ring.values(ring.add(ring.lift(np.array([2**62])), ring.lift(np.array([2**62]))))
    [9223372036854775808]
    """

    limbs: int = 1

    @property
    def dtypes(self) -> tuple[np.dtype[np.generic], ...]:
        return (np.dtype(np.int64),) if self.limbs == 1 else (np.dtype(np.uint64),) * self.limbs

    @property
    def exact(self) -> bool:
        return True

    def zeros(self, n: int) -> Payload:
        return tuple(np.zeros(n, dtype) for dtype in self.dtypes)

    def ones(self, n: int) -> Payload:
        return self.lift(np.ones(n, np.int64))

    def lift(self, values: NDArray[np.int64]) -> Payload:
        """Make elements from signed 64-bit integers."""
        low = np.ascontiguousarray(values, np.int64)
        if self.limbs == 1:
            return (low,)
        sign = (low >> 63).view(np.uint64)
        return (low.view(np.uint64),) + (sign,) * (self.limbs - 1)

    def lift_pairs(self, low: NDArray[np.uint64], high: NDArray[np.int64]) -> Payload:
        """Make elements from signed 128-bit integers given as two halves (Arrow's decimal128)."""
        if self.limbs < 2:
            raise ValueError("a 128-bit integer needs at least two limbs")
        sign = (high >> 63).view(np.uint64)
        return (low, np.ascontiguousarray(high).view(np.uint64)) + (sign,) * (self.limbs - 2)

    def add(self, left: Payload, right: Payload) -> Payload:
        if self.limbs == 1:
            return (left[0] + right[0],)
        carry: Limbs = np.zeros(len(left[0]), np.uint64)
        out = []
        for a, b in zip(left, right, strict=True):
            total = a + b
            overflow = total < a
            total = total + carry
            overflow |= total < carry
            carry = overflow.astype(np.uint64)
            out.append(total)
        return tuple(out)

    def negate(self, payload: Payload) -> Payload:
        if self.limbs == 1:
            return (-payload[0],)
        flipped = tuple(~column for column in payload)
        return self.add(flipped, self.ones(len(payload[0])))

    def multiply(self, left: Payload, right: Payload) -> Payload:
        if self.limbs == 1:
            return (left[0] * right[0],)
        out = np.empty((self.limbs, len(left[0])), np.uint64)
        _multiply_wide(np.stack(left), np.stack(right), out)
        return tuple(out)

    def scale(self, payload: Payload, times: NDArray[np.int64]) -> Payload:
        if (times == 1).all():
            return payload
        return self.multiply(payload, self.lift(times))

    def is_zero(self, payload: Payload) -> NDArray[np.bool_]:
        zero: NDArray[np.bool_] = payload[0] == 0
        for column in payload[1:]:
            zero &= column == 0
        return zero

    def sum_by(self, payload: Payload, group_of: Positions, groups: int) -> Payload:
        if self.limbs == 1:
            out = np.zeros(groups, np.int64)
            _sum_single(payload[0], group_of, out)
            return (out,)
        wide = np.zeros((self.limbs, groups), np.uint64)
        _sum_wide(np.stack(payload), group_of, wide)
        return tuple(wide)

    def equal(self, left: Payload, right: Payload) -> NDArray[np.bool_]:
        same: NDArray[np.bool_] = left[0] == right[0]
        for a, b in zip(left[1:], right[1:], strict=True):
            same &= a == b
        return same

    def sample(self, rng: np.random.Generator, n: int) -> Payload:
        edges = np.array([0, 1, -1, 2**63 - 1, -(2**63)], np.int64)
        picks = [rng.integers(-(2**63), 2**63 - 1, n, dtype=np.int64, endpoint=True) for _ in range(self.limbs)]
        picks[0][: min(n, len(edges))] = edges[:n]
        return tuple(p.view(dtype) for p, dtype in zip(picks, self.dtypes, strict=True))

    def values(self, payload: Payload) -> list[int]:
        """Read elements as Python integers (signed); for finishing and for tests, not for kernels."""
        if self.limbs == 1:
            return [int(v) for v in payload[0]]
        top = payload[-1].view(np.int64).astype(object)
        total = top
        for column in reversed(payload[:-1]):
            total = total * (1 << 64) + column.astype(object)
        return [int(v) for v in total]


COUNT = Integer(1)
"""How often something is there: the ring of multiplicities."""

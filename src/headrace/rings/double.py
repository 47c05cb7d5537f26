"""Sums of doubles that do not drift: each element is an unevaluated sum of two doubles, or of three.

A plain double sum forgets what it rounded away, so inserting a large value and deleting it again leaves residue.
Carrying the rounding error in a second double brings the value back to one unit in the last place. Sums of squares
spread over twice as many digits, and a variance is what is left when two large ones are subtracted: they take a third.
NaN and infinities have no inverse, so rows that carry them are refused before they get here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.rings import expansions
from headrace.rings.base import Payload, Positions


@dataclass(frozen=True)
class Compensated:
    """Numbers of two or three doubles, the largest first, under addition and multiplication.

    >>> ring = Compensated()
    >>> total = ring.zeros(1)
    >>> for x in [0.1, 1e300, -1e300]:
    ...     total = ring.add(total, ring.lift(np.array([x])))
    >>> ring.values(total)
    array([0.1])
    """

    limbs: int = 2

    def __post_init__(self) -> None:
        if self.limbs not in (2, 3):
            raise ValueError("a compensated sum has two or three doubles")

    @property
    def dtypes(self) -> tuple[np.dtype[np.generic], ...]:
        return (np.dtype(np.float64),) * self.limbs

    @property
    def exact(self) -> bool:
        return False

    def zeros(self, n: int) -> Payload:
        return tuple(np.zeros(n) for _ in range(self.limbs))

    def ones(self, n: int) -> Payload:
        return self.lift(np.ones(n))

    def lift(self, values: NDArray[np.float64]) -> Payload:
        """Make elements from doubles."""
        high = np.ascontiguousarray(values, np.float64)
        return (high, *(np.zeros(len(high)) for _ in range(self.limbs - 1)))

    def add(self, left: Payload, right: Payload) -> Payload:
        out = self._empty(len(left[0]))
        (expansions.add_pairs if self.limbs == 2 else expansions.add_triples)(*left, *right, *out)
        return out

    def negate(self, payload: Payload) -> Payload:
        return tuple(-limb for limb in payload)

    def multiply(self, left: Payload, right: Payload) -> Payload:
        out = self._empty(len(left[0]))
        (expansions.multiply_pairs if self.limbs == 2 else expansions.multiply_triples)(*left, *right, *out)
        return out

    def scale(self, payload: Payload, times: NDArray[np.int64]) -> Payload:
        if (np.abs(times) == 1).all():  # the usual case, and exact: a sign flip
            sign = times.astype(np.float64)
            return tuple(limb * sign for limb in payload)
        return self.multiply(payload, self.lift(times.astype(np.float64)))

    def is_zero(self, payload: Payload) -> NDArray[np.bool_]:
        zero: NDArray[np.bool_] = np.logical_and.reduce([limb == 0 for limb in payload])
        return zero

    def sum_by(self, payload: Payload, group_of: Positions, groups: int) -> Payload:
        out = self.zeros(groups)
        (expansions.sum_pairs if self.limbs == 2 else expansions.sum_triples)(*payload, group_of, *out)
        return out

    def equal(self, left: Payload, right: Payload) -> NDArray[np.bool_]:
        a, b = self.values(left), self.values(right)
        same: NDArray[np.bool_] = np.abs(a - b) <= np.spacing(np.maximum(np.abs(a), np.abs(b)))
        return same

    def sample(self, rng: np.random.Generator, n: int) -> Payload:
        high = rng.normal(size=n) * 10.0 ** rng.integers(-6, 7, n)
        high[: min(n, 4)] = np.array([0.0, 1.0, -1.0, 0.1])[:n]
        return self.lift(high)

    def values(self, payload: Payload) -> NDArray[np.float64]:
        """Round each element to the nearest double."""
        total: NDArray[np.float64] = payload[0] + (payload[1] if self.limbs == 2 else payload[1] + payload[2])
        return total

    def _empty(self, n: int) -> Payload:
        return tuple(np.empty(n) for _ in range(self.limbs))

"""Parities of bits: what is left of words under exclusive or, in which every element is its own inverse.

BIT_XOR of a group is a sum in this group: taking a value away is adding it once more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba as nb
import numpy as np
from numpy.typing import NDArray

from headrace.rings.base import Payload, Positions


@nb.njit(cache=True, nogil=True)
def _flip(values, group_of, out):  # type: ignore[no-untyped-def]
    for i in range(len(values)):
        out[group_of[i]] ^= values[i]


@dataclass(frozen=True)
class Parity:
    """Words of 64 bits under exclusive or.

    >>> PARITY.add(PARITY.lift(np.array([6])), PARITY.lift(np.array([3])))
    (array([5], dtype=uint64),)
    """

    @property
    def dtypes(self) -> tuple[np.dtype[np.generic], ...]:
        return (np.dtype(np.uint64),)

    @property
    def exact(self) -> bool:
        return True

    def zeros(self, n: int) -> Payload:
        return (np.zeros(n, np.uint64),)

    def lift(self, values: NDArray[np.int64]) -> Payload:
        """Make elements from signed integers, whose sign fills the word."""
        return (np.ascontiguousarray(values, np.int64).view(np.uint64),)

    def add(self, left: Payload, right: Payload) -> Payload:
        return (left[0] ^ right[0],)

    def negate(self, payload: Payload) -> Payload:
        return payload

    def scale(self, payload: Payload, times: NDArray[np.int64]) -> Payload:
        return (np.where(times & 1, payload[0], np.uint64(0)),)

    def is_zero(self, payload: Payload) -> NDArray[np.bool_]:
        zero: NDArray[np.bool_] = payload[0] == 0
        return zero

    def sum_by(self, payload: Payload, group_of: Positions, groups: int) -> Payload:
        out = np.zeros(groups, np.uint64)
        _flip(payload[0], group_of, out)
        return (out,)

    def equal(self, left: Payload, right: Payload) -> NDArray[np.bool_]:
        same: NDArray[np.bool_] = left[0] == right[0]
        return same

    def sample(self, rng: np.random.Generator, n: int) -> Payload:
        words = rng.integers(0, 2**64 - 1, n, dtype=np.uint64, endpoint=True)
        words[: min(n, 3)] = np.array([0, 1, 2**64 - 1], np.uint64)[:n]
        return (words,)


PARITY = Parity()

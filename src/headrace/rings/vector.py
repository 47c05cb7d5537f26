"""Vectors of a fixed length, which only add: rows of dense matrices, and sums per level of a category.

The first number of a payload counts what was added to it, as in all payloads, and decides whether the entry exists;
the vector follows. Without a vector a payload is a count, as of a pair of levels. Plain double arithmetic, as that of
the products which vectors are part of.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.rings.base import Payload, Positions
from headrace.rings.covariance import gather_sum


@dataclass(frozen=True)
class Vector:
    """Vectors of so many numbers, with a count; a payload is one array (n, 1 + length).

    >>> group = Vector(2)
    >>> group.add(group.lift(np.array([[1.0, 2.0]])), group.lift(np.array([[0.5, 0.0]])))
    (array([[2. , 1.5, 2. ]]),)
    """

    length: int

    @property
    def dtypes(self) -> tuple[np.dtype[np.generic], ...]:
        return (np.dtype((np.float64, (1 + self.length,))),)

    @property
    def exact(self) -> bool:
        return self.length == 0  # counts are integers, far below 2**53

    def zeros(self, n: int) -> Payload:
        return (np.zeros((n, 1 + self.length)),)

    def lift(self, vectors: NDArray[np.float64]) -> Payload:
        """Make payloads from the rows of an array, each counted once."""
        (rows,) = self.zeros(len(vectors))
        rows[:, 0] = 1.0
        rows[:, 1:] = vectors
        return (rows,)

    def add(self, left: Payload, right: Payload) -> Payload:
        return (left[0] + right[0],)

    def negate(self, payload: Payload) -> Payload:
        return (-payload[0],)

    def scale(self, payload: Payload, times: NDArray[np.int64]) -> Payload:
        return (payload[0] * times.astype(np.float64)[:, None],)

    def is_zero(self, payload: Payload) -> NDArray[np.bool_]:
        zero: NDArray[np.bool_] = payload[0][:, 0] == 0
        candidates = np.flatnonzero(zero)
        zero[candidates] = (payload[0][candidates] == 0).all(axis=1)
        return zero

    def gather(self, into: Payload, payload: Payload, positions: Positions, hits: Positions) -> None:
        gather_sum(into[0], payload[0], positions, hits)

    def sum_by(self, payload: Payload, group_of: Positions, groups: int) -> Payload:
        out = self.zeros(groups)
        self.gather(out, payload, np.arange(len(group_of)), group_of)
        return out

    def equal(self, left: Payload, right: Payload) -> NDArray[np.bool_]:
        scale = np.maximum(np.abs(left[0]), np.abs(right[0]))
        same: NDArray[np.bool_] = (np.abs(left[0] - right[0]) <= np.spacing(scale)).all(axis=1)
        return same

    def sample(self, rng: np.random.Generator, n: int) -> Payload:
        # Dyadic numbers, so that the laws are those of the algebra and not of rounding.
        rows = rng.integers(-64, 65, (n, 1 + self.length)) * 2.0 ** rng.integers(-1, 6, (n, 1))
        rows[rng.random(n) < 0.2, 0] = 0.0
        rows[: min(n, 2)] = np.array([0.0, 1.0])[:n, None]
        return (rows,)

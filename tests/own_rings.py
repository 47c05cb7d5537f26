"""Rings as users write them: semirings of numbers, and rings whose elements are several numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import headrace as hr
from headrace.rings import Payload


class MaxProduct(hr.Semiring):
    """The best product of probabilities."""

    def zeros(self, n: int) -> Payload:
        return (np.zeros(n),)

    def ones(self, n: int) -> Payload:
        return (np.ones(n),)

    def add(self, left: Payload, right: Payload) -> Payload:
        return (np.maximum(left[0], right[0]),)

    def multiply(self, left: Payload, right: Payload) -> Payload:
        return (left[0] * right[0],)

    def takes(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        return (values >= 0) & (values <= 100)


class MinPlus(hr.Semiring):
    """The shortest sum of lengths, as a whole number."""

    dtypes = (np.int64,)
    exact = True
    sql_type = "bigint"
    farthest = 1 << 40

    def zeros(self, n: int) -> Payload:
        return (np.full(n, self.farthest),)

    def ones(self, n: int) -> Payload:
        return (np.zeros(n, np.int64),)

    def add(self, left: Payload, right: Payload) -> Payload:
        return (np.minimum(left[0], right[0]),)

    def multiply(self, left: Payload, right: Payload) -> Payload:
        return (np.minimum(left[0] + right[0], self.farthest),)

    def takes(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        return (values >= 0) & (values < self.farthest) & (values == np.floor(values))


class AnyTrue(hr.Semiring):
    """Whether some row has numbers other than 0 only."""

    dtypes = (np.int64,)
    exact = True
    sql_type = "boolean"

    def zeros(self, n: int) -> Payload:
        return (np.zeros(n, np.int64),)

    def ones(self, n: int) -> Payload:
        return (np.ones(n, np.int64),)

    def add(self, left: Payload, right: Payload) -> Payload:
        return (left[0] | right[0],)

    def multiply(self, left: Payload, right: Payload) -> Payload:
        return (left[0] & right[0],)

    def lift(self, values: NDArray[Any]) -> Payload:
        return ((values != 0).astype(np.int64),)

    def show(self, payload: Payload) -> NDArray[np.bool_]:
        return payload[0] != 0


class Complex(hr.Ring):
    """Complex numbers with whole parts: v is lifted to v + i."""

    dtypes = (np.int64, np.int64)
    exact = True
    sql_type = "bigint"

    def __init__(self, part: int) -> None:
        self.part = part

    def zeros(self, n: int) -> Payload:
        return np.zeros(n, np.int64), np.zeros(n, np.int64)

    def ones(self, n: int) -> Payload:
        return np.ones(n, np.int64), np.zeros(n, np.int64)

    def add(self, left: Payload, right: Payload) -> Payload:
        return left[0] + right[0], left[1] + right[1]

    def negate(self, payload: Payload) -> Payload:
        return -payload[0], -payload[1]

    def multiply(self, left: Payload, right: Payload) -> Payload:
        (a, b), (c, d) = left, right
        return a * c - b * d, a * d + b * c

    def lift(self, values: NDArray[Any]) -> Payload:
        return values.astype(np.int64), np.ones(len(values), np.int64)

    def show(self, payload: Payload) -> NDArray[np.int64]:
        return payload[self.part]


class SumOfSquares(hr.Ring):
    """(count, sum, sum of squares) of a sum of numbers, one per relation: polynomials without x^3, up to factorials."""

    dtypes = ((np.float64, (3,)),)

    def zeros(self, n: int) -> Payload:
        return (np.zeros((n, 3)),)

    def ones(self, n: int) -> Payload:
        return (np.tile([1.0, 0.0, 0.0], (n, 1)),)

    def add(self, left: Payload, right: Payload) -> Payload:
        return (left[0] + right[0],)

    def negate(self, payload: Payload) -> Payload:
        return (-payload[0],)

    def multiply(self, left: Payload, right: Payload) -> Payload:
        (c, s, q), (d, t, r) = left[0].T, right[0].T
        return (np.column_stack([c * d, c * t + s * d, c * r + 2 * s * t + q * d]),)

    def lift(self, values: NDArray[Any]) -> Payload:
        return (np.column_stack([np.ones(len(values)), values, values * values]),)

    def show(self, payload: Payload) -> NDArray[np.float64]:
        return payload[0][:, 2]


RINGS: dict[str, hr.Semiring] = {
    "most_reliable": MaxProduct(),
    "shortest": MinPlus(),
    "any_true": AnyTrue(),
    "real_part": Complex(0),
    "imaginary_part": Complex(1),
    "squares_of_sums": SumOfSquares(),
}


def register_all() -> None:
    """Register all of them, as a process does before it opens a location."""
    for name, ring in RINGS.items():
        hr.register_ring(name, ring)

"""Rings that users write: what SQL needs of them beyond the algebra, and base classes that fill in the rest.

A ring of a user says how numbers become payloads (`lift`) and how payloads become a column of an answer (`show`). The
base classes derive all that follows from addition and multiplication, array by array, so that a ring is a few lines.
What is derived can be replaced by something faster, and a ring need not inherit from them at all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.rings.base import Payload, Positions, concatenate, take

_LARGEST = 1e288  # a sum of very many such doubles is still a number, from which any of them can be taken away
_RELATIVE, _ABSOLUTE = 1e-9, 1e-12  # how far apart doubles may be that rounding alone has made different


class Semiring(ABC):
    """A commutative semiring for `hr.register_ring`: rows can be summed in it, and never be taken away again.

    A payload array of n elements is a tuple of NumPy arrays of length n, one per dtype. No method may change its
    arguments.

    >>> class MaxProduct(Semiring):
    ...     def zeros(self, n):
    ...         return (np.zeros(n),)
    ...     def ones(self, n):
    ...         return (np.ones(n),)
    ...     def add(self, left, right):
    ...         return (np.maximum(left[0], right[0]),)
    ...     def multiply(self, left, right):
    ...         return (left[0] * right[0],)
    ...     def takes(self, values):
    ...         return values >= 0
    >>> ring = MaxProduct()
    >>> ring.sum_by(ring.lift(np.array([0.5, 0.25, 0.75])), np.array([0, 1, 0]), 3)
    (array([0.75, 0.25, 0.  ]),)
    """

    dtypes: Sequence[Any] = (np.float64,)
    """The dtype of each column of a payload: numbers of 64 bits; `(np.float64, (3,))` is three of them an element."""
    exact: bool = False
    """Whether the laws hold bit for bit, as for integers; if not, up to rounding."""
    sql_type: str = "double"
    """The SQL type of the column that `show` makes."""

    @abstractmethod
    def zeros(self, n: int) -> Payload:
        """Return n neutral elements of addition."""

    @abstractmethod
    def ones(self, n: int) -> Payload:
        """Return n neutral elements of multiplication."""

    @abstractmethod
    def add(self, left: Payload, right: Payload) -> Payload:
        """Add element by element."""

    @abstractmethod
    def multiply(self, left: Payload, right: Payload) -> Payload:
        """Multiply element by element."""

    def lift(self, values: NDArray[Any]) -> Payload:
        """Make elements from a column of doubles or of 64-bit integers, none of which is NULL."""
        (column,) = (np.dtype(dtype) for dtype in self.dtypes)
        if column.shape:
            raise NotImplementedError("a payload of several numbers needs a `lift` of its own")
        return (values.astype(column),)

    def show(self, payload: Payload) -> Any:
        """Make the values of an answer's column: an array of any kind that Arrow takes."""
        return payload[0]

    def takes(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """Tell which values the ring has elements for; rows with others are bad rows."""
        numbers: NDArray[np.bool_] = ~np.isnan(values)
        return numbers

    def scale(self, payload: Payload, times: NDArray[np.int64]) -> Payload:
        """Add each element to itself `times` times, by doubling."""
        out, left, power = self.zeros(len(times)), np.abs(times), payload
        while left.any():
            odd = (left & 1).astype(bool)
            out = _chosen(odd, self.add(out, power), out)
            left = left >> 1
            if left.any():
                power = self.add(power, power)
        return out

    def is_zero(self, payload: Payload) -> NDArray[np.bool_]:
        """Tell which elements are neutral."""
        return _all_of([a == b for a, b in zip(payload, self.zeros(len(payload[0])), strict=True)])

    def sum_by(self, payload: Payload, group_of: Positions, groups: int) -> Payload:
        """Sum the elements that share a group number, pairs first, then pairs of pairs."""
        order = np.argsort(group_of, kind="stable")
        left, group = take(payload, order), group_of[order]
        while len(group):
            starts = np.flatnonzero(np.diff(group, prepend=-1))
            rank = np.arange(len(group)) - np.repeat(starts, np.diff(starts, append=len(group)))
            second = np.flatnonzero(rank & 1)
            if not len(second):
                break
            pairs = self.add(take(left, second - 1), take(left, second))
            stays = (rank & 1) == 0
            at = np.cumsum(stays)[second - 1] - 1
            left, group = _placed(take(left, stays), at, pairs), group[stays]
        return _placed(self.zeros(groups), group, left)

    def equal(self, left: Payload, right: Payload) -> NDArray[np.bool_]:
        """Tell which elements have the same value, up to rounding where the ring is not exact."""
        if self.exact:
            return _all_of([a == b for a, b in zip(left, right, strict=True)])
        pairs = zip(left, right, strict=True)
        return _all_of([np.isclose(a, b, rtol=_RELATIVE, atol=_ABSOLUTE, equal_nan=True) for a, b in pairs])

    def sample(self, rng: np.random.Generator, n: int) -> Payload:
        """Draw n elements for checking the laws: values that the ring takes, their sums and their products."""
        # Small multiples of 1/8, so that the laws are those of the algebra and not of rounding.
        values = np.concatenate([[0.0, 1.0, -1.0, 0.5, 2.0], rng.integers(-16, 17, 8 * n) / 8])
        values = values[self.takes(values)]
        if not len(values):
            raise ValueError("takes() refuses all of 0, 1, -1, 1/2, 2 and multiples of 1/8 up to 2: write a sample()")
        a, b, c = (self.lift(rng.choice(values, n)) for _ in range(3))
        drawn = concatenate(
            [self.lift(values[:5]), a, self.add(a, b), self.multiply(b, c), self.zeros(1), self.ones(1)]
        )
        return take(drawn, rng.permutation(len(drawn[0]))[:n])

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({settings})"


class Ring(Semiring):
    """A commutative ring for `hr.register_ring`: rows can be summed in it, and taken away again.

    >>> class Gaussian(Ring):
    ...     dtypes = (np.int64, np.int64)  # a + bi
    ...     exact = True
    ...     def zeros(self, n):
    ...         return np.zeros(n, np.int64), np.zeros(n, np.int64)
    ...     def ones(self, n):
    ...         return np.ones(n, np.int64), np.zeros(n, np.int64)
    ...     def add(self, left, right):
    ...         return left[0] + right[0], left[1] + right[1]
    ...     def negate(self, payload):
    ...         return -payload[0], -payload[1]
    ...     def multiply(self, left, right):
    ...         (a, b), (c, d) = left, right
    ...         return a * c - b * d, a * d + b * c
    ...     def lift(self, values):
    ...         return values.astype(np.int64), np.ones(len(values), np.int64)
    >>> ring = Gaussian()
    >>> ring.scale(ring.lift(np.array([5, 7])), np.array([3, -2]))
    (array([ 15, -14]), array([ 3, -2]))
    """

    @abstractmethod
    def negate(self, payload: Payload) -> Payload:
        """Return the inverse of each element, so that adding it gives zero."""

    def takes(self, values: NDArray[Any]) -> NDArray[np.bool_]:
        """Tell which values the ring has elements for: not NaN and not infinity, which cannot be taken away again."""
        finite: NDArray[np.bool_] = np.abs(values) <= _LARGEST
        return finite

    def scale(self, payload: Payload, times: NDArray[np.int64]) -> Payload:
        """Add each element to itself `times` times; a negative number subtracts."""
        scaled = super().scale(payload, times)
        return _chosen(times < 0, self.negate(scaled), scaled)


def _wide(mask: NDArray[np.bool_], like: NDArray[Any]) -> NDArray[np.bool_]:
    return mask.reshape(-1, *(1,) * (like.ndim - 1))


def _chosen(mask: NDArray[np.bool_], true: Payload, false: Payload) -> Payload:
    return tuple(np.where(_wide(mask, a), a, b) for a, b in zip(true, false, strict=True))


def _placed(into: Payload, at: NDArray[np.int64], elements: Payload) -> Payload:
    out = tuple(np.array(column) for column in into)
    for column, values in zip(out, elements, strict=True):
        column[at] = values
    return out


def _all_of(columns: Sequence[NDArray[np.bool_]]) -> NDArray[np.bool_]:
    """Which elements are true in all columns, and in all numbers of a column."""
    same = [column if column.ndim == 1 else column.all(axis=tuple(range(1, column.ndim))) for column in columns]
    found: NDArray[np.bool_] = np.logical_and.reduce(same)
    return found

"""The generalized covariance ring: covariance triples over continuous variables and categories (F-IVM, Definition 37).

An element has a count, sums and products of continuous variables as scalars (Remark 39), and relations: per level of a
category a count and its products with the continuous variables, and per two levels a count. That is the covariance ring
over one variable per level, of which only those are written down that are not zero; so its laws are those of a ring
also where both factors have the same category, which never happens in a join (there each variable is in one factor, and
`mixed_product` need not form the pairs of a level with itself). The relations of many elements are sorted columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from headrace.rings.base import Payload, Positions
from headrace.rings.covariance import Covariance, Doubles, width

Words = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Ragged:
    """A column whose elements are relations: sorted rows (element, key) -> numbers, of which none is zero throughout.

    It has as much of an array's interface as whole payloads need: length, `take` and concatenation.
    """

    n: int
    keys: Words  # of shape (1 + words of a key, rows); the first is the element
    values: Doubles  # of shape (rows, numbers)

    @classmethod
    def of(cls, n: int, keys: Words, values: Doubles) -> Ragged:
        """Add up rows of the same element and key; rows of zeros disappear."""
        order = np.lexsort(keys[::-1])
        keys, values = keys[:, order], values[order]
        head = np.ones(keys.shape[1], bool)
        head[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
        first = np.flatnonzero(head)
        summed = np.add.reduceat(values, first, axis=0) if len(first) else values[:0]
        there = np.flatnonzero((summed != 0).any(axis=1))
        return cls(n, np.ascontiguousarray(keys[:, first[there]]), summed[there])

    @classmethod
    def empty(cls, n: int, words: int, numbers: int) -> Ragged:
        return cls(n, np.zeros((1 + words, 0), np.int64), np.zeros((0, numbers)))

    def __len__(self) -> int:
        return self.n

    def take(self, positions: Positions, axis: int = 0, **_: object) -> Ragged:
        """Pick elements."""
        first, last = (np.searchsorted(self.keys[0], positions, side=side) for side in ("left", "right"))
        at = np.concatenate([np.arange(a, b) for a, b in zip(first, last, strict=True)] or [np.zeros(0, np.int64)])
        at = at.astype(np.int64)
        keys = self.keys[:, at].copy()
        keys[0] = np.repeat(np.arange(len(positions)), last - first)
        return Ragged(len(positions), keys, self.values[at])

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Ragged:
        if function is not np.concatenate:
            return NotImplemented  # type: ignore[no-any-return]
        return self._concatenated(*args, **kwargs)

    @staticmethod
    def _concatenated(columns: Sequence[Ragged]) -> Ragged:
        starts = np.cumsum([0, *map(len, columns)])
        keys = [
            column.keys + np.array([[at], *[[0]] * (len(column.keys) - 1)])
            for column, at in zip(columns, starts, strict=False)
        ]
        return Ragged(int(starts[-1]), np.concatenate(keys, axis=1), np.concatenate([c.values for c in columns]))

    def scaled(self, factor: Doubles) -> Ragged:
        """Multiply each element by a number."""
        return Ragged.of(self.n, self.keys, self.values * factor[self.keys[0]][:, None])

    def summed(self, group_of: Positions, groups: int) -> Ragged:
        """Add up elements by group."""
        keys = self.keys.copy()
        keys[0] = np.asarray(group_of)[keys[0]]
        return Ragged.of(groups, keys, self.values)


@dataclass(frozen=True)
class MixedCovariance:
    """Elements over a number of continuous variables and of categories.

    A payload is (scalars, levels, pairs): an array of covariance triples; per element, (category, code) -> its count
    and its product with each continuous variable; and (category, code, category, code) -> a count, the smaller level
    first.

    >>> ring = MixedCovariance(1, 1)
    >>> flat = ring.lift(np.array([[50.0]]), np.array([[7]]))
    >>> scalars, levels, pairs = ring.multiply(flat, ring.ones(1))
    >>> scalars, levels.keys.tolist(), levels.values
    (array([[1.0e+00, 5.0e+01, 2.5e+03]]), [[0], [0], [7]], array([[ 1., 50.]]))
    """

    degree: int
    categories: int

    @property
    def dtypes(self) -> tuple[np.dtype[np.generic], ...]:
        return (*Covariance(self.degree).dtypes, np.dtype(object), np.dtype(object))  # relations have no fixed width

    @property
    def exact(self) -> bool:
        return False

    def lift(self, values: Doubles, codes: Words) -> Payload:
        """Lift rows: g(x) of all their variables, multiplied (section 8.1).

        Parameters
        ----------
        values : the continuous variables, of shape (degree, rows).
        codes : the categories, of shape (categories, rows).
        """
        n = values.shape[1] if self.degree else codes.shape[1]
        out = self.ones(n)
        every = np.arange(n)
        for j, x in enumerate(values):
            scalars = np.zeros((n, width(self.degree)))
            scalars[:, 0], scalars[:, 1 + j] = 1.0, x
            square = 1 + self.degree + j * self.degree - j * (j - 1) // 2
            scalars[:, square] = x * x
            out = self.multiply(out, (scalars, *self.zeros(n)[1:]))
        for k, code in enumerate(codes):
            level = np.stack([every, np.full(n, k), code])
            once = np.zeros((n, 1 + self.degree))
            once[:, 0] = 1.0
            pair = np.concatenate([level, level[1:]])
            lifted = _payload(self.ones(n)[0], Ragged.of(n, level, once), Ragged.of(n, pair, np.ones((n, 1))))
            out = self.multiply(out, lifted)
        return out

    def zeros(self, n: int) -> Payload:
        empty = Ragged.empty(n, 2, 1 + self.degree), Ragged.empty(n, 4, 1)
        return _payload(np.zeros((n, width(self.degree))), *empty)

    def ones(self, n: int) -> Payload:
        return (*Covariance(self.degree).ones(n), *self.zeros(n)[1:])

    def add(self, left: Payload, right: Payload) -> Payload:
        n = len(left[0])
        both = tuple(np.concatenate([a, b]) for a, b in zip(left, right, strict=True))
        return self.sum_by(both, np.concatenate([np.arange(n), np.arange(n)]), n)

    def negate(self, payload: Payload) -> Payload:
        return self.scale(payload, np.full(len(payload[0]), -1))

    def scale(self, payload: Payload, times: NDArray[np.int64]) -> Payload:
        by = times.astype(np.float64)
        levels, pairs = _relations(payload)
        return _payload(payload[0] * by[:, None], levels.scaled(by), pairs.scaled(by))

    def multiply(self, left: Payload, right: Payload) -> Payload:
        n = len(left[0])
        (scalars,) = Covariance(self.degree).multiply((left[0],), (right[0],))
        levels: list[tuple[Words, Doubles]] = []
        pairs: list[tuple[Words, Doubles]] = []
        for one, other in ((left, right), (right, left)):
            (own, products), count, sums = _relations(one), other[0][:, 0], other[0][:, 1 : 1 + self.degree]
            at = own.keys[0]
            values = own.values * count[at][:, None]
            values[:, 1:] += own.values[:, :1] * sums[at]
            levels.append((own.keys, values))
            pairs.append((products.keys, products.values * count[products.keys[0]][:, None]))
        pairs.append(_crossed(_relations(left)[0], _relations(right)[0]))
        return _payload(scalars, _summed(n, levels), _summed(n, pairs))

    def is_zero(self, payload: Payload) -> NDArray[np.bool_]:
        zero: NDArray[np.bool_] = (payload[0] == 0).all(axis=1)
        for relation in _relations(payload):
            zero[relation.keys[0]] = False
        return zero

    def sum_by(self, payload: Payload, group_of: Positions, groups: int) -> Payload:
        (scalars,) = Covariance(self.degree).sum_by((payload[0],), group_of, groups)
        levels, pairs = (relation.summed(group_of, groups) for relation in _relations(payload))
        return _payload(scalars, levels, pairs)

    def equal(self, left: Payload, right: Payload) -> NDArray[np.bool_]:
        same = Covariance(self.degree).equal((left[0],), (right[0],))
        for a, b in zip(_relations(left), _relations(right), strict=True):
            difference = _summed(len(a), [(a.keys, a.values), (b.keys, -b.values)])
            scale = np.zeros(len(a))
            for side in (a, b):
                np.maximum.at(scale, side.keys[0], np.abs(side.values).max(axis=1, initial=0.0))
            off = np.abs(difference.values).max(axis=1, initial=0.0) > np.spacing(scale[difference.keys[0]])
            same[difference.keys[0][off]] = False
        return same

    def sample(self, rng: np.random.Generator, n: int) -> Payload:
        (scalars,) = Covariance(self.degree).sample(rng, n)
        if not self.categories:
            return _payload(scalars, *_relations(self.zeros(n)))
        rows = 3 * n
        element, *codes = (rng.integers(0, below, rows) for below in (n, 3, 3, 3))
        kinds = rng.integers(0, self.categories, (3, rows))
        values = rng.integers(-8, 9, (rows, 2 + self.degree)).astype(np.float64)
        levels = Ragged.of(n, np.stack([element, kinds[0], codes[0]]), values[:, 1:])
        pairs = _ordered(np.stack([element, kinds[1], codes[1], kinds[2], codes[2]]))
        return _payload(scalars, levels, Ragged.of(n, pairs, values[:, :1]))


def _payload(scalars: Doubles, levels: Ragged, pairs: Ragged) -> Payload:
    return cast(Payload, (scalars, levels, pairs))


def _relations(payload: Payload) -> tuple[Ragged, Ragged]:
    _, levels, pairs = payload
    assert isinstance(levels, Ragged)
    assert isinstance(pairs, Ragged)
    return levels, pairs


def _summed(n: int, parts: Sequence[tuple[Words, Doubles]]) -> Ragged:
    keys, values = zip(*parts, strict=True)
    return Ragged.of(n, np.concatenate(keys, axis=1), np.concatenate(values))


def _crossed(left: Ragged, right: Ragged) -> tuple[Words, Doubles]:
    """All pairs of a level of one and a level of the other, element by element: s s'^T + s' s^T."""
    first, last = (np.searchsorted(right.keys[0], left.keys[0], side=side) for side in ("left", "right"))
    one = np.repeat(np.arange(len(left.values)), last - first)
    starts = (
        np.repeat(first - np.concatenate([[0], np.cumsum(last - first)[:-1]]), last - first) if len(first) else first
    )
    two = np.arange(len(one)) + starts
    keys = np.concatenate([left.keys[:, one], right.keys[1:, two]])
    twice = 1.0 + (keys[1:3] == keys[3:5]).all(axis=0)  # a level with itself is both of the two products
    return _ordered(keys), (left.values[one, 0] * right.values[two, 0] * twice)[:, None]


def _ordered(keys: Words) -> Words:
    """Put the smaller level of each pair first."""
    swap = (keys[1] > keys[3]) | ((keys[1] == keys[3]) & (keys[2] > keys[4]))
    return np.where(swap, keys[[0, 3, 4, 1, 2]], keys)

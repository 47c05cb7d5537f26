"""The relational ring F[Z]: payloads that are relations, which add by union and multiply by join (F-IVM, Section 8.3).

With it a view that counts becomes one that lists: the payload of the root is the result of a conjunctive query. Rows
are finite maps from variables to values, so that relations of any schemas add up, and two rows multiply to their union
if they agree on what they share. This is the definition, for reading, checking and small payloads: a payload here is a
Python object. What the engine keeps is the same ring taken apart: a listing has the rows of a payload as keys of its
runs, and a factorized result spreads them over the views (`factorized.result_tree`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.rings.base import Payload, Positions

Row = frozenset[tuple[str, object]]
Relation = dict[Row, int]
"""Rows, as values by variable, with their multiplicities, none of which is 0."""


@dataclass(frozen=True)
class Relational:
    """Relations over the ring of integers.

    >>> ring = Relational()
    >>> left, right = ring.lift("A", [1, 1]), ring.lift("B", [7, 8])
    >>> product = ring.multiply(left, right)
    >>> ring.listed(ring.sum_by(product, np.array([0, 0]), 1), ("A", "B"))
    [{(1, 7): 1, (1, 8): 1}]
    """

    @property
    def dtypes(self) -> tuple[np.dtype[np.generic], ...]:
        return (np.dtype(object),)

    @property
    def exact(self) -> bool:
        return True

    def zeros(self, n: int) -> Payload:
        """The empty relation, n times."""
        return _column({} for _ in range(n))

    def ones(self, n: int) -> Payload:
        """The relation of the empty row, n times."""
        return _column({frozenset(): 1} for _ in range(n))

    def lift(self, variable: str, values: Iterable[object]) -> Payload:
        """Per value, the relation of this value alone; a bound variable is lifted to `ones` instead."""
        return _column({frozenset([(variable, value)]): 1} for value in values)

    def add(self, left: Payload, right: Payload) -> Payload:
        return _column(_sum((a, b)) for a, b in zip(left[0], right[0], strict=True))

    def negate(self, payload: Payload) -> Payload:
        return _column({row: -times for row, times in one.items()} for one in payload[0])

    def scale(self, payload: Payload, times: NDArray[np.int64]) -> Payload:
        scaled = zip(payload[0], times.tolist(), strict=True)
        return _column({row: n * k for row, n in one.items()} if k else {} for one, k in scaled)

    def multiply(self, left: Payload, right: Payload) -> Payload:
        return _column(_joined(a, b) for a, b in zip(left[0], right[0], strict=True))

    def is_zero(self, payload: Payload) -> NDArray[np.bool_]:
        return np.array([not one for one in payload[0]], bool)

    def sum_by(self, payload: Payload, group_of: Positions, groups: int) -> Payload:
        parts: list[list[Relation]] = [[] for _ in range(groups)]
        for one, group in zip(payload[0], group_of.tolist(), strict=True):
            parts[group].append(one)
        return _column(map(_sum, parts))

    def equal(self, left: Payload, right: Payload) -> NDArray[np.bool_]:
        return np.array([a == b for a, b in zip(left[0], right[0], strict=True)], bool)

    def sample(self, rng: np.random.Generator, n: int) -> Payload:
        """Relations of up to three rows over some of three variables, so that some rows agree and some do not."""

        def row() -> Row:
            return frozenset((name, int(rng.integers(2))) for name in "ABC" if rng.random() < 0.5)

        def relation() -> Relation:
            return _sum({row(): int(rng.choice([-2, -1, 1, 2]))} for _ in range(rng.integers(4)))

        return _column(relation() for _ in range(n))

    def without(self, payload: Payload, variables: Iterable[str]) -> Payload:
        """Sum variables away: with all but one, this makes the payload of a listing that of a factorization."""
        gone = frozenset(variables)
        return _column(
            _sum({frozenset(cell for cell in row if cell[0] not in gone): times} for row, times in one.items())
            for one in payload[0]
        )

    def listed(self, payload: Payload, order: Iterable[str]) -> list[dict[tuple[object, ...], int]]:
        """Relations whose rows have all of some variables, as tuples in this order."""
        names = tuple(order)
        return [{tuple(dict(row)[v] for v in names): times for row, times in one.items()} for one in payload[0]]


def _column(relations: Iterable[Mapping[Row, int]]) -> Payload:
    found = list(relations)
    column = np.empty(len(found), object)
    column[:] = found
    return (column,)


def _sum(relations: Iterable[Mapping[Row, int]]) -> Relation:
    total: Relation = {}
    for relation in relations:
        for row, times in relation.items():
            total[row] = total.get(row, 0) + times
    return {row: times for row, times in total.items() if times}


def _joined(left: Mapping[Row, int], right: Mapping[Row, int]) -> Relation:
    return _sum(
        {row | other: times * more}
        for row, times in left.items()
        for other, more in right.items()
        if len(dict(row | other)) == len(row | other)  # they agree on every variable that both have
    )

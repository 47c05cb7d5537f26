"""Factorizable changes: sums of outer products, which travel as their factors and never as the cross product.

A change u v^T of a matrix has as many numbers as u and v together (F-IVM, Section 6). As rows of a table it is the
union of its factors: a row (i, NULL, u_i) per number of u and a row (NULL, j, v_j) per number of v, all with the number
of their term. So it goes through the same door as any other change batch, and is committed with the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from headrace.errors import BadRowsError
from headrace.relation.schema import TableSchema

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Outer:
    """A change of rank r: the sum of r outer products. Make it with `outer`, and add several up with `+`."""

    terms: tuple[tuple[Vector, Vector], ...]

    @property
    def rank(self) -> int:
        """How many outer products it is a sum of."""
        return len(self.terms)

    def __add__(self, other: Outer) -> Outer:
        if not isinstance(other, Outer):
            return NotImplemented
        return Outer(self.terms + other.terms)

    def __neg__(self) -> Outer:
        return Outer(tuple((-u, v) for u, v in self.terms))

    def __sub__(self, other: Outer) -> Outer:
        return self + -other

    def __mul__(self, number: float) -> Outer:
        return Outer(tuple((number * u, v) for u, v in self.terms))

    __rmul__ = __mul__

    def to_numpy(self) -> NDArray[np.float64]:
        """The change as a matrix: the cross product, for small ones and for tests."""
        left, right = (np.stack([term[side] for term in self.terms]) for side in (0, 1))
        return left.T @ right

    def rows(self) -> pa.Table:
        """The change as rows of a matrix's table; numbers that are 0 need no row."""
        parts = []
        # New numbers each time: applying the same change twice adds it twice.
        numbers = np.random.default_rng().integers(1, 2**63 - 1, len(self.terms))
        for number, (u, v) in zip(numbers, self.terms, strict=True):
            parts += [_factor("i", u, number), _factor("j", v, number)]
        return pa.concat_tables(parts)


def _factor(side: str, vector: Vector, number: np.int64) -> pa.Table:
    there = np.flatnonzero(vector)
    other = pa.nulls(len(there), pa.int64())
    columns = {"i": other, "j": other, "value": pa.array(vector[there])}
    columns[side] = pa.array(there, pa.int64())
    return pa.table({**columns, "term": pa.array(np.full(len(there), number))})


def outer(u: ArrayLike, v: ArrayLike) -> Outer:
    """The outer product of two vectors, as a change of a matrix: u_i * v_j is added to each entry (i, j).

    >>> import headrace as hr
    >>> change = hr.outer([1, 0, 2], [3, 4]) + hr.outer([0, 1, 0], [1, 1])
    >>> change.rank, change.rows().num_rows
    (2, 7)
    >>> change.to_numpy()
    array([[3., 4.],
           [1., 1.],
           [6., 8.]])
    """
    vectors = []
    for name, given in (("u", u), ("v", v)):
        vector = np.asarray(given, np.float64)
        if vector.ndim != 1 or not len(vector) or not np.isfinite(vector).all():
            raise BadRowsError(
                f"outer: {name} is no vector of finite numbers (its shape is {vector.shape})",
                way_out="give two sequences of numbers; add up several products with +",
            )
        vectors.append(vector)
    return Outer(((vectors[0], vectors[1]),))


def rows_of(schema: TableSchema, given: object) -> object:
    """A change as a table takes it: an outer product as its factors, anything else as it is."""
    if not isinstance(given, Outer):
        return given
    if "term" not in [column.name for column in schema.columns]:
        raise BadRowsError(
            f"table {schema.name!r} takes rows, and was given outer products",
            way_out="give its rows; outer products are changes of the matrices of engine.matrix_chain",
        )
    return given.rows()


def entries(block: ArrayLike, first_row: int = 0) -> pa.Table:
    """All entries of a block of rows, as rows of a matrix's table.

    >>> entries(np.array([[1.0, 0.0], [2.0, 3.0]]), first_row=4).to_pydict()
    {'i': [4, 5, 5], 'j': [0, 0, 1], 'value': [1.0, 2.0, 3.0], 'term': [None, None, None]}
    """
    values = np.asarray(block, np.float64)
    i, j = np.nonzero(values)
    term = pa.nulls(len(i), pa.int64())
    return pa.table({"i": pa.array(i + first_row), "j": pa.array(j), "value": pa.array(values[i, j]), "term": term})


def best_split(shapes: Sequence[tuple[int, int]]) -> tuple[float, dict[tuple[int, int], int]]:
    """The cheapest order of multiplying a chain of matrices: its multiplications, and where each part is split.

    The textbook dynamic program over p_1 .. p_n+1 (F-IVM, Section 8.4): part (a, b) is split before matrix s.

    >>> best_split([(10, 100), (100, 5), (5, 50)])
    (7500.0, {(0, 2): 1, (1, 3): 2, (0, 3): 2})
    """
    sizes = [shapes[0][0], *(columns for _, columns in shapes)]
    cost = {(a, a + 1): 0.0 for a in range(len(shapes))}
    split: dict[tuple[int, int], int] = {}
    for length in range(2, len(shapes) + 1):
        for a in range(len(shapes) - length + 1):
            b = a + length
            costs = {s: cost[a, s] + cost[s, b] + sizes[a] * sizes[s] * sizes[b] for s in range(a + 1, b)}
            # Among equal ones the most even split: changes then pass fewer views.
            split[a, b] = min(costs, key=lambda s: (costs[s], abs(2 * s - a - b)))
            cost[a, b] = float(costs[split[a, b]])
    return cost[0, len(shapes)], split

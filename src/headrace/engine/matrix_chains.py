"""Handles of products of matrices. Reading one reads the state of the last step.

Matrices are the one kind of task of F-IVM that needs more than a ring, a plan and a model (`rings/`, `factorized/`,
`learn/`). A view elsewhere is a list of keys with payloads; a dense matrix kept like that would have two words of keys
and a search per number. So a chain keeps rows as vectors and changes as factors, and three things follow. Its tables
must take changes that are no rows (`relation/outer`, and the paths of a step to it), and keep none. Its answer is an
array, of which a reader may want some rows or its product with a vector: so it has a handle of its own, here. And what
users give is sizes, or tables: no SQL that could be planned. A sparse chain needs none of this, and is a view in SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from headrace.engine.definition import Definition, MatrixAnswer, MatrixChainRequest
from headrace.engine.kept_handle import KeptHandle
from headrace.engine.reader import Reader
from headrace.errors import SchemaError
from headrace.explain.report import Report
from headrace.factorized.chain_view import COLUMNS, ChainView, chain_of
from headrace.factorized.dense import Dense
from headrace.relation.outer import entries

if TYPE_CHECKING:
    from headrace.engine.handles import View

Numbers = NDArray[np.float64]
T = TypeVar("T")
_BLOCK = 1 << 20  # entries per step while a matrix is loaded


class MatrixChain(KeptHandle):
    """The product of a chain of dense matrices, kept fresh."""

    @property
    def shape(self) -> tuple[int, int]:
        """The rows and columns of the product."""
        return self._kernel.nodes[self._kernel.root].shape

    def to_numpy(self, matrix: str | None = None) -> Numbers:
        """The product as an array; or one of the matrices, by the name of its table."""
        return self._read(lambda dense: dense.to_numpy(), matrix)

    @property
    def rows(self) -> int:
        """How many rows the product has."""
        return self.shape[0]

    def rows_at(self, at: ArrayLike) -> Numbers:
        """Some rows of the product, without the others."""
        wanted = np.asarray(at, np.int64)
        if ((wanted < 0) | (wanted >= self.shape[0])).any():
            raise SchemaError(f"the product has rows 0 to {self.shape[0] - 1}", way_out="ask for some of these")
        return self._read(lambda dense: dense.at_rows(wanted))

    def __matmul__(self, vector: ArrayLike) -> Numbers:
        """The product applied to a vector, without making the product."""
        given = np.asarray(vector, np.float64)
        if given.shape != (self.shape[1],):
            raise SchemaError(
                f"the product has {self.shape[1]:,} columns, the vector has the shape {given.shape}",
                way_out="give a vector with one number per column",
            )
        return self._read(lambda dense: dense.after(given[None, :])[0])

    def to_arrow(self) -> pa.Table:
        """The entries of the product that are not 0: i, j, value."""
        return entries(self.to_numpy()).drop_columns(["term"])

    def load(self, matrix: str, values: ArrayLike) -> None:
        """Add an array to a matrix, in as many steps as its size needs."""
        array = np.asarray(values, np.float64)
        node = self._kernel.nodes[self._number(matrix)]
        if array.shape != node.shape:
            raise SchemaError(
                f"matrix {matrix!r} has the shape {node.shape}, the array {array.shape}",
                way_out="give an array of the shape of the matrix",
            )
        step = max(1, _BLOCK // array.shape[1])
        for first in range(0, len(array), step):
            rows = entries(array[first : first + step], first)
            if rows.num_rows:
                self._access.control.apply({matrix: rows})

    # -- inside -------------------------------------------------------------------------------------------------

    @property
    def _kernel(self) -> ChainView:
        assert isinstance(self.planned.answer, MatrixAnswer)
        return self.planned.answer.kernel

    def _number(self, matrix: str | None) -> int:
        kernel = self._kernel
        if matrix is None:
            return kernel.root
        if matrix not in kernel.tables:
            raise SchemaError(
                f"the chain {self.name!r} has no matrix {matrix!r}", way_out=f"use one of {', '.join(kernel.tables)}"
            )
        return kernel.tables.index(matrix)

    def _read(self, read: Callable[[Dense], T], matrix: str | None = None) -> T:
        self._entry.check_there()
        kernel, number = self._kernel, self._number(matrix)

        def from_state(reader: Reader) -> T:
            parts = kernel.nodes[number].parts(number)
            return read(kernel.matrix(number, {part: reader.runs(self.name, part) for part in parts}))

        return self._access.state.read(from_state)

    def __repr__(self) -> str:
        return f"MatrixChain({self.name!r}, {self.sql!r})"


class SparseChain:
    """The product of a chain of sparse matrices, kept as a view in SQL over their tables."""

    def __init__(self, view: View) -> None:
        self._view = view

    @property
    def view(self) -> View:
        """The view that holds the product."""
        return self._view

    @property
    def name(self) -> str:
        return self.view.name

    def to_arrow(self) -> pa.Table:
        """The entries of the product that a path of entries leads to: i, j, value."""
        return self.view.to_arrow()

    def to_numpy(self, shape: tuple[int, int]) -> Numbers:
        """The product as a dense array of this shape."""
        table = self.to_arrow()
        out = np.zeros(shape)
        out[table["i"].to_numpy(), table["j"].to_numpy()] = table["value"].to_numpy()
        return out

    def explain(self) -> Report:
        """Say how the product is kept."""
        return self.view.explain()

    def __repr__(self) -> str:
        return f"SparseChain({self.name!r})"


def matrix_columns() -> str:
    """The columns of the table of a dense matrix, as Spark DDL."""
    return ", ".join(f"{name} {str(kind).upper()}" for name, kind in COLUMNS.items())


def chain_definition(name: str, matrices: Mapping[str, tuple[int, int]]) -> Definition:
    """The definition of a product of dense matrices."""
    if len(matrices) < 2:
        raise SchemaError(f"matrix chain {name!r} has {len(matrices)} matrices", way_out="give two or more")
    for matrix, (rows, columns) in matrices.items():
        if rows < 1 or columns < 1:
            raise SchemaError(f"matrix {matrix!r} is {rows} by {columns}", way_out="give sizes of 1 or more")
    sizes = list(matrices.values())
    chain_of(tuple(matrices), sizes)  # refuses sizes that do not fit, before any table is made
    return Definition(
        MatrixChainRequest(tuple(matrices), tuple(rows for rows, _ in sizes), tuple(columns for _, columns in sizes))
    )


def chain_sql(name: str, tables: Sequence[str]) -> str:
    """The product of sparse matrices in SQL.

    >>> print(chain_sql("p", ["r", "s"]))
    SELECT m1.i AS i, m2.j AS j, SUM(m1.value * m2.value) AS value FROM `r` AS m1 JOIN `s` AS m2 ON m1.j = m2.i
    GROUP BY m1.i, m2.j
    """
    if len(tables) < 2:
        raise SchemaError(f"matrix chain {name!r} has {len(tables)} matrices", way_out="give two or more")
    joined = " ".join(f"JOIN `{table}` AS m{k} ON m{k - 1}.j = m{k}.i" for k, table in enumerate(tables[1:], start=2))
    product = " * ".join(f"m{k}.value" for k in range(1, len(tables) + 1))
    last = f"m{len(tables)}.j"
    picked = f"SELECT m1.i AS i, {last} AS j, SUM({product}) AS value"
    return f"{picked} FROM `{tables[0]}` AS m1 {joined}\nGROUP BY m1.i, {last}"

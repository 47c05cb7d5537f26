"""Factorizable changes of tables: sums of products of parts, which are never multiplied out on their way.

The rows {a_1 .. a_n} x {b_1 .. b_m} are n * m, and say no more than n + m (F-IVM, Section 6, Example 11). A product
has the rows of its parts, which have no column in common; it stands for every combination of one row per part, with
the product of their multiplicities. A sum of products is a change too: an over-approximation less what it has too
much, for instance.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import BadRowsError
from headrace.relation.change import ChangeBatch, cancelled, change_batch
from headrace.relation.columns import take_rows
from headrace.relation.given import found_columns
from headrace.relation.schema import DIFF, TableSchema

_MOST = 1 << 62
"""Rows, counted by multiplicity, that one product may stand for: counts are integers of 64 bits."""


@dataclass(frozen=True, eq=False)
class Product:
    """A change of a table: a sum of products of parts. Make it with `product`; add several with `+`, or subtract them.

    >>> change = product({"a": [1, 2]}, {"b": ["x", "y"], "__diff": [1, 2]}) - product({"a": [2], "b": ["x"]})
    >>> change.rows, change.part_rows
    (5, 5)
    >>> sorted(map(tuple, (row.values() for row in change.to_arrow().to_pylist())))
    [(1, 'x', 1), (1, 'y', 2), (2, 'y', 2)]
    """

    terms: tuple[tuple[pa.Table, ...], ...]

    @property
    def columns(self) -> list[str]:
        """The columns of the rows that it stands for."""
        return _columns(self.terms[0])

    @property
    def rows(self) -> int:
        """How many rows it stands for, before equal ones of several products are added up."""
        return sum(math.prod(part.num_rows for part in term) for term in self.terms)

    @property
    def part_rows(self) -> int:
        """How many rows its parts have."""
        return sum(part.num_rows for term in self.terms for part in term)

    def to_arrow(self) -> pa.Table:
        """The rows that it stands for, with `__diff`: multiplied out, and equal ones added up."""
        tables = [_crossed(term).select([*self.columns, DIFF]) for term in self.terms]
        return cancelled(pa.concat_tables(tables, promote_options="permissive").combine_chunks())

    def __add__(self, other: Product) -> Product:
        if not isinstance(other, Product):
            return NotImplemented
        if sorted(self.columns) != sorted(other.columns):
            raise BadRowsError(
                f"products of different columns cannot be added: {_named(self.columns)}, and {_named(other.columns)}",
                way_out="give both the columns of one table",
            )
        return Product(self.terms + other.terms)

    def __neg__(self) -> Product:
        return Product(tuple((_negated(first), *others) for first, *others in self.terms))

    def __sub__(self, other: Product) -> Product:
        return self + -other if isinstance(other, Product) else NotImplemented


def product(*parts: object) -> Product:
    """The product of some parts, as a change of a table whose rows are never made.

    Parameters
    ----------
    parts : Arrow tables, pandas DataFrames or dicts of columns, which have no column in common. Each may have a
        `__diff` (default +1); the multiplicity of a row of the product is the product of those of its parts.

    >>> import headrace as hr
    >>> change = hr.product({"a": range(1000)}, {"c": range(500)}, {"e": [1.5, 2.5], "__diff": [1, -1]})
    >>> change.rows, change.part_rows
    (1000000, 1502)
    """
    if not parts:
        raise BadRowsError("a product needs a part", way_out="give one or more, as in hr.product({'a': [1, 2]}, ...)")
    made = tuple(_part(i, given) for i, given in enumerate(parts))
    every = [name for part in made for name in part.column_names if name != DIFF]
    if doubled := sorted({name for name in every if every.count(name) > 1}):
        raise BadRowsError(
            f"several parts of a product have {_named(doubled)}",
            way_out="give each column to one part; columns that depend on each other go into the same part",
        )
    return Product((made,))


@dataclass(frozen=True)
class ProductBatch:
    """A product as a table takes it: each part has the exact types of its columns, and its multiplicities."""

    terms: tuple[tuple[ChangeBatch, ...], ...]

    def __len__(self) -> int:
        """The rows that were handed over."""
        return sum(len(part) for term in self.terms for part in term)

    @property
    def rows(self) -> int:
        """The rows that they stand for."""
        return sum(math.prod(len(part) for part in term) for term in self.terms)

    @property
    def net(self) -> int:
        """By how many rows, counted by multiplicity, the table grows."""
        return sum(math.prod(int(part.diff.sum()) for part in term) for term in self.terms)

    def inserted_and_deleted(self) -> tuple[int, int]:
        """The rows that come and that go, counted by multiplicity."""
        every = sum(math.prod(int(np.abs(part.diff).sum()) for part in term) for term in self.terms)
        return (every + self.net) // 2, (every - self.net) // 2

    def sample(self, most: int) -> ChangeBatch:
        """A few of the rows, in which the values of every part come as often as in all of them."""
        if not self.terms:
            return ChangeBatch(pa.table({}), np.zeros(0, np.int64))
        found = []
        for term in self.terms:
            count = min(most, max((len(part) for part in term), default=0)) if all(map(len, term)) else 0
            turns = [part.take(np.arange(count) % max(1, len(part))) for part in term]
            found.append(_side_by_side(turns))
        names = found[0].rows.column_names
        rows = pa.concat_tables([batch.rows.select(names) for batch in found]).slice(0, most)
        return ChangeBatch(rows, np.concatenate([batch.diff for batch in found])[:most])


def product_of(schema: TableSchema, given: Product) -> ProductBatch:
    """Bring a product to the columns and exact types of a table, part by part."""
    # A table has all columns of a product, and a part some of those of the table.
    found_columns(schema, given.columns)
    terms = []
    for term in given.terms:
        parts = tuple(change_batch(narrowed(schema, part.column_names), part) for part in term)
        copies = math.prod(sum(abs(count) for count in part.diff.tolist()) for part in parts)
        if copies >= _MOST:
            raise BadRowsError(
                f"table {schema.name!r}: a product stands for {float(copies):.1e} rows, and counts are 64-bit integers",
                way_out="apply a smaller one",
            )
        if all(map(len, parts)):  # with an empty part it stands for no row
            terms.append(parts)
    return ProductBatch(tuple(terms))


def narrowed(schema: TableSchema, names: list[str]) -> TableSchema:
    """The rules of a table for the rows of a part, which have only some of its columns."""
    return replace(schema, columns=tuple(c for c in schema.columns if c.name in names), key=(), references=(), fds=())


def crossed(parts: tuple[ChangeBatch, ...]) -> ChangeBatch:
    """Every combination of rows of some parts."""
    if len(parts) == 1:
        return parts[0]
    sizes, turns = [len(part) for part in parts], []
    for i, part in enumerate(parts):
        own = np.repeat(np.arange(sizes[i]), math.prod(sizes[i + 1 :]))
        turns.append(part.take(np.tile(own, math.prod(sizes[:i]))))
    return _side_by_side(turns)


def _side_by_side(parts: list[ChangeBatch]) -> ChangeBatch:
    columns = {name: part.rows.column(name) for part in parts for name in part.rows.column_names}
    diff = np.prod(np.stack([part.diff for part in parts]), axis=0)
    return ChangeBatch(pa.table(columns), diff)


def _crossed(term: tuple[pa.Table, ...]) -> pa.Table:
    sizes, columns = [part.num_rows for part in term], dict[str, Any]()
    diff = np.ones(math.prod(sizes), np.int64)
    for i, part in enumerate(term):
        at = np.tile(np.repeat(np.arange(sizes[i]), math.prod(sizes[i + 1 :])), math.prod(sizes[:i]))
        rows = take_rows(part, at)
        columns |= {name: rows.column(name) for name in part.column_names if name != DIFF}
        diff = diff * rows.column(DIFF).to_numpy()
    return pa.table({**columns, DIFF: pa.array(diff)})


def _part(number: int, given: object) -> pa.Table:
    """A part as an Arrow table whose last column is its multiplicity."""
    what = f"part {number + 1} of a product"
    try:
        if isinstance(given, Mapping):
            # What Arrow cannot read but can be listed, as a range, is listed.
            given = pa.table({str(k): list(v) if isinstance(v, range) else v for k, v in given.items()})
        elif (pandas := sys.modules.get("pandas")) is not None and isinstance(given, pandas.DataFrame):
            given = pa.Table.from_pandas(given, preserve_index=False)
        elif isinstance(given, pa.RecordBatch):
            given = pa.Table.from_batches([given])
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError) as error:
        raise BadRowsError(
            f"{what} is no table: {error}", way_out="give columns of equal length, each of one type"
        ) from error
    if not isinstance(given, pa.Table):
        raise BadRowsError(
            f"{what} is a {type(given).__name__}",
            way_out="give an Arrow table, a pandas DataFrame or a dict of columns",
        )
    names = given.column_names
    if len(set(names)) < len(names) or set(names) <= {DIFF}:
        raise BadRowsError(
            f"{what} has the columns {_named(names) or '(none)'}",
            way_out=f"give each column once, and one beside {DIFF}",
        )
    if DIFF not in names:
        return given.append_column(DIFF, pa.array(np.ones(given.num_rows, np.int64)))
    diff = given.column(DIFF)
    if diff.null_count or not pa.types.is_integer(diff.type):
        raise BadRowsError(
            f"{what}: column {DIFF!r} is {diff.type} with {diff.null_count} NULLs",
            way_out="give whole numbers: +1 inserts a row, -1 deletes it; leave the column out to insert",
        )
    return given.drop_columns([DIFF]).append_column(DIFF, diff.cast(pa.int64()))


def _negated(part: pa.Table) -> pa.Table:
    return part.set_column(part.num_columns - 1, DIFF, pa.array(-part.column(DIFF).to_numpy()))


def _columns(term: tuple[pa.Table, ...]) -> list[str]:
    return [name for part in term for name in part.column_names if name != DIFF]


def _named(names: list[str]) -> str:
    return ", ".join(map(repr, names))

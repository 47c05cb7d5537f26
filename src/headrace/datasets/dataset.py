"""What a data set of the papers is: its tables, the join that a model learns from, and a seeded generator.

None of these data sets may be shipped or downloaded, so each is made anew from a seed. A description holds all that a
benchmark or a test needs to set it up, in the words of `Engine.table`, and nothing here needs Spark.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.errors import SchemaError

Columns = dict[str, NDArray[Any]]  # numbers of any width; the schema decides the one that is kept
Generator = Callable[[float, np.random.Generator], dict[str, Columns]]

_COLUMN = re.compile(r"(\w+) ([A-Z]+)(?:\((\d+), ?(\d+)\))?( NOT NULL)?")
_SPLIT = re.compile(r", (?=[a-z])")  # the comma within DECIMAL(15, 2) stands before a digit
_ARROW = {
    "BIGINT": pa.int64(),
    "INT": pa.int32(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "STRING": pa.string(),
}


@dataclass(frozen=True)
class TableSpec:
    """One table of a data set, as `Engine.table` wants it.

    Parameters
    ----------
    ddl : columns and types, as Spark DDL.
    key : columns that identify a row, where the generator guarantees it; none for a bag.
    features : the numeric columns that a model learns from; not those that tables are joined on.
    references : foreign keys, as pairs (column, table), or (columns, table) in the order of that table's key; as a
        mapping: `dict(spec.references)`.

    >>> oil = TableSpec("oil", "date BIGINT, oilprize DOUBLE", key=("date",), features=("oilprize",))
    >>> oil.schema.names
    ['date', 'oilprize']
    """

    name: str
    ddl: str
    key: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    references: tuple[tuple[str | tuple[str, ...], str], ...] = ()

    @classmethod
    def with_features(cls, name: str, ddl: str, *, apart: tuple[str, ...], key: tuple[str, ...] = ()) -> TableSpec:
        """Describe a table whose columns are all features, except for those in `apart`."""
        names = cls(name, ddl).schema.names
        return cls(name, ddl, key, tuple(column for column in names if column not in apart))

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the table's rows."""
        return pa.schema([_field(column) for column in _SPLIT.split(self.ddl)])


def _field(column: str) -> pa.Field:
    match = _COLUMN.fullmatch(column)
    if match is None or (match[2] not in _ARROW and match[2] != "DECIMAL"):
        raise SchemaError(
            f"cannot read the column {column!r}", way_out=f"use one of {', '.join(_ARROW)}, DECIMAL(p, s)"
        )
    kind = pa.decimal128(int(match[3]), int(match[4])) if match[2] == "DECIMAL" else _ARROW[match[2]]
    return pa.field(match[1], kind, nullable=match[5] is None)


@dataclass(frozen=True)
class Dataset:
    """A data set: tables, their natural join, the features and the label in it, and the papers' variable order.

    Parameters
    ----------
    tables : the fact table first, and each table shares a column with one before it: `join` depends on it.
    label : the feature that a model predicts from the others.
    order : the variable order: one variable per line, two spaces per level, and after a colon the relations whose
        lowest variable it is. Variables of one relation only are left out.
    about : one line for people.
    categorical : the features that are categories in the papers; all of them are coded as numbers.
    make : the generator of the columns of each table, from a scale and a source of random numbers.
    """

    name: str
    tables: tuple[TableSpec, ...]
    label: str
    order: str
    about: str
    make: Generator = field(repr=False, compare=False)
    categorical: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """The features of all tables; what is a category in the papers is coded as a number."""
        return tuple(feature for table in self.tables for feature in table.features)

    @property
    def join(self) -> str:
        """The SQL of the training join: all features, from the natural join of all tables."""
        return f"SELECT {', '.join(self.features)} FROM {' NATURAL JOIN '.join(table.name for table in self.tables)}"

    def table(self, name: str) -> TableSpec:
        """Find a table by name."""
        return next(table for table in self.tables if table.name == name)

    def generate(self, scale: float, seed: int = 0) -> dict[str, pa.Table]:
        """Make the tables; equal arguments give equal tables. The data set's module says what scale 1 means.

        The rows of a table come in random order, so that a stream of them meets its keys in no helpful order.
        """
        if not (math.isfinite(scale) and scale > 0):
            raise SchemaError(f"there is no {self.name} at scale {scale}", way_out="give a scale above 0, such as 0.01")
        random = np.random.default_rng(seed)
        made = self.make(scale, random)
        tables = {}
        for table in self.tables:
            # Popped, so that only one table is held twice at a time.
            columns = made.pop(table.name)
            tables[table.name] = _arrow(table.schema, columns, random)
        return tables


def _arrow(schema: pa.Schema, columns: Columns, random: np.random.Generator) -> pa.Table:
    rows = len(next(iter(columns.values())))
    order = random.permutation(rows)
    # Narrow before the gather, which is the slow part: it is bound by memory.
    return pa.table(
        [pa.array(columns[column.name].astype(column.type.to_pandas_dtype(), copy=False)[order]) for column in schema],
        schema=schema,
    )


def shrunk(full: int, scale: float, *, least: int = 1, power: float = 1.0) -> int:
    """Return the size of something that has `full` members at scale 1 and above, and fewer below.

    >>> shrunk(4000, 2), shrunk(4000, 0.25), shrunk(4000, 0.25, power=0.5), shrunk(54, 0.001, least=10)
    (4000, 1000, 2000, 10)
    """
    share: float = min(1.0, scale) ** power
    return max(least, round(full * share))


def skewed(random: np.random.Generator, members: int, size: int, power: float = 2.0) -> NDArray[np.int64]:
    """Draw member numbers, low ones most often: few shops and products have most sales."""
    return (members * random.random(size) ** power).astype(np.int64)


def copies(columns: Columns, times: int) -> Columns:
    """Repeat every row: with duplicated dimensions a join on keys becomes one of many to many."""
    return {name: np.repeat(values, times) for name, values in columns.items()}


def check_duplicates(duplicates: int) -> None:
    """Refuse a number of copies that leaves no rows."""
    if duplicates < 1:
        raise SchemaError(f"{duplicates} copies of each dimension row are none", way_out="give duplicates of 1 or more")

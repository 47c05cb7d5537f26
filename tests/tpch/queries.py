"""The 22 queries of TPC-H and the four that CrocodileDB adds, and what their ORDER BY and LIMIT promise."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.datasets import TPCH_SCHEMAS
from headrace.testing.oracle import sql_name

FOLDER = Path(__file__).parents[1] / "fixtures" / "tpch"
NAMES = (*(f"q{number}" for number in range(1, 23)), "q_aggjoin", "q_outer", "q_a", "q_b")

Row = tuple[Any, ...]

_LIMIT = re.compile(r"\nLIMIT (\d+)\s*\Z")
_ORDER = re.compile(r"^ORDER BY (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Expected:
    """The rows of an answer in their order, without LIMIT; and their types, where the oracle has those of Spark."""

    names: list[str]
    rows: list[Row]
    types: list[str] | None = None


@dataclass(frozen=True)
class Query:
    """One query, as its fixture has it."""

    name: str

    @cached_property
    def sql(self) -> str:
        return (FOLDER / f"{self.name}.sql").read_text()

    @property
    def unlimited(self) -> str:
        """The query without its LIMIT: which of the rows that tie are cut off is nobody's promise."""
        return _LIMIT.sub("\n", self.sql)

    @property
    def limit(self) -> int | None:
        found = _LIMIT.search(self.sql)
        return int(found[1]) if found else None

    @cached_property
    def tables(self) -> frozenset[str]:
        """The tables that it reads."""
        return frozenset(name for name in TPCH_SCHEMAS if re.search(rf"\b{name}\b", self.sql))

    def difference(self, answer: pa.Table, expected: Expected) -> str | None:
        """Say how an answer differs from what it should be: in values, types, or the order that ORDER BY gives."""
        names = answer.column_names
        if names != expected.names:
            return f"columns {names} instead of {expected.names}"
        types = [sql_name(kind) for kind in answer.schema.types]
        if expected.types is not None and types != expected.types:
            return f"types {types} instead of {expected.types}"
        rows = rows_of(answer)
        surplus, missing = Counter(rows) - Counter(expected.rows), Counter(expected.rows) - Counter(rows)
        if surplus or (missing and self.limit is None):
            return f"{_some(surplus)} instead of {_some(missing)}"
        values, wanted = (self._order_values(names, some) for some in (rows, expected.rows[: self.limit]))
        if len(values) != len(wanted):
            return f"{len(values)} rows instead of {len(wanted)}"
        wrong = next((at for at, pair in enumerate(zip(values, wanted, strict=True)) if pair[0] != pair[1]), None)
        return None if wrong is None else f"row {wrong} has {values[wrong]} where {wanted[wrong]} belongs"

    def _order_values(self, names: list[str], rows: list[Row]) -> list[Row]:
        """What rows are sorted by: the same values in the same order as those of the oracle, which has sorted them."""
        found = _ORDER.search(self.sql)
        at = [names.index(item.removesuffix(" DESC")) for item in found[1].split(", ")] if found else []
        return [tuple(row[i] for i in at) for row in rows]


QUERIES = tuple(map(Query, NAMES))


def rows_of(table: pa.Table) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _some(rows: Counter[Row]) -> str:
    return f"{rows.total()} rows such as {list(rows)[:2]}" if rows else "no rows"

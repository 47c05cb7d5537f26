"""Spark as the peer of the TPC-H benchmark: it runs a query over Parquet files, and its answer is the right one.

Nothing of Headrace's state is read, and Spark's adaptive execution is on: this is how one would recompute with Spark
alone. A query is run twice and the second time counts, so that planning, code generation and the page cache are warm.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from headrace.datasets.tpch import TPCH_SCHEMAS
from headrace.relation.types import sql_type

Row = tuple[Any, ...]

_LIMIT = re.compile(r"\nLIMIT (\d+)\s*\Z")
_ORDER = re.compile(r"^ORDER BY (.+)$", re.MULTILINE)  # in the texts of the queries, a subquery's is indented


class SparkPeer:
    """A Spark session of its own, whose tables are those of TPC-H, or others, from Parquet files."""

    def __init__(
        self, spark: SparkSession, folders: Mapping[str, Path], columns: Mapping[str, str] | None = None
    ) -> None:
        self._session = spark.newSession()
        self._session.conf.set("spark.sql.adaptive.enabled", "true")
        for name, folder in folders.items():
            # Told the columns, Spark runs no job to find them out.
            ddl = TPCH_SCHEMAS[name].ddl if columns is None else columns[name]
            rows = self._session.read.schema(ddl).parquet(str(folder))
            rows.createOrReplaceTempView(name)

    def timed(self, sql: str) -> tuple[float, pa.Table]:
        """Run a query twice; return the seconds of the second run, and the answer."""
        self.answer(sql)
        start = time.perf_counter()
        answer = self.answer(sql)
        return time.perf_counter() - start, answer

    def answer(self, sql: str) -> pa.Table:
        """Return the answer of a query."""
        return self._session.sql(sql).toArrow()

    def difference(self, sql: str, answer: pa.Table) -> str | None:
        """Return how an answer differs from Spark's; None if it does not.

        Rows, types and order must be the same, as far as the query gives them: of rows that tie at a LIMIT, either may
        be there. So what is compared with is the answer without LIMIT.
        """
        return difference(sql, answer, self.unlimited(sql))

    def unlimited(self, sql: str) -> pa.Table:
        """Return the answer of a query without its LIMIT, with which answers are compared."""
        return self.answer(_LIMIT.sub("\n", sql))


def write_parquet(folder: Path, table: pa.Table, files: int) -> Path:
    """Write a table as several files, so that as many tasks can read it."""
    folder.mkdir(parents=True)
    size = max(1, -(-table.num_rows // files))
    for number in range(files):
        pq.write_table(table.slice(number * size, size), folder / f"{number}.parquet")
    return folder


def difference(sql: str, answer: pa.Table, unlimited: pa.Table) -> str | None:
    """Return how an answer differs from the expected one, which is given without LIMIT; None if it does not."""
    found = _LIMIT.search(sql)
    limit = int(found[1]) if found else None
    got, wanted = ([(field.name, sql_type(field.type)) for field in table.schema] for table in (answer, unlimited))
    if got != wanted:
        return f"columns {_columns(got)} instead of {_columns(wanted)}"
    rows, expected = _rows(answer), _rows(unlimited)
    surplus, missing = Counter(rows) - Counter(expected), Counter(expected) - Counter(rows)
    if surplus or (missing and limit is None):
        return f"{_some(surplus)} instead of {_some(missing)}"
    by, expected_by = (_order_values(sql, answer.column_names, given) for given in (rows, expected))
    if len(by) != len(expected_by[:limit]):
        return f"{len(by)} rows instead of {len(expected_by[:limit])}"
    pairs = enumerate(zip(by, expected_by[:limit], strict=True))
    return next((f"row {at} has {a} where {b} belongs" for at, (a, b) in pairs if a != b), None)


def _rows(table: pa.Table) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _order_values(sql: str, names: list[str], rows: list[Row]) -> list[Row]:
    """Return the values that ORDER BY sorts by, per row."""
    found = _ORDER.search(sql)
    at = [names.index(item.removesuffix(" DESC")) for item in found[1].split(", ")] if found else []
    return [tuple(row[i] for i in at) for row in rows]


def _columns(columns: list[tuple[str, Any]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)


def _some(rows: Counter[Row]) -> str:
    return f"{rows.total():,} rows such as {next(iter(rows))}" if rows else "no rows"

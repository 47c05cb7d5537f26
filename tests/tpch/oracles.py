"""Two oracles: they answer the queries from rows that they are given, and share no code with what they check.

Spark's answers count, types and all, and DuckDB's come in milliseconds, so that a larger scale can be checked after
every step as well. Both are asked again only for what can have changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from tests.foreign.tpch_queries import RATIOS, quotient
from tests.tpch.queries import QUERIES, Expected, Query, rows_of

from headrace.testing.oracle import spark_ddl, sql_name


class _Oracle:
    """The answers to all queries without LIMIT, over the rows that were given last."""

    queries = QUERIES

    def __init__(self) -> None:
        self._rows: dict[str, pa.Table] = {}
        self._answers: dict[str, Expected] = {}

    def answers(self, rows: Mapping[str, pa.Table]) -> dict[str, Expected]:
        """Answer from these rows; a table that is the same object as the last time has the same rows."""
        changed = {name for name, table in rows.items() if self._rows.get(name) is not table}
        for name in changed:
            self._set_rows(name, rows[name])
        self._rows = dict(rows)
        for query in self.queries:
            if query.tables & changed:
                self._answers[query.name] = self._answer(query)
        return dict(self._answers)

    def _set_rows(self, name: str, rows: pa.Table) -> None:
        raise NotImplementedError

    def _answer(self, query: Query) -> Expected:
        raise NotImplementedError


class SparkOracle(_Oracle):
    """Spark over Parquet files, which it reads faster than what Python hands it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__()
        self._session = spark.newSession()
        self._session.conf.set("spark.sql.session.timeZone", str(spark.conf.get("spark.sql.session.timeZone")))
        self._folder = folder
        self._files = 0

    def _set_rows(self, name: str, rows: pa.Table) -> None:
        self._files += 1
        path = self._folder / f"{self._files}.parquet"  # never overwritten: Spark remembers what it has seen of a path
        pq.write_table(rows, path, compression="none", use_dictionary=False)
        self._session.read.schema(spark_ddl(rows.schema)).parquet(str(path)).createOrReplaceTempView(name)

    def _answer(self, query: Query) -> Expected:
        answer = self._session.sql(query.unlimited).toArrow()
        return Expected(answer.column_names, rows_of(answer), [sql_name(kind) for kind in answer.schema.types])


class DuckOracle(_Oracle):
    """DuckDB, for the queries that it answers exactly: an average of averages is not one of them.

    It divides decimals as doubles. So it is asked for both sides of a ratio, and the quotient is taken as Spark does.
    """

    queries = tuple(query for query in QUERIES if query.name != "q_aggjoin")
    ratios = {f"q{number}": ratios for number, ratios in RATIOS.items()} | {
        "q17": [("sum(l_extendedprice)", "7.0", "")],
    }

    def __init__(self) -> None:
        super().__init__()
        self._connection = duckdb.connect()

    def _set_rows(self, name: str, rows: pa.Table) -> None:
        self._connection.register(name, rows)

    def _answer(self, query: Query) -> Expected:
        text = " ".join(query.unlimited.split())
        for over, under, written in self.ratios.get(query.name, []):
            asked = written or f"{over} / {under}"
            assert asked in text
            text = text.replace(asked, f"{{'over': {over}, 'under': {under}}}")
        found = self._connection.sql(text)
        return Expected(found.columns, [tuple(map(quotient, row)) for row in found.fetchall()])

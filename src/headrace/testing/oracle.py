"""The oracle: recompute a query with Spark over plain rows, and compare answers as bags.

It shares no code with what it checks: rows go into a Spark session of their own as a temporary view, and Spark's own
SQL gives the answer that an incremental view must equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.relation.types import sql_type


class Oracle:
    """Recomputes queries over the given rows with Spark SQL."""

    def __init__(self, spark: SparkSession) -> None:
        self._session = spark.newSession()
        self._session.conf.set("spark.sql.session.timeZone", str(spark.conf.get("spark.sql.session.timeZone")))

    def set_rows(self, tables: Mapping[str, pa.Table]) -> None:
        """Give each table its current rows."""
        for name, rows in tables.items():
            self._session.createDataFrame(rows, spark_ddl(rows.schema)).createOrReplaceTempView(name)

    def answer(self, sql: str) -> pa.Table:
        """Recompute a query."""
        return self._session.sql(sql).toArrow()


def spark_ddl(schema: pa.Schema) -> str:
    """Write an Arrow schema as Spark DDL; left to itself, Spark takes timestamps without a zone for instants."""
    return ", ".join(f"`{field.name}` {sql_type(field.type)}" for field in schema)


def assert_same(actual: pa.Table, expected: pa.Table, *, relative: float = 1e-12) -> None:
    """Fail unless two tables have the same columns and the same rows, as bags; doubles to a relative error."""
    assert actual.column_names == expected.column_names, f"columns {actual.column_names} != {expected.column_names}"
    left, right = _sorted_rows(actual), _sorted_rows(expected)
    assert len(left) == len(right), f"{len(left)} rows, expected {len(right)}:\n{left[:5]}\n{right[:5]}"
    for a, b in zip(left, right, strict=True):
        same = all(_same_value(x, y, relative) for x, y in zip(a, b, strict=True))
        assert same, f"row {a} instead of {b}"


def _sorted_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [column.to_pylist() for column in table.columns]
    return sorted(zip(*columns, strict=True), key=_sort_key)


def _sort_key(row: tuple[Any, ...]) -> tuple[Any, ...]:
    # Doubles are rounded for sorting only, so that two answers an ulp apart line up.
    return tuple(
        (value is None, isinstance(value, float) and math.isnan(value), _coarse(value) if value == value else 0)
        if value is not None
        else (True, False, 0)
        for value in row
    )


def _coarse(value: Any) -> Any:
    return float(f"{value:.9e}") if isinstance(value, float) else value


def _same_value(a: Any, b: Any, relative: float) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=relative, abs_tol=1e-300)
    return type(a) is type(b) and a == b

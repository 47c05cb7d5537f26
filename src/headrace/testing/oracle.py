"""The oracle: recompute queries with Spark over plain rows, and compare answers as bags.

It shares no code with what it checks, and imports nothing of Headrace: rows go into a Spark session of their own as
temporary views, and Spark's own SQL gives the answer that an incremental view must equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit

# Compiling a query takes Spark longer than running it over a few rows.
_SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}
# Spark's optimizer moves a subquery of the SELECT list between a LIMIT and the order that the LIMIT is about, takes the
# order for useless below the join that it makes of the subquery, and answers with any rows (seen with Spark 4.3).
_WRONG = {
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.PushProjectionThroughLimitAndOffset"
}
_TYPES = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.large_string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "boolean": pa.bool_(),
}


class Oracle:
    """Recomputes queries over the given rows with Spark SQL."""

    def __init__(self, spark: SparkSession) -> None:
        self._session = spark.newSession()
        self._session.conf.set("spark.sql.session.timeZone", str(spark.conf.get("spark.sql.session.timeZone")))
        for name, value in {**_SMALL, **_WRONG}.items():
            self._session.conf.set(name, value)

    def set_rows(self, tables: Mapping[str, pa.Table]) -> None:
        """Give each table its current rows."""
        for name, rows in tables.items():
            self._session.createDataFrame(rows, spark_ddl(rows.schema)).createOrReplaceTempView(name)

    def answer(self, sql: str) -> pa.Table:
        """Recompute a query."""
        return self._session.sql(sql).toArrow()

    def answers(self, sqls: Sequence[str]) -> list[pa.Table]:
        """Recompute several queries in one job; the rows of each are in no particular order."""
        if len(sqls) < 2:
            return [self.answer(sql) for sql in sqls]
        frames = [self._session.sql(sql) for sql in sqls]
        # Rows of a query have NULL in the columns of all others, so types stay as they are.
        names = [[f"{i}_{j}" for j in range(len(frame.columns))] for i, frame in enumerate(frames)]
        parts = [
            frame.toDF(*own).withColumn("query", lit(i))
            for i, (frame, own) in enumerate(zip(frames, names, strict=True))
        ]
        found = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), parts).toArrow()
        out = []
        for i, (frame, own) in enumerate(zip(frames, names, strict=True)):
            out.append(found.filter(pc.equal(found.column("query"), i)).select(own).rename_columns(frame.columns))
        return out


def spark_ddl(schema: pa.Schema) -> str:
    """Write an Arrow schema as Spark DDL; left to itself, Spark takes timestamps without a zone for instants."""
    return ", ".join(f"`{field.name}` {sql_name(field.type)}" for field in schema)


def sql_name(kind: pa.DataType) -> str:
    """Spark's name of an Arrow type.

    >>> sql_name(pa.decimal128(9, 2)), sql_name(pa.timestamp("us"))
    ('decimal(9,2)', 'timestamp_ntz')
    """
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_string(kind):
        return "string"
    return next(name for name, arrow in _TYPES.items() if arrow == kind)


def arrow_type(name: str) -> pa.DataType:
    """The Arrow type of which this is Spark's name.

    >>> arrow_type("DECIMAL(9, 2)")
    Decimal128Type(decimal128(9, 2))
    """
    word = name.strip().lower()
    if word.startswith("decimal("):
        precision, scale = word.removeprefix("decimal(").removesuffix(")").split(",")
        return pa.decimal128(int(precision), int(scale))
    if word not in _TYPES:
        raise ValueError(f"no type is called {name}")
    return _TYPES[word]


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

"""A table with every type and its edge values, known to an `SqlSession` without rows and to Spark with them."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.relation.types import SqlType
from headrace.sql.session import SqlSession

COLUMNS = [
    ("a", "int", True),
    ("b", "bigint", False),
    ("d", "double", True),
    ("f", "float", True),
    ("p", "decimal(12,2)", True),
    ("q", "decimal(4,2)", False),
    ("s", "string", True),
    ("dt", "date", True),
    ("ts", "timestamp", True),
    ("o", "boolean", True),
    ("Mixed Case", "smallint", True),
]


def rows(n: int, seed: int) -> list[tuple[object, ...]]:
    pick = random.Random(seed)

    def maybe(value: object) -> object:
        return None if pick.random() < 0.2 else value

    return [
        (
            maybe(pick.randint(-3, 3)),
            pick.randint(0, 5),
            maybe(pick.choice([0.0, -0.0, 1.5, -2.25, float("nan"), 1e9])),
            maybe(pick.choice([0.0, -0.0, 0.5, float("nan")])),
            maybe(Decimal(pick.randint(-9999, 9999)) / 100),
            Decimal(pick.randint(0, 10)) / 100,
            maybe(pick.choice(["", "a", "ab", "abc", "é", "Z", "\U0001f600"])),
            maybe(date(1998, 9, 1) + timedelta(days=pick.randint(-2, 2))),
            maybe(datetime(2020, 2, 29, 12, tzinfo=UTC) + timedelta(hours=pick.randint(0, 48))),
            maybe(pick.random() < 0.5),
            maybe(pick.randint(-2, 2)),
        )
        for _ in range(n)
    ]


@pytest.fixture(scope="session")
def table(spark: SparkSession) -> DataFrame:
    schema = ", ".join(f"`{name}` {type}{'' if nullable else ' NOT NULL'}" for name, type, nullable in COLUMNS)
    df = spark.createDataFrame(rows(150, seed=7), schema).coalesce(1).cache()
    df.createOrReplaceTempView("t")
    return df


@pytest.fixture(scope="session")
def table_columns() -> list[tuple[str, SqlType, bool]]:
    return [(name, SqlType.parse(type), nullable) for name, type, nullable in COLUMNS]


@pytest.fixture(scope="session")
def session(spark: SparkSession, table_columns: list[tuple[str, SqlType, bool]]) -> SqlSession:
    session = SqlSession(spark, {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true"})
    session.register("t", table_columns)
    return session

"""Tables known to an `SqlSession` without rows and to Spark with them, and the plainest grouping to compare both."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.plan.view import Shape, ViewPlan
from headrace.relation.types import SqlType
from headrace.sql.catalyst import AnalysedView
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


def key_of(values: Iterable[object]) -> tuple[object, ...]:
    return tuple("NaN" if isinstance(v, float) and math.isnan(v) else v for v in values)


def aggregated(plan: ViewPlan, group: list[dict[str, object]]) -> list[object]:
    results: list[object] = []
    for aggregate in plan.aggregates:
        values = [1 if aggregate.argument is None else row[f"v{aggregate.argument}"] for row in group]
        values = [v for v in values if v is not None]
        if aggregate.function == "count":
            results.append(len(values))
        elif aggregate.function == "count_distinct":
            results.append(len(set(key_of(values))))
        elif not values:
            results.append(None)
        elif aggregate.function in ("min", "max"):
            nans_last = {"key": lambda v: (isinstance(v, float) and math.isnan(v), v)}
            results.append((min if aggregate.function == "min" else max)(values, **nans_last))
        else:
            total = math.fsum(values) if aggregate.type.kind == "double" else sum(values)
            total = total / len(values) if aggregate.function == "avg" else total
            if aggregate.type.is_decimal:
                total = total.quantize(Decimal(1).scaleb(-aggregate.type.scale), ROUND_HALF_UP)
            results.append(total)
    return results


@pytest.fixture(scope="session")
def finished(spark: SparkSession) -> Callable[[AnalysedView, list[dict[str, object]]], DataFrame]:
    """The answer of a view from the lines (`k0..`, `v0..`) that its map side gives."""

    def finish(view: AnalysedView, lines: list[dict[str, object]]) -> DataFrame:
        plan = view.plan
        groups: dict[tuple[object, ...], list[dict[str, object]]] = {(): []} if plan.shape is Shape.TOTAL else {}
        names = [f"k{i}" for i in range(len(plan.keys))]
        for n, line in enumerate(lines):
            key = key_of(line[name] for name in names)
            groups.setdefault((n,) if plan.shape is Shape.ROWS else key, []).append(line)
        rows = [[*(g[0][name] for name in names), *aggregated(plan, g), 1] for g in groups.values()]
        fields = [f"k{i} {key.type}" for i, key in enumerate(plan.keys)]
        fields += [f"a{i} {aggregate.type}" for i, aggregate in enumerate(plan.aggregates)]
        df = spark.createDataFrame(rows, ", ".join([*fields, "__diff bigint"]))
        return view.catalyst.finish(df, keep=("__diff",))

    return finish


@pytest.fixture(scope="session")
def shown() -> Callable[[DataFrame, bool], list[str]]:
    """The rows of an answer as text, sorted where the query does not order them."""

    def show(df: DataFrame, ordered: bool) -> list[str]:
        lines = [repr(key_of(row)) for row in df.collect()]
        return lines if ordered else sorted(lines)

    return show


TABLES = {
    "region": "r_regionkey int NOT NULL, r_name string NOT NULL",
    "nation": "n_nationkey int NOT NULL, n_name string NOT NULL, n_regionkey int",
    "supplier": "s_suppkey int NOT NULL, s_nationkey int",
    "customer": "c_custkey int NOT NULL, c_name string, c_nationkey int, c_acctbal decimal(12,2), c_segment string",
    "orders": "o_orderkey int NOT NULL, o_custkey int, o_orderdate date NOT NULL, o_priority int NOT NULL",
    "lineitem": "l_orderkey int, l_suppkey int, l_price decimal(12,2) NOT NULL, l_discount decimal(12,2) NOT NULL,"
    " l_shipdate date, l_returned string",
    "sales": "store int, item string, day date, units int, price decimal(8,2) NOT NULL, weight double",
    "store": "store int, city string, size double, open boolean",
    "item": "item string, kind string, cost decimal(10,3), grade smallint NOT NULL",
    "f": "x double, g float, n bigint NOT NULL, m int, small int NOT NULL",
    "g": "x double, g float, n int, y double NOT NULL",
    "wide": "n bigint, w decimal(30,10) NOT NULL, u decimal(30,10) NOT NULL",
}


def fields(ddl: str) -> list[tuple[str, SqlType, bool]]:
    parts = [part.split(" ", 1) for part in ddl.replace(", ", ";").split(";")]
    return [(n, SqlType.parse(t.removesuffix(" NOT NULL")), not t.endswith(" NOT NULL")) for n, t in parts]


def value(pick: random.Random, type: SqlType, nullable: bool) -> object:
    if nullable and pick.random() < 0.2:
        return None
    if type.is_decimal:
        return Decimal(pick.randint(-500, 500)).scaleb(-type.scale)
    return {
        "string": lambda: pick.choice("ABC"),
        "double": lambda: pick.choice([0.0, -0.0, 1.0, 2.5, float("nan")]) if nullable else pick.choice([1.0, -2.5]),
        "float": lambda: pick.choice([0.0, -0.0, 1.0, float("nan")]),
        "date": lambda: date(1995, 3, 1) + timedelta(days=pick.randint(0, 20)),
        "boolean": lambda: pick.random() < 0.6,
    }.get(type.kind, lambda: pick.randint(0, 3))()


@pytest.fixture(scope="session")
def tables(spark: SparkSession) -> dict[str, DataFrame]:
    pick = random.Random(11)
    frames = {}
    for name, ddl in TABLES.items():
        rows = [tuple(value(pick, type, null) for _, type, null in fields(ddl)) for _ in range(8)]
        frames[name] = spark.createDataFrame(rows + rows[:1], ddl).coalesce(1).cache()
        frames[name].createOrReplaceTempView(name)
    return frames


@pytest.fixture(scope="session")
def new_shop(spark: SparkSession) -> Callable[..., SqlSession]:
    def session(ansi: bool = True) -> SqlSession:
        shop = SqlSession(spark, {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": str(ansi).lower()})
        for name, ddl in TABLES.items():
            shop.register(name, fields(ddl))
        return shop

    return session


@pytest.fixture(scope="session")
def shop(new_shop: Callable[..., SqlSession]) -> SqlSession:
    return new_shop()

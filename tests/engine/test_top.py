"""The first rows inside a query, through the front door: random types, orders and changes, beside Spark and DuckDB."""

from __future__ import annotations

import math
import random
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.seeds import drawn

import headrace as hr
from headrace.relation.schema import DIFF
from headrace.testing.oracle import Oracle

LONG = "strings that begin alike "
COLUMNS: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "i": ("INT", pa.int32(), [-(2**31), -1, 0, 1, 2**31 - 1]),
    "x": ("DOUBLE", pa.float64(), [0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf]),
    "f": ("FLOAT", pa.float32(), [0.0, 0.5, math.nan, -math.inf]),
    "s": ("STRING", pa.string(), ["", "a", "ab", "é", "\U0001f600", *(LONG + tail for tail in ("", "a", "b", "ba"))]),
    "d": ("DECIMAL(30,4)", pa.decimal128(30, 4), [Decimal("0.0001"), Decimal("-0.0001"), Decimal(10**25)]),
    "t": ("TIMESTAMP", pa.timestamp("us", "UTC"), [datetime(y, 1, 1, tzinfo=UTC) for y in (1950, 1970, 2026)]),
    "u": ("DATE", pa.date32(), [date(1950, 1, 1), date(1970, 1, 1), date(2026, 2, 3)]),
    "b": ("BOOLEAN", pa.bool_(), [False, True]),
}
NAMES = ("id", *COLUMNS)
Row = tuple[Any, ...]


def table(rows: list[tuple[Row, int]]) -> pa.Table:
    kinds = [pa.int64(), *(kind for _, kind, _ in COLUMNS.values())]
    arrays = [pa.array([row[i] for row, _ in rows], kind) for i, kind in enumerate(kinds)]
    return pa.table([*arrays, pa.array([diff for _, diff in rows], pa.int64())], names=[*NAMES, DIFF])


def random_top(choose: random.Random) -> str:
    """What is kept of the first rows of an order that leaves nothing to chance."""
    chosen = choose.sample(list(COLUMNS), choose.randint(1, 3))
    order = [f"{n} {choose.choice(['ASC', 'DESC'])} NULLS {choose.choice(['FIRST', 'LAST'])}" for n in chosen]
    limit = choose.choice(["LIMIT 1", "LIMIT 7", "LIMIT 4 OFFSET 5", "LIMIT 40", "OFFSET 12"])
    inside = f"SELECT id, {', '.join(chosen)} FROM big ORDER BY {', '.join(order)}, id {limit}"
    kept = "id % 3 AS part, count(*) AS n, CAST(sum(id) AS BIGINT) AS ids, min(id) AS least"
    return f"SELECT {kept} FROM ({inside}) GROUP BY id % 3"


def rows_of(found: pa.Table) -> Counter[Row]:
    return Counter(tuple(row.values()) for row in found.to_pylist())


@pytest.mark.parametrize(
    ("executor", "seed"), [*(("inline", seed) for seed in drawn("engine top", 3)), ("spark", drawn("spark top", 1)[0])]
)
def test_first_rows_under_random_changes_are_those_that_spark_and_duckdb_find(
    spark: SparkSession, tmp_path: object, executor: str, seed: int
) -> None:
    choose = random.Random(seed)
    queries = [random_top(choose) for _ in range(3 if executor == "inline" else 1)]
    there: dict[int, Row] = {}
    where = f"{tmp_path}/s"
    engine = hr.Engine(spark, where, executor=executor, buckets=2)
    engine.table(
        "big", ", ".join(["id BIGINT NOT NULL", *(f"{n} {kind}" for n, (kind, _, _) in COLUMNS.items())]), key="id"
    )
    for number, query in enumerate(queries):
        engine.view(f"v{number}", query)
    oracle, last = Oracle(spark), 0
    for step in range(6):
        changes = []
        for row in choose.sample(list(there.values()), len(there) * choose.choice([0, 1, 2]) // 3):
            changes.append((row, -1))
            del there[row[0]]
        for _ in range(choose.choice([1, 30, 80])):
            last += 1
            row = (last, *(None if choose.random() < 0.15 else choose.choice(pool) for _, _, pool in COLUMNS.values()))
            there[last] = row
            changes.append((row, 1))
        engine.apply({"big": table(changes)})
        if step == 3:
            engine.compact()
            engine.close()
            engine = hr.Engine(spark, where, executor=executor)
        big = table([(row, 1) for row in there.values()]).drop_columns([DIFF])
        oracle.set_rows({"big": big})
        for number, query in enumerate(queries):
            view = engine.views[f"v{number}"]
            assert "behind its first rows" in view.explain().step
            got = rows_of(view.to_arrow())
            assert got == rows_of(oracle.answer(query).cast(view.schema)), query
            with duckdb.connect() as database:
                database.register("big", big)
                assert got == rows_of(database.sql(query).to_arrow_table().cast(view.schema)), query
    engine.close()

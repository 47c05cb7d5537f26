"""Membership in the groups of a subquery, under random streams against Spark, which runs the subquery."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.relation.schema import DIFF
from headrace.testing.oracle import Oracle, assert_same

LARGE = "(SELECT l_order FROM line GROUP BY l_order HAVING SUM(quantity) > 6 OR COUNT(*) > 3)"
ONE = f"SELECT l_order, COUNT(*) AS n, MAX(quantity) AS most FROM line WHERE l_order IN {LARGE} GROUP BY l_order"
JOINED = f"""SELECT who, o_order, SUM(quantity) AS total FROM orders, line
             WHERE o_order IN {LARGE} AND o_order = l_order AND who <> 'z' GROUP BY who, o_order
             ORDER BY total DESC LIMIT 3"""
LINE = pa.schema([("l_order", pa.int32()), ("number", pa.int32()), ("quantity", pa.int32())])
ORDERS = pa.schema([("o_order", pa.int32()), ("who", pa.string())])


def change(
    rng: random.Random, rows: dict[tuple[int, ...], tuple[object, ...]], make: object
) -> list[tuple[object, ...]]:
    """A few rows that come and go, by key."""
    out = []
    for _ in range(rng.randint(1, 8)):
        if rows and rng.random() < 0.4:
            out.append((*rows.pop(rng.choice(sorted(rows))), -1))
        else:
            key, row = make()  # type: ignore[operator]
            if key not in rows:
                rows[key] = row
                out.append((*row, 1))
    return out


def table_of(schema: pa.Schema, rows: list[tuple[object, ...]], diff: bool) -> pa.Table:
    schema = schema.append(pa.field(DIFF, pa.int64())) if diff else schema
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    return pa.table([pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


@pytest.mark.parametrize("seed", range(4))
def test_membership_under_a_random_stream(spark: SparkSession, tmp_path: object, seed: int) -> None:
    rng = random.Random(seed)
    lines: dict[tuple[int, ...], tuple[object, ...]] = {}
    orders: dict[tuple[int, ...], tuple[object, ...]] = {}

    def line() -> tuple[tuple[int, ...], tuple[object, ...]]:
        key = rng.randrange(5), rng.randrange(6)
        return key, (*key, rng.choice([None, 1, 2, 3]))

    def order() -> tuple[tuple[int, ...], tuple[object, ...]]:
        key = rng.randrange(5)
        return (key,), (key, rng.choice("abz"))

    oracle = Oracle(spark)
    with hr.Engine(spark, f"{tmp_path}/s", executor="inline", buckets=2) as engine:
        engine.table("orders", "o_order INT, who STRING", key="o_order")
        engine.table("line", "l_order INT, number INT, quantity INT", key=["l_order", "number"])
        views = [engine.view("one", ONE), engine.view("joined", JOINED, strategy="foreign-key")]
        for _ in range(5):
            changes = {
                "line": table_of(LINE, change(rng, lines, line), True),
                "orders": table_of(ORDERS, change(rng, orders, order), True),
            }
            engine.apply(changes)
            oracle.set_rows(
                {
                    "line": table_of(LINE, list(lines.values()), False),
                    "orders": table_of(ORDERS, list(orders.values()), False),
                }
            )
            assert_same(views[0].to_arrow(), oracle.answer(ONE))
            ties_broken = JOINED.replace("total DESC", "total DESC, who, o_order")
            assert_same(views[1].to_arrow(), oracle.answer(ties_broken))


def test_nulls_are_in_no_group(spark: SparkSession, tmp_path: object) -> None:
    with hr.Engine(spark, f"{tmp_path}/s", executor="inline") as engine:
        engine.table("line", "l_order INT, number INT, quantity INT")
        view = engine.view("one", ONE)
        engine.apply({"line": table_of(LINE, [(None, 1, 9), (2, 1, 9), (3, 1, 1)], False)})
        assert view.to_arrow().to_pylist() == [{"l_order": 2, "n": 1, "most": 9}]


NOT_IN = "SELECT a FROM l WHERE a NOT IN (SELECT b FROM (SELECT DISTINCT b, c FROM r))"


def test_every_bucket_knows_whether_the_values_of_not_in_are_any(spark: SparkSession, tmp_path: Path) -> None:
    """The values came to some buckets only, where the subquery had them by bucket already; NULL lay in another."""
    with hr.Engine(spark, tmp_path / "state", buckets=8, executor="inline") as engine:
        engine.table("l", "a INT")
        engine.table("r", "b INT, c INT")
        view = engine.view("v", NOT_IN, strategy="operators")
        engine.apply({"l": pa.table({"a": pa.array([None, *range(20)], pa.int32())})})
        for value in range(10):
            row = pa.table({"b": pa.array([value], pa.int32()), "c": pa.array([0], pa.int32())})
            engine.apply({"r": row})
            assert sorted(view.to_arrow().column("a").to_pylist()) == [i for i in range(20) if i != value]
            engine.apply({"r": row.append_column(DIFF, pa.array([-1]))})
            assert view.to_arrow().num_rows == 21

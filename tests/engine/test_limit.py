"""LIMIT through the front door: the top of the answer under random streams, and how it refills when rows leave."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.relation.schema import DIFF, TableSchema
from headrace.testing.changes import TableModel
from headrace.testing.oracle import Oracle
from headrace.testing.queries import random_query, random_schema


def rows_of(table: pa.Table) -> list[str]:
    return [repr(tuple(row.values())) for row in table.to_pylist()]


def register(engine: hr.Engine, schema: TableSchema) -> None:
    engine.table("t", pa.schema([pa.field(c.name, c.type.arrow, c.nullable) for c in schema.columns]), key=schema.key)


def limited(rng: random.Random, schema: TableSchema) -> tuple[str, str]:
    """A query with a LIMIT, and one that says the same with every tie spelled out."""
    body = random_query(rng, schema)
    count = body.split(" FROM ")[0].count(" AS o")
    names = [f"o{i}" for i in range(count)]
    chosen = rng.sample(names, rng.randint(0, count))
    order = [f"{n} {rng.choice(['ASC', 'DESC'])} NULLS {rng.choice(['FIRST', 'LAST'])}" for n in chosen]
    limit = rng.choice([0, 1, 3, 1000])
    asked = f"{body}{' ORDER BY ' + ', '.join(order) if order else ''} LIMIT {limit}"
    total = ", ".join([*order, *(f"{n} ASC NULLS FIRST" for n in names if n not in chosen)])
    return asked, f"SELECT * FROM ({body}) ORDER BY {total} LIMIT {limit}"


@pytest.mark.parametrize(("executor", "seed"), [*(("inline", seed) for seed in range(10)), ("spark", 10)])
def test_a_random_stream_gives_the_top_of_what_spark_recomputes(
    spark: SparkSession, tmp_path: object, executor: str, seed: int
) -> None:
    rng = random.Random(seed)
    schema = random_schema(rng)
    model, oracle = TableModel(schema, rng), Oracle(spark)
    with hr.Engine(spark, f"{tmp_path}/s", executor=executor, buckets=2) as engine:
        register(engine, schema)
        queries = [limited(rng, schema) for _ in range(2)]
        views = [engine.view(f"v{i}", asked) for i, (asked, _) in enumerate(queries)]
        for step in range(3):
            before = [view.to_arrow() for view in views]
            engine.apply({"t": model.change(rng.randint(1, 25))})
            oracle.set_rows({"t": model.to_arrow()})
            for view, (_, spelled_out), earlier in zip(views, queries, before, strict=True):
                now = view.to_arrow()
                assert rows_of(now) == rows_of(oracle.answer(spelled_out).cast(view.schema)), view.sql
                if step == 2:
                    assert rows_of(view.to_df().toArrow().cast(view.schema)) == rows_of(now)
                assert view.rows == now.num_rows
                assert_leads(earlier, view.changes(), now)


def assert_leads(before: pa.Table, changes: pa.Table, after: pa.Table) -> None:
    """The rows before, with the changes, are the rows after, and no change undoes another."""
    expected = Counter(rows_of(after))
    expected.subtract(rows_of(before))
    got = {}
    for row in changes.to_pylist():
        n = row.pop(DIFF)
        assert repr(tuple(row.values())) not in got
        got[repr(tuple(row.values()))] = n
    assert got == {row: n for row, n in expected.items() if n}


@pytest.fixture
def engine(spark: SparkSession, tmp_path: object) -> hr.Engine:
    engine = hr.Engine(spark, f"{tmp_path}/s", executor="inline", buckets=2)
    engine.table("sales", "shop STRING, amount INT")
    yield engine
    engine.close()


def sales(*rows: tuple[str | None, int | None, int]) -> dict[str, pa.Table]:
    shops, amounts, diff = zip(*rows, strict=True)
    columns = {"shop": pa.array(shops, pa.string()), "amount": pa.array(amounts, pa.int32()), DIFF: pa.array(diff)}
    return {"sales": pa.table(columns)}


def test_a_group_that_leaves_the_top_makes_room_for_the_next(engine: hr.Engine) -> None:
    view = engine.view(
        "best", "SELECT shop, SUM(amount) AS total FROM sales GROUP BY shop ORDER BY total DESC NULLS LAST LIMIT 2"
    )
    assert view.rows == view.to_arrow().num_rows == 0
    engine.apply(sales(("a", 5, 1), ("b", 3, 1), ("c", 3, 1), ("d", None, 1)))
    assert view.to_arrow().to_pylist() == [{"shop": "a", "total": 5}, {"shop": "b", "total": 3}]
    assert view.rows == 2
    engine.apply(sales(("a", 5, -1)))
    assert view.to_arrow().column("shop").to_pylist() == ["b", "c"]
    assert Counter(map(str, view.changes().to_pylist())) == Counter(
        ["{'shop': 'a', 'total': 5, '__diff': -1}", "{'shop': 'c', 'total': 3, '__diff': 1}"]
    )
    engine.apply(sales(("d", None, 4)))
    assert view.changes().num_rows == 0, "what is below the limit is not shown, and neither is its change"
    engine.apply(sales(("b", 3, -1), ("c", 3, -1)))
    assert view.to_arrow().to_pylist() == [{"shop": "d", "total": None}]
    assert view.rows == 1
    engine.apply(sales(("d", None, -5)))
    assert view.rows == 0
    assert view.changes().to_pylist() == [{"shop": "d", "total": None, DIFF: -1}]


def test_copies_of_a_row_each_take_a_place(engine: hr.Engine) -> None:
    view = engine.view("low", "SELECT amount FROM sales LIMIT 3")
    engine.apply(sales(("a", 2, 2), ("b", None, 1), ("c", 1, 1), ("d", 2, 5)))
    assert view.to_arrow().column("amount").to_pylist() == [None, 1, 2]
    engine.apply(sales(("c", 1, -1)))
    assert view.to_arrow().column("amount").to_pylist() == [None, 2, 2]
    assert sorted(view.changes().to_pylist(), key=str) == [{"amount": 1, DIFF: -1}, {"amount": 2, DIFF: 1}]
    engine.apply(sales(("b", None, 6)))
    assert view.changes().to_pylist() == [{"amount": None, DIFF: 2}, {"amount": 2, DIFF: -2}]


def test_limit_zero_is_an_empty_answer_that_never_changes(engine: hr.Engine) -> None:
    views = [
        engine.view("none", "SELECT shop FROM sales LIMIT 0"),
        engine.view("zero", "SELECT COUNT(*) AS n FROM sales LIMIT 0"),
    ]
    engine.apply(sales(("a", 2, 2)))
    for view in views:
        assert view.rows == view.to_arrow().num_rows == view.to_df().count() == 0
        assert view.changes().num_rows == 0


def test_a_total_is_one_row_whatever_the_limit(engine: hr.Engine) -> None:
    view = engine.view("n", "SELECT COUNT(DISTINCT shop) AS n FROM sales LIMIT 4")
    engine.apply(sales(("a", 2, 2), ("b", 1, 1)))
    assert view.to_arrow().to_pylist() == [{"n": 2}]
    assert view.rows == 1
    assert sorted(view.changes().to_pylist(), key=str) == [{"n": 0, DIFF: -1}, {"n": 2, DIFF: 1}]


def test_a_limit_after_having_and_computed_columns(engine: hr.Engine) -> None:
    view = engine.view(
        "big",
        "SELECT upper(shop) AS who, SUM(amount) * 2 AS twice FROM sales GROUP BY shop HAVING COUNT(*) > 1"
        " ORDER BY twice DESC LIMIT 1",
    )
    engine.apply(sales(("a", 5, 1), ("b", 3, 2), ("c", 2, 2)))
    assert view.to_arrow().to_pylist() == view.to_df().toArrow().to_pylist() == [{"who": "B", "twice": 12}]
    engine.apply(sales(("a", 1, 1), ("b", 3, -1)))
    assert view.to_arrow().to_pylist() == [{"who": "A", "twice": 12}]
    assert Counter(map(str, view.changes().to_pylist())) == Counter(
        ["{'who': 'B', 'twice': 12, '__diff': -1}", "{'who': 'A', 'twice': 12, '__diff': 1}"]
    )


def test_a_limited_view_survives_a_restart(spark: SparkSession, tmp_path: object) -> None:
    sql = "SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop ORDER BY n DESC LIMIT 1"
    with hr.Engine(spark, f"{tmp_path}/s", executor="inline") as engine:
        engine.table("sales", "shop STRING, amount INT")
        engine.view("most", sql)
        engine.apply(sales(("a", 1, 3), ("b", 1, 2)))
    with hr.Engine(spark, f"{tmp_path}/s", executor="inline") as engine:
        engine.apply(sales(("a", 1, -2)))
        assert engine.views["most"].to_arrow().to_pylist() == [{"shop": "b", "n": 2}]

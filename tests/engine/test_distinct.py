"""DISTINCT values through the front door: random streams against Spark, one batch against its rows, and restarts."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.relation.schema import DIFF, TableSchema
from headrace.testing.changes import TableModel
from headrace.testing.oracle import Oracle, assert_same
from headrace.testing.queries import random_schema


def distinct_query(rng: random.Random, schema: TableSchema) -> str:
    """Several DISTINCT aggregates, some with a FILTER, beside the others; with or without groups."""
    names = schema.names
    pick = lambda: rng.choice(names)  # noqa: E731
    items = [f"COUNT(DISTINCT {pick()})"]
    items += [f"COUNT(DISTINCT {pick()}) FILTER (WHERE {pick()} IS NOT NULL)"] * rng.randint(0, 1)
    items += [f"COUNT(DISTINCT CAST({pick()} AS STRING))", f"MAX({pick()})", f"COUNT({pick()})", "COUNT(*)"][
        : rng.randint(0, 4)
    ]
    items += [f"COUNT(DISTINCT {pick()}, {pick()})", f"COUNT(DISTINCT {', '.join(names)})"][: rng.randint(0, 2)]
    items += [f"COUNT(DISTINCT {pick()}, {pick()}) FILTER (WHERE {pick()} IS NOT NULL)"] * rng.randint(0, 1)
    numeric = [column.name for column in schema.columns if column.type.is_numeric]
    for x in rng.choices(numeric, k=rng.randint(0, 3) if numeric else 0):
        items += [rng.choice([f"SUM({x})", f"SUM(DISTINCT {x})", f"AVG(DISTINCT {x})", f"SUM(DISTINCT {x}) + 1"])]
    key = rng.choice([None, pick()])
    select = ", ".join(f"{item} AS o{i}" for i, item in enumerate([*([key] if key else []), *items]))
    having = f" HAVING COUNT(DISTINCT {pick()}) > 1" if rng.random() < 0.3 else ""
    return f"SELECT {select} FROM {schema.name}{f' GROUP BY {key}' if key else ''}{having}"


def register(engine: hr.Engine, schema: TableSchema) -> None:
    engine.table("t", pa.schema([pa.field(c.name, c.type.arrow, c.nullable) for c in schema.columns]), key=schema.key)


@pytest.mark.parametrize(("executor", "seed"), [*(("inline", seed) for seed in range(8)), ("spark", 8), ("spark", 9)])
def test_a_random_stream_gives_what_spark_recomputes(
    spark: SparkSession, tmp_path: object, executor: str, seed: int
) -> None:
    rng = random.Random(seed)
    schema = random_schema(rng)
    model, oracle = TableModel(schema, rng), Oracle(spark)
    with hr.Engine(spark, f"{tmp_path}/s", executor=executor, buckets=2) as engine:
        register(engine, schema)
        views = [engine.view(f"v{i}", distinct_query(rng, schema)) for i in range(2)]
        for step in range(4):
            before = [view.to_arrow() for view in views]
            engine.apply({"t": model.change(rng.randint(1, 30))})
            oracle.set_rows({"t": model.to_arrow()})
            if step == 2:
                views.append(engine.view("late", distinct_query(rng, schema)))
            for view, earlier in zip(views, before, strict=False):
                changes = view.changes()
                later = pa.concat_tables([with_diff(earlier), changes])
                assert_same(repeated(later), view.to_arrow())
            for view in views:
                assert_same(view.to_arrow(), oracle.answer(view.sql))


def with_diff(table: pa.Table) -> pa.Table:
    return table.append_column(DIFF, pa.array([1] * table.num_rows, pa.int64()))


def repeated(changes: pa.Table) -> pa.Table:
    """The rows that are left when the changes are added up."""
    counts: dict[str, int] = {}
    rows = {}
    for at, row in enumerate(changes.to_pylist()):
        times = row.pop(DIFF)
        counts[repr(row)] = counts.get(repr(row), 0) + times
        rows[repr(row)] = at
    assert min(counts.values(), default=0) >= 0
    left = [rows[text] for text, count in counts.items() for _ in range(count)]
    return changes.take(pa.array(left, pa.int64())).drop_columns([DIFF])


def test_one_batch_is_its_rows_one_by_one_and_a_restart_keeps_the_count(spark: SparkSession, tmp_path: object) -> None:
    sql = "SELECT g, COUNT(DISTINCT x) AS n, COUNT(DISTINCT y) AS m, MIN(x) AS low FROM t GROUP BY g"
    rng = random.Random(1)
    rows = [{"g": rng.choice("ab"), "x": rng.choice([None, 1, 2, 3]), "y": "z" * rng.randint(0, 20)} for _ in range(30)]
    changes = [{**row, DIFF: 1} for row in rows] + [{**row, DIFF: -1} for row in rows[:25]]
    schema = pa.schema([("g", pa.string()), ("x", pa.int32()), ("y", pa.string()), (DIFF, pa.int64())])
    answers = []
    for size, name in ((len(changes), "whole"), (1, "single")):
        with hr.Engine(spark, f"{tmp_path}/{name}", executor="inline", buckets=2) as engine:
            engine.table("t", "g STRING, x INT, y STRING")
            engine.view("v", sql)
            for start in range(0, len(changes), size):
                engine.apply({"t": pa.Table.from_pylist(changes[start : start + size], schema)})
        with hr.Engine(spark, f"{tmp_path}/{name}", executor="inline") as engine:
            engine.apply({"t": pa.Table.from_pylist([{**rows[29], DIFF: 1}, {**rows[28], DIFF: -1}], schema)})
            answers.append(engine.views["v"].to_arrow())
    oracle = Oracle(spark)
    oracle.set_rows({"t": pa.Table.from_pylist([*rows[25:28], rows[29], rows[29]], schema.remove(3))})
    for answer in answers:
        assert_same(answer, oracle.answer(sql))


def test_the_total_of_an_empty_table_is_zero(spark: SparkSession, tmp_path: object) -> None:
    with hr.Engine(spark, f"{tmp_path}/s", executor="inline") as engine:
        engine.table("t", "x INT")
        view = engine.view("v", "SELECT COUNT(DISTINCT x) AS n FROM t")
        row = pa.table({"x": pa.array([4], pa.int32())})
        assert view.to_arrow().to_pylist() == [{"n": 0}]
        engine.apply({"t": row})
        assert view.to_arrow().to_pylist() == [{"n": 1}]
        engine.apply({"t": row.append_column(DIFF, pa.array([-1]))})
        assert view.to_arrow().to_pylist() == [{"n": 0}]
        assert view.changes().to_pylist() == [{"n": 1, DIFF: -1}, {"n": 0, DIFF: 1}]

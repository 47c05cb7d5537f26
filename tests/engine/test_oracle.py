"""Incremental = recomputed: random schemas, queries, change streams and batchings, on every executor."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from tests.seeds import seeds

import headrace as hr
from headrace.relation.schema import DIFF, TableSchema
from headrace.testing.changes import TableModel
from headrace.testing.oracle import Oracle, assert_same, spark_ddl
from headrace.testing.queries import random_query, random_schema


def register(engine: hr.Engine, schema: TableSchema) -> None:
    columns = pa.schema([pa.field(c.name, c.type.arrow, c.nullable) for c in schema.columns])
    engine.table(schema.name, columns, key=schema.key, references=None)


def check_stream(engine: hr.Engine, oracle: Oracle, seed: int, steps: int, size: int, as_frames: bool = False) -> None:
    """Run a random stream through random views: after every step they equal the oracle, changes() the difference."""
    rng = random.Random(seed)
    schema = random_schema(rng)
    model = TableModel(schema, rng)
    register(engine, schema)
    queries = [random_query(rng, schema) for _ in range(3)]
    views = {f"v{i}": engine.view(f"v{i}", sql) for i, sql in enumerate(queries[:2])}
    before = {name: view.to_arrow() for name, view in views.items()}
    for step in range(steps):
        changes = model.change(rng.randint(0, size))
        frame = engine.spark.createDataFrame(changes, spark_ddl(changes.schema)) if as_frames else None
        engine.apply({"t": changes if frame is None else frame})
        oracle.set_rows({"t": model.to_arrow()})
        if step == steps // 2:  # a view that comes late is filled from the table
            views["v2"] = engine.view("v2", queries[2])
            before["v2"] = views["v2"].to_arrow()
        expected = oracle.answers([view.sql for view in views.values()])
        for (name, view), right in zip(views.items(), expected, strict=True):
            after = view.to_arrow()
            assert_same(after, right)
            if not (name == "v2" and step == steps // 2):
                assert_changes(before[name], view.changes(), after)
            before[name] = after
        assert_same(engine.tables["t"].to_arrow(), model.to_arrow())


def assert_changes(before: pa.Table, changes: pa.Table, after: pa.Table) -> None:
    """The answer before, plus the changes, is the answer after."""
    counts: dict[tuple[object, ...], int] = {}
    for table in (before, changes, after):
        sign = -1 if table is after else 1
        diff = table.column(DIFF).to_pylist() if DIFF in table.column_names else [1] * table.num_rows
        names = [name for name in table.column_names if name != DIFF]
        rows = list(zip(*[table.column(name).to_pylist() for name in names], strict=True))
        for row, times in zip(rows, diff, strict=True):
            key = tuple(repr(value) for value in row)
            counts[key] = counts.get(key, 0) + sign * times
    wrong = {key: count for key, count in counts.items() if count}
    assert not wrong, f"changes do not lead from the answer before to the answer after: {wrong}"


@seeds("one table", 12, check=2)
def test_inline(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    with hr.Engine(spark, tmp_path / "s", executor="inline", buckets=3) as engine:
        check_stream(engine, Oracle(spark), seed, steps=4, size=30)


@seeds("one table on Spark", 6)
def test_on_spark(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    with hr.Engine(spark, tmp_path / "s", executor="spark", buckets=3) as engine:
        check_stream(engine, Oracle(spark), seed, steps=3, size=40, as_frames=seed % 2 == 0)


@seeds("splits", 8)
def test_one_batch_equals_any_split(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    schema = random_schema(rng)
    model = TableModel(schema, rng)
    queries = [random_query(rng, schema) for _ in range(2)]
    batches = [model.change(20) for _ in range(4)]
    whole = pa.concat_tables(batches)
    answers = []
    for parts, buckets in (([whole], 1), (batches, 4), ([whole.slice(i, 1) for i in range(whole.num_rows)], 2)):
        with hr.Engine(spark, tmp_path / f"{len(answers)}", executor="inline", buckets=buckets) as engine:
            register(engine, schema)
            views = [engine.view(f"v{i}", sql) for i, sql in enumerate(queries)]
            if parts[0] is not whole and len(parts) > 4:
                parts = _in_valid_order(batches)
            for part in parts:
                engine.apply({"t": part})
            answers.append([view.to_arrow() for view in views])
    for one, *others in zip(*answers, strict=True):
        for other in others:
            assert_same(other, one)


def _in_valid_order(batches: list[pa.Table]) -> list[pa.Table]:
    """Single rows, deletions of a batch first: then every prefix is a valid state unless the batch re-used a key."""
    out = []
    for batch in batches:
        order = sorted(range(batch.num_rows), key=lambda i: batch.column(DIFF)[i].as_py())
        rows = [batch.slice(i, 1) for i in order]
        out += _cancelled(rows)
    return out


def _cancelled(rows: list[pa.Table]) -> list[pa.Table]:
    """Drop pairs that insert and delete the same row within one batch: alone, neither would be valid in any order."""
    kept: list[pa.Table] = []
    for row in rows:
        values = {k: v for k, v in row.to_pylist()[0].items() if k != DIFF}
        for i, other in enumerate(kept):
            earlier = other.to_pylist()[0]
            if (
                earlier[DIFF] == -row.column(DIFF)[0].as_py()
                and {k: v for k, v in earlier.items() if k != DIFF} == values
            ):
                del kept[i]
                break
        else:
            kept.append(row)
    return kept

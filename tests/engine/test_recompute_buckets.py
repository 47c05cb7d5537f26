"""Recomputed views by bucket: tasks compare and store their rows, and the driver sees none of them."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame

import headrace as hr
from headrace.engine import frames
from headrace.relation.schema import DIFF, Column, TableSchema
from headrace.relation.types import SqlType
from headrace.runtime.program import view_arrangement
from headrace.testing.changes import TableModel
from headrace.testing.oracle import Oracle

NAN = float("nan")
ROWS = "SELECT k, x, s FROM t ORDER BY s DESC NULLS LAST, x, k NULLS FIRST"
GROUPS = "SELECT x, count(*) AS n, max(s) AS top FROM t GROUP BY x ORDER BY n DESC, x"


def shown(table: pa.Table) -> list[str]:
    """Rows as text, in which a NaN equals another."""
    return [repr(tuple(row.values())) for row in table.to_pylist()]


def difference(before: pa.Table, after: pa.Table) -> Counter[str]:
    found = Counter(shown(after))
    found.subtract(shown(before))
    return Counter({row: times for row, times in found.items() if times})


def changed(view: hr.View) -> Counter[str]:
    changes, found = view.changes(), Counter[str]()
    for row, diff in zip(shown(changes.drop_columns([DIFF])), changes.column(DIFF).to_pylist(), strict=True):
        found[row] += diff
    return found


def buckets_of(engine: hr.Engine, view: str) -> set[int]:
    """The buckets that have rows of a view."""
    states = engine._store.snapshot.arrangements[view_arrangement(view, "answer")]
    return {bucket for bucket, state in states.items() if state.runs}


def check_stream(engine: hr.Engine, oracle: Oracle, seed: int, sizes: tuple[int, ...]) -> None:
    """Make views over random rows, and compare them and their changes with Spark's answers after every step."""
    columns = [Column("k", SqlType("int")), Column("x", SqlType("double")), Column("s", SqlType("string"))]
    model = TableModel(TableSchema.of("t", columns), random.Random(seed))
    engine.table("t", "k INT, x DOUBLE, s STRING")
    engine.apply({"t": model.change(10)})
    views = {sql: engine.view(name, sql, refresh="full") for name, sql in (("r", ROWS), ("g", GROUPS))}
    for size in sizes:
        before = {sql: view.to_arrow() for sql, view in views.items()}
        step = engine.apply({"t": model.change(size)})
        oracle.set_rows({"t": model.to_arrow()})
        for sql, view in views.items():
            wanted = difference(before[sql], view.to_arrow())
            assert shown(view.to_arrow()) == shown(oracle.answer(sql).cast(view.schema))
            assert changed(view) == wanted
            assert step.views[view.name].inserted == sum(times for times in wanted.values() if times > 0)
            assert step.views[view.name].deleted == -sum(times for times in wanted.values() if times < 0)
        view = views[ROWS]
        assert shown(view.to_df().toArrow().cast(view.schema)) == shown(view.to_arrow())


@pytest.mark.parametrize(("buckets", "seed"), [(1, 1), (3, 2), (8, 4)])
def test_a_random_stream_gives_what_spark_answers(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buckets: int, seed: int
) -> None:
    monkeypatch.setattr(frames, "_SMALL_BUCKET", 0)  # so that DataFrames have a task per bucket, as for large answers
    with hr.Engine(spark, tmp_path / "s", buckets=buckets) as engine:
        check_stream(engine, Oracle(spark), seed, sizes=(60, 20))
        assert len(buckets_of(engine, "r")) > buckets // 2


def table(*rows: tuple[Any, ...], diff: int = 1) -> pa.Table:
    k, x, s = zip(*rows, strict=True)
    columns = {"k": pa.array(k, pa.int32()), "x": pa.array(x, pa.float64()), "s": pa.array(s, pa.string())}
    return pa.table(columns).append_column(DIFF, pa.array([diff] * len(rows)))


MANY = [(i, i / 2, f"s{i % 7}") for i in range(60)]
ODD = [(None, NAN, None), (None, NAN, None), (1, None, "x"), (1, None, "x"), (2, -0.0, None), (None, NAN, "y")]


def test_the_driver_collects_no_answer(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hr.Engine(spark, tmp_path / "s", buckets=4) as engine:
        engine.table("t", "k INT, x DOUBLE, s STRING")
        engine.apply({"t": table(*MANY, *ODD)})
        engine.view("r", ROWS, refresh="full")
        assert buckets_of(engine, "r") == {0, 1, 2, 3}
    with hr.Engine(spark, tmp_path / "s") as engine, monkeypatch.context() as patched:
        session = engine._maintenance._recomputer._session
        session.conf.set("spark.sql.adaptive.enabled", "true")  # as users have it; other tests go without
        collect, collected = DataFrame.collect, list[Any]()
        patched.setattr(DataFrame, "toArrow", lambda _: pytest.fail("rows come to the driver"))
        patched.setattr(DataFrame, "collect", lambda frame: collected.append(frame.schema) or collect(frame))
        before = engine.views["r"].to_arrow()
        step = engine.apply({"t": pa.concat_tables([table(*ODD[::2], diff=-1), table((3, NAN, "new"), *ODD[4:])])})
        assert [schema.simpleString() for schema in collected] == ["struct<result:binary>"]
        assert step.views == {"r": hr.ViewChange(inserted=2, deleted=2)}
        now = engine.views["r"].to_arrow()
        assert changed(engine.views["r"]) == difference(before, now)
        assert changed(engine.views["r"]) == Counter(
            {repr((None, NAN, None)): -1, repr((1, None, "x")): -1, repr((3, NAN, "new")): 1, repr(ODD[5]): 1}
        )
        order = now.column("s").to_pylist()
        assert order == sorted((s for s in order if s is not None), reverse=True) + [None] * order.count(None)


def test_an_answer_that_becomes_empty(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path / "s", buckets=4) as engine:
        engine.table("t", "k INT, x DOUBLE, s STRING")
        engine.apply({"t": table(*MANY)})
        view = engine.view("r", ROWS, refresh="full")
        engine.sync()
        files = {path.name for path in (engine.location / "runs").iterdir()}
        assert files == engine._store.snapshot.files()  # the changes of filling a view are nobody's
        step = engine.apply({"t": table(*MANY, diff=-1)})
        assert (view.rows, step.views) == (0, {"r": hr.ViewChange(deleted=60)})
        assert (view.to_arrow().num_rows, buckets_of(engine, "r")) == (0, set())
        assert view.changes().num_rows == 60 == -sum(view.changes().column(DIFF).to_pylist())
        step = engine.apply({"t": table(*MANY[:3])})
        assert step.views == {"r": hr.ViewChange(inserted=3)}
        assert [row["k"] for row in view.to_arrow().to_pylist()] == [2, 1, 0]

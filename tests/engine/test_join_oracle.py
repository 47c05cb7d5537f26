"""Views over joins, incremental = recomputed: random tables, queries, change streams and strategies, by Spark SQL."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.engine.test_oracle import assert_changes, register
from tests.seeds import seeds

import headrace as hr
from headrace.factorized.join_view import JoinView
from headrace.factorized.maintenance import MaintenancePlan
from headrace.factorized.order_text import to_json
from headrace.factorized.planner import STRATEGIES
from headrace.testing.changes import TableModel
from headrace.testing.joins import Join, random_join, random_join_query, random_order
from headrace.testing.oracle import Oracle, assert_same, spark_ddl


class Stream:
    """Random tables, changes to several of them in a step, and views that are checked after each."""

    def __init__(self, spark: SparkSession, seed: int) -> None:
        self.rng = random.Random(seed)
        self.oracle = Oracle(spark)
        self.join: Join = random_join(self.rng)
        self.models = {schema.name: TableModel(schema, self.rng, spread=3) for schema in self.join.tables}
        self.before: dict[str, pa.Table] = {}

    def register(self, engine: hr.Engine) -> None:
        for schema in self.join.tables:
            register(engine, schema)

    def query(self) -> str:
        return random_join_query(self.rng, self.join)

    def view(self, engine: hr.Engine, name: str, sql: str) -> hr.View:
        """The view by some strategy; factorized now and then by an order that nobody would choose."""
        strategy = self.rng.choice(["auto", "ordered", *STRATEGIES])
        if strategy == "ordered":
            probe = engine.view(f"{name}_probe", sql, strategy="factorized")
            assert probe.planned.factorization is not None
            order = random_order(self.rng, probe.planned.factorization.query, stop=0.3)
            partition = self.rng.choice([None, *probe.planned.factorization.query.join_variables])
            engine.drop(f"{name}_probe")
            view = engine.view(name, sql, order=to_json(order), partition=partition)
        else:
            view = engine.view(name, sql, strategy=strategy)
        self.before[name] = view.to_arrow()
        return view

    def change(self, size: int) -> dict[str, pa.Table]:
        chosen = self.rng.sample(list(self.models), self.rng.randint(1, len(self.models)))
        return {name: self.models[name].change(self.rng.randint(0, size)) for name in chosen}

    def check(self, engine: hr.Engine, changes: bool = True) -> None:
        """Every view equals Spark's answer, and its changes() lead from the answer before to this one."""
        self.oracle.set_rows({name: model.to_arrow() for name, model in self.models.items()})
        asked = list(dict.fromkeys(view.sql for view in engine.views.values()))
        expected = dict(zip(asked, self.oracle.answers(asked), strict=True))
        for name, view in engine.views.items():
            assert isinstance(view, hr.View)
            after = view.to_arrow()
            assert_same(after, expected[view.sql])
            if changes:
                assert_changes(self.before[name], view.changes(), after)
            self.before[name] = after


def check_stream(engine: hr.Engine, seed: int, steps: int, size: int, as_frames: bool = False) -> None:
    stream = Stream(engine.spark, seed)
    stream.register(engine)
    queries = [stream.query() for _ in range(3)]
    for i, sql in enumerate(queries[:2]):
        stream.view(engine, f"v{i}", sql)
    for step in range(steps):
        changes = stream.change(size)
        if as_frames:
            frames = {name: engine.spark.createDataFrame(t, spark_ddl(t.schema)) for name, t in changes.items()}
            engine.apply(frames)
        else:
            engine.apply(changes)
        stream.check(engine)
        if step == 0:  # one more, filled from rows that are there, and one that was there from the start
            stream.view(engine, "late", queries[2])
            stream.view(engine, "again", queries[0])
            stream.check(engine, changes=False)
            assert_same(engine.views["again"].to_arrow(), engine.views["v0"].to_arrow())
    assert not engine.verify()


@seeds("joins", 8)
def test_inline(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    with hr.Engine(spark, tmp_path / "s", executor="inline", buckets=random.Random(seed).choice([1, 3, 4])) as engine:
        check_stream(engine, seed, steps=2, size=25)


@seeds("joins on Spark", 2, check=0)
@pytest.mark.parametrize("as_frames", [False, True])
def test_on_spark(spark: SparkSession, tmp_path: Path, seed: int, as_frames: bool) -> None:
    with hr.Engine(spark, tmp_path / "s", executor="spark", buckets=3) as engine:
        check_stream(engine, seed, steps=2, size=40, as_frames=as_frames)


@seeds("strategies", 3)
def test_every_strategy_says_the_same(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    stream = Stream(spark, seed)
    with hr.Engine(spark, tmp_path / "s", executor="inline", buckets=3) as engine:
        stream.register(engine)
        sql = stream.query()
        views = {strategy: engine.view(strategy.replace("-", "_"), sql, strategy=strategy) for strategy in STRATEGIES}
        summed = {strategy: view.to_arrow() for strategy, view in views.items()}
        for _ in range(4):
            engine.apply(stream.change(30))
            for strategy, view in views.items():
                after = view.to_arrow()
                assert_same(after, views["factorized"].to_arrow())
                assert_changes(summed[strategy], view.changes(), after)
                summed[strategy] = after
        stream.check(engine, changes=False)


def numbered(plan: MaintenancePlan) -> object:
    """What state depends on: the views by number, and the stages that fill them; reasons are for people."""
    return plan.views, [(stage.level, stage.partition, stage.triggers, stage.root) for stage in plan.stages]


@seeds("restarts", 3)
def test_a_restart_changes_nothing(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    stream = Stream(spark, seed)
    root = tmp_path / "s"
    with hr.Engine(spark, root, executor="inline", buckets=3) as engine:
        stream.register(engine)
        engine.apply(stream.change(40))
        for i in range(3):
            stream.view(engine, f"v{i}", stream.query())
        engine.apply(stream.change(40))
        answers = {name: view.to_arrow() for name, view in engine.views.items()}
        plans = {name: view.planned.kernel for name, view in engine.views.items()}
    with hr.Engine(spark, root, executor="inline") as engine:
        for name, view in engine.views.items():
            assert_same(view.to_arrow(), answers[name])
            # Tables have other sizes now, yet the plan is the one that its state was made by.
            kernel = view.planned.kernel
            if isinstance(kernel, JoinView):
                assert numbered(kernel.plan) == numbered(plans[name].plan)
            else:  # a tree of operators, which was estimated cheaper
                assert kernel == plans[name]
        stream.before = answers
        engine.apply(stream.change(40))
        stream.check(engine)


def test_doubles_and_nulls_that_are_joined_on(spark: SparkSession, tmp_path: Path) -> None:
    """0.0 equals -0.0 and NaN equals NaN in a join, NULL equals nothing."""
    sql = "SELECT l.x, COUNT(*) AS n, SUM(l.a * r.b) AS ab FROM l JOIN r ON l.x = r.x GROUP BY l.x"
    values = [0.0, -0.0, float("nan"), None, 1.5, 0.0]
    left = pa.table({"x": pa.array(values, pa.float64()), "a": pa.array(range(6), pa.int64())})
    right = pa.table({"x": pa.array(values[::-1], pa.float64()), "b": pa.array(range(10, 16), pa.int64())})
    oracle = Oracle(spark)
    oracle.set_rows({"l": left, "r": right})
    expected = oracle.answer(sql)
    with hr.Engine(spark, tmp_path / "s", executor="inline", buckets=3) as engine:
        engine.table("l", "x DOUBLE, a BIGINT")
        engine.table("r", "x DOUBLE, b BIGINT")
        views = [engine.view(s.replace("-", "_"), sql, strategy=s) for s in STRATEGIES]
        engine.apply({"l": left})
        engine.apply({"r": right})
        for view in views:
            assert_same(view.to_arrow(), expected)


def test_a_table_joined_with_itself(spark: SparkSession, tmp_path: Path) -> None:
    """One change reaches both copies: the product of the change with itself is part of the answer."""
    sql = "SELECT a.p, COUNT(*) AS n, SUM(b.w) AS w FROM edge a JOIN edge b ON a.q = b.p GROUP BY a.p"
    rng = random.Random(1)
    oracle = Oracle(spark)
    with hr.Engine(spark, tmp_path / "s", executor="inline", buckets=3) as engine:
        table = engine.table("edge", "p INT, q INT, w BIGINT")
        views = [engine.view(s.replace("-", "_"), sql, strategy=s) for s in STRATEGIES]
        model = TableModel(table.schema, rng, spread=3)
        for _ in range(4):
            engine.apply({"edge": model.change(20)})
            oracle.set_rows({"edge": model.to_arrow()})
            expected = oracle.answer(sql)
            for view in views:
                assert_same(view.to_arrow(), expected)


def test_a_product_that_was_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    sql = "SELECT l.k, COUNT(*) AS n, SUM(l.a * r.b) AS ab FROM l CROSS JOIN r GROUP BY l.k"
    total = "SELECT COUNT(*) AS n, SUM(l.a * r.b) AS ab FROM l CROSS JOIN r"
    rng = random.Random(2)
    oracle = Oracle(spark)
    with hr.Engine(spark, tmp_path / "s", executor="inline", buckets=3) as engine:
        tables = [engine.table("l", "k STRING, a BIGINT"), engine.table("r", "b BIGINT")]
        models = {table.name: TableModel(table.schema, rng) for table in tables}
        for i, strategy in enumerate(STRATEGIES):
            engine.view(f"by{i}", sql, strategy=strategy)
            engine.view(f"total{i}", total, strategy=strategy)
        for _ in range(3):
            engine.apply({name: model.change(10) for name, model in models.items()})
            oracle.set_rows({name: model.to_arrow() for name, model in models.items()})
            expected = dict(zip((sql, total), oracle.answers([sql, total]), strict=True))
            for view in engine.views.values():
                assert_same(view.to_arrow(), expected[view.sql])

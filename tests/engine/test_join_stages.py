"""Views over joins whose work goes through several stages, or whose changes are too many for the driver."""

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.factorized import distribution
from headrace.runtime.stages import SPILL_ROWS
from headrace.testing.oracle import Oracle, assert_same

PATH = "SELECT COUNT(*) AS n, SUM(x * w) AS xw, SUM(y) AS y FROM r JOIN s USING (b) JOIN t USING (c) JOIN u USING (d)"
SCHEMAS = {
    "r": "a INT, b INT, x INT",
    "s": "b INT, c INT, y DECIMAL(8, 2)",
    "t": "c INT, d INT",
    "u": "d INT, e STRING, w INT",
}


@pytest.mark.parametrize("executor", ["inline", "spark"])
def test_several_stages_give_what_spark_gives(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: str
) -> None:
    monkeypatch.setattr(distribution, "STAGE_ROWS", 0)
    rng, oracle = random.Random(5), Oracle(spark)
    with hr.Engine(spark, tmp_path / "state", executor=executor, buckets=3) as engine:
        for name, schema in SCHEMAS.items():
            engine.table(name, schema)
        sqls = {"total": PATH, "by_e": PATH.replace("SELECT", "SELECT e, a,") + " GROUP BY e, a"}
        views = {name: engine.view(name, sql) for name, sql in sqls.items()}
        assert all(view.planned.kernel.plan.levels > 1 for view in views.values())
        assert "2." in str(views["total"].explain())
        rows: dict[str, list[tuple]] = {name: [] for name in SCHEMAS}
        for _ in range(3):
            changes = {}
            for name in SCHEMAS:
                new = [_row(name, rng) for _ in range(8)]
                old = [rows[name].pop(rng.randrange(len(rows[name]))) for _ in range(3) if rows[name]]
                rows[name] += new
                table = _table(engine, name, new + old)
                changes[name] = table.append_column("__diff", pa.array([1] * len(new) + [-1] * len(old)))
            engine.apply(changes)
            oracle.set_rows({name: _table(engine, name, rows[name]) for name in SCHEMAS})
            for name, view in views.items():
                assert_same(view.to_arrow(), oracle.answer(sqls[name]))
    with hr.Engine(spark, tmp_path / "state", executor=executor) as engine:
        for name, sql in sqls.items():
            assert_same(engine.views[name].to_arrow(), oracle.answer(sql))


def test_more_groups_than_the_driver_takes_become_a_job_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    groups = 3 * SPILL_ROWS
    with hr.Engine(spark, tmp_path / "state", executor="spark", buckets=4) as engine:
        engine.table("r", "a INT, x INT")
        engine.table("s", "a INT, k INT")
        view = engine.view("v", "SELECT a, k, SUM(x) AS x FROM r JOIN s USING (a) GROUP BY a, k")
        a = np.arange(groups, dtype=np.int32)
        engine.apply({"r": pa.table({"a": a, "x": a % 7}), "s": pa.table({"a": a, "k": a % 3})})
        assert view.rows == groups
        engine.apply(
            {"s": pa.table({"a": a[: groups // 2], "k": (a % 3)[: groups // 2], "__diff": [-1] * (groups // 2)})}
        )
        answer = view.to_arrow().sort_by("a")
        assert answer.column("a").to_pylist() == list(range(groups // 2, groups))
        assert answer.column("x").to_numpy().sum() == (a[groups // 2 :] % 7).sum()
        assert not list((engine.location / "batches").iterdir())


def _row(name: str, rng: random.Random) -> tuple:
    from decimal import Decimal

    small = [rng.randrange(4) if rng.random() < 0.95 else None for _ in range(3)]
    if name == "s":
        return small[0], small[1], None if small[2] is None else Decimal(small[2]) / 4
    if name == "u":
        return small[0], f"e{small[1]}", small[2]
    return tuple(small[:2]) if name == "t" else tuple(small)


def _table(engine: hr.Engine, name: str, rows: list[tuple]) -> pa.Table:
    columns = engine.tables[name].schema.columns
    arrays = [pa.array([row[i] for row in rows], column.type.arrow) for i, column in enumerate(columns)]
    return pa.table(arrays, names=[column.name for column in columns])

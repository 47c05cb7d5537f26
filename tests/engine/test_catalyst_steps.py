"""Steps whose expressions only Catalyst evaluates: in the driver's JVM, or by a job."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.engine import step_runner
from headrace.engine.catalyst_feeds import BetweenOperators
from headrace.errors import StepFailedError
from headrace.runtime import stages
from headrace.testing.oracle import Oracle, assert_same

SQL = "SELECT soundex(name) AS k, COUNT(*) AS n, SUM(100 / x) AS s FROM t WHERE reverse(name) <> 'b' GROUP BY 1"
# What reads the sums per name is evaluated between two operators.
TWICE = "SELECT soundex(name) AS k, MAX(s) AS m FROM (SELECT name, SUM(x) AS s FROM t GROUP BY name) GROUP BY 1"
FAILS_BETWEEN = (
    "SELECT MAX(100 / s) AS m FROM (SELECT name, SUM(x) AS s FROM t GROUP BY name) WHERE soundex(name) <> ''"
)


def changes(*rows: tuple[int, str | None, int, int]) -> pa.Table:
    names = ("id", "name", "x", "__diff")
    return pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


FIRST = changes((1, "ada", 1, 1), (2, "adda", 2, 1), (3, "b", 0, 1), (4, None, 5, 1), (5, "bob", 4, 1))
SECOND = changes((2, "adda", 2, -1), (6, "bop", 3, 1), (5, "bob", 4, -1), (5, "boob", 8, 1))


def answers(spark: SparkSession, location: Path, executor: str) -> list[list[dict[str, object]]]:
    with hr.Engine(spark, location, executor=executor) as engine:
        engine.table("t", "id BIGINT NOT NULL, name STRING, x INT", key="id")
        views = [engine.view("once", SQL), engine.view("twice", TWICE)]
        found = []
        for given in (FIRST, SECOND):
            step = engine.apply({"t": given})
            found += [sorted(view.to_arrow().to_pylist(), key=repr) for view in views]
        assert step.ran == ("job" if executor == "spark" else "driver")
        assert "Catalyst evaluates expressions of once" in step.why
        assert ("without a job" in step.why) == (step.ran == "driver")
    return found


def test_the_driver_and_a_job_give_the_same(spark: SparkSession, tmp_path: Path) -> None:
    here = answers(spark, tmp_path / "here", "auto")
    assert here[0] == [{"k": "A300", "n": 2, "s": 150.0}, {"k": "B100", "n": 1, "s": 25.0}]
    assert {"k": "B100", "m": 8} in here[3]
    assert answers(spark, tmp_path / "by_job", "spark") == here


TYPED = """
    SELECT soundex(name) AS k, d, t, m, b, COUNT(*) AS n
    FROM (SELECT name, d, t, m, b, SUM(x) AS s FROM u GROUP BY name, d, t, m, b) WHERE reverse(name) <> 'x' OR s > 1
    GROUP BY ALL"""
EXCEPT = "SELECT soundex(name) AS k, COUNT(*) AS n FROM (SELECT name FROM u EXCEPT ALL SELECT name FROM t) GROUP BY 1"


def many(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": [None if i % 11 == 0 else f"n{chr(97 + i % 7)}{chr(97 + i % 5)}" for i in ids],
            "x": pa.array([i % 3 for i in ids], pa.int32()),
            "d": pa.array([i % 4 for i in ids], pa.int32()).cast(pa.date32()),
            "t": pa.array([i % 3 * 1_000_001 for i in ids], pa.timestamp("us", tz="UTC")),
            "m": pa.array([i % 2 for i in ids], pa.int32()).cast(pa.decimal128(10, 0)).cast(pa.decimal128(12, 2)),
            "b": [None if i % 5 == 0 else i % 2 == 0 for i in ids],
        }
    )


@pytest.mark.parametrize("spilled", [False, True])
def test_many_rows_between_operators_are_evaluated_by_tasks(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spilled: bool
) -> None:
    monkeypatch.setattr(stages, "TASK_ROWS", 1)
    monkeypatch.setattr(stages, "SPILL_ROWS", 0 if spilled else 1 << 16)
    in_driver: list[str] = []
    monkeypatch.setattr(BetweenOperators, "values", lambda self, view, feed, given: in_driver.append(view))
    by_tasks: list[str] = []
    frame = BetweenOperators.frame
    monkeypatch.setattr(
        BetweenOperators, "frame", lambda self, view, *given: by_tasks.append(view) or frame(self, view, *given)
    )
    with hr.Engine(spark, tmp_path, executor="spark", buckets=3) as engine:
        engine.table("t", "id BIGINT NOT NULL, name STRING, x INT", key="id")
        engine.table(
            "u",
            "id BIGINT NOT NULL, name STRING, x INT, d DATE, t TIMESTAMP, m DECIMAL(12, 2), b BOOLEAN",
            key="id",
        )
        views = [engine.view("typed", TYPED), engine.view("rest", EXCEPT)]
        oracle = Oracle(spark)
        for first in (0, 40):
            engine.apply(
                {"u": many(first, 60).slice(20 if first else 0), "t": many(first, 20).select(["id", "name", "x"])}
            )
            oracle.set_rows({name: engine.tables[name].to_arrow() for name in ("t", "u")})
            for view in views:
                assert_same(view.to_arrow(), oracle.answer(view.sql))
    assert not in_driver
    assert set(by_tasks) == {"typed", "rest"}
    assert not list((tmp_path / "batches").iterdir())


def error(spark: SparkSession, location: Path, sql: str, executor: str) -> StepFailedError:
    with hr.Engine(spark, location, executor=executor) as engine:
        engine.table("t", "id BIGINT NOT NULL, name STRING, x INT", key="id")
        engine.view("v", sql)
        with pytest.raises(StepFailedError, match="DIVIDE_BY_ZERO") as caught:
            engine.apply({"t": changes((7, "zoe", 0, 1))})
        assert engine.tables["t"].rows == 0
    return caught.value


@pytest.mark.parametrize("sql", [SQL, FAILS_BETWEEN])
def test_an_error_has_the_same_words(spark: SparkSession, tmp_path: Path, sql: str) -> None:
    here, by_job = (error(spark, tmp_path / executor, sql, executor) for executor in ("auto", "spark"))
    assert (here.what, here.way_out) == (by_job.what, by_job.way_out)
    assert here.what.startswith("the step failed in Spark and was not committed: [DIVIDE_BY_ZERO] Division by zero.")


def test_bad_rows_are_judged_after_they_are_evaluated(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path) as engine:
        engine.table("t", "id BIGINT NOT NULL, name STRING NOT NULL, x INT", key="id")
        view = engine.view("v", "SELECT soundex(name) AS k, COUNT(*) AS n FROM t GROUP BY 1")
        step = engine.apply({"t": changes((1, None, 1, 1), (2, "bob", 1, 1))}, on_bad_rows="quarantine")
        assert step.quarantined == {"t": 1}
        assert view.to_arrow().to_pylist() == [{"k": "B100", "n": 1}]


@pytest.mark.parametrize("executor", ["inline", "spark"])
def test_a_step_by_catalyst_takes_views_along_that_have_no_query(
    spark: SparkSession, tmp_path: Path, executor: str
) -> None:
    """An overflow has Catalyst evaluate a step; window joins and products of matrices have nothing for it to read."""
    moment = pa.array([5_000], pa.timestamp("us", "UTC"))
    event = pa.table({"k": [1], "at": moment, "came": moment})
    with hr.Engine(spark, tmp_path, executor=executor, buckets=2) as engine:
        engine.table("t", "x BIGINT")
        for name in ("a", "b"):
            engine.table(name, "k BIGINT, at TIMESTAMP, came TIMESTAMP", append_only=True)
        doubled = engine.view("doubled", "SELECT SUM(2 * x) AS x FROM t")
        chain = engine.matrix_chain("chain", {"m": (1, 1), "n": (1, 1)})
        engine.window_join("pairs", "a", "b", on="k", time="at", arrival="came", window="1 ms")
        entry = {"i": [0], "j": [0], "value": [2.0], "term": pa.array([None], pa.int64())}
        step = {"a": event, "b": event, "m": pa.table(entry), "n": pa.table(entry)}
        with pytest.raises(StepFailedError, match="overflow"):
            engine.apply({"t": pa.table({"x": [1 << 62]}), **step})
        engine.apply({"t": pa.table({"x": [1]}), **step})
        assert doubled.to_arrow()["x"].to_pylist() == [2]
        assert chain.to_arrow()["value"].to_pylist() == [4.0]


def test_an_attempt_that_was_given_up_leaves_no_files(spark: SparkSession, tmp_path: Path) -> None:
    """Without ANSI mode a sum wraps in Spark, which kernels leave to it after they have written something."""
    session = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", "false")
    with hr.Engine(session, tmp_path, executor="spark", buckets=4, driver_rows=0) as engine:
        engine.table("t", "x BIGINT")
        view = engine.view("tripled", "SELECT x % 3 AS k, SUM(DISTINCT 3 * x) AS x FROM t GROUP BY x % 3")
        engine.apply({"t": pa.table({"x": [*range(60), 1 << 62]})})
        oracle = session.createDataFrame([(x,) for x in [*range(60), 1 << 62]], "x BIGINT")
        oracle.createOrReplaceTempView("t")
        assert_same(view.to_arrow(), session.sql(view.sql).toArrow())
        engine.sync()
        assert {path.name for path in (tmp_path / "runs").iterdir()} == engine._store.snapshot.files()


def test_files_of_tasks_that_ran_twice_are_removed_beside_steps(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the copy of a slow task has written would otherwise stay until the location is opened again."""
    monkeypatch.setattr(step_runner, "MOST_LEFTOVERS", 3)
    with hr.Engine(spark, tmp_path, executor="spark", buckets=2) as engine:
        engine.table("t", "x BIGINT")
        left = [tmp_path / "runs" / "0000000002-copy.run", tmp_path / "batches" / "0000000002-copy.run"]
        for number in range(6):
            engine.apply({"t": pa.table({"x": [number]})})
            if number == 2:
                for path in left:
                    path.write_bytes(b"")
            assert all(path.exists() for path in left) == (number in (2, 3, 4))
        assert engine.tables["t"].rows == 6
        assert engine.verify() == []

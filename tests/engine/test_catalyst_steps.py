"""Steps whose expressions only Catalyst evaluates: in the driver's JVM, or by a job."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.errors import StepFailedError

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

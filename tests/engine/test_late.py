"""Late rows of a Spark DataFrame: tasks find and write them, and the driver only hears of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import headrace as hr
from headrace.engine import late
from headrace.engine.step_runner import StepRunner
from headrace.errors import StepFailedError
from headrace.relation.schema import DIFF
from headrace.testing.oracle import assert_same, spark_ddl

START = datetime(2024, 3, 10, 6, tzinfo=UTC)
OWN = "'ts' is before the watermark, 2024-03-10 06:20:00"
PARTNER = f"another change of this key is late: {OWN}"


def changes(*rows: tuple[int | None, str | None, float | None, int]) -> pa.Table:
    """Changes by key, minutes after the start, and multiplicity."""
    ids, texts, minutes, diff = zip(*rows, strict=True)
    times = [None if m is None else START + timedelta(minutes=m) for m in minutes]
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "and more": pa.array(texts, pa.large_string()),
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            DIFF: pa.array(diff, pa.int64()),
        }
    )


def made(spark: SparkSession, location: Path, executor: str, *, keyed: bool) -> hr.Engine:
    """An engine with a table and a view, and a watermark at 20 minutes."""
    engine = hr.Engine(spark, location, executor=executor, buckets=3)
    key = ["id", "and more"] if keyed else None
    engine.table("t", "id BIGINT, `and more` STRING, ts TIMESTAMP", key=key, watermark=("ts", "10 minutes"))
    engine.view("v", "SELECT id, COUNT(*) AS n FROM t GROUP BY id")
    engine.apply({"t": changes((1, "a", 0, 1), (2, "a", 1, 1), (3, "a", 30, 1), (4, "a", 25, 1))})
    return engine


BATCH = changes(
    *[(2_000 + i, "a", i % 50, 1) for i in range(1_000)],  # 20 of each 50 are late
    (1, "a", 0, -1),  # an update whose old row is late ...
    (1, "a", 31, 1),
    (3, "a", 30, -1),  # ... and one whose new row is
    (3, "a", 5, 1),
    (4, "a", 25, -1),  # an update that is in time, of a key that half agrees with a late one
    (4, "a", 26, 1),
    (4, "b", 2, 1),
    (5, "a", None, 1),  # without a time
)


@pytest.mark.parametrize(("keyed", "few"), [(True, late._FEW), (True, 0), (False, late._FEW)])
def test_tasks_set_late_rows_aside_as_the_driver_does(
    spark: SparkSession, tmp_path: Path, keyed: bool, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late, "_FEW", few)
    frame = spark.createDataFrame(BATCH, spark_ddl(BATCH.schema)).repartition(3)

    def collected(self: DataFrame) -> pa.Table:
        raise AssertionError("the driver collects rows")

    with (
        made(spark, tmp_path / "driver", "inline", keyed=keyed) as driver,
        made(spark, tmp_path / "job", "spark", keyed=keyed) as job,
    ):
        expected = driver.apply({"t": BATCH})
        with monkeypatch.context() as patched:
            patched.setattr(type(frame), "toArrow", collected)
            step = job.apply({"t": frame})
        assert step.late == expected.late == {"t": 400 + (5 if keyed else 3)}
        assert step.rows == expected.rows
        assert sorted(map(str, job.late("t").to_pylist())) == sorted(map(str, driver.late("t").to_pylist()))
        reasons = job.late("t").column("__reason").to_pylist()
        assert (reasons.count(OWN), reasons.count(PARTNER)) == (403, 2 if keyed else 0)
        assert job.status()["late"] == step.late
        assert len(job._store.snapshot.late["t"]) > 1, "one task wrote all of them"
        assert_same(job.tables["t"].to_arrow(), driver.tables["t"].to_arrow())
        assert_same(job.views["v"].to_arrow(), driver.views["v"].to_arrow())
        assert job.apply({"t": spark.createDataFrame(changes((9, "a", 45, 1)), spark_ddl(BATCH.schema))}).late == {}


def test_a_late_row_without_a_key_is_late_and_not_bad(spark: SparkSession, tmp_path: Path) -> None:
    wrong = changes((None, "a", 1, 1), (None, "a", 30, 1), (None, None, 31, 1), (7, "a", 32, 1))
    found = []
    for executor in ("inline", "spark"):
        with made(spark, tmp_path / executor, executor, keyed=True) as engine:
            given = wrong if executor == "inline" else spark.createDataFrame(wrong, spark_ddl(wrong.schema))
            step = engine.apply({"t": given}, on_bad_rows="quarantine")
            assert (step.late, step.quarantined, step.rows) == ({"t": 2}, {"t": 1}, {"t": 1})
            found.append(sorted(map(str, [*engine.late("t").to_pylist(), *engine.quarantine("t").to_pylist()])))
    assert found[0] == found[1]


@pytest.mark.parametrize("executor", ["inline", "spark"])
def test_a_step_that_fails_leaves_no_late_rows(
    spark: SparkSession, tmp_path: Path, executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []
    with made(spark, tmp_path, executor, keyed=False) as engine:
        folder = engine.location / "quarantine"

        def fail(*_: object) -> None:
            written.append(len(list(folder.iterdir())))
            raise StepFailedError("a node is gone", way_out="try again")

        with monkeypatch.context() as patched:
            patched.setattr(StepRunner, "run", fail)
            with pytest.raises(StepFailedError, match="a node is gone"):
                engine.apply({"t": spark.createDataFrame(BATCH, spark_ddl(BATCH.schema))})
        assert written[0] > 0
        assert not list(folder.iterdir())
        assert engine.late("t").num_rows == 0
        assert engine.apply({"t": BATCH}).late == {"t": 403}

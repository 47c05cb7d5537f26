"""Small DataFrames are steps of the driver, large ones are jobs, and those of unknown size are one or the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace import Engine
from headrace.engine.small_frames import estimated_bytes, few_rows
from headrace.errors import StepFailedError

SCHEMA = "id BIGINT NOT NULL, grp BIGINT, amount DOUBLE"
SQL = "SELECT grp, COUNT(*) AS n, SUM(amount) AS amount FROM t GROUP BY grp"
SELECTED = ("id", "id % 7 AS grp", "CAST(id AS DOUBLE) AS amount")


def rows(spark: SparkSession, count: int, start: int = 0, partitions: int = 2) -> DataFrame:
    return spark.range(start, start + count, 1, partitions).selectExpr(*SELECTED)


def of_unknown_size(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """The same rows and partitions, of which Spark knows no size."""
    return spark.createDataFrame(frame.rdd, frame.schema)


@pytest.fixture
def engine(spark: SparkSession, tmp_path: Path) -> Iterator[Engine]:
    with Engine(spark, tmp_path / "state", driver_rows=1_000) as made:
        made.table("t", SCHEMA, key="id")
        made.view("v", SQL)
        yield made


def check(engine: Engine, spark: SparkSession, count: int) -> None:
    session = spark.newSession()  # where the view of the answer's name meets no other
    rows(session, count).createOrReplaceTempView("t")
    expected = {tuple(row.values()) for row in session.sql(SQL).toArrow().to_pylist()}
    assert {tuple(row.values()) for row in engine.views["v"].to_arrow().to_pylist()} == expected
    assert engine.tables["t"].rows == count


def test_a_small_frame_is_a_step_of_the_driver(engine: Engine, spark: SparkSession):
    step = engine.apply({"t": rows(spark, 500)})
    assert (step.ran, step.rows) == ("driver", {"t": 500})
    check(engine, spark, 500)


def test_a_large_frame_stays_in_spark(engine: Engine, spark: SparkSession):
    step = engine.apply({"t": rows(spark, 5_000)})
    assert (step.ran, "a large Spark DataFrame stays in Spark" in step.why) == ("job", True)
    check(engine, spark, 5_000)


@pytest.mark.parametrize(("count", "partitions", "ran"), [(3, 2, "driver"), (900, 2, "driver"), (4_000, 2, "job")])
def test_a_frame_of_unknown_size(engine: Engine, spark: SparkSession, count: int, partitions: int, ran: str):
    frame = of_unknown_size(spark, rows(spark, count, partitions=partitions))
    assert engine.apply({"t": frame}).ran == ran
    check(engine, spark, count)


def test_a_frame_that_was_thought_smaller_is_a_job_from_files(engine: Engine, spark: SparkSession, tmp_path: Path):
    # Repeated rows take next to nothing in a file, so Spark's estimate, the size of the file, is far too small.
    pq.write_table(pa.table({"n": pa.array([1] * 3_000)}), tmp_path / "same.parquet")
    frame = spark.read.parquet(str(tmp_path / "same.parquet")).selectExpr("monotonically_increasing_id() AS id")
    frame = frame.selectExpr(*SELECTED)
    assert estimated_bytes(frame) < 32_000
    step = engine.apply({"t": frame})
    assert (step.ran, "as a file" in step.why, step.rows) == ("job", True, {"t": 3_000})
    check(engine, spark, 3_000)


def test_no_partition_is_cut_unnoticed(spark: SparkSession):
    for first, second in ((10, 0), (0, 10), (10, 10), (11, 0), (0, 11), (9, 3), (11, 11)):
        parts = [[(i,) for i in range(first)], [(100 + i,) for i in range(second)]]
        two = spark.sparkContext.parallelize(parts, 2).flatMap(lambda rows: rows)
        found = few_rows(spark.createDataFrame(two, "id BIGINT"), 20, cores=2)
        if max(first, second) > 10:
            assert found is None
        else:
            assert found is not None
            assert sorted(found.column("id").to_pylist()) == [*range(first), *range(100, 100 + second)]
            assert found.column_names == ["id"]


def test_the_executor_decides_if_it_is_given(spark: SparkSession, tmp_path: Path):
    for executor, ran in (("inline", "driver"), ("spark", "job")):
        with Engine(spark, tmp_path / executor, executor=executor, driver_rows=10) as engine:
            engine.table("t", SCHEMA, key="id")
            engine.view("v", SQL)
            assert engine.apply({"t": rows(spark, 50)}).ran == ran
            check(engine, spark, 50)


def test_no_step_runs_in_the_driver_if_none_may(spark: SparkSession, tmp_path: Path):
    with Engine(spark, tmp_path / "state", driver_rows=0) as engine:
        engine.table("t", SCHEMA, key="id")
        engine.view("v", SQL)
        assert engine.apply({"t": rows(spark, 3)}).ran == "job"
        assert engine.apply({"t": rows(spark, 3, start=3).toArrow()}).ran == "job"
        check(engine, spark, 6)


def test_small_and_large_frames_in_one_step(engine: Engine, spark: SparkSession):
    engine.table("s", "id BIGINT NOT NULL", key="id")
    step = engine.apply({"t": rows(spark, 5_000), "s": spark.range(3)})
    assert (step.ran, step.rows) == ("job", {"t": 5_000, "s": 3})
    check(engine, spark, 5_000)


def test_an_error_of_spark_while_collecting_leaves_nothing_behind(engine: Engine, spark: SparkSession):
    engine.apply({"t": rows(spark, 5)})
    wrong = rows(spark, 3, start=5).selectExpr("id", "grp", "CAST(assert_true(id < 6) AS DOUBLE) AS amount")
    for frame in (wrong, of_unknown_size(spark, rows(spark, 3, start=5)).selectExpr("id", "grp", "amount / (id - 6)")):
        with pytest.raises(StepFailedError, match="was not committed"):
            engine.apply({"t": frame.toDF("id", "grp", "amount")})
    check(engine, spark, 5)


def test_deletions_and_updates_in_frames(engine: Engine, spark: SparkSession):
    engine.apply({"t": rows(spark, 20)})
    gone = rows(spark, 5, start=15).selectExpr("*", "-1 AS __diff")
    step = engine.apply({"t": gone.union(rows(spark, 1, start=19).selectExpr("*", "0 AS __diff"))})
    assert step.rows == {"t": 5}
    check(engine, spark, 15)


def test_micro_batches_are_steps_of_the_driver(spark: SparkSession, tmp_path: Path):
    files = tmp_path / "files"
    with Engine(spark, tmp_path / "state") as engine:
        engine.table("t", SCHEMA, key="id")
        engine.view("v", SQL)
        for start in (0, 10):
            rows(spark, 10, start=start).write.mode("append").parquet(str(files))
            stream = spark.readStream.schema(SCHEMA).parquet(str(files))
            if start == 0:
                engine.stream("t", stream)
            engine.process_available()
        check(engine, spark, 20)
        assert "ran        in the driver" in str(engine.views["v"].explain())

"""Structured Streaming: one step a micro-batch, exactly once, also when the driver is killed at any moment."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import headrace as hr
from headrace.engine import durability
from headrace.engine.store import Store
from headrace.errors import BadRowsError, SchemaError
from headrace.runtime.jvm import _process

DDL = "id BIGINT, shop STRING, price DOUBLE"
SQL = "SELECT shop, COUNT(*) AS n, SUM(price) AS price FROM sales GROUP BY shop"


def write_file(folder: Path, number: int, rows: int = 10, **extra: list[int]) -> None:
    folder.mkdir(exist_ok=True)
    ids = list(range(number * rows, (number + 1) * rows))
    table = pa.table({"id": ids, "shop": [f"s{i % 3}" for i in ids], "price": [i / 4 for i in ids], **extra})
    pq.write_table(table, folder / f".{number:05d}.parquet")
    (folder / f".{number:05d}.parquet").rename(folder / f"{number:05d}.parquet")


def read_stream(spark: SparkSession, folder: Path, ddl: str = DDL) -> DataFrame:
    return spark.readStream.schema(ddl).option("maxFilesPerTrigger", 1).parquet(str(folder))


def open_engine(spark: SparkSession, location: Path, folder: Path, **options: str) -> hr.Engine:
    engine = hr.Engine(spark, location, buckets=2, **options)
    engine.table("sales", DDL, key="id")
    engine.view("by_shop", SQL)
    engine.stream("sales", read_stream(spark, folder))
    return engine


def test_process_available_makes_one_step_a_micro_batch(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(3):
        write_file(tmp_path / "in", number)
    with open_engine(spark, tmp_path / "state", tmp_path / "in") as engine:
        engine.process_available()
        assert engine.step == 3
        assert engine.tables["sales"].rows == 30
        engine.process_available()
        assert engine.step == 3
    write_file(tmp_path / "in", 3)
    with open_engine(spark, tmp_path / "state", tmp_path / "in") as engine:  # resumes where it was
        engine.process_available()
        assert engine.step == 4
        assert engine.views["by_shop"].to_pandas()["n"].sum() == 40
        assert engine.status()["sources"] == {"sales": 3}


def test_a_micro_batch_is_safe_before_spark_notes_it_as_done(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power cut might keep Spark's note and lose the step, and the rows would not come again."""
    monkeypatch.setattr(durability, "SYNC_SECONDS", 3600.0)
    monkeypatch.setattr(durability, "MOST_SECONDS", 3600.0)
    for number in range(3):
        write_file(tmp_path / "in", number)
    noted, sync = [], Store.sync

    def synced(store: Store) -> None:
        sync(store)
        assert store._log.synced == store.snapshot.version
        noted.append(len(list((tmp_path / "state" / "checkpoints" / "sales" / "commits").glob("[0-9]*"))))

    monkeypatch.setattr(Store, "sync", synced)
    with open_engine(spark, tmp_path / "state", tmp_path / "in") as engine:
        engine.process_available()
        assert noted == [0, 1, 2]


def test_start_and_stop(spark: SparkSession, tmp_path: Path) -> None:
    write_file(tmp_path / "in", 0)
    with open_engine(spark, tmp_path / "state", tmp_path / "in") as engine:
        engine.start()
        for number in (1, 2):
            write_file(tmp_path / "in", number)
        deadline = time.monotonic() + 60
        while engine.tables["sales"].rows < 30 and time.monotonic() < deadline:
            time.sleep(0.1)
        engine.stop()
        assert engine.tables["sales"].rows == 30


def test_a_stream_that_ran_leaves_nothing_open(spark: SparkSession, tmp_path: Path) -> None:
    """Each run of a stream is a thread of the JVM, which calls Python by a connection of its own."""

    def files() -> list[int]:
        return [len(os.listdir(f"/proc/{process}/fd")) for process in (os.getpid(), _process(spark))]

    (tmp_path / "in").mkdir()
    with open_engine(spark, tmp_path / "state", tmp_path / "in") as engine:
        found = []
        for number in range(9):
            write_file(tmp_path / "in", number)
            if number % 2:
                engine.process_available()
            else:
                engine.start()
                deadline = time.monotonic() + 60
                while engine.step <= number and time.monotonic() < deadline:
                    time.sleep(0.05)
                engine.stop()
            assert engine.step == number + 1
            found.append((threading.active_count(), *files()))
    # The first runs load what all later ones need. What the JVM has open besides varies a little.
    last, first = found[-1], found[3]
    assert all(late <= early + 2 for late, early in zip(last, first, strict=True)), found


def test_a_micro_batch_that_comes_again_is_skipped(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path / "state") as engine:
        engine.table("t", "id BIGINT")
        first = engine.apply({"t": pa.table({"id": [1]})}, source=("kafka", 0))
        again = engine.apply({"t": pa.table({"id": [1]})}, source=("kafka", 0))
        assert (first.skipped, again.skipped, engine.step) == (False, True, 1)
        assert engine.tables["t"].rows == 1


def test_deletions_come_through_the_diff_column(spark: SparkSession, tmp_path: Path) -> None:
    write_file(tmp_path / "in", 0, __diff=[1] * 10)
    write_file(tmp_path / "in", 1, __diff=[1] * 10)
    pq.write_table(
        pa.table({"id": [3], "shop": ["s0"], "price": [0.75], "__diff": [-1]}), tmp_path / "in" / "00002.parquet"
    )
    with hr.Engine(spark, tmp_path / "state") as engine:
        engine.table("sales", DDL, key="id")
        engine.stream("sales", read_stream(spark, tmp_path / "in", f"{DDL}, __diff BIGINT"))
        engine.process_available()
        assert engine.tables["sales"].rows == 19


def test_bad_rows_stop_the_stream_with_the_step_s_own_error(spark: SparkSession, tmp_path: Path) -> None:
    write_file(tmp_path / "in", 0)
    with open_engine(spark, tmp_path / "state", tmp_path / "in") as engine:
        engine.apply({"sales": pa.table({"id": [4], "shop": ["x"], "price": [0.0]})})
        with pytest.raises(BadRowsError, match="duplicate key"):
            engine.process_available()
        assert engine.tables["sales"].rows == 1
    with open_engine(spark, tmp_path / "state", tmp_path / "in", on_bad_rows="quarantine") as engine:
        engine.process_available()
        assert engine.tables["sales"].rows == 10
        assert engine.quarantine("sales").num_rows == 1


def test_what_cannot_be_streamed_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with hr.Engine(spark, tmp_path / "state") as engine:
        with pytest.raises(SchemaError, match="no stream"):
            engine.start()
        with pytest.raises(SchemaError, match="no table 'sales'"):
            engine.stream("sales", read_stream(spark, tmp_path / "in"))
        engine.table("sales", DDL, key="id")
        with pytest.raises(SchemaError, match="not streaming"):
            engine.stream("sales", spark.createDataFrame([(1, "a", 1.0)], DDL))
        engine.stream("sales", read_stream(spark, tmp_path / "in"))
        with pytest.raises(SchemaError, match="exists"):
            engine.stream("sales", read_stream(spark, tmp_path / "in"))


CHILD = f"""
import sys
from pathlib import Path
import headrace as hr
with hr.connect(sys.argv[1], buckets=2) as engine:
    engine.table("sales", {DDL!r}, key="id")
    engine.view("by_shop", {SQL!r})
    engine.stream("sales", engine.spark.readStream.schema({DDL!r}).option("maxFilesPerTrigger", 1).parquet(sys.argv[2]))
    print("ready", flush=True)
    engine.process_available()
print("done", flush=True)
"""


@pytest.mark.timeout(900)
def test_a_killed_stream_resumes_without_loss_or_doubling(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(40):
        write_file(tmp_path / "in", number)
    rng, kills = random.Random(3), 0
    while True:
        command = [sys.executable, "-c", CHILD, str(tmp_path / "state"), str(tmp_path / "in")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        if kills < 3:
            time.sleep(rng.uniform(1.5, 3.5))
            process.send_signal(signal.SIGKILL)
            kills += 1
        if process.communicate()[0].strip() == "done":
            break
    with hr.Engine(spark, tmp_path / "state", read_only=True) as engine:
        answer = engine.views["by_shop"].to_pandas().sort_values("shop")
        assert answer["n"].tolist() == [134, 133, 133]
        assert answer["price"].sum() == sum(i / 4 for i in range(400))
        assert engine.tables["sales"].rows == 400
        assert engine.step == 40


def test_a_stream_of_changes_by_key_is_applied_exactly_once(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write_file(folder, 0, op=["I"] * 10)
    write_file(folder, 1, op=["I"] * 10)
    pq.write_table(
        pa.table({"id": [3, 12, 99], "shop": ["x", None, "y"], "price": [1.0, None, 2.0], "op": ["U", "D", "D"]}),
        folder / "00002.parquet",
    )
    with hr.Engine(spark, tmp_path / "state", buckets=2) as engine:
        engine.table("sales", DDL, key="id")
        view = engine.view("by_shop", "SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop")
        source = read_stream(spark, folder, f"{DDL}, op STRING")
        with pytest.raises(SchemaError, match=r"mode='sync' takes them for all there are"):
            engine.stream("sales", source, mode="sync")
        with pytest.raises(BadRowsError, match=r"op_column='kind' is not among the columns"):
            engine.stream("sales", source, op_column="kind")
        with pytest.raises(BadRowsError, match=r"not in the table: 'op'"):
            engine.stream("sales", source, mode="upsert")
        engine.stream("sales", source, mode="upsert", op_column="op", missing="ignore")
        engine.process_available()
        expected = {"s0": 7, "s1": 7, "s2": 6}
        expected["s0"] -= 2  # rows 3 and 12
        assert {row["shop"]: row["n"] for row in view.to_arrow().to_pylist()} == expected | {"x": 1}
        again = engine.apply({"sales": pa.table({"id": [5]})}, mode="delete", source=("sales", 2))
        assert again.skipped
        assert engine.tables["sales"].rows == 19

"""Sources that are being played announce which tables they change, and a memory budget keeps what that needs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.engine.test_sharing import THREE, Changing, answer, opened
from typer.testing import CliRunner

import headrace as hr
from headrace.cli.main import app
from headrace.errors import BadRowsError, SchemaError
from headrace.sources import UpdateFile, write_updates

SQL = f"SELECT s.city, SUM(o.price) AS p, COUNT(*) AS n FROM {THREE} GROUP BY s.city"


@pytest.fixture
def engine(spark: SparkSession, tmp_path: Path) -> Iterator[hr.Engine]:
    with opened(spark, tmp_path / "state", sharing="off", memory_budget="1 GB") as found:
        found.view("v", SQL, strategy="operators")
        yield found


def memory(engine: hr.Engine) -> dict[str, Any]:
    found = engine.status()["memory"]
    assert isinstance(found, dict)
    return found


def rows(start: int, count: int) -> pa.Table:
    """Rows of items."""
    return pa.table({"order_id": range(start, start + count), "what": ["nuts"] * count, "units": [1] * count})


def test_a_loop_announces_what_it_brings_until_it_ends(engine: hr.Engine) -> None:
    data = Changing(random.Random(1))
    for _ in range(6):
        engine.apply(data.change())
    engine.announce("nightly", {"items": (40, 2)})
    said = memory(engine)
    assert (said["expected"], said["expected_by"]) == ({"items": [40.0, 2.0]}, "source")
    assert said["announced"] == {"nightly": {"items": [40.0, 2.0]}}
    assert "40 rows and 2 deleted of items, as the source nightly announces" in str(engine.views["v"].explain())
    engine.announce("weekly", {"shops": None})
    assert memory(engine)["expected"].keys() == {"items", "shops"}
    assert "as the sources nightly and weekly announce" in str(engine.views["v"].explain())
    engine.expect({"orders": 3})
    assert (memory(engine)["expected"], memory(engine)["expected_by"]) == ({"orders": [3.0, 0.0]}, "user")
    engine.expect(None)
    for _ in range(3):
        engine.apply(data.change())
        assert answer(engine.views["v"]) == data.answer(SQL)
    engine.announce("nightly", None)
    engine.announce("weekly", None)
    assert memory(engine)["expected_by"] == "history"
    assert memory(engine)["announced"] == {}


def test_a_table_of_which_nothing_is_known_is_expected_all_the_same(engine: hr.Engine) -> None:
    engine.announce("arrivals", {"orders": None})
    assert memory(engine)["expected"] == {"orders": [1.0, 0.0]}
    assert memory(engine)["expected_by"] == "source"


def test_what_an_announced_change_does_not_need_is_dropped(engine: hr.Engine) -> None:
    data = Changing(random.Random(2))
    for _ in range(8):
        engine.apply(data.change())
    before = memory(engine)["kept_bytes"]
    engine.announce("cleaning", {"items": 5})
    assert 0 < memory(engine)["kept_bytes"] < before
    missed = memory(engine)["unexpected_steps"]
    engine.apply({"items": data.table("items", data.come("items", 3))})
    assert answer(engine.views["v"]) == data.answer(SQL)
    assert memory(engine)["unexpected_steps"] == missed
    engine.apply({"shops": data.table("shops", data.come("shops", 3))})
    assert answer(engine.views["v"]) == data.answer(SQL)
    assert memory(engine)["unexpected_steps"] == missed + 1


def test_an_announcement_must_be_of_tables_and_rows(engine: hr.Engine) -> None:
    with pytest.raises(SchemaError, match="there is no table"):
        engine.announce("x", {"nothing": None})
    with pytest.raises(SchemaError, match="cannot change by"):
        engine.announce("x", {"items": -1})
    assert memory(engine)["announced"] == {}


@pytest.mark.parametrize("is_killed", [False, True])
def test_no_announcement_outlives_its_engine(spark: SparkSession, tmp_path: Path, is_killed: bool) -> None:
    with opened(spark, tmp_path / "state", sharing="off", memory_budget=1_000) as engine:
        engine.view("v", SQL, strategy="operators")
        engine.apply({"items": rows(0, 10)})
        engine.announce("file", {"shops": 7})
        shown = CliRunner().invoke(app, ["status", str(tmp_path / "state")]).output
        assert "expected next: 7 rows of shops (as announced by file)" in shown
        if is_killed:
            engine._maintenance.memory.forget_sources = lambda: None  # as nobody would say that it ends
    for budget in (1_000, None):
        with opened(spark, tmp_path / "state", sharing="off", memory_budget=budget) as engine:
            assert memory(engine)["announced"] == {}
            assert memory(engine)["expected_by"] == "history"
            assert memory(engine)["budget"] == budget


def test_a_budget_that_comes_later_knows_the_sources(spark: SparkSession, tmp_path: Path) -> None:
    with opened(spark, tmp_path / "state", sharing="off") as engine:
        engine.view("v", SQL, strategy="operators")
        engine.announce("file", {"shops": 7})
        version = engine._store.snapshot.version
        engine.announce("file", {"shops": 70})
        assert engine._store.snapshot.version == version, "without a budget nothing needs to be written"
        engine.memory_budget = 1_000
        assert memory(engine)["expected"] == {"shops": [70.0, 0.0]}


def test_a_file_of_updates_announces_its_batches(engine: hr.Engine, tmp_path: Path) -> None:
    schema = pa.schema([("order_id", pa.int64()), ("what", pa.string()), ("units", pa.int32())])
    form = {"schemas": {"items": schema}, "codes": {"IT": "items"}}
    batches = ({"items": rows(start, 20).cast(schema)} for start in range(0, 60, 20))
    write_updates(tmp_path / "updates.txt", batches, **form)
    replayed = UpdateFile(tmp_path / "updates.txt", batch=20, **form).replay(engine, name="updates")
    for _ in range(3):
        next(replayed)
        said = memory(engine)
        assert said["announced"] == {"updates": {"items": [20.0, 0.0]}}
        assert said["expected_by"] == "source"
    assert said["prediction_error"] == 0.0
    assert list(replayed) == []
    assert memory(engine)["announced"] == {}


def test_a_replay_that_is_left_ends_its_announcement(engine: hr.Engine, tmp_path: Path) -> None:
    schema = pa.schema([("order_id", pa.int64()), ("what", pa.string()), ("units", pa.int32())])
    form = {"schemas": {"items": schema}, "codes": {"IT": "items"}}
    write_updates(tmp_path / "updates.txt", [{"items": rows(0, 40).cast(schema)}], **form)
    replayed = UpdateFile(tmp_path / "updates.txt", batch=20, **form).replay(engine)
    next(replayed)
    replayed.close()
    assert memory(engine)["announced"] == {}
    late = UpdateFile(tmp_path / "updates.txt", batch=20, **form).replay(engine)
    next(late)
    engine.close()
    late.close()  # after its engine: there is nothing left to take back


def streamed(spark: SparkSession, folder: Path, number: int, count: int) -> None:
    """One more file of a stream of items."""
    frame = spark.range(100 * number, 100 * number + count).selectExpr("id AS order_id", "'nuts' AS what", "1 AS units")
    frame.coalesce(1).write.mode("append").parquet(str(folder))


@pytest.mark.parametrize("rows_per_batch", [None, 50])
def test_a_stream_announces_its_table(
    engine: hr.Engine, spark: SparkSession, tmp_path: Path, rows_per_batch: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = []
    announce = type(engine._maintenance.memory).announce
    monkeypatch.setattr(
        type(engine._maintenance.memory),
        "announce",
        lambda self, source, changes: (heard.append((source, changes)), announce(self, source, changes)),
    )
    for number in range(2):
        streamed(spark, tmp_path / "in", number, 10)
    source = spark.readStream.schema("order_id BIGINT, what STRING, units INT").option("maxFilesPerTrigger", 1)
    engine.stream("items", source.parquet(str(tmp_path / "in")), name="arrivals", rows_per_batch=rows_per_batch)
    engine.process_available()
    told = [said["items"] and said["items"].rows for _, said in heard if said is not None]
    assert told == ([50.0] * 3 if rows_per_batch else [None, 10.0, 10.0])
    assert heard[-1] == ("arrivals", None)
    assert memory(engine)["announced"] == {}
    engine.start()
    assert memory(engine)["announced"] == {"arrivals": {"items": [50.0 if rows_per_batch else 10.0, 0.0]}}
    engine.stop()
    assert memory(engine)["announced"] == {}


def test_a_stream_that_fails_is_not_expected_any_more(engine: hr.Engine, spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    spark.sql("SELECT 1L AS id, 'a' AS city, 1 AS size UNION ALL SELECT 1L, 'b', 2").write.parquet(str(folder))
    frame = spark.readStream.schema("id BIGINT, city STRING, size INT").parquet(str(folder))
    engine.stream("shops", frame)
    with pytest.raises(BadRowsError):
        engine.process_available()
    assert memory(engine)["announced"] == {}


def test_a_stream_of_no_rows_is_refused(engine: hr.Engine, spark: SparkSession) -> None:
    with pytest.raises(SchemaError, match="brings nothing"):
        engine.stream("items", spark.readStream.format("rate").load(), rows_per_batch=0)

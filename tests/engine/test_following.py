"""An engine that only reads sees what another one does: its steps, its tables and views, and how these are kept."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.engine.test_sharing import always
from tests.forks import Forks

import headrace as hr
from headrace.engine import durability, kept_files
from headrace.engine.repair import problems
from headrace.engine.sharing import Sharing
from headrace.errors import CorruptFileError, SchemaError, StorageError
from headrace.runtime import recovery
from headrace.runtime.leases import oldest
from headrace.runtime.location import Location
from headrace.runtime.log import CommitLog
from headrace.runtime.record import RunRef


@pytest.fixture
def writer(spark: SparkSession, tmp_path: Path) -> Iterator[hr.Engine]:
    with hr.Engine(spark, tmp_path / "s", executor="inline", buckets=2, calibrate=False) as engine:
        engine.table("t", "id BIGINT, g BIGINT, x DOUBLE", key="id")
        yield engine


@pytest.fixture
def reader(spark: SparkSession, tmp_path: Path, writer: hr.Engine) -> Iterator[hr.Engine]:
    with hr.Engine(spark, tmp_path / "s", read_only=True) as engine:
        yield engine


def rows(*ids: int, diff: int = 1) -> dict[str, pa.Table]:
    taken = {"id": ids, "g": [i % 2 for i in ids], "x": [1e6 + i for i in ids], "__diff": [diff] * len(ids)}
    return {"t": pa.table(taken)}


def test_steps_are_seen_wherever_one_looks(writer: hr.Engine, reader: hr.Engine) -> None:
    table = reader.tables["t"]
    writer.apply(rows(1, 2, 3))
    assert (reader.step, table.rows, reader.status()["step"], table.to_arrow().num_rows) == (1, 3, 1, 3)
    writer.apply(rows(3, diff=-1))
    assert (table.to_df().count(), reader.step) == (2, 2)


def test_new_tables_and_views_are_seen(writer: hr.Engine, reader: hr.Engine) -> None:
    assert reader.views == {}
    writer.table("u", "id BIGINT, name STRING", key="id")
    writer.apply(rows(1, 2) | {"u": pa.table({"id": [1], "name": ["a"]})})
    writer.view("v", "SELECT name, x FROM t JOIN u USING (id)")
    assert set(reader.tables) == {"t", "u"}
    assert reader.views["v"].to_arrow().to_pylist() == [{"name": "a", "x": 1000001.0}]
    assert "v" in str(reader.explain())
    writer.drop("v")
    writer.drop("u")
    assert (set(reader.tables), reader.views) == ({"t"}, {})


def test_a_view_that_was_made_anew_is_another_one(writer: hr.Engine, reader: hr.Engine) -> None:
    writer.apply(rows(1, 2, 3))
    writer.view("v", "SELECT g, COUNT(*) AS n FROM t GROUP BY g")
    old = reader.views["v"]
    assert old.to_arrow().num_rows == 2
    writer.drop("v")
    writer.view("v", "SELECT MAX(x) AS high, COUNT(*) AS n FROM t")
    for read in (old.to_arrow, old.to_df, old.changes, old.explain):
        with pytest.raises(SchemaError, match="has been dropped"):
            read()
    assert reader.views["v"].to_arrow().to_pylist() == [{"high": 1000003.0, "n": 3}]


def test_moments_are_those_of_the_data_once_it_comes(writer: hr.Engine, reader: hr.Engine) -> None:
    """The first rows decide what is subtracted from each feature, so the state means something else after them."""
    writer.covariance("c", "SELECT x, g FROM t")
    writer.model("m", hr.LinearRegression(label="x"), over="SELECT x, g FROM t")
    moments, model = reader.views["c"], reader.views["m"]
    writer.apply(rows(*range(1, 41)))
    x = 1e6 + np.arange(1, 41)
    found = moments.moments()  # type: ignore[union-attr]
    assert found.mean.tolist() == pytest.approx([x.mean(), 0.5], rel=1e-12)
    assert found.centred()[0, 0] == pytest.approx(((x - x.mean()) ** 2).sum(), rel=1e-9)
    assert model.count == 40  # type: ignore[union-attr]
    assert model.intercept_ == pytest.approx(writer.views["m"].intercept_)  # type: ignore[union-attr]


def test_what_views_share_is_followed(writer: hr.Engine, reader: hr.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    always(monkeypatch)
    monkeypatch.setattr(Sharing, "_known", lambda self, views: {"t", "u"})
    writer.table("u", "g BIGINT, name STRING", key="g")
    writer.apply(rows(1, 2, 3) | {"u": pa.table({"g": [0, 1], "name": ["even", "odd"]})})
    writer.view("a", "SELECT name, MAX(x) AS high FROM t JOIN u USING (g) GROUP BY name", strategy="operators")
    kept = reader.views["a"]
    writer.view("b", "SELECT name, COUNT(DISTINCT x) AS n FROM t JOIN u USING (g) GROUP BY name", strategy="operators")
    writer.settle()
    writer.apply(rows(4, 5))
    assert writer._catalogue.shared
    assert kept.to_arrow().to_pylist() == writer.views["a"].to_arrow().to_pylist()
    assert "shared subplan" in str(kept.explain())
    writer.drop("b")
    writer.apply(rows(6))
    assert kept.to_arrow().to_pylist() == writer.views["a"].to_arrow().to_pylist()


WRITER = """
import sys
import pyarrow as pa
from pyspark.sql import SparkSession
import headrace as hr
from headrace.engine import durability
from headrace.runtime.log import CommitLog

durability.SYNC_SECONDS = 0.0  # so that what is replaced goes as soon as it may
engine = hr.Engine(SparkSession.builder.getOrCreate(), sys.argv[1], executor="inline", calibrate=False)
print("ready", flush=True)
step = engine.step
while True:
    step += 1
    ids = range(10 * step, 10 * step + 10)
    engine.apply({"t": pa.table({"id": ids, "g": [i % 7 for i in ids], "x": [1.0] * 10})})
    if step % 4 == 0:
        engine.compact()
    engine.sync()
"""


def test_a_dataframe_of_a_reader_stays_as_it_is_while_another_process_merges(
    spark: SparkSession, forks: Forks, tmp_path: Path
) -> None:
    with hr.Engine(spark, tmp_path / "s", executor="inline", buckets=2, calibrate=False) as engine:
        engine.table("t", "id BIGINT, g BIGINT, x DOUBLE", key="id")
        engine.view("v", "SELECT g, COUNT(*) AS n FROM t GROUP BY g")
        engine.apply(rows(1, 2, 3))
    writer = forks.start("-c", WRITER, str(tmp_path / "s"))
    try:
        assert writer.first_lines() == ["ready\n"], writer.stderr.read_text()
        replaced = 0
        with hr.Engine(spark, tmp_path / "s", read_only=True) as reader:
            for _ in range(4):
                step, table, view = reader.step, reader.tables["t"].to_df(), reader.views["v"].to_df()
                frames = [frame.__dict__["_headrace_reader"] for frame in (table, view)]
                _wait_until(lambda: reader.step >= step + 12)  # noqa: B023
                newest = reader._store.snapshot.files()
                replaced += len({name for held in frames for name in held.snapshot.files()} - newest)
                for held, found in zip(frames, (table.count(), view.agg({"n": "sum"}).collect()[0][0]), strict=True):
                    assert found == 3 + 10 * (held.step - 1)
        assert replaced > 5, "nothing that was read had been merged away"
    finally:
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
    # The reader has let go, so what only it needed is gone once the location is opened again.
    with hr.Engine(spark, tmp_path / "s", calibrate=False) as engine:
        assert {path.name for path in (tmp_path / "s" / "runs").iterdir()} == engine._store.snapshot.files()
        assert list((tmp_path / "s" / "readers").iterdir()) == []


def test_verifying_beside_an_engine_that_merges_finds_nothing(
    spark: SparkSession, forks: Forks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hr.Engine(spark, tmp_path / "s", executor="inline", buckets=2, calibrate=False) as engine:
        engine.table("t", "id BIGINT, g BIGINT, x DOUBLE", key="id")
        engine.view("v", "SELECT g, COUNT(*) AS n FROM t GROUP BY g")
    log, vanished = CommitLog(Location(tmp_path / "s")), list[str]()

    def slowly(location: Location, run: RunRef) -> str | None:
        """Look at a run once the writer has gone on: so some are gone, but no damage."""
        if not slow:
            slow.append(log.newest)
            _wait_until(lambda: log.newest >= slow[0] + 12)
        found = damage_of(location, run)
        vanished.extend([found] if found else [])
        return found

    slow, damage_of = list[int](), recovery.run_damage
    monkeypatch.setattr(recovery, "run_damage", slowly)
    writer = forks.start("-c", WRITER, str(tmp_path / "s"))
    try:
        assert writer.first_lines() == ["ready\n"], writer.stderr.read_text()
        _wait_until(lambda: log.newest >= 4)
        for _ in range(3):
            slow.clear()
            assert problems(tmp_path / "s") == []
    finally:
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
    assert vanished, "no file had been merged away before it was looked at"


def _wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 240
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_leases_are_looked_at_only_before_files_are_removed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durability, "SYNC_SECONDS", 3600.0)
    monkeypatch.setattr(durability, "MOST_SECONDS", 3600.0)
    monkeypatch.setattr(durability, "CHECKPOINT_EVERY", 10**6)
    looked: list[Path] = []

    def looking(folder: Path) -> int:
        looked.append(folder)
        return oldest(folder)

    with hr.Engine(spark, tmp_path / "s", executor="inline", buckets=2, calibrate=False) as engine:
        engine.table("t", "id BIGINT, g BIGINT, x DOUBLE", key="id")
        engine.view("v", "SELECT g, COUNT(*) AS n FROM t GROUP BY g")
        monkeypatch.setattr(kept_files, "oldest", looking)
        for i in range(30):
            engine.apply(rows(i))
        assert looked == []
        engine.sync()
        assert len(looked) == 1
        engine.sync()
        assert len(looked) == 1


def test_files_that_a_reader_needs_outlive_the_engine_that_replaced_them(spark: SparkSession, tmp_path: Path) -> None:
    def open_engine() -> hr.Engine:
        return hr.Engine(spark, tmp_path / "s", executor="inline", buckets=2, calibrate=False)

    with open_engine() as engine:
        engine.table("t", "id BIGINT, g BIGINT, x DOUBLE", key="id")
        engine.apply(rows(1, 2, 3))
    with hr.Engine(spark, tmp_path / "s", read_only=True) as reader:
        frame = reader.tables["t"].to_df()
        needed = frame.__dict__["_headrace_reader"].snapshot.files()
        for _ in range(2):  # opening removes orphans, but for these
            with open_engine() as engine:
                for i in range(10, 16):
                    engine.apply(rows(i + 10 * engine.step))
                engine.compact()
            assert needed <= {path.name for path in (tmp_path / "s" / "runs").iterdir()}
        assert needed.isdisjoint(CommitLog(Location(tmp_path / "s")).load().files())
        assert frame.count() == 3
        assert reader.tables["t"].rows == 15
    with open_engine() as engine:
        assert {path.name for path in (tmp_path / "s" / "runs").iterdir()} == engine._store.snapshot.files()


def test_without_a_lease_a_reader_reads_again(writer: hr.Engine, spark: SparkSession, tmp_path: Path) -> None:
    writer.apply(rows(1))
    (tmp_path / "s" / "readers").rmdir()  # as if this user may not write there
    with hr.Engine(spark, tmp_path / "s", read_only=True) as reader:
        frame = reader.tables["t"].to_df()
        for i in range(2, 12):
            writer.apply(rows(i))
            assert reader.tables["t"].to_arrow().num_rows == i
        writer.compact()
        writer.sync()
        with pytest.raises(Exception, match="is missing"):
            frame.count()
        assert reader.tables["t"].to_df().count() == 11


def test_files_that_are_merged_away_are_no_damage(
    writer: hr.Engine, reader: hr.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.view("v", "SELECT g, COUNT(*) AS n FROM t GROUP BY g")
    view = reader.views["v"]
    writer.apply(rows(1, 2))
    answer, failed = view._answer.table, []  # type: ignore[union-attr]

    def table(found: object) -> pa.Table:
        if not failed:
            failed.append(True)
            writer.apply(rows(3))  # the snapshot of the reader is that of before, and its files are gone
            raise CorruptFileError("run file x is damaged: it is missing", way_out="")
        return answer(found)

    monkeypatch.setattr(type(view._answer), "table", lambda self, found: table(found))  # type: ignore[union-attr]
    assert sorted(row["n"] for row in view.to_arrow().to_pylist()) == [1, 2]
    failed.clear()

    def dropped(found: object) -> pa.Table:
        if not failed:
            failed.append(True)
            writer.drop("v")
            raise CorruptFileError("run file x is damaged: it is missing", way_out="")
        return answer(found)

    monkeypatch.setattr(type(view._answer), "table", lambda self, found: dropped(found))  # type: ignore[union-attr]
    with pytest.raises(StorageError, match="changes faster than it can be read"):
        view.to_arrow()

"""Merges beside steps: answers and files stay right whenever a merge ends, fails, or is given up."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.residences import misplaced
from tests.seeds import seeds

import headrace as hr
from headrace.engine import upkeep
from headrace.errors import CorruptFileError, StorageError
from headrace.relation import arrangement
from headrace.runtime import one_pass, tasks
from headrace.runtime.log import CommitLog
from headrace.runtime.merges import Merge, Merging
from headrace.runtime.openruns import OPEN

SQL = "SELECT shop, COUNT(*) AS n, SUM(x) AS x, MIN(x) AS least FROM t GROUP BY shop"
Kept = dict[int, tuple[int, int]]


@pytest.fixture
def all_are_owed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No step merges anything, and two runs of a size are owed a merge."""
    monkeypatch.setattr(tasks, "_SMALL", 0)
    monkeypatch.setattr(arrangement, "_LARGE_FAN_IN", 2)
    monkeypatch.setattr(one_pass, "MOST_ROWS", 38)  # shared by two cores
    monkeypatch.setattr(one_pass, "MOST_ROWS_PER_BUCKET", 0)


@pytest.fixture
def engine(spark: SparkSession, tmp_path: Path, all_are_owed: None) -> Iterator[hr.Engine]:
    with made(spark, tmp_path / "state") as engine:
        yield engine


def made(spark: SparkSession, location: Path, **options: bool) -> hr.Engine:
    engine = hr.Engine(spark, location, executor="inline", buckets=3, **options)  # type: ignore[arg-type]
    if not options.get("read_only"):
        engine.table("t", "id BIGINT, shop INT, x INT", key="id")
        engine.view("v", SQL)
    return engine


class Gate:
    """Lets merges of the engine's own thread wait until they are told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.open = threading.Event(), threading.Event()
        run = Merging.run

        def waiting(merging: Merging, *given: object) -> object:
            if threading.current_thread().name == "headrace-upkeep":
                self.reached.set()
                assert self.open.wait(30)
            return run(merging, *given)  # type: ignore[arg-type]

        monkeypatch.setattr(Merging, "run", waiting)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(monkeypatch)
    yield gate
    gate.open.set()


def own_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "headrace-upkeep"]


def await_upkeep() -> None:
    for thread in own_threads():
        thread.join(30)


def await_merge(engine: hr.Engine) -> None:
    """Wait until merged runs wait for a commit."""
    for _ in range(3000):
        if engine._store.has_replacements:
            return
        time.sleep(0.01)
    raise AssertionError("nothing was merged")


def batch(rows: list[tuple[int, int, int, int]]) -> pa.Table:
    columns = zip(*rows, strict=True)
    types = {"id": pa.int64(), "shop": pa.int32(), "x": pa.int32(), "__diff": pa.int64()}
    return pa.table({name: pa.array(column, kind) for (name, kind), column in zip(types.items(), columns, strict=True)})


def inserted(engine: hr.Engine, start: int, count: int) -> None:
    engine.apply({"t": batch([(i, i % 5, i % 11, 1) for i in range(start, start + count)])})


def check(engine: hr.Engine, ids: range) -> None:
    expected: dict[int, tuple[int, int, int]] = {}
    for i in ids:
        n, x, least = expected.get(i % 5, (0, 0, 99))
        expected[i % 5] = (n + 1, x + i % 11, min(least, i % 11))
    rows = engine.views["v"].to_arrow().to_pylist()
    assert {row["shop"]: (row["n"], row["x"], row["least"]) for row in rows} == expected
    assert sorted(engine.tables["t"].to_arrow().column("id").to_pylist()) == list(ids)


def files(engine: hr.Engine) -> set[str]:
    engine.sync()  # until then, files that were replaced stay
    return {path.name for path in (engine.location / "runs").iterdir()}


def most_runs(engine: hr.Engine) -> int:
    states = engine._store.snapshot.arrangements.values()
    return max(len(state.runs) for buckets in states for state in buckets.values())


def test_what_steps_owe_is_merged(engine: hr.Engine) -> None:
    for i in range(30):
        inserted(engine, 10 * i, 10)
    engine.compact()
    assert most_runs(engine) <= 6
    assert engine.status()["owed_merges"] == 0
    check(engine, range(300))
    assert files(engine) == engine._store.snapshot.files()
    assert misplaced(engine) == []
    assert engine.verify() == []


def test_merges_are_done_without_being_asked_for(engine: hr.Engine) -> None:
    for i in range(10):
        inserted(engine, 10 * i, 10)
    await_upkeep()
    assert engine.status()["owed_merges"] == 0
    check(engine, range(100))


def test_a_merge_takes_its_place_with_the_commit_of_a_step(engine: hr.Engine, gate: Gate) -> None:
    inserted(engine, 0, 10)
    inserted(engine, 10, 10)
    assert gate.reached.wait(30)
    with engine._lock:  # so that the thread cannot commit by itself
        gate.open.set()
        await_merge(engine)
        before = engine._store.snapshot.version
        assert engine._store.has_replacements
        engine.apply({"t": batch([(20, 0, 9, 1)])})
        assert engine._store.snapshot.version == before + 1
    check(engine, range(21))
    assert misplaced(engine) == []


def test_runs_that_are_gone_meanwhile_are_not_replaced(engine: hr.Engine, gate: Gate) -> None:
    inserted(engine, 0, 10)
    inserted(engine, 10, 10)
    assert gate.reached.wait(30)
    inserted(engine, 20, 200)  # goes from bucket to bucket, and moves the recent runs there first
    gate.open.set()
    engine.compact()
    check(engine, range(220))
    assert files(engine) == engine._store.snapshot.files()


def test_a_view_may_be_dropped_while_it_is_merged(engine: hr.Engine, gate: Gate) -> None:
    inserted(engine, 0, 10)
    inserted(engine, 10, 10)
    assert gate.reached.wait(30)
    engine.drop("v")
    engine.view("v", SQL)
    gate.open.set()
    engine.compact()
    check(engine, range(20))
    assert files(engine) == engine._store.snapshot.files()


def test_a_step_that_fails_leaves_the_files_of_a_merge(
    engine: hr.Engine, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    inserted(engine, 0, 10)
    inserted(engine, 10, 10)
    assert gate.reached.wait(30)
    with engine._lock:
        gate.open.set()
        await_merge(engine)
        assert engine._store.has_replacements
        with pytest.raises(hr.BadRowsError):
            engine.apply({"t": batch([(5, 0, 9, 1)])})  # the key is there; the attempt is rolled back
        assert engine._store.has_replacements
    engine.compact()
    check(engine, range(20))
    assert engine.verify() == []
    assert files(engine) == engine._store.snapshot.files()


def test_steps_that_are_too_fast_merge_themselves(engine: hr.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "MOST_RUNS", 6)
    monkeypatch.setattr(upkeep.Upkeep, "_run", lambda _: None)  # the thread never gets to it
    for i in range(40):
        inserted(engine, 10 * i, 10)
        assert most_runs(engine) <= 7
    check(engine, range(400))


def test_a_merge_that_fails_is_told_and_tried_again(
    engine: hr.Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run = Merging.run

    def failing(merging: Merging, merge: Merge, *given: object) -> object:
        raise StorageError("no space left", way_out="free some")

    monkeypatch.setattr(Merging, "run", failing)
    for i in range(5):
        inserted(engine, 10 * i, 10)
    await_upkeep()
    assert any("no space left" in line for line in engine.status()["failed_merges"])
    assert "no space left" in caplog.text
    check(engine, range(50))
    monkeypatch.setattr(upkeep, "MOST_RUNS", 2)
    inserted(engine, 50, 10)
    with pytest.raises(StorageError, match="no space left"):
        inserted(engine, 60, 10)
    monkeypatch.setattr(Merging, "run", run)
    inserted(engine, 60, 10)
    engine.compact()
    assert "failed_merges" not in engine.status()
    check(engine, range(70))
    assert files(engine) == engine._store.snapshot.files()


def test_a_commit_that_fails_leaves_the_merge_to_the_next(
    engine: hr.Engine, gate: Gate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    inserted(engine, 0, 10)
    inserted(engine, 10, 10)
    assert gate.reached.wait(30)
    with monkeypatch.context() as patched:
        patched.setattr(CommitLog, "append", _no_space)
        gate.open.set()
        await_upkeep()
    assert not own_threads()
    assert "no space" in caplog.text
    assert engine._store.has_replacements
    inserted(engine, 20, 10)
    engine.compact()
    check(engine, range(30))
    assert files(engine) == engine._store.snapshot.files()


def test_a_damaged_run_is_found_and_nothing_takes_its_place(engine: hr.Engine, gate: Gate) -> None:
    inserted(engine, 0, 10)
    inserted(engine, 10, 10)
    assert gate.reached.wait(30)
    states = engine._store.snapshot.arrangements["table/t"]
    path = engine.location / "runs" / next(iter(states.values())).runs[0].name
    data = bytearray(path.read_bytes())
    data[-80] ^= 255
    path.write_bytes(data)
    OPEN.forget_all(str(engine.location))
    gate.open.set()
    with pytest.raises(CorruptFileError):
        engine.compact()
    assert engine.verify() != []
    assert path.exists()


def test_closing_gives_up_a_merge_and_opening_takes_it_up_again(
    spark: SparkSession, tmp_path: Path, all_are_owed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = made(spark, tmp_path / "state")
    gate = Gate(monkeypatch)
    inserted(engine, 0, 10)
    inserted(engine, 10, 10)
    assert gate.reached.wait(30)
    threading.Timer(0.1, gate.open.set).start()
    engine.close()
    assert not own_threads()
    with made(spark, tmp_path / "state") as engine:
        engine.compact()
        assert engine.status()["owed_merges"] == 0
        check(engine, range(20))
        assert files(engine) == engine._store.snapshot.files()


def test_files_of_a_merge_that_no_commit_names_are_removed_when_the_location_is_opened(
    spark: SparkSession, tmp_path: Path, all_are_owed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with made(spark, tmp_path / "state") as engine:
        inserted(engine, 0, 10)
        engine.compact()
        # The process "dies" between the merge and its commit.
        monkeypatch.setattr(upkeep.Upkeep, "_commit", lambda _: None)
        inserted(engine, 10, 10)
        await_merge(engine)
        assert files(engine) > engine._store.snapshot.files()
    monkeypatch.undo()
    with made(spark, tmp_path / "state") as engine:
        assert files(engine) == engine._store.snapshot.files()
        check(engine, range(20))


def test_who_only_reads_does_not_merge(spark: SparkSession, tmp_path: Path, all_are_owed: None) -> None:
    with made(spark, tmp_path / "state") as engine:
        inserted(engine, 0, 10)
        with made(spark, tmp_path / "state", read_only=True) as reading:
            inserted(engine, 10, 10)
            check(reading, range(20))
            reading.compact()


def test_a_reader_keeps_the_runs_that_are_merged_away(engine: hr.Engine) -> None:
    inserted(engine, 0, 10)
    inserted(engine, 10, 10)
    with engine._store.reader() as reader:
        for i in range(2, 12):
            inserted(engine, 10 * i, 10)
        engine.compact()
        assert reader.damage() == []
    assert files(engine) == engine._store.snapshot.files()


@seeds("upkeep", 6)
def test_any_steps_with_merges_beside_them(
    spark: SparkSession, tmp_path: Path, all_are_owed: None, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Insertions, updates and deletions, restarts, steps that fail at the commit, and asking in between."""
    rng = np.random.default_rng(seed)
    append = CommitLog.append
    rows: Kept = {}
    engine = made(spark, tmp_path / "state")
    try:
        for number in range(25):
            changes: list[tuple[int, int, int, int]] = []
            after = dict(rows)
            for i in rng.choice(200, int(rng.choice([1, 5, 40])), replace=False).tolist():
                if i in after:
                    shop, x = after.pop(i)
                    changes.append((i, shop, x, -1))
                if i not in rows or rng.random() < 0.5:
                    after[i] = int(rng.integers(5)), int(rng.integers(11))
                    changes.append((i, *after[i], 1))
            if rng.random() < 0.15:
                monkeypatch.setattr(CommitLog, "append", _no_space)
                with pytest.raises(OSError, match="no space"):
                    engine.apply({"t": batch(changes)})
                monkeypatch.setattr(CommitLog, "append", append)
            engine.apply({"t": batch(changes)})
            rows = after
            if rng.random() < 0.1:
                engine.close()
                engine = made(spark, tmp_path / "state")
            if rng.random() < 0.2:
                engine.compact()
            found = engine.tables["t"].to_arrow().to_pylist()
            assert {row["id"]: (row["shop"], row["x"]) for row in found} == rows, number
            groups: dict[int, list[int]] = {}
            for shop, x in rows.values():
                groups.setdefault(shop, []).append(x)
            answer = engine.views["v"].to_arrow().to_pylist()
            assert {row["shop"]: (row["n"], row["x"], row["least"]) for row in answer} == {
                shop: (len(xs), sum(xs), min(xs)) for shop, xs in groups.items()
            }, number
        engine.compact()
        assert misplaced(engine) == []
        assert engine.verify() == []
        assert files(engine) == engine._store.snapshot.files()
    finally:
        engine.close()


def _no_space(*_: object, **__: object) -> None:
    raise OSError("no space left on device")

"""Whatever dies, the next start sees the last commit: killed drivers and workers, full disks, damaged files."""

from __future__ import annotations

import os
import random
import resource
import signal
import threading
import time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from tests.cluster import tally
from tests.forks import Forks
from tests.seeds import SEED, drawn

import headrace as hr
from headrace.engine import step_runner
from headrace.errors import CorruptFileError, HeadraceError, StepFailedError, StorageError
from headrace.runtime.location import Location
from headrace.runtime.log import CommitLog
from headrace.testing.oracle import Oracle, assert_same

CHILD = Path(__file__).parent / "crash_child.py"
_spec = spec_from_file_location("crash_child", CHILD)
assert _spec is not None
assert _spec.loader is not None
child = module_from_spec(_spec)
_spec.loader.exec_module(child)

MANY = int(os.environ.get("HEADRACE_KILLS", "45"))  # fifty in all; `make nightly` kills more
KILLS = [pytest.param(5, marks=pytest.mark.check), MANY]


def files_of(engine: hr.Engine) -> set[str]:
    engine.sync()  # until then, files that were replaced stay
    return {path.name for path in (engine.location / "runs").iterdir()}


def check_prefix(engine: hr.Engine, oracle: Oracle, seed: int) -> None:
    """The views equal the oracle for the committed prefix, and nothing lies around that no commit names."""
    rows = child.Replay(seed).to(engine.step)
    assert_same(engine.tables["t"].to_arrow(), rows)
    oracle.set_rows({"t": rows})
    views = [view for view in engine.views.values() if view.goal is None]
    for view, expected in zip(views, oracle.answers([child.nested(view.sql) for view in views]), strict=True):
        assert_same(view.to_arrow(), expected)
    for view in (view for view in engine.views.values() if view.goal is not None):
        oracle.set_rows({"t": child.Replay(seed).to(view.as_of)})
        assert_same(view.to_arrow(), oracle.answer(view.sql))
    assert files_of(engine) == engine._store.snapshot.files()
    assert not list((engine.location / "batches").iterdir())


@pytest.mark.timeout(1800 + 5 * MANY)
@pytest.mark.parametrize("kills", KILLS)
def test_kills_of_the_driver_lose_and_double_nothing(
    spark: SparkSession, forks: Forks, tmp_path: Path, kills: int
) -> None:
    rng, oracle, seed = random.Random(SEED), Oracle(spark), drawn(f"{kills} kills", 1)[0]
    location, before = tmp_path / "state", 0
    with child.open_engine(spark, location):
        pass
    for kill in range(kills):
        process = forks.start(str(CHILD), str(location), str(seed))
        if kill % 4 != 1 or kill % 3 == 2:  # the others are killed while they open the location
            assert process.first_lines() == ["ready\n"], process.stderr.read_text()
        if kill % 3 == 2:  # so that it gets somewhere, also on a slow machine
            _wait_for_step(location, before + 1)
        time.sleep(rng.uniform(0.0, 1.2))
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, process.stderr.read_text()
        step = CommitLog(Location(location)).load().step
        assert step >= before, "a committed step was lost"
        before = step
        if kill % 5 == 4:  # comparing takes longer than killing; damage would still be there at the next look
            _wait_for_tasks(spark)
            with hr.Engine(spark, location, driver_rows=child.DRIVER_ROWS) as engine:
                check_prefix(engine, oracle, seed)
    assert before >= kills // 3
    tally.record({"fault: driver on this machine killed": kills, "local, steps": before})


def _wait_for_step(location: Path, step: int) -> None:
    deadline = time.monotonic() + 60
    while _step(location) < step and time.monotonic() < deadline:
        time.sleep(0.02)


def _step(location: Path) -> int:
    try:
        return CommitLog(Location(location)).load().step
    except CorruptFileError:  # the child is just replacing records by a checkpoint
        return -1


def _wait_for_tasks(spark: SparkSession) -> None:
    """Tasks of the killed driver go on in the JVM that it shared with this test; a JVM of its own would be gone."""
    tracker = spark.sparkContext.statusTracker()
    deadline = time.monotonic() + 60
    while (tracker.getActiveJobsIds() or tracker.getActiveStageIds()) and time.monotonic() < deadline:
        time.sleep(0.05)


def test_killed_workers_are_retried_and_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    seed = 7
    replay, killed, done = child.Replay(seed), [], threading.Event()

    def kill_workers() -> None:
        while not done.is_set() and len(killed) < 6:
            for pid in _workers():
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            time.sleep(0.4)

    with child.open_engine(spark, tmp_path / "state") as engine:
        engine._maintenance._step_runner.executor = "spark"
        engine.apply({"t": replay.next()})  # workers exist from here on
        thread = threading.Thread(target=kill_workers)
        thread.start()
        refused = 0
        try:
            while len(killed) < 6:
                changes = replay.next()
                while True:
                    try:
                        engine.apply({"t": changes})
                        break
                    except HeadraceError:  # four attempts died: the step was refused, so it can be applied again
                        refused += 1
        finally:
            done.set()
            thread.join()
        assert len(killed) >= 6
        engine._store.remove_orphans()
        check_prefix(engine, Oracle(spark), seed)


@pytest.mark.parametrize("failures", [1, 4])
def test_a_job_that_spark_can_only_run_from_the_start_is_run_from_the_start(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    """An executor was lost whose packed changes other tasks had read already; found on a cluster, by tests/cluster."""
    calls, run = [], step_runner.run_from_files

    def failing(*given: Any) -> Any:
        calls.append(run(*given))
        if len(calls) <= failures:
            raise Py4JError(
                "Job aborted: A shuffle map stage with indeterminate output was failed and retried. However"
            )
        return calls[-1]

    with hr.Engine(spark, tmp_path / "state", executor="spark", buckets=2) as engine:
        engine.table("t", "x BIGINT")
        view = engine.view("v", "SELECT COUNT(*) AS n, SUM(x) AS x FROM t")
        monkeypatch.setattr(step_runner, "run_from_files", failing)
        rows = pa.table({"x": [1, 2, 3]})
        if failures == 4:
            with pytest.raises(StepFailedError, match="the rows are not to blame"):
                engine.apply({"t": rows})
        engine.apply({"t": rows})
        assert len(calls) == failures + 1
        assert view.to_pandas().to_dict("records") == [{"n": 3, "x": 6}]


def _workers() -> list[int]:
    """Python workers of Spark: the daemon is forked for each, and they have no children of their own."""
    parents: dict[int, int] = {}
    daemons = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if b"pyspark.daemon" in (entry / "cmdline").read_bytes():
                    daemons.append(int(entry.name))
            except OSError:
                continue  # it ended meanwhile
    return [pid for pid in daemons if parents[pid] in daemons]


def test_a_full_disk_refuses_the_step_and_names_the_file(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path / "state", executor="inline", buckets=2) as engine:
        engine.table("t", "id BIGINT, x DOUBLE", key="id")
        view = engine.view("v", "SELECT COUNT(*) AS n, SUM(x) AS x FROM t")
        engine.apply({"t": pa.table({"id": [1], "x": [1.0]})})
        before, files = view.to_arrow(), files_of(engine)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        rows = pa.table({"id": np.arange(10, 100_010), "x": np.ones(100_000)})
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        try:
            with pytest.raises(StorageError, match=r"runs/.*\.run"):
                engine.apply({"t": rows})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert view.to_arrow() == before
        assert files_of(engine) == files, "a refused step left files"
        engine.apply({"t": rows})
        assert view.to_pandas()["n"][0] == 100_001


def test_a_full_disk_names_the_batch_file_too(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path / "state", executor="spark", buckets=2) as engine:
        engine.table("t", "id BIGINT, x DOUBLE", key="id")
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        for sql, suffix in (("SELECT COUNT(*) AS n FROM t", "arrow"), ("SELECT upper(hex(id)) AS h FROM t", "parquet")):
            engine.view(suffix, sql)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
            try:
                with pytest.raises(StorageError, match=rf"batches/.*\.{suffix}"):
                    engine.apply({"t": pa.table({"id": np.arange(100_000), "x": np.ones(100_000)})})
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            assert not list((engine.location / "batches").iterdir())


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_a_damaged_file_is_an_error_that_names_it(spark: SparkSession, tmp_path: Path, damage: str) -> None:
    location = tmp_path / "state"
    with hr.Engine(spark, location, executor="inline", buckets=1) as engine:
        engine.table("t", "id BIGINT, shop STRING", key="id")
        engine.view("v", "SELECT shop, COUNT(*) AS n FROM t GROUP BY shop")
        engine.apply({"t": pa.table({"id": np.arange(5000), "shop": [f"shop {i % 700}" for i in range(5000)]})})
        ref = engine._store.snapshot.arrangements["view/v/groups"][0].runs[0]
    name, end = ref.name, ref.at + ref.bytes
    path = location / "runs" / name
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[ref.at + ref.bytes // 2] ^= 0x10
        path.write_bytes(data)
    elif damage == "truncate":
        path.write_bytes(data[: end - 100])
    else:
        path.unlink()
    with hr.Engine(spark, location, executor="inline") as engine:
        with pytest.raises(CorruptFileError, match=name):
            engine.views["v"].to_arrow()
        with pytest.raises(CorruptFileError, match=name):
            engine.apply({"t": pa.table({"id": np.arange(9000, 9700), "shop": [f"shop {i}" for i in range(700)]})})
        assert any(name in problem for problem in engine.verify())
        engine.drop("v")  # the way out that the error names: the view is rebuilt from its table
        rebuilt = engine.view("v", "SELECT shop, COUNT(*) AS n FROM t GROUP BY shop")
        assert rebuilt.to_pandas()["n"].sum() == 5000
        assert engine.verify() == []


def test_a_damaged_commit_record_is_an_error_that_names_it(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path / "state") as engine:
        engine.table("t", "id BIGINT", key="id")
    record = next((tmp_path / "state" / "log").glob("*.commit"))
    record.write_bytes(record.read_bytes().replace(b"bigint", b"string"))
    with pytest.raises(CorruptFileError, match=record.name):
        hr.Engine(spark, tmp_path / "state")


def test_a_second_writer_is_refused_and_a_reader_is_not(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path / "state") as engine:
        engine.table("t", "id BIGINT", key="id")
        with pytest.raises(StorageError, match=f"process {os.getpid()}"):
            hr.Engine(spark, tmp_path / "state")
        with hr.Engine(spark, tmp_path / "state", read_only=True) as reader:
            assert list(reader.tables) == ["t"]
            with pytest.raises(StorageError, match="reading only"):
                reader.apply({"t": pa.table({"id": [1]})})

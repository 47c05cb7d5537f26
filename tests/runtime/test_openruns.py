from __future__ import annotations

import os
import time
import tracemalloc
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.seeds import seeds

from headrace.engine.engine import Engine
from headrace.relation import runfile
from headrace.relation.run import Run
from headrace.runtime.cache_share import BYTES
from headrace.runtime.openruns import OPEN, OpenRuns
from headrace.runtime.record import BucketState, RunRef

LARGE = 40_000  # entries of a file that is mapped


def a_bucket(root: Path, rows: int, files: int) -> BucketState:
    (root / "runs").mkdir(exist_ok=True)
    refs = []
    for i in range(files):
        run = Run(np.arange(rows, dtype=np.uint64)[None, :], (np.full(rows, i),))
        path = root / "runs" / f"{rows}-{i}.run"
        size = runfile.write(run, path)
        refs.append(RunRef(path.name, rows, size, crc=runfile.crc_of(path.read_bytes())))
    return BucketState(tuple(refs), rows)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def deleted_mappings(root: Path | str) -> int:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sum(f" {root}/" in line and line.endswith("(deleted)") for line in lines)


def test_only_so_many_files_stay_mapped(tmp_path: Path) -> None:
    state, open_runs, before = a_bucket(tmp_path, LARGE, 12), OpenRuns(mapped_limit=4), descriptors()
    for ref in state.runs:
        (run,) = open_runs.opened(str(tmp_path), BucketState((ref,)))
        assert run.rows == LARGE
    del run
    assert descriptors() <= before + 4
    again = open_runs.opened(str(tmp_path), state)  # what was let go is opened again
    assert [run.payload[0][0] for run in again] == list(range(12))


def test_a_limit_of_addresses_bounds_what_is_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, open_runs = a_bucket(tmp_path, LARGE, 8), OpenRuns()
    size = state.runs[0].bytes
    monkeypatch.setattr("headrace.runtime.openruns.address_limit", lambda: 7 * size)  # half of that: three files
    open_runs.opened(str(tmp_path), state)
    assert (open_runs.count, open_runs.mapped_bytes) == (3, 3 * size)


@pytest.mark.check
@seeds("memory of open runs", 3)
def test_the_bytes_held_stay_within_their_bound(tmp_path: Path, seed: int) -> None:
    """Random files of random arrangements, some together: what is counted is what Python's own counter finds."""
    rng, limit = np.random.default_rng(seed), 1_500_000
    states = [a_bucket(tmp_path / str(i), int(rng.integers(1, 9_000)), 6) for i in range(20) if _folder(tmp_path, i)]
    states += [a_bucket(tmp_path / "large", LARGE, 2)] if _folder(tmp_path, "large") else []
    roots = [str(tmp_path / str(i)) for i in range(20)] + [str(tmp_path / "large")]
    OpenRuns(memory_limit=limit).one(roots[0], states[0].runs[0])  # what is loaded once is not counted below
    evictions, most = 0, 0
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        open_runs = OpenRuns(memory_limit=limit)
        for number in rng.integers(0, len(states), 150).tolist():
            root, state, count = roots[number], states[number], open_runs.count
            if rng.random() < 0.5:
                found = list(open_runs.of_step(root, "a", {0: state}, 1, None))
            else:
                found = list(open_runs.opened(root, BucketState(state.runs[: int(rng.integers(1, 7))])))
            for run in found:
                run.check(np.arange(run.rows))
                assert run.words[0, -1] == run.rows - 1
            del found, run
            evictions += open_runs.count < count
            most = max(most, open_runs.held_bytes)
            assert open_runs.held_bytes <= limit
        traced = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert evictions > 5
    assert most > limit // 2
    # Objects are counted by a measured average, with room for what Python rounds.
    assert open_runs.held_bytes / 2 < traced < 1.3 * open_runs.held_bytes + 100_000
    for root in roots:
        open_runs.forget_all(root)
    assert (open_runs.held_bytes, open_runs.mapped_bytes, open_runs.count) == (0, 0, 0)


def _folder(root: Path, name: object) -> bool:
    (root / str(name)).mkdir()
    return True


def test_what_steps_use_together_stays_when_others_go(tmp_path: Path) -> None:
    """An arrangement that every step uses is touched as a whole, so its runs must not look as if nobody used them."""
    used, others = tmp_path / "used", tmp_path / "others"
    used.mkdir(), others.mkdir()
    ours, theirs = a_bucket(used, 5_000, 3), a_bucket(others, 5_000, 12)
    one = OpenRuns()
    one.opened(str(used), BucketState(ours.runs[:1]))
    open_runs = OpenRuns(memory_limit=8 * one.held_bytes)
    first = open_runs.of_step(str(used), "a", {0: ours}, 1, None)
    for ref in theirs.runs:
        open_runs.one(str(others), ref)
        again = open_runs.of_step(str(used), "a", {0: ours}, 1, None)
        assert [a is b for a, b in zip(first, again, strict=True)] == [True] * 3
    assert open_runs.count == 8
    changed = BucketState(ours.runs[1:], 5_000)  # the arrangement has another state, and is opened anew
    assert len(open_runs.of_step(str(used), "a", {0: changed}, 1, None)) == 2
    open_runs.forget(str(used), [ref.name for ref in ours.runs])
    assert not any(a is b for a in first for b in open_runs.of_step(str(used), "a", {0: changed}, 1, None))


def test_an_arrangement_without_runs_has_the_buckets_that_are_asked_for(tmp_path: Path) -> None:
    open_runs = OpenRuns()
    assert [open_runs.of_step(str(tmp_path), "a", {}, buckets, None).buckets for buckets in (2, 16, 3)] == [2, 16, 3]


def test_an_arrangement_for_which_there_is_no_room_is_read_all_the_same(tmp_path: Path) -> None:
    state, open_runs = a_bucket(tmp_path, 5_000, 12), OpenRuns(memory_limit=400_000)
    for _ in range(2):
        found = open_runs.of_step(str(tmp_path), "a", {0: state}, 1, None)
        assert [run.payload[0][0] for run in found] == list(range(12))
        assert open_runs.held_bytes <= 400_000


def test_what_nobody_uses_is_given_back(tmp_path: Path) -> None:
    states = [a_bucket(tmp_path, rows, 4) for rows in (10, LARGE)]
    open_runs, before = OpenRuns(), descriptors()
    for state in states:
        open_runs.of_step(str(tmp_path), f"a{state.live}", {0: state}, 1, None)
    open_runs.look_over(idle=60)
    assert (open_runs.count, descriptors()) == (8, before + 4)
    open_runs.look_over(idle=0)
    assert (open_runs.count, open_runs.held_bytes, open_runs.mapped_bytes, descriptors()) == (0, 0, 0, before)


def test_a_thread_gives_it_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.runtime.openruns._LOOK_SECONDS", 0.01)
    monkeypatch.setattr(OpenRuns.look_over, "__defaults__", (0.0, 0.0))
    state, open_runs = a_bucket(tmp_path, 10, 2), OpenRuns()
    for _ in range(2):  # the thread ends when nothing is left, and there is another one when it is needed
        open_runs.opened(str(tmp_path), state)
        deadline = time.monotonic() + 20
        while open_runs.count or open_runs._looking:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_files_that_another_process_has_removed_are_let_go(tmp_path: Path) -> None:
    state, open_runs = a_bucket(tmp_path, LARGE, 4), OpenRuns()
    open_runs.of_step(str(tmp_path), "a", {0: BucketState(state.runs[:2])}, 1, None)
    open_runs.opened(str(tmp_path), state)
    for ref in state.runs[1:3]:
        (tmp_path / "runs" / ref.name).unlink()
    assert deleted_mappings(tmp_path) == 2
    open_runs.look_over()  # they were used a moment ago
    assert open_runs.count == 4
    open_runs.look_over(settled=0)
    assert (open_runs.count, deleted_mappings(tmp_path)) == (2, 0)
    (tmp_path / "runs").rename(tmp_path / "elsewhere")
    open_runs.look_over(settled=0)
    assert open_runs.count == 0


def test_a_run_is_opened_once_and_forgotten_when_it_is_gone(tmp_path: Path) -> None:
    state, open_runs = a_bucket(tmp_path, 10, 2), OpenRuns()
    first = open_runs.opened(str(tmp_path), state)
    assert [a is b for a, b in zip(first, open_runs.opened(str(tmp_path), state), strict=True)] == [True, True]
    open_runs.forget(str(tmp_path), [state.runs[0].name])
    second = open_runs.opened(str(tmp_path), state)
    assert [a is b for a, b in zip(first, second, strict=True)] == [False, True]


def test_what_this_process_wrote_is_verified_when_it_is_opened_a_second_time(tmp_path: Path) -> None:
    (ref,) = a_bucket(tmp_path, 100_000, 1).runs
    path = tmp_path / "runs" / ref.name
    runs = OpenRuns()
    assert not runs.one(str(tmp_path), ref).verified.any()
    for forget in (lambda: runs.forget(str(tmp_path), [ref.name]), lambda: runs.forget_all(str(tmp_path))):
        forget()
        runs.wrote(path)
        assert runs.one(str(tmp_path), ref).verified.all()
        runs.wrote(path)
        forget()
        assert not runs.one(str(tmp_path), ref).verified.any()


def test_a_fork_begins_with_nothing_open(tmp_path: Path) -> None:
    OPEN.opened(str(tmp_path), a_bucket(tmp_path, 10, 2))
    try:
        with OPEN._lock, warnings.catch_warnings():  # a lock that another thread may hold
            warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads
            child = os.fork()
            if not child:
                os._exit(OPEN.count if OPEN._lock.acquire(blocking=False) else 99)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert OPEN.count >= 2
    finally:
        OPEN.forget_all(str(tmp_path))


def test_workers_hold_no_more_than_their_share_and_no_file_that_is_gone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many steps as jobs over tables and views that come and go; then each worker tells what it holds."""
    limit = 2_000_000
    monkeypatch.setitem(spark.sparkContext.environment, BYTES, str(limit))  # so workers of their own
    rng, held = np.random.default_rng(1), list[tuple[int, int, int, int]]()
    with Engine(spark, tmp_path / "state", buckets=4, executor="spark") as engine:
        for number in range(2):
            engine.table(f"t{number}", "id BIGINT, shop INT, amount BIGINT", key="id")
            engine.view(f"v{number}", f"SELECT shop, SUM(amount) AS amount FROM t{number} GROUP BY shop")
            for start in range(0, 80_000, 40_000):
                rows = {
                    "id": np.arange(start, start + 40_000),
                    "shop": rng.integers(0, 20_000, 40_000).astype(np.int32),
                    "amount": rng.integers(0, 100, 40_000),
                }
                engine.apply({f"t{number}": pa.table(rows)})
            assert engine.views[f"v{number}"].to_arrow().num_rows > 19_000
            engine.compact()
            held += _of_workers(spark, str(engine.location))
            engine.drop(f"v{number}")
    assert len({pid for pid, *_ in held}) >= 1
    assert max(own for _, own, _, _ in held) > limit // 4
    assert all(own <= limit for _, own, _, _ in held)
    assert all(gone == 0 for _, _, gone, _ in held)
    assert all(count > 0 for _, _, _, count in held)


def _of_workers(spark: SparkSession, root: str) -> list[tuple[int, int, int, int]]:
    """What workers hold, once they have looked over it: per task the process, bytes, files that are gone, and runs."""

    def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from headrace.runtime.openruns import OPEN as own

        list(batches)
        held = own.held_bytes
        own.look_over(settled=0)
        maps = Path("/proc/self/maps").read_text().splitlines()
        gone = sum(f" {root}/" in line and line.endswith("(deleted)") for line in maps)
        told = {"pid": [os.getpid()], "held": [held], "gone": [gone], "count": [own.count]}
        yield pa.RecordBatch.from_pydict(told)

    columns = "pid BIGINT, held BIGINT, gone BIGINT, count BIGINT"
    return [tuple(row) for row in spark.range(0, 2, 1, 2).mapInArrow(tell, columns).collect()]

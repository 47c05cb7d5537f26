from __future__ import annotations

from pathlib import Path

import numpy as np

from headrace.relation import runfile
from headrace.relation.run import Run
from headrace.runtime.openruns import OpenRuns
from headrace.runtime.record import BucketState, RunRef


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


def test_only_so_many_files_stay_mapped(tmp_path: Path) -> None:
    state, open_runs, before = a_bucket(tmp_path, 40_000, 12), OpenRuns(mapped_limit=4), descriptors()
    for ref in state.runs:
        (run,) = open_runs.opened(str(tmp_path), BucketState((ref,)))
        assert run.rows == 40_000
    del run
    assert descriptors() <= before + 4
    again = open_runs.opened(str(tmp_path), state)  # what was let go is opened again
    assert [run.payload[0][0] for run in again] == list(range(12))


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

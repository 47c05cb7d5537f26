"""Leases of readers: void as soon as the process is dead, or some time after the last use; strangers are left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.runtime.leases import CURRENT_SECONDS, NOTHING, PINNED_SECONDS, Lease, oldest

PROGRAM = """
import sys, time
from pathlib import Path
from headrace.runtime.leases import Lease
lease = Lease(Path(sys.argv[1]))
lease.hold(7, 5)
print("held", flush=True)
time.sleep(600)
"""


def test_the_lease_of_a_dead_process_is_void_at_once(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert oldest(tmp_path) == 5
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert oldest(tmp_path) == NOTHING
    assert list(tmp_path.iterdir()) == []


def test_the_oldest_version_of_all_readers_counts(tmp_path: Path) -> None:
    one, other = Lease(tmp_path), Lease(tmp_path)
    one.hold(9)
    other.hold(12, 10)
    assert oldest(tmp_path) == 9
    one.hold(13)
    assert oldest(tmp_path) == 10
    other.close()
    assert oldest(tmp_path) == 13
    one.close()
    assert oldest(tmp_path) == NOTHING
    one.hold(1)  # a closed lease holds nothing any more
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("age", "needed"), [(0.0, 5), (CURRENT_SECONDS + 1, 6), (PINNED_SECONDS + 1, NOTHING)], ids=["used", "idle", "old"]
)
def test_a_lease_ends_some_time_after_its_last_use(tmp_path: Path, age: float, needed: int) -> None:
    lease = Lease(tmp_path)
    lease.hold(5, 6)
    (path,) = tmp_path.iterdir()
    os.utime(path, (time.time() - age,) * 2)
    assert oldest(tmp_path) == needed
    assert path.exists()  # the reader lives, and may use it again
    lease.hold(8, 6)
    assert oldest(tmp_path) == 6
    lease.close()


def test_a_lease_that_is_being_written_may_need_anything(tmp_path: Path) -> None:
    lease = Lease(tmp_path)
    lease.hold(5)
    (path,) = tmp_path.iterdir()
    os.truncate(path, 20)
    assert oldest(tmp_path) == 0
    lease.close()


def test_what_is_no_lease_is_left_alone(tmp_path: Path) -> None:
    folder, outside = tmp_path / "readers", tmp_path / "outside"
    folder.mkdir()
    outside.write_text("not yours")
    (folder / ("a" * 32)).symlink_to(outside)
    os.mkfifo(folder / ("b" * 32))
    (folder / "notes.txt").write_text("0 0 0")
    (folder / ("c" * 32)).mkdir()
    before = sorted(folder.iterdir())
    assert oldest(folder) == NOTHING
    assert sorted(folder.iterdir()) == before
    assert outside.read_text() == "not yours"


def test_without_a_folder_for_them_there_are_no_leases(tmp_path: Path) -> None:
    lease = Lease(tmp_path / "none")
    lease.hold(3)
    assert oldest(tmp_path / "none") == NOTHING
    lease.close()

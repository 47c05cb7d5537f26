"""The share of memory that a process may hold, on machines and in containers that are files of a test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.errors import SchemaError
from headrace.runtime import cache_share
from headrace.runtime.cache_share import BYTES, WORKERS, cache_bytes, machine_memory

GB = 1 << 30


def a_system(root: Path, groups: str, limits: dict[str, str]) -> Path:
    for path, text in {"proc/self/cgroup": groups, **limits}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


@pytest.mark.check
@pytest.mark.parametrize(
    ("groups", "limits", "expected"),
    [
        ("0::/a/b\n", {"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": f"{GB}\n"}, GB),
        ("0::/a/b\n", {"sys/fs/cgroup/a/b/memory.max": f"{GB}\n", "sys/fs/cgroup/a/memory.max": f"{2 * GB}\n"}, GB),
        ("0::/\n", {"sys/fs/cgroup/memory.max": f"{GB // 2}\n"}, GB // 2),
        ("4:memory:/c\n0::/\n", {"sys/fs/cgroup/memory/c/memory.limit_in_bytes": f"{GB}\n"}, GB),
        # In a container the path is that of the host, and only the mount itself is there.
        ("4:cpu,memory:/docker/1\n", {"sys/fs/cgroup/memory/memory.limit_in_bytes": f"{GB}\n"}, GB),
        ("4:memory:/\n", {"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
        ("0::/a\n", {"sys/fs/cgroup/a/memory.max": "max\n"}, None),
        ("0::/a\n", {}, None),
    ],
)
def test_a_control_group_limits_the_memory(
    tmp_path: Path, groups: str, limits: dict[str, str], expected: int | None
) -> None:
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert machine_memory(a_system(tmp_path, groups, limits)) == min(whole, expected or whole)


def test_without_control_groups_it_is_the_memory_of_the_machine(tmp_path: Path) -> None:
    assert machine_memory(tmp_path) == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_a_process_has_a_share_of_what_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (BYTES, WORKERS, "PYSPARK_EXECUTOR_MEMORY_MB"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(cache_share, "machine_memory", lambda: 64 * GB)
    monkeypatch.setattr(cache_share, "address_limit", lambda: None)
    monkeypatch.setenv(WORKERS, "3")
    assert cache_bytes() == GB  # half of it, by three workers and the driver, and an eighth of that
    monkeypatch.setenv(WORKERS, "31")
    assert cache_bytes() == GB // 8
    monkeypatch.setenv("PYSPARK_EXECUTOR_MEMORY_MB", "1024")
    assert cache_bytes() == GB // 8
    monkeypatch.setattr(cache_share, "address_limit", lambda: GB // 2)
    assert cache_bytes() == GB // 16
    monkeypatch.setattr(cache_share, "address_limit", lambda: 1 << 20)
    assert cache_bytes() == 8 << 20  # the least that is of use
    monkeypatch.setenv(BYTES, "5 MB")
    assert cache_bytes() == 5_000_000


@pytest.mark.parametrize(("name", "text"), [(BYTES, "much"), (BYTES, "0"), (WORKERS, "none"), (WORKERS, "0")])
def test_what_is_no_size_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    monkeypatch.delenv(BYTES, raising=False)
    monkeypatch.delenv("PYSPARK_EXECUTOR_MEMORY_MB", raising=False)
    monkeypatch.setattr(cache_share, "address_limit", lambda: None)
    monkeypatch.setenv(name, text)
    with pytest.raises(SchemaError, match=name):
        cache_bytes()

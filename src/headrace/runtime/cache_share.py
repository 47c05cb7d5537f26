"""How much memory a process may spend on run files that it could read again: a share of what the process has.

A Python worker of Spark has what Spark gives it (`spark.executor.pyspark.memory`), and cannot have more. Where Spark
sets no limit, the workers of a machine or a container and their driver share its memory with the JVM, and nothing tells
a worker how many others there are. So it counts one worker per core, unless it is told otherwise.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

from headrace.errors import SchemaError
from headrace.thrifty.keep.sizes import bytes_of

BYTES, WORKERS = "HEADRACE_RUN_MEMORY", "HEADRACE_WORKERS"
"""The environment variables that say how much a process may hold, and how many workers share the memory."""

_SHARE = 8  # most of the memory of a process is for its work
_LEAST = 8 << 20  # with less, small steps would read the files again that they have just written
_UNLIMITED = 1 << 60  # version 1 of control groups writes some such number where there is no limit
_SPARK = "PYSPARK_EXECUTOR_MEMORY_MB"  # Spark tells its workers so, once divided by the tasks of an executor


def cache_bytes() -> int:
    """How many bytes this process may hold.

    Raises
    ------
    SchemaError : an environment variable says what is no size, or no number.
    """
    told = os.environ.get(BYTES)
    if told is not None:
        try:
            found = bytes_of(told)
        except SchemaError:
            found = None
        if not found:
            raise SchemaError(f"{BYTES}={told!r} is not a size", way_out="give bytes, or a text as in '500 MB'")
        return found
    return max(_LEAST, _own_memory() // _SHARE)


def address_limit() -> int | None:
    """How many bytes this process may map at most; None if nothing limits it.

    Spark makes `spark.executor.pyspark.memory` a limit of addresses, to which mapped files count.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def _own_memory() -> int:
    """The memory that this process has for itself."""
    limit, told = address_limit(), os.environ.get(_SPARK, "")
    own = [] if limit is None else [limit]
    if told.isdigit() and int(told):
        own.append(int(told) << 20)
    # The other half is the JVM's. The driver is one more process than there are workers.
    return min(own) if own else machine_memory() // 2 // (_workers() + 1)


def _workers() -> int:
    told = os.environ.get(WORKERS)
    if told is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not told.isdigit() or not int(told):
        raise SchemaError(f"{WORKERS}={told!r} is no number of workers", way_out="give how many tasks run at once")
    return int(told)


def machine_memory(root: Path = Path("/")) -> int:
    """The memory of the machine, or of the container or group of processes that this one belongs to, if that is less.

    `root` is where the files of the system begin.
    """
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return limits[0]  # no Linux
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            limits += _limits(root / "sys/fs/cgroup", path, "memory.max")
        elif "memory" in controllers.split(","):
            limits += _limits(root / "sys/fs/cgroup/memory", path, "memory.limit_in_bytes")
    return min(limits)


def _limits(mount: Path, path: str, name: str) -> list[int]:
    """The limits of a control group and of all that it is part of; in a container the path may begin elsewhere."""
    own = mount / path.lstrip("/")
    found = []
    for folder in (own, *own.parents):
        if folder != mount and mount not in folder.parents:
            break
        try:
            text = (folder / name).read_text().strip()
        except OSError:
            continue
        if text.isdigit() and 0 < int(text) < _UNLIMITED:
            found.append(int(text))
    return found

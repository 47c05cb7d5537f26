"""Peak memory of this process and its Spark workers, sampled while something runs."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from pathlib import Path
from types import TracebackType

import pyarrow as pa

from headrace.bench.measuring.processes import children_of

_PAGE = os.sysconf("SC_PAGE_SIZE")


class PeakMemory:
    """Samples the private memory of the Python processes of this program: the driver and the workers that Spark starts.

    The JVM is left out: its heap is Spark's, the same with and without Headrace. Mapped state is left out too: the page
    cache holds it, and the machine takes it back when it needs the room.
    """

    def __init__(self, interval: float = 0.02) -> None:
        self.peak = 0
        self.start = 0
        self._interval = interval
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> PeakMemory:
        self.start = self.peak = private_bytes()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    @property
    def grown(self) -> int:
        """The bytes by which the peak was above the start."""
        return self.peak - self.start

    def _sample(self) -> None:
        while not self._done.wait(self._interval):
            self.peak = max(self.peak, private_bytes())


def private_bytes() -> int:
    """Return the resident memory of this process and of its Python workers, without pages shared with files."""
    total = 0
    for pid in [os.getpid(), *_python_descendants(os.getpid())]:
        try:
            resident, shared = (int(field) for field in Path(f"/proc/{pid}/statm").read_text().split()[1:3])
        except (OSError, ValueError):
            continue  # it ended meanwhile
        total += (resident - shared) * _PAGE
    return total


def release_memory() -> None:
    """Return freed memory to the system, so that it neither counts for the next measurement nor hides in it."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):  # not glibc
        return


def _python_descendants(root: int) -> list[int]:
    children, found, todo = children_of(), list[int](), [root]
    while todo:
        for child in children.get(todo.pop(), []):
            todo.append(child)
            if "python" in _command(child):
                found.append(child)
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""

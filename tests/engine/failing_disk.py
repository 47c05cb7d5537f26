"""A disk on which an operation fails: the nth, or all from then on, before or after it has done what it should."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.engine.simulated_disk import Unsynced

from headrace.relation.disk import Disk


class Failing(Unsynced):
    """Counts its operations, and lets some of them fail.

    Parameters
    ----------
    at : the number of the operation that fails; None if none does.
    code : the error, as in errno.ENOSPC.
    forever : whether all later ones fail too.
    late : whether what fails is done nevertheless, as a file system over a network may do it.
    """

    def __init__(self, at: int | None, code: int = errno.EIO, *, forever: bool = False, late: bool = False) -> None:
        self.count = 0
        self.failed: list[str] = []
        self._begun: set[Path] = set()
        self._at, self._code, self._forever, self._late = at, code, forever, late
        self._lock = threading.Lock()

    def write(self, path: Path, data: bytes | bytearray | memoryview, *, sync: bool = False) -> None:
        # Not of `Unsynced`: with a sync, as the engine asked for it.
        Disk.write(self, path, data)
        if sync:
            self.sync(path)

    @contextmanager
    def create(self, path: Path) -> Iterator[int]:
        self._do("create", path)
        with super().create(path) as file:
            yield file

    def write_some(self, file: int, data: memoryview) -> int:
        path = Path(os.readlink(f"/proc/self/fd/{file}"))
        some = data if path in self._begun else data[: max(1, len(data) // 2)]  # the system may take a part
        self._begun.add(path)
        self._do("write", path, lambda: os.write(file, some) if self._late else None)
        return os.write(file, some)

    def rename(self, old: Path, new: Path) -> None:
        self._do("rename", new, lambda: super(Failing, self).rename(old, new))

    def link(self, old: Path, new: Path) -> None:
        self._do("link", new, lambda: super(Failing, self).link(old, new))

    def remove(self, path: Path) -> None:
        self._do("remove", path, lambda: super(Failing, self).remove(path))

    def make_folder(self, path: Path, mode: int | None = None) -> None:
        if not path.is_dir():
            self._do("make folder", path)
        super().make_folder(path, mode)

    def sync(self, path: Path) -> None:
        self._do("sync", path)

    def sync_folder(self, path: Path) -> None:
        self._do("sync folder", path)

    def _do(self, what: str, path: Path, work: Callable[[], object] = lambda: None) -> None:
        with self._lock:
            number, self.count = self.count, self.count + 1
            is_bad = self._at is not None and (number == self._at or (self._forever and number > self._at))
            if is_bad:
                self.failed.append(f"{what} {path}")
        if is_bad:
            if self._late:
                work()
            raise OSError(self._code, os.strerror(self._code), str(path))
        if what != "write":
            work()

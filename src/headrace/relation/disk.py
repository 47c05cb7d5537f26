"""All operations on the files of a location, in one place, so that tests can put a simulated disk behind them.

What a process has written survives the process as soon as the system has taken it, but a power cut only once it was
synced: the content of a file by syncing the file, its name by syncing the folder. Until then the disk may keep any part
of it, in any order. So a file is written under a name that nobody looks for, and gets its name when it is whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class Disk:
    """The operations of the system; what a simulated disk overrides."""

    def write(self, path: Path, data: bytes | bytearray | memoryview, *, sync: bool = False) -> None:
        """Write a new file."""
        with self.create(path) as file:
            view = memoryview(data)
            while view:
                view = view[os.write(file, view) :]
            if sync:
                os.fsync(file)

    @contextmanager
    def create(self, path: Path) -> Iterator[int]:
        """Make a new file and open it for reading and writing, as the system's number; `wrote` follows."""
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            yield file
        finally:
            os.close(file)
        self.wrote(path)

    def wrote(self, path: Path) -> None:
        """Take note of a file that has been written."""

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name, and take that name from any other file."""
        os.rename(old, new)

    def link(self, old: Path, new: Path) -> None:
        """Give a file one more name, which no file has."""
        os.link(old, new)

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there."""
        with suppress(FileNotFoundError):
            os.unlink(path)

    def make_folder(self, path: Path) -> None:
        """Make a folder, and those above it, unless they are there."""
        path.mkdir(parents=True, exist_ok=True)

    def sync(self, path: Path) -> None:
        """Wait until the content of a file is on the disk, whoever wrote it."""
        _sync(path, os.O_RDONLY)

    def sync_folder(self, path: Path) -> None:
        """Wait until the names in a folder are on the disk."""
        _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, how: int) -> None:
    file = os.open(path, how | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


DISK = Disk()
"""The disk of this process; use it as `disk.DISK`, so that a test can replace it."""

"""All operations on the files of a location, in one place, so that tests can put a simulated disk behind them.

What a process has written survives the process as soon as the system has taken it, but a power cut only once it was
synced: the content of a file by syncing the file, its name by syncing the folder. Until then the disk may keep any part
of it, in any order. So a file is written under a name that nobody looks for, and gets its name when it is whole.

Whoever may look into a folder may read and write its files, and nobody else: a new file or folder takes the permissions
of the folder that it is made in. So those of a location's own folder decide for all that is in it, in every process.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


class Disk:
    """The operations of the system; what a simulated disk overrides."""

    def write(self, path: Path, data: bytes | bytearray | memoryview, *, sync: bool = False) -> None:
        """Write a new file."""
        with self.create(path) as file:
            view = memoryview(data)
            while view:
                view = view[self.write_some(file, view) :]
            if sync:
                os.fsync(file)

    def write_some(self, file: int, data: memoryview) -> int:
        """Write some of the data, as much as the system takes at once; returns how much that is."""
        return os.write(file, data)

    @contextmanager
    def create(self, path: Path) -> Iterator[int]:
        """Make a new file and open it for reading and writing, as the system's number; `wrote` follows."""
        mode = permissions(path.parent) & 0o666
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
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

    def remove_all(self, paths: Sequence[Path]) -> None:
        """Remove files, those that are there; all are tried, and then the first error is raised."""
        failed: list[OSError] = []
        for path in paths:
            try:
                self.remove(path)
            except OSError as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def make_folder(self, path: Path, mode: int | None = None) -> None:
        """Make a folder, and those above it, unless they are there; without a mode, it has that of the one above."""
        if path.is_dir():
            return
        if not path.parent.is_dir():
            self.make_folder(path.parent, None if mode is None else 0o777)
        with suppress(FileExistsError):
            path.mkdir(permissions(path.parent) if mode is None else mode)

    def opened(self, path: Path) -> IO[bytes]:
        """Open a file for reading; never waits, and follows no link at the end of the path."""
        try:
            number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                raise NoFileError(path) from error
            raise
        if not stat.S_ISREG(os.fstat(number).st_mode):
            os.close(number)
            raise NoFileError(path)
        return open(number, "rb")

    def read(self, path: Path) -> bytes:
        """The content of a file."""
        with self.opened(path) as file:
            return file.read()

    def exists(self, path: Path) -> bool:
        """Whether something has this name."""
        return path.exists()

    def files(self, folder: Path) -> list[Path]:
        """What is in a folder and is no folder itself."""
        return [path for path in folder.iterdir() if path.is_symlink() or not path.is_dir()]

    def is_copy(self, path: Path) -> bool:
        """Whether a file is the copy of one elsewhere, which an earlier process may have made."""
        return False

    def forget_copies(self, folder: Path) -> None:
        """Remove the copies of files elsewhere in a folder, so that they are fetched when they are read next."""

    def renewed(self, path: Path) -> bool:
        """Make a file anew that was found to be damaged; whether there is something to make it from."""
        return False

    def sync(self, path: Path) -> None:
        """Wait until the content of a file is on the disk, whoever wrote it."""
        _sync(path, os.O_RDONLY)

    def sync_folder(self, path: Path) -> None:
        """Wait until the names in a folder are on the disk."""
        _sync(path, os.O_RDONLY | os.O_DIRECTORY)


_DAMAGE = (errno.EIO, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG)


def is_damage(error: OSError) -> bool:
    """Whether a file that cannot be read is lost; if too many files are open, or no answer comes, it may be whole."""
    return isinstance(error, NoFileError) or error.errno in _DAMAGE


class NoFileError(OSError):
    """What has the name of a file is none: a folder, a pipe, a device, or a link, which may lead anywhere."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} is no file")
        self.strerror = "it is no file"


def opened(path: Path) -> IO[bytes]:
    """Open a file for reading; never waits, and follows no link at the end of the path."""
    return DISK.opened(path)


def read(path: Path) -> bytes:
    """The content of a file."""
    return DISK.read(path)


def tidy(paths: Sequence[Path]) -> None:
    """Remove files that nobody needs. One that cannot be removed is in nobody's way, and goes at the next opening."""
    with suppress(OSError):
        DISK.remove_all(paths)


def permissions(folder: Path) -> int:
    """Who may do what with a folder, as the bits of its mode; the process's umask takes from them what it forbids."""
    return folder.stat().st_mode & 0o777


def _sync(path: Path, how: int) -> None:
    file = os.open(path, how | os.O_CLOEXEC)
    try:
        os.fsync(file)
    except OSError as error:
        error.filename = str(path)  # the system only knows its number
        raise
    finally:
        os.close(file)


class _Disks(Disk):
    """This machine's disk, but for the folders that stand for locations elsewhere: each of these has one of its own."""

    def __init__(self) -> None:
        self.mounted: dict[str, Disk] = {}
        self._here = Disk()

    def of(self, path: Path) -> Disk:
        """The disk that a path is on."""
        if self.mounted:
            text = str(path)
            for root, there in list(self.mounted.items()):
                if text.startswith(root) and text[len(root) :][:1] in ("", "/"):
                    return there
        return self._here

    def write(self, path: Path, data: bytes | bytearray | memoryview, *, sync: bool = False) -> None:
        self.of(path).write(path, data, sync=sync)

    @contextmanager
    def create(self, path: Path) -> Iterator[int]:
        with self.of(path).create(path) as file:
            yield file

    def rename(self, old: Path, new: Path) -> None:
        self.of(new).rename(old, new)

    def link(self, old: Path, new: Path) -> None:
        self.of(new).link(old, new)

    def remove(self, path: Path) -> None:
        self.of(path).remove(path)

    def remove_all(self, paths: Sequence[Path]) -> None:
        if paths:
            self.of(paths[0]).remove_all(paths)

    def make_folder(self, path: Path, mode: int | None = None) -> None:
        self.of(path).make_folder(path, mode)

    def opened(self, path: Path) -> IO[bytes]:
        return self.of(path).opened(path)

    def read(self, path: Path) -> bytes:
        return self.of(path).read(path)

    def exists(self, path: Path) -> bool:
        return self.of(path).exists(path)

    def files(self, folder: Path) -> list[Path]:
        return self.of(folder).files(folder)

    def is_copy(self, path: Path) -> bool:
        return self.of(path).is_copy(path)

    def forget_copies(self, folder: Path) -> None:
        self.of(folder).forget_copies(folder)

    def renewed(self, path: Path) -> bool:
        return self.of(path).renewed(path)

    def sync(self, path: Path) -> None:
        self.of(path).sync(path)

    def sync_folder(self, path: Path) -> None:
        self.of(path).sync_folder(path)


_DISKS = _Disks()
DISK: Disk = _DISKS
"""The disk of this process; use it as `disk.DISK`, so that a test can replace it."""


def mount(root: Path, there: Disk) -> None:
    """Have another disk do all operations on a folder."""
    _DISKS.mounted[str(root)] = there


def unmount(root: Path) -> None:
    """Have a folder be one of this machine again."""
    _DISKS.mounted.pop(str(root), None)

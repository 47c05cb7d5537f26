"""Which commits the readers of other processes still need, so that the writer keeps their files.

A reader has a file in `readers/`, and keeps it locked: the system gives the lock back when the process ends, however it
ends, so the lease of a dead reader is void at once. The file says two versions. The files of the one that the reader
looks at now stay for a minute after its last use; those of the oldest one that it has pinned (by a DataFrame, say) for
an hour after the last use of any. So a reader that is forgotten does not hold files for ever.

A reader first says which version it holds, and then looks whether there is a newer one. The writer commits first, and
looks at leases only then, when it is about to remove something. So whichever comes first, the other one sees it. Where
no lease can be had, on a file system that is read-only for the reader, reading finds out that a file is gone and is
done again.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import time
import uuid
import zlib
from contextlib import suppress
from pathlib import Path

from headrace.relation import disk

PINNED_SECONDS = 3600.0  # that a lease holds what is pinned, after its last use
CURRENT_SECONDS = 60.0  # that a lease holds the version that is looked at, after its last use
NOTHING = (1 << 63) - 1  # a version that needs no file of any commit
_NAME = re.compile("[0-9a-f]{32}")
_BYTES = 50  # of a lease; all are of one length, so one write replaces another


class Lease:
    """The lease of one reader, in the folder of leases; it is taken when something is held for the first time."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / uuid.uuid4().hex
        self._file: int | None = None
        self._is_possible = True
        self._is_busy = False
        self._said: tuple[int, int] | None = None
        self._at = 0.0

    def hold(self, current: int, pinned: int = NOTHING) -> None:
        """Keep the files of a version, and those of the oldest one that is pinned, from now on."""
        is_fresh = time.monotonic() - self._at < CURRENT_SECONDS / 4
        # A DataFrame may be forgotten at any moment, also in the middle of this, and says so here.
        if not self._is_possible or self._is_busy or (self._said == (current, pinned) and is_fresh):
            return
        self._is_busy = True
        try:
            if self._file is None:
                self._file = self._taken()
            os.pwrite(self._file, _text(current, pinned), 0)
        except OSError:  # not ours to write to: what is gone is read again
            self.close()
        else:
            self._said, self._at = (current, pinned), time.monotonic()
        finally:
            self._is_busy = False

    def close(self) -> None:
        """Hold nothing any more, for good."""
        self._is_possible = False
        if self._file is not None:
            with suppress(OSError):
                os.unlink(self._path)
            os.close(self._file)
            self._file = None

    def _taken(self) -> int:
        """Make the file and lock it; a writer that saw it between the two has taken it for one of a dead reader."""
        while True:
            how = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(self._path, how, disk.permissions(self._path.parent) & 0o666)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                if os.fstat(file).st_nlink:
                    return file
            except OSError:
                os.close(file)
                raise
            os.close(file)


def oldest(folder: Path) -> int:
    """The oldest version that a living reader needs, `NOTHING` if there is none; removes leases of dead readers."""
    try:
        names = [name for name in os.listdir(folder) if _NAME.fullmatch(name)]
    except OSError:
        return NOTHING
    return min((_needed(folder / name) for name in names), default=NOTHING)


def _needed(path: Path) -> int:
    try:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:  # it has ended meanwhile, or is not for this user to see: then that reader reads again
        return NOTHING
    try:
        there = os.fstat(file)
        if not stat.S_ISREG(there.st_mode):
            return NOTHING
        if not _is_locked(file):
            os.unlink(path)
            return NOTHING
        age = time.time() - there.st_mtime
        current, pinned = _read(os.pread(file, _BYTES, 0))
    except OSError:
        return NOTHING
    finally:
        os.close(file)
    return min(current if age < CURRENT_SECONDS else NOTHING, pinned if age < PINNED_SECONDS else NOTHING)


def _is_locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _text(current: int, pinned: int) -> bytes:
    said = f"{current:020d} {pinned:020d}"
    return f"{said} {zlib.crc32(said.encode()):08x}".encode()


def _read(text: bytes) -> tuple[int, int]:
    """What a lease says; one that is just being written may need anything."""
    try:
        current, pinned, crc = text.decode().split()
        if int(crc, 16) == zlib.crc32(text[: -len(crc) - 1]):
            return int(current), int(pinned)
    except ValueError:
        pass
    return 0, NOTHING

"""Where this machine keeps copies of files that are elsewhere, and how much of that it keeps.

Each process finds the folder by the same rule, so that those of one user share their copies, and none has to be told.
What is there can go at any time, since all of it can be fetched again. The copies used least recently go first.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from headrace.errors import SchemaError, StorageError

FOLDER, LIMIT = "HEADRACE_CACHE", "HEADRACE_CACHE_BYTES"
"""Environment variables: the folder for copies, and how many bytes of them are kept."""
_YARN = "LOCAL_DIRS"  # not SPARK_LOCAL_DIRS: that is a folder of one executor, which goes with it
_DEFAULT, _SHARE = 10 << 30, 4  # bytes at most, and which part of what is free
_OFTEN = 64 << 20  # bytes that come before the size of everything is looked at again
_ABANDONED = 3600.0  # seconds after which a partial file is nobody's any more
_TOUCHED = 30.0  # seconds for which a use need not be noted again


def folder_for(url: str, endpoint: str, who: str) -> Path:
    """The folder of this machine that stands for a URL, as somebody sees it; makes it."""
    url = url.replace("s3a://", "s3://", 1)  # one bucket, whatever it is called
    digest = hashlib.sha256(f"{url}\n{endpoint}\n{who}".encode()).hexdigest()[:16]
    readable = re.sub("[^0-9A-Za-z]+", "-", url)[-60:].strip("-")
    return _private(_base() / f"{readable}-{digest}")


def _base() -> Path:
    given = os.environ.get(FOLDER)
    if given:
        return _private(Path(given).expanduser().resolve())
    first = os.environ.get(_YARN, "").split(",")[0]
    if first and os.access(first, os.W_OK | os.X_OK):
        return _private(Path(first).resolve() / "headrace-cache")
    return _private(Path(tempfile.gettempdir()).resolve() / f"headrace-cache-{os.getuid()}")


def _private(folder: Path) -> Path:
    """Make a folder that only this user may enter; refuse one that others may change: copies are believed."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise StorageError(
            f"{folder} is not a folder that only this user may write to, so no copies of files are kept there",
            way_out=f"set the environment variable {FOLDER} to a folder of your own, or remove it",
        )
    return folder


class Room:
    """Bounds the copies in some folders of one mirror."""

    def __init__(self, root: Path, folders: tuple[str, ...]) -> None:
        self._folders = [root / name for name in folders]
        self._root = root
        self._limit = _limit()
        self._lock = threading.Lock()
        self._came = 0
        self._used: dict[str, float] = {}

    def used(self, path: Path) -> None:
        """Note that a copy is used."""
        now = time.monotonic()
        if now - self._used.get(path.name, -_TOUCHED) >= _TOUCHED:
            self._used[path.name] = now
            with suppress(OSError):
                os.utime(path)

    def came(self, size: int) -> None:
        """Take note of a new copy, and make room if there are too many."""
        with self._lock:
            self._came += size
            if self._came < min(_OFTEN, self.limit // 8):
                return
            self._came = 0
            self._used.clear()
            self._trim()

    @property
    def limit(self) -> int:
        """How many bytes are kept."""
        if self._limit is None:
            return min(_DEFAULT, shutil.disk_usage(self._root).free // _SHARE)
        return self._limit

    def _trim(self) -> None:
        found, total, abandoned = [], 0, time.time() - _ABANDONED
        for folder in self._folders:
            with os.scandir(folder) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):
                        at = entry.stat(follow_symlinks=False)
                        if not entry.name.startswith("."):
                            found.append((at.st_mtime, at.st_size, entry.path))
                            total += at.st_size
                        elif at.st_mtime < abandoned:
                            os.unlink(entry.path)
        limit = self.limit
        for _, size, path in sorted(found):
            if total <= limit:
                return
            with suppress(FileNotFoundError):
                os.unlink(path)  # whoever has it mapped goes on reading it
            total -= size


def _limit() -> int | None:
    given = os.environ.get(LIMIT)
    if not given:
        return None
    if not given.isdecimal():
        raise SchemaError(f"{LIMIT}={given!r} is no number of bytes", way_out=f"give one, as in {LIMIT}={_DEFAULT}")
    return int(given)

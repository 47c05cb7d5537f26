"""The engine's location: one folder that holds everything, and the lock that gives it one writer.

headrace.json   the settings that the location was made with (buckets, hash seed, SQL settings); the log has them too,
                and the number of buckets that counts is the one there
log/            the commit log (see `log`)
runs/           immutable run files
batches/        change batches on their way to tasks; empty between steps
quarantine/     bad rows that were set aside
checkpoints/    Structured Streaming's own offsets
readers/        what readers in other processes still need (see `leases`)
plans/          how Catalyst read each view

What is in the folder is not trusted: names and numbers are checked before they are used, nothing is read or removed to
which only a link leads, and nothing waits for what is no file. A folder that Headrace makes is its user's alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import time
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from headrace.errors import CorruptFileError, StorageError
from headrace.relation import disk
from headrace.relation.from_log import REPAIR
from headrace.remote.root import Root, mirror_of
from headrace.remote.store import READ_AGAIN, FailedRequestError, UnknownOutcomeError

FORMAT = 5
MOST_BUCKETS = 4096
_SETTINGS, _LOCK = "headrace.json", "lock"
_LOCK_ATTEMPTS, _LOCK_SECONDS = 10, 0.01
SQL_SETTINGS = ("spark.sql.session.timeZone", "spark.sql.ansi.enabled", "spark.sql.caseSensitive")
"""Spark's settings that answers depend on: a location fixes them, and no others."""


@dataclass(frozen=True)
class Settings:
    """The settings of a location: all are fixed when it is made but the number of buckets, which a commit may change.

    `headrace.json` has those that it was made with. The log has them too, from the first commit on, and what a commit
    says counts for the state as of this commit: so whoever reads an older state reads it with its own buckets.
    """

    buckets: int
    seed: int
    sql: dict[str, str] = field(default_factory=dict)
    format: int = FORMAT

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Settings:
        """The settings of their JSON; raises ValueError, TypeError or AttributeError if they are none."""
        settings = cls(**data)
        settings.check()
        return settings

    def as_of(self, said: dict[str, Any]) -> Settings:
        """The settings of a snapshot, by what it says; these, if its log has no commit yet."""
        return Settings(**said) if said else self

    def check(self) -> None:
        """Refuse, by a ValueError, what no location has."""
        if type(self.buckets) is not int or not 1 <= self.buckets <= MOST_BUCKETS:
            raise ValueError(f"it has {self.buckets!r} buckets")
        if type(self.seed) is not int or not 0 <= self.seed < 1 << 63:
            raise ValueError(f"its seed is {self.seed!r}")
        if unknown := set(self.sql).difference(SQL_SETTINGS):
            raise ValueError(f"it sets {', '.join(sorted(unknown))}, which is no setting of a location")
        if not all(type(value) is str for value in self.sql.values()):
            raise ValueError("its SQL settings are no texts")
        if self.format != FORMAT:
            raise ValueError(f"its format is {self.format!r}")


class TakenError(StorageError):
    """A file that is written once is there already."""


class Location:
    """Paths and settings of one location; of one that is elsewhere, the paths of the folder that stands for it."""

    def __init__(self, root: str | Path) -> None:
        self.remote = root.place if isinstance(root, Root) else None
        self.root = Path(root) if isinstance(root, Root) else Path(root).expanduser().resolve()
        # The same as a text, which tasks read as that of their own machine.
        self.path: str = root if isinstance(root, Root) else str(self.root)
        self.log = self.root / "log"
        self.runs = self.root / "runs"
        self.batches = self.root / "batches"
        self.quarantine = self.root / "quarantine"
        self.checkpoints = self.root / "checkpoints"
        self.readers = self.root / "readers"
        self._lock: IO[str] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """In a task it is made anew, because its paths may be others there."""
        return Location, (self.path,)

    @property
    def exists(self) -> bool:
        try:
            return disk.DISK.exists(self.root / _SETTINGS)
        except FailedRequestError as error:
            raise StorageError(f"{self.shown} could not be reached: {error}", way_out=READ_AGAIN) from error

    @property
    def shown(self) -> str:
        """What its user calls it."""
        return self.path if self.remote is None else self.remote.url

    @property
    def _folders(self) -> tuple[Path, ...]:
        return self.log, self.runs, self.batches, self.quarantine, self.checkpoints, self.readers

    def check_usable(self) -> None:
        """Refuse a file, or a folder with other things in it, before anything is written to it."""
        if self.remote is not None:
            if not self.exists and not mirror_of(self.remote).there.is_empty():
                raise StorageError(
                    f"{self.shown} has files but is not a Headrace location", way_out="choose an empty or a new prefix"
                )
            return
        if self.root.exists() and not self.root.is_dir():
            raise StorageError(f"{self.root} is a file, not a folder", way_out="give a folder for the state")
        if self.root.is_dir() and not self.exists and not all(map(self._is_begun, self.root.iterdir())):
            raise StorageError(
                f"{self.root} has files but is not a Headrace location", way_out="choose an empty or a new folder"
            )

    def _is_begun(self, entry: Path) -> bool:
        """Whether an entry of the folder may be of a location whose making was interrupted: there is nothing in it."""
        if entry.name == _LOCK or entry.name.startswith(f".{_SETTINGS}."):
            return True
        return entry in self._folders and not entry.is_symlink() and not any(entry.iterdir())

    def check_inside(self) -> None:
        """Refuse folders that are links: what is in them may be anybody's."""
        for folder in (*self._folders, self.root / "plans"):
            if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
                raise StorageError(
                    f"{folder} is no folder of its own", way_out="copy what it should have there; links may stand above"
                )

    def create(self, buckets: int, sql: dict[str, str]) -> Settings:
        """Make the folders and fix the settings."""
        with naming(self.root):
            for folder in self._folders:
                disk.DISK.make_folder(folder)
            # The file makes a location of the folder, and from then on it has all of the others: so they come first.
            for folder in (self.root, *self.root.parents):
                try:
                    disk.DISK.sync_folder(folder)
                except PermissionError:  # not for this user to open, so it was there before
                    break
        settings = Settings(buckets, secrets.randbits(62), sql)
        self.write_settings(settings)
        return settings

    def write_settings(self, settings: Settings, *, again: bool = False) -> None:
        """Write the settings that the location was made with, `again` if they are there and damaged."""
        data = asdict(settings) | {"crc": _checksum(asdict(settings))}
        # Elsewhere there is no lock, and of two engines that make a location at the same time one must not.
        put = write_atomically if self.remote is None or again else write_once
        put(self.root / _SETTINGS, json.dumps(data, indent=2).encode(), fsync=True)

    def complete(self) -> None:
        """Make the folders that are missing, as some ways of copying leave out empty ones; not the log, however."""
        if not self.log.is_dir():
            raise CorruptFileError(f"{self.log} is missing", way_out="restore the location from a backup")
        with naming(self.root):
            for folder in self._folders:
                disk.DISK.make_folder(folder)

    def settings(self) -> Settings:
        """Read the settings that an existing location was made with."""
        path = self.root / _SETTINGS
        self.check_inside()
        try:
            data: dict[str, Any] = json.loads(disk.read(path))
            crc = data.pop("crc", None)
            if crc is not None and crc != _checksum(data):
                raise ValueError("it does not match its checksum")
            if data["format"] != FORMAT:
                raise StorageError(
                    f"{self.shown} was written in format {data['format']}; this Headrace reads format {FORMAT}",
                    way_out="open it with the version that wrote it",
                )
            if crc is None:
                raise ValueError("it has no checksum")
            settings = Settings.from_json(data)
        except FailedRequestError as error:
            raise StorageError(f"{self.shown} could not be read: {error}", way_out=READ_AGAIN) from error
        except (OSError, ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            raise CorruptFileError(f"{path} cannot be read: {error}", way_out=REPAIR) from error
        return settings

    def lock(self) -> None:
        """Become the one writer of this location; elsewhere, a record in the log decides that (`Store`)."""
        if self.remote is not None:
            return
        with naming(self.root):
            disk.DISK.make_folder(self.root, 0o700)
        path = self.root / _LOCK
        try:
            how = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.fdopen(os.open(path, how, disk.permissions(self.root) & 0o666), "r+")
        except OSError as error:
            raise StorageError(
                f"{path} cannot be opened: {error.strerror}", way_out="remove it if no engine has the location open"
            ) from error
        for _ in range(_LOCK_ATTEMPTS):  # `has_writer` has it for a moment
            if _locked(file, fcntl.LOCK_EX):
                break
            time.sleep(_LOCK_SECONDS)
        else:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            file.close()
            raise StorageError(
                f"{self.root} is open in another engine (process {holder})",
                way_out="close that engine first, or use another location; read-only tools need no lock",
            )
        with contextlib.suppress(OSError):  # a word to whoever is refused; a disk may be too full for it
            os.ftruncate(file.fileno(), 0)
            os.pwrite(file.fileno(), str(os.getpid()).encode(), 0)
        self._lock = file

    def has_writer(self) -> bool:
        """Whether an engine that writes has the location open, as far as this user can tell; elsewhere, one may."""
        if self.remote is not None:
            return True
        try:
            file = disk.opened(self.root / _LOCK)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        with file:
            return not _locked(file, fcntl.LOCK_SH)

    def unlock(self) -> None:
        """Let another engine write."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def new_name(self, version: int, suffix: str) -> str:
        """A file name that no other attempt can have; elsewhere, it tells who writes the file."""
        writer = f"{self.remote.writer}-" if self.remote is not None else ""
        return f"{version:010d}-{writer}{uuid.uuid4().hex}{suffix}"


def _locked(file: IO[Any], how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _checksum(settings: dict[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(settings, sort_keys=True).encode()):08x}"


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a failure to write a file (disk full, permissions) into an error that names it, and leave nothing behind."""
    try:
        yield
    except OSError as error:
        if not isinstance(error, FileExistsError):
            with contextlib.suppress(OSError):
                disk.DISK.remove(path)
        if isinstance(error, UnknownOutcomeError):
            raise StorageError(
                f"{path}: no answer came, so it may have been written or not: {error.strerror}",
                way_out="open the location again, and look at its `step` before anything is applied again",
            ) from error
        raise StorageError(
            f"{path} could not be written: {error.strerror or error}",
            way_out="free space or fix permissions at the location and try again: nothing was committed",
        ) from error


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn a failure to change the files of a location that is being opened into an error that names the file."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{error.filename or path} could not be changed: {error.strerror or error}",
            way_out="free space, fix permissions or see to the disk, and open the location again: nothing was lost",
        ) from error


def write_atomically(path: Path, data: bytes | memoryview, *, fsync: bool) -> None:
    """Write a file under another name and put it in place at once: it is there wholly or not at all."""
    partial = partial_of(path)
    with writing(partial):
        disk.DISK.write(partial, data, sync=fsync)
        disk.DISK.rename(partial, path)
        if fsync:
            disk.DISK.sync_folder(path.parent)


def write_once(path: Path, data: bytes, *, fsync: bool) -> None:
    """Write a file under another name and give it its own, unless a file has that: two writers cannot both commit.

    If this raises, the file is not there. Its name is on the disk once its folder is synced.
    """
    partial = partial_of(path)
    with writing(partial):
        disk.DISK.write(partial, data, sync=fsync)
        try:
            disk.DISK.link(partial, path)
        except OSError as error:
            # A file system over a network may have done it, and say otherwise: then the file that is there is ours.
            if not (path.exists() and path.samefile(partial)):
                if not isinstance(error, FileExistsError):
                    raise
                disk.DISK.remove(partial)
                raise TakenError(
                    f"{path} is there already: another engine writes to this location",
                    way_out="close this engine and open the location again",
                ) from error
    with contextlib.suppress(OSError):  # the file is there; its other name goes when the location is opened next
        disk.DISK.remove(partial)


def partial_of(path: Path) -> Path:
    """A name for a file that is not whole yet."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}")

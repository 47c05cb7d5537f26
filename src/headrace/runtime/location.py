"""The engine's location: one folder that holds everything, and the lock that gives it one writer.

headrace.json   settings that are fixed when the location is made (buckets, hash seed, SQL settings)
log/            the commit log (see `log`)
runs/           immutable run files
batches/        change batches on their way to tasks; empty between steps
quarantine/     bad rows that were set aside
checkpoints/    Structured Streaming's own offsets
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from headrace.errors import CorruptFileError, StorageError

FORMAT = 2


@dataclass(frozen=True)
class Settings:
    """What is fixed for the life of a location."""

    buckets: int
    seed: int
    sql: dict[str, str] = field(default_factory=dict)
    format: int = FORMAT


class Location:
    """Paths and settings of one location."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).expanduser().resolve()
        self.log = self.root / "log"
        self.runs = self.root / "runs"
        self.batches = self.root / "batches"
        self.quarantine = self.root / "quarantine"
        self.checkpoints = self.root / "checkpoints"
        self._lock: IO[str] | None = None

    @property
    def exists(self) -> bool:
        return (self.root / "headrace.json").exists()

    def check_usable(self) -> None:
        """Refuse a file, or a folder with other things in it, before anything is written to it."""
        if self.root.exists() and not self.root.is_dir():
            raise StorageError(f"{self.root} is a file, not a folder", way_out="give a folder for the state")
        if self.root.is_dir() and not self.exists and any(entry.name != "lock" for entry in self.root.iterdir()):
            raise StorageError(
                f"{self.root} has files but is not a Headrace location", way_out="choose an empty or a new folder"
            )

    def create(self, buckets: int, sql: dict[str, str]) -> Settings:
        """Make the folders and fix the settings."""
        for folder in (self.log, self.runs, self.batches, self.quarantine, self.checkpoints):
            folder.mkdir(parents=True, exist_ok=True)
        settings = Settings(buckets, secrets.randbits(62), sql)
        write_atomically(self.root / "headrace.json", json.dumps(asdict(settings), indent=2).encode(), fsync=True)
        return settings

    def settings(self) -> Settings:
        """Read the settings of an existing location."""
        path = self.root / "headrace.json"
        try:
            data: dict[str, Any] = json.loads(path.read_text())
            settings = Settings(**data)
        except (OSError, ValueError, TypeError) as error:
            raise CorruptFileError(f"{path} cannot be read: {error}", way_out="restore it from a backup") from error
        if settings.format != FORMAT:
            raise StorageError(
                f"{self.root} was written in format {settings.format}; this Headrace reads format {FORMAT}",
                way_out="open it with the version that wrote it",
            )
        return settings

    def lock(self) -> None:
        """Become the one writer of this location."""
        self.root.mkdir(parents=True, exist_ok=True)
        file = open(self.root / "lock", "a+")  # noqa: SIM115 - held open for the life of the engine
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            file.close()
            raise StorageError(
                f"{self.root} is open in another engine (process {holder})",
                way_out="close that engine first, or use another location; read-only tools need no lock",
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._lock = file

    def unlock(self) -> None:
        """Let another engine write."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def new_name(self, version: int, suffix: str) -> str:
        """A file name that no other attempt can have."""
        return f"{version:010d}-{uuid.uuid4().hex}{suffix}"


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a failure to write a file (disk full, permissions) into an error that names it, and leave nothing behind."""
    try:
        yield
    except OSError as error:
        if not isinstance(error, FileExistsError):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        raise StorageError(
            f"{path} could not be written: {error.strerror or error}",
            way_out="free space or fix permissions at the location and try again: nothing was committed",
        ) from error


def write_atomically(path: Path, data: bytes, *, fsync: bool, exclusive: bool = False) -> None:
    """Write a file under another name and put it in place at once: it is there wholly or not at all.

    With `exclusive` a file that is there already is never replaced: two writers cannot both believe they committed.
    """
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with writing(partial):
        with open(partial, "xb") as file:
            file.write(data)
            file.flush()
            if fsync:
                os.fsync(file.fileno())
        if exclusive:
            _link(partial, path)
        else:
            os.rename(partial, path)
        if fsync:
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def _link(partial: Path, path: Path) -> None:
    try:
        os.link(partial, path)
    except FileExistsError as error:
        partial.unlink()
        raise StorageError(
            f"{path} is there already: another engine writes to this location",
            way_out="close this engine and open the location again",
        ) from error
    partial.unlink()

"""A folder of this machine that stands for a location elsewhere.

Run files never change, and no name is used twice. So a copy of a whole file is as good as the file, for as long as one
likes, and what maps files into memory maps copies. Everything that is written here is put into the store, as a whole,
before it has its name; what is read is fetched first, unless it is here. Only files of these kinds are kept here. The
log, settings and plans are few, small, and read from the store each time: which of them are there is the question.

A copy is checked as a file of the location is, by the checksums that it carries, and fetched again if it is damaged.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import IO

from headrace.relation.disk import Disk
from headrace.remote.room import Room
from headrace.remote.store import Elsewhere, RefusedRequestError, UnknownOutcomeError

KEPT = ("runs", "batches", "quarantine")
"""The folders whose files are kept here."""
OTHERS = ("log", "plans", "checkpoints")
RETRY_SECONDS = 60.0  # for which it is tried to find out whether a record was written
_FIRST_WAIT, _MOST_WAIT = 0.05, 5.0


class Mirror(Disk):
    """The disk of one folder that stands for a location elsewhere.

    Parameters
    ----------
    root : the folder.
    there : the files that it stands for.
    """

    def __init__(self, root: Path, there: Elsewhere) -> None:
        self.root = root
        self.there = there
        self._here = Disk()
        self._room = Room(root, KEPT)
        self._turns: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()
        for name in (*KEPT, *OTHERS):
            self._here.make_folder(root / name)

    def clear(self) -> None:
        """Remove everything, here and there."""
        self.there.delete(self.there.names(""))
        shutil.rmtree(self.root, ignore_errors=True)

    # -- writing ------------------------------------------------------------------------------------------------

    def write(self, path: Path, data: bytes | bytearray | memoryview, *, sync: bool = False) -> None:
        partial = path if _is_partial(path) else _partial_of(path)
        self._here.write(partial, data)
        if partial is not path:
            self._finish(partial, path)

    @contextmanager
    def create(self, path: Path) -> Iterator[int]:
        partial = _partial_of(path)
        try:
            with self._here.create(partial) as file:
                yield file
        except BaseException:
            self._here.remove(partial)
            raise
        self._finish(partial, path)

    def _finish(self, partial: Path, path: Path) -> None:
        try:
            self.rename(partial, path)
        finally:
            self._here.remove(partial)

    def rename(self, old: Path, new: Path) -> None:
        # A whole file of a kept kind may be long, and is sent from where it lies.
        self.there.put(self._name(new), old if self.is_copy(new) else self._here.read(old))
        self._settle(old, new)

    def link(self, old: Path, new: Path) -> None:
        """Put a file whose name none has yet. Of all who try at the same time, one succeeds.

        An answer may get lost, and then the next attempt finds the file that the first one wrote. So what is there is
        compared: no two writers ever write the same, because each of their files says who wrote it.
        """
        name, data = self._name(new), self._here.read(old)
        give_up, wait = time.monotonic() + RETRY_SECONDS, _FIRST_WAIT
        while True:
            try:
                self.there.put_new(name, data)
                return
            except FileExistsError:
                if self._is_there(name, data):
                    return
                raise
            except RefusedRequestError:
                raise
            except OSError as error:
                if time.monotonic() >= give_up:
                    raise UnknownOutcomeError(f"it may have been written, or not: {error}") from error
            time.sleep(wait)
            wait = min(2 * wait, _MOST_WAIT)

    def _is_there(self, name: str, data: bytes) -> bool:
        found = BytesIO()
        try:
            self.there.get(name, found)
        except OSError as error:
            raise UnknownOutcomeError(f"something has its name, and cannot be read: {error}") from error
        return found.getvalue() == data

    def _settle(self, partial: Path, path: Path) -> None:
        if self.is_copy(path):
            size = partial.stat().st_size
            os.replace(partial, path)
            self._room.came(size)
        else:
            self._here.remove(partial)

    def remove(self, path: Path) -> None:
        self._here.remove(path)
        if not _is_partial(path):
            self.there.delete([self._name(path)])

    def remove_all(self, paths: Sequence[Path]) -> None:
        self._here.remove_all(paths)
        self.there.delete([self._name(path) for path in paths if not _is_partial(path)])

    def make_folder(self, path: Path, mode: int | None = None) -> None:
        """Nothing: those of a location are here, and elsewhere there is no such thing."""

    def sync(self, path: Path) -> None:
        """Nothing: what was put is durable."""

    def sync_folder(self, path: Path) -> None:
        """Nothing: what was put is durable, with its name."""

    # -- reading ------------------------------------------------------------------------------------------------

    def opened(self, path: Path) -> IO[bytes]:
        if not self.is_copy(path):
            return BytesIO(self.read(path))
        found = self._copy(path)
        if found is None:
            with self._turn_of(path.name):  # of threads that want the same file, one fetches it
                found = self._copy(path) or self._fetch(path)
        return found

    def _copy(self, path: Path) -> IO[bytes] | None:
        try:
            file = self._here.opened(path)
        except FileNotFoundError:
            return None
        self._room.used(path)
        return file

    def read(self, path: Path) -> bytes:
        if self.is_copy(path):
            with self.opened(path) as file:
                return file.read()
        found = BytesIO()
        self.there.get(self._name(path), found)
        return found.getvalue()

    def exists(self, path: Path) -> bool:
        return self.there.has(self._name(path))

    def files(self, folder: Path) -> list[Path]:
        return [folder / name for name in self.there.names(self._name(folder)) if "/" not in name]

    def is_copy(self, path: Path) -> bool:
        return path.parent.name in KEPT and path.parent.parent == self.root

    def forget_copies(self, folder: Path) -> None:
        for path in self._here.files(folder):
            if not _is_partial(path):  # another process may be fetching it
                self._here.remove(path)

    def renewed(self, path: Path) -> bool:
        """Fetch a damaged copy again, into the very file: whoever has it mapped sees what is right."""
        if not self.is_copy(path):
            return False
        try:
            partial = self._fetched(path)
        except OSError:
            return False
        try:
            with suppress(FileNotFoundError), path.open("r+b") as damaged:
                if damaged.seek(0, os.SEEK_END) == partial.stat().st_size:
                    damaged.seek(0)
                    damaged.write(partial.read_bytes())
                    return True
            os.replace(partial, path)
        finally:
            self._here.remove(partial)
        return True

    @contextmanager
    def _turn_of(self, name: str) -> Iterator[None]:
        with self._lock:
            turn = self._turns.setdefault(name, threading.Lock())
        try:
            with turn:
                yield
        finally:
            with self._lock:
                self._turns.pop(name, None)

    def _fetch(self, path: Path) -> IO[bytes]:
        partial = self._fetched(path)
        file = self._here.opened(partial)  # now, since it may have to make room for others as soon as it is there
        try:
            self._settle(partial, path)
        except BaseException:
            file.close()
            self._here.remove(partial)
            raise
        return file

    def _fetched(self, path: Path) -> Path:
        partial = _partial_of(path)
        try:
            with self._here.create(partial) as number, open(number, "wb", closefd=False) as file:
                self.there.get(self._name(path), file)
        except BaseException:
            self._here.remove(partial)
            raise
        return partial

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self.root))


def _partial_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}")


def _is_partial(path: Path) -> bool:
    return path.name.startswith(".")

"""When commits are safe from a power cut: at once, or a moment later, in groups.

A commit survives the process from the moment that it exists. It survives the machine once its files, their names and
its record are synced. With `durability="disk"` a commit waits for that. With "process" a thread does it beside steps:
it begins at most a second after the commit, and syncs everything that was committed until then as one group, without
the files that later commits of the group have replaced. If a disk is too slow for that, steps wait for it.

What a commit replaces has to stay until that commit is synced: after a power cut, the commit before may be the last.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from headrace.engine.opening import DISK, PROCESS
from headrace.errors import StorageError
from headrace.relation import disk
from headrace.runtime.location import Location
from headrace.runtime.log import CHECKPOINT_EVERY, CommitLog, Snapshot

_LOG = logging.getLogger("headrace")
SYNC_SECONDS = 1.0  # from a commit to the start of the sync that makes it safe
MOST_SECONDS = 5.0  # that the oldest commit which is not safe may have been waiting when the next one comes


class Durability:
    """Makes the commits of one location safe.

    Parameters
    ----------
    level : "process" or "disk".
    synced : is called after each sync: files that no safe commit needs may be removed now.
    """

    def __init__(self, location: Location, log: CommitLog, level: str, synced: Callable[[], None]) -> None:
        self._location = location
        self._log = log
        self._level = level
        self._synced = synced
        self._changed = threading.Condition()  # guards all that follows
        self._latest = Snapshot()
        self._version = 0  # that is safe
        self._last_checkpoint = 0  # the version of the newest checkpoint, of a location that is elsewhere
        self._since: float | None = None  # the oldest commit that no sync has begun to make safe
        self._under_way: float | None = None  # the oldest one that a sync is about to make safe
        self._files: set[str] = set()  # of commits, that have not been synced
        self._trouble: OSError | None = None
        self._thread: threading.Thread | None = None
        self._is_stopped = False
        self._syncing = threading.Lock()  # one sync at a time; whoever wants both takes this one first

    @property
    def version(self) -> int:
        """The newest version that is safe."""
        return self._version

    def begin(self, snapshot: Snapshot, on_disk: int, files: Collection[str]) -> None:
        """Start from a location that was opened: everything up to a version is safe, and these files are later ones."""
        with self._changed:
            self._latest, self._version = snapshot, on_disk
            self._files = set(files)
        if self._location.remote is not None:
            self._last_checkpoint = self._log.checkpointed
        if snapshot.version > on_disk:
            self.sync()

    def check(self) -> None:
        """Refuse to commit once a sync has failed: what it should have made safe may be lost, and nothing tells."""
        if self._trouble is not None:
            path = self._trouble.filename or self._location.shown
            raise StorageError(
                f"{path} could not be synced: {self._trouble.strerror or self._trouble}",
                way_out="see to the disk, close this engine and open the location again: what is whole will be there",
            )

    def committed(self, snapshot: Snapshot, new: Collection[str]) -> None:
        """Take note of a commit and of the files that came with it; returns when it is as safe as it has to be."""
        if self._location.remote is not None:
            self._is_durable(snapshot)
            return
        with self._changed:
            self._latest = snapshot
            self._files |= set(new)
            now = time.monotonic()
            self._since = self._since or now
            waited = now - (self._under_way or self._since)
            if self._level == PROCESS and self._thread is None and not self._is_stopped:
                self._thread = threading.Thread(target=self._run, name="headrace-durability", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        if self._level == DISK or waited > MOST_SECONDS:
            self.sync()

    def _is_durable(self, snapshot: Snapshot) -> None:
        """Take note of a commit elsewhere: what was put is durable. Only the log may have to be made shorter."""
        with self._changed:
            self._latest, self._version = snapshot, snapshot.version
        if snapshot.version - self._last_checkpoint >= CHECKPOINT_EVERY:
            # The commit has happened. If this fails, the next one tries again.
            with suppress(OSError):
                if self._checkpointed(snapshot):
                    self._last_checkpoint = snapshot.version
        self._synced()

    def sync(self) -> None:
        """Make everything safe that is committed now."""
        self.check()
        with self._syncing:
            with self._changed:
                latest, files = self._latest, set(self._files)
                self._under_way, self._since = self._since, None
            if latest.version <= self._version:
                return
            try:
                self._write_out(latest, files)
            except OSError as error:
                with self._changed:
                    self._trouble = error
                    self._changed.notify_all()
                self.check()
            with self._changed:
                self._version = latest.version
                self._files -= files
                self._under_way = None
                self._changed.notify_all()
            self._synced()  # before anyone who waits for this sync goes on, and looks which files are there

    def _write_out(self, latest: Snapshot, files: set[str]) -> None:
        needed = files & (latest.files() | latest.set_aside())
        folders = {path_of(self._location, name).parent for name in needed}
        for name in needed:
            disk.DISK.sync(path_of(self._location, name))
        for folder in folders:
            disk.DISK.sync_folder(folder)
        if not (latest.version - self._log.checkpointed >= CHECKPOINT_EVERY and self._checkpointed(latest)):
            for version in range(self._version + 1, latest.version + 1):
                disk.DISK.sync(self._log.record_path(version))
            disk.DISK.sync_folder(self._location.log)
        self._log.mark(latest.version)

    def _checkpointed(self, latest: Snapshot) -> bool:
        """Write a checkpoint; if there is no room for it, say, the records do as well, and the next sync tries."""
        try:
            self._log.checkpoint(latest)
        except StorageError as error:
            _LOG.warning("no checkpoint was written, and the log goes on without: %s", error)
            return False
        return True

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._is_stopped and not self._is_due():
                    self._changed.wait(self._wait_seconds())
                if self._is_stopped or self._trouble is not None:
                    return
            try:
                self.sync()
            except StorageError:
                return  # the next commit says so

    def _is_due(self) -> bool:
        if self._since is None or self._trouble is not None:
            return self._trouble is not None
        behind = self._latest.version - self._version
        return behind >= CHECKPOINT_EVERY or time.monotonic() - self._since >= SYNC_SECONDS

    def _wait_seconds(self) -> float | None:
        return None if self._since is None else max(0.0, self._since + SYNC_SECONDS - time.monotonic())

    def paused(self) -> threading.Lock:
        """A lock to hold while the log is read as a whole."""
        return self._syncing

    def stop(self) -> None:
        """Make everything safe, and end."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()
        self.sync()


def path_of(location: Location, name: str) -> Path:
    """The file of a name: a run, or rows that were set aside."""
    return (location.quarantine if name.endswith(".arrow") else location.runs) / name

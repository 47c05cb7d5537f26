"""The engine's hold on its location: the current snapshot, commits, and which files may be removed.

A file that an open reader needs is kept although later steps have merged it away (`reader`). Runs that were merged
beside steps (`upkeep`) take their place with whatever is committed next.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from headrace.engine.durability import Durability, path_of
from headrace.engine.opening import DISK, PROCESS, check_writable, existing
from headrace.engine.reader import Reader
from headrace.errors import CorruptFileError, StorageError
from headrace.relation import disk
from headrace.remote.root import Place
from headrace.remote.store import FailedRequestError
from headrace.runtime.location import Location, Settings, TakenError
from headrace.runtime.log import CommitLog, Snapshot
from headrace.runtime.merges import Replacement
from headrace.runtime.openruns import OPEN
from headrace.runtime.record import Record, RunRef
from headrace.runtime.recovery import cut_back, recovered
from headrace.runtime.runwriter import discard

GRACE_SECONDS = 300.0
_REPLACED = "another engine has opened it to write, so this one writes no more; what was not committed is gone"
_ATTEMPTS = 20
T = TypeVar("T")


class Store:
    """The current snapshot of a location and everything that happens to its files."""

    def __init__(self, location: Location, *, durability: str = PROCESS, read_only: bool = False) -> None:
        self.location = location
        self.read_only = read_only
        self.fsync = durability == DISK
        self._log = CommitLog(location, fsync=self.fsync)
        self._durability = Durability(location, self._log, durability, self._bury)
        self._pins: dict[int, set[str]] = {}
        self._doomed: dict[str, int] = {}  # files, with the commit that needs them no more
        self._merging: list[set[str]] = []  # the new files of merges that are under way
        self._replacements: list[Replacement] = []
        self._lock = threading.RLock()
        self._next_pin = 0
        self._closed = False
        self._claimed = 0  # the commit by which this engine became the writer, of a location that is elsewhere
        self._fenced: str | None = None  # why it is the writer no more
        self.snapshot = Snapshot()
        self.lost: str | None = None  # what opening the location had to cut off
        self.settings: Settings
        self.followed: Callable[[Snapshot, Snapshot], None] = lambda before, after: None
        self.before_commit: Callable[[Record, Snapshot], Record] = lambda record, before: record
        self.after_commit: Callable[[Record, list[Replacement]], None] = lambda record, merged: None

    def open(self, buckets: int | None, default: int, sql: dict[str, str]) -> None:
        """Read an existing location, or make a new one; a writer also removes orphans.

        Parameters
        ----------
        buckets : their number, if the user gave one; otherwise a new location has `default`.
        sql : the SQL settings of a new location.
        """
        if not self.read_only:
            check_writable(self.location)
            self.location.lock()
        try:
            there = existing(self.location, buckets, read_only=self.read_only)
            self.settings = there or self.location.create(buckets or default, sql)
            if self.read_only:
                self.refresh()
            else:
                if self.location.remote is None:
                    self._recover()
                else:
                    self._claim(self.location.remote)
                self.remove_orphans()
        except BaseException:
            self.location.unlock()
            raise

    def open_existing(self) -> None:
        """Read an existing location."""
        there = existing(self.location, None, read_only=True)
        assert there is not None
        self.settings = there
        self.refresh()

    def _recover(self) -> None:
        """Go back to the newest commit that is whole, and make that safe before anything is removed."""
        found = recovered(self._log)
        cut_back(self._log, found)
        self.snapshot, self.lost = found.snapshot, found.said()
        self._durability.begin(found.snapshot, found.on_disk, found.later)

    def _claim(self, place: Place) -> None:
        """Become the one writer of a location elsewhere: its next number is taken by a record that changes nothing.

        Whoever wrote there before finds the number taken when it commits next, and writes no more. There is no torn
        record to look for: a file is put whole or not at all.
        """
        for _ in range(_ATTEMPTS):
            self.refresh()
            claim = self.next_record(writer=place.writer)
            with contextlib.suppress(TakenError):
                self._log.append(claim)
                self.snapshot = self.snapshot.after(claim)
                self._claimed = claim.version
                self._durability.begin(self.snapshot, claim.version, ())
                return
        raise StorageError(
            f"{self.location.shown} is being opened by other engines, again and again",
            way_out="let one engine write to it; others open it with read_only=True",
        )

    def _fence(self, why: str) -> None:
        """Write nothing any more, and remove nothing: what is there is another engine's, or may be."""
        self._fenced = self._fenced or why

    def _is_replaced(self, found: Snapshot) -> bool:
        """Whether the log, as it was found, is another engine's by now; takes note of that."""
        if self.location.remote is None or found.writer == self.location.remote.writer:
            return False
        self._fence(_REPLACED)
        return True

    def _check_fenced(self) -> None:
        if self._fenced is not None:
            raise StorageError(
                f"{self.location.shown}: {self._fenced}", way_out="close this engine and open the location again"
            )

    def refresh(self) -> None:
        """Read the log again; it is tried again where a writer may be replacing records by a checkpoint."""
        for attempt in range(_ATTEMPTS):
            try:
                self.snapshot = self._log.load()
                return
            except CorruptFileError:
                if not (self.read_only or self.location.remote) or attempt == _ATTEMPTS - 1:
                    raise

    def follow(self) -> None:
        """Take over what another engine has committed, if this one only reads: definitions and state together."""
        if self.read_only and self._log.newest != self.snapshot.version:
            before = self.snapshot
            self.refresh()
            try:
                self.followed(before, self.snapshot)
            except BaseException:
                self.snapshot = before  # the next call tries again
                raise

    @property
    def latest(self) -> Reader:
        """A reader of the current snapshot for numbers only: its files may be deleted at any moment."""
        return Reader(self.location.path, self.settings.buckets, self.snapshot)

    def reader(self) -> Reader:
        """Open a reader of the current snapshot. If it is not closed, its files go some time after nobody holds it."""
        self._check_open()
        with self._lock:
            snapshot, pin = self.snapshot, self._pin(self.snapshot.files())

        def release() -> None:
            if forgotten.detach() is not None:
                self._unpin(pin)

        reader = Reader(self.location.path, self.settings.buckets, snapshot, release)
        forgotten = weakref.finalize(reader, self._unpin_later, pin, time.monotonic() + GRACE_SECONDS)
        forgotten.atexit = False
        return reader

    def read(self, work: Callable[[Reader], T]) -> T:
        """Call a function with a reader of the current snapshot; its files stay until the function returns.

        A reader in another process cannot pin files: if the writer has removed some, it reads the latest snapshot.
        """
        for _ in range(_ATTEMPTS):
            with self.reader() as reader:
                try:
                    return work(reader)
                except CorruptFileError:
                    if self.location.remote is not None and not self.read_only:
                        # Files that a new writer has removed are not damaged.
                        self._is_replaced(self._log.load())
                        self._check_fenced()
                    if not self.read_only or self._log.newest == reader.version:
                        raise
                    self.follow()
                    if not self.snapshot.defines_what(reader.snapshot):
                        break  # what was to be read is planned otherwise now
        raise StorageError(
            f"{self.location.shown} changes faster than it can be read", way_out="read it in the engine that writes it"
        )

    def remove_orphans(self) -> int:
        """Remove files of steps that never happened; returns how many there were."""
        if self._fenced is not None:
            return 0
        try:
            return self._remove_orphans()
        except FailedRequestError:  # elsewhere: they are in nobody's way, and the next who looks removes them
            return 0

    def _remove_orphans(self) -> int:
        # Files first: a merge beside this tells its names before it makes the files.
        folders = (self.location.runs, self.location.batches, self.location.quarantine)
        there = [path for folder in folders for path in disk.DISK.files(folder)]
        with self._lock:
            needed = _names(self.snapshot) | self._doomed.keys() | self._pinned() | self._merged()
        found = [path for path in there if path.name not in needed and self._is_ours(path.name)]
        if self.location.remote is None:
            for folder in (self.location.root, self.location.log, self.location.root / "plans"):
                found += (path for path in folder.glob(".*.*") if not path.is_dir())
        disk.DISK.remove_all(found)
        return len(found)

    def _is_ours(self, name: str) -> bool:
        """Whether a file that no commit names is this engine's to remove.

        Under a lock, all are. Elsewhere, another engine may have become the writer a moment ago, and be writing files
        that it has not committed yet; but those have numbers after its claim, and so after that of this engine. What
        has a number up to this engine's claim is of an engine before it, which cannot commit any more: the number that
        it would need is the claim's, or one before that.
        """
        if self.location.remote is None:
            return True
        number, _, rest = name.partition("-")
        return rest.startswith(self.location.remote.writer) or (number.isdecimal() and int(number) <= self._claimed)

    def commit(self, record: Record) -> None:
        """Append a record; when this returns, the step has happened."""
        self._check_open()
        if self.read_only:
            raise StorageError("this engine is open for reading only", way_out="open it without read_only=True")
        self._check_fenced()
        self._durability.check()
        with self._lock:
            merged = self._replacements.copy()
        before = self.snapshot
        record = self.before_commit(record, before)
        if self.location.remote is not None:
            record = replace(record, writer=self.location.remote.writer)
        if merged:
            record = self._with_merges(record, merged)
        after = before.after(record)
        self._append(record)
        old, new = _names(before), _names(after)
        with self._lock:
            self.snapshot = after
            del self._replacements[: len(merged)]
            # Some merges may be of runs that are not there any more.
            made = {name for replacement in merged for name in replacement.files()}
            self._doomed |= dict.fromkeys((old | made) - new, after.version)
        self._durability.committed(after, new - old)
        self.after_commit(record, merged)

    def _append(self, record: Record) -> None:
        if self.location.remote is None:
            self._log.append(record)
            return
        try:
            self._log.append(record)
        except TakenError as error:
            self._fence(_REPLACED)
            self._check_fenced()
            raise AssertionError from error
        except BaseException:
            # The request may still be on its way, and what it names must stay. The next engine's claim settles it.
            self._fence("the last commit got no answer, so it may have happened or not")
            raise

    def sync(self) -> None:
        """Wait until all that is committed is safe from a power cut."""
        self._check_open()
        if not self.read_only:
            self._durability.sync()

    # -- merges beside steps --------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def merging(self, runs: Collection[RunRef]) -> Iterator[set[str]]:
        """Keep the files of some runs while they are merged; gives a set that wants the names of new files.

        New files stay if `replace` is told of them; otherwise they are removed at the end.
        """
        new: set[str] = set()
        with self._lock:
            pin = self._pin({run.name for run in runs})
            self._merging.append(new)
        try:
            yield new
        finally:
            with self._lock:
                self._merging.remove(new)
                kept = {name for replacement in self._replacements for name in replacement.files()}
            self.discard(new - kept)
            self._unpin(pin)

    def discard(self, names: Collection[str]) -> None:
        """Remove those of some files that nothing needs: no commit names them, or none that may still be the last."""
        with self._lock:
            gone = set(names) - _names(self.snapshot) - self._doomed.keys() - self._pinned()
        if self._fenced is None:
            discard(self.location, gone)

    def replace(self, replacement: Replacement) -> None:
        """Have the next commit put merged runs in the place of those that they were merged from."""
        with self._lock:
            self._replacements.append(replacement)

    @property
    def has_replacements(self) -> bool:
        """Whether merged runs wait for a commit."""
        return bool(self._replacements)

    def _with_merges(self, record: Record, merged: list[Replacement]) -> Record:
        """A record that puts merged runs in their place as well, wherever the runs before them are still there."""
        buckets = {name: dict(own) for name, own in record.buckets.items()}
        for replacement in merged:
            name = replacement.arrangement
            if name in record.dropped:
                continue
            states = self.snapshot.arrangements.get(name, {}) | buckets.get(name, {})
            changed = replacement.applied(states)
            if changed is not None:
                buckets.setdefault(name, {}).update(changed)
        return replace(record, buckets=buckets)

    def roll_back(self) -> None:
        """Undo a failed step: the state is again what the log says, and all other files are removed."""
        # The log is read again, because an interrupt may have come right after the commit, before `snapshot` was set.
        if self._fenced is not None:
            return
        with self._durability.paused():
            before, found = self.snapshot, self._log.load()
        if self._is_replaced(found):
            if isinstance(sys.exception(), CorruptFileError):
                self._check_fenced()  # the step failed because the new writer has removed what it read
            return
        self.snapshot = found
        if self.snapshot.version > before.version:
            old, new = _names(before), _names(self.snapshot)
            with self._lock:
                self._doomed |= dict.fromkeys(old - new, self.snapshot.version)
            self._durability.committed(self.snapshot, new - old)
        self.remove_orphans()

    def next_record(self, **changes: Any) -> Record:
        """A record that follows the current snapshot and keeps the summary of the last step."""
        snapshot = self.snapshot
        base = Record(
            snapshot.version + 1,
            snapshot.step,
            changes=snapshot.changes,
            unshown=snapshot.unshown,
            summary=snapshot.summary,
        )
        return replace(base, **changes)

    def close(self) -> None:
        """Let go of the location, once what is committed is safe."""
        if self._closed:
            return
        self._closed = True
        try:
            if not self.read_only:
                self._durability.stop()
        finally:
            OPEN.forget_all(self.location.path)
            self.location.unlock()

    def _check_open(self) -> None:
        if self._closed:
            raise StorageError(f"the engine of {self.location.shown} is closed", way_out="open the location again")

    def _pin(self, names: set[str]) -> int:
        self._next_pin += 1
        self._pins[self._next_pin] = names
        return self._next_pin

    def _merged(self) -> set[str]:
        """The files of merges that no commit names yet."""
        with self._lock:
            found = {name for replacement in self._replacements for name in replacement.files()}
            return found.union(*(new.copy() for new in self._merging))

    def _pinned(self) -> set[str]:
        with self._lock:
            return {name for names in self._pins.values() for name in names}

    def _unpin(self, pin: int) -> None:
        with self._lock:
            self._pins.pop(pin, None)
        self._bury()

    def _unpin_later(self, pin: int, earliest: float) -> None:
        wait = earliest - time.monotonic()
        if wait <= 0:
            self._unpin(pin)
            return
        timer = threading.Timer(wait, self._unpin, (pin,))
        timer.daemon = True
        timer.start()

    def _bury(self) -> None:
        if self.read_only or self._fenced is not None:
            return
        safe = self._durability.version
        with self._lock:
            pinned = self._pinned()
            gone = {name for name, version in self._doomed.items() if version <= safe and name not in pinned}
            for name in gone:
                del self._doomed[name]
        with contextlib.suppress(OSError):  # the step has happened; the next open tries again
            disk.DISK.remove_all([path_of(self.location, name) for name in gone])
        OPEN.forget(self.location.path, gone)


def _names(snapshot: Snapshot) -> set[str]:
    """The names of all files that a snapshot needs, of runs and of rows that were set aside."""
    return snapshot.files() | snapshot.set_aside()

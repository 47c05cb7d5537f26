"""The engine's hold on its location: the current snapshot, commits, and which files may be removed.

A file that an open reader needs is kept although later steps have merged it away (`reader`). Runs that were merged
beside steps (`upkeep`) take their place with whatever is committed next.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, replace
from typing import Any, TypeVar

from headrace.engine.durability import Durability
from headrace.engine.kept_files import KeptFiles
from headrace.engine.opening import DISK, PROCESS, check_writable, existing
from headrace.engine.reader import Reader
from headrace.errors import CorruptFileError, HeadraceError, StorageError
from headrace.relation import disk
from headrace.remote.root import Place
from headrace.remote.store import RefusedRequestError
from headrace.runtime.leases import Lease, oldest
from headrace.runtime.location import Location, Settings, TakenError
from headrace.runtime.log import CommitLog, Snapshot
from headrace.runtime.merges import Replacement
from headrace.runtime.openruns import OPEN
from headrace.runtime.record import Record, RunRef
from headrace.runtime.recovery import cut_back, recovered, seen
from headrace.runtime.runwriter import discard

_LOG = logging.getLogger("headrace")
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
        self._lease = Lease(location.readers)  # of an engine that only reads
        self._end = (0, 0)  # of the log, when it was read last
        self._files = KeptFiles(location)
        self._lock = self._files.lock
        self._replacements: list[Replacement] = []
        self._closed = False
        self._stopped: HeadraceError | None = None  # why nothing more may be asked of this engine
        self._claimed = 0  # the commit by which this engine became the writer, of a location that is elsewhere
        self._fenced: str | None = None  # why it is the writer no more
        self.snapshot = Snapshot()
        self.lost: str | None = None  # what opening the location had to cut off, or will have to
        self._made: Settings
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
            self._made = there or self.location.create(buckets or default, sql)
            if self.read_only:
                self.refresh()
            else:
                if self.location.remote is None:
                    self.location.complete()
                    self._recover()
                else:
                    self._claim(self.location.remote)
                self.remove_orphans(opening=True)
        except BaseException:
            self._lease.close()
            self.location.unlock()
            raise

    def open_existing(self) -> None:
        """Read an existing location."""
        there = existing(self.location, None, read_only=True)
        assert there is not None
        self._made = there
        try:
            self.refresh()
        except BaseException:
            self._lease.close()
            raise

    @property
    def settings(self) -> Settings:
        """The settings as of the current snapshot."""
        return self._made.as_of(self.snapshot.settings)

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
            made = None if self.snapshot.settings else asdict(self._made)
            claim = self.next_record(writer=place.writer, settings=made)
            with contextlib.suppress(TakenError):
                self._log.claim(claim)
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
        """Read the log again, as far as it is whole."""
        self._hold()
        for attempt in range(_ATTEMPTS):
            end = self._log.end
            try:
                found = seen(self._log)
            except CorruptFileError:
                if attempt == _ATTEMPTS - 1 or not self.location.has_writer():
                    raise
                _wait(attempt)  # a writer replaces records by a checkpoint, or has just come or gone
            else:
                self.snapshot, self.lost, self._end = found.snapshot, found.unsafe, end
                self._hold()
                return

    def follow(self) -> None:
        """Take over what another engine has committed, if this one only reads: definitions and state together."""
        if not self.read_only:
            return
        self._hold()  # first: from here on, whatever is found to be the newest state stays
        if self._log.end != self._end:
            before, lost, end = self.snapshot, self.lost, self._end
            self.refresh()
            try:
                self.followed(before, self.snapshot)
            except BaseException:
                self.snapshot, self.lost, self._end = before, lost, end  # the next call tries again
                raise

    def _hold(self) -> None:
        """Have the engine that writes keep the files of the current snapshot for a while, and those that are pinned."""
        if self.read_only and not self._closed:
            with self._lock:
                self._lease.hold(self.snapshot.version, self._files.oldest_pinned)

    @property
    def latest(self) -> Reader:
        """A reader of the current snapshot for numbers only: its files may be deleted at any moment."""
        snapshot = self.snapshot
        return Reader(self.location.path, self._made.as_of(snapshot.settings).buckets, snapshot)

    def reader(self) -> Reader:
        """Open a reader of the current snapshot. If it is not closed, its files go some time after nobody holds it."""
        self._check_open()
        with self._lock:
            snapshot, pin = self.snapshot, self._pin(_names(self.snapshot))
            self._hold()
        buckets = self._made.as_of(snapshot.settings).buckets

        def release() -> None:
            if forgotten.detach() is not None:
                self._unpin(pin)

        reader = Reader(self.location.path, buckets, snapshot, release)
        forgotten = weakref.finalize(reader, self._unpin_later, pin, time.monotonic() + GRACE_SECONDS)
        forgotten.atexit = False
        return reader

    def read(self, work: Callable[[Reader], T]) -> T:
        """Call a function with a reader of the current snapshot; its files stay until the function returns.

        A reader in another process may have no lease: if the writer has removed some, it reads the latest snapshot.
        """
        for attempt in range(_ATTEMPTS):
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
                    _wait(attempt)
                    self.follow()
                    if not self.snapshot.defines_what(reader.snapshot):
                        break  # what was to be read is planned otherwise now
        raise StorageError(
            f"{self.location.shown} changes faster than it can be read", way_out="read it in the engine that writes it"
        )

    def remove_orphans(self, *, opening: bool = False) -> int:
        """Remove files of steps that never happened; returns how many there were.

        Files that were never whole go when the location is opened: later, they may be what another thread is writing.
        """
        if self._fenced is not None:
            return 0
        try:
            return self._remove_orphans(opening)
        except OSError as error:  # they are in nobody's way, and the next who looks removes them
            _LOG.warning("%s: files that are not needed could not be looked for: %s", self.location.shown, error)
            return 0

    def _remove_orphans(self, opening: bool) -> int:
        # Files first: a merge beside this tells its names before it makes the files.
        folders = (self.location.runs, self.location.batches, self.location.quarantine)
        there = [path for folder in folders for path in disk.DISK.files(folder)]
        with self._lock:
            needed = _names(self.snapshot) | self._files.kept() | self._files.under_way() | self._replacing()
        found = [path for path in there if path.name not in needed and self._is_ours(path.name)]
        if self.location.remote is None:
            if oldest(self.location.readers) < self.snapshot.version:  # some may be of what a reader still looks at
                kept = [path.name for path in found if path.parent != self.location.batches]
                self._files.doom(kept, self.snapshot.version)
                found = [path for path in found if path.parent == self.location.batches]
            for folder in (self.location.root, self.location.log, self.location.root / "plans") if opening else ():
                found += (path for path in folder.glob(".*.*") if not path.is_dir())
        try:
            disk.DISK.remove_all(found)
        except OSError as error:
            _LOG.warning(
                "%s: a file is not needed, but could not be removed; the next time tries again: %s",
                self.location.shown,
                error,
            )
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
        """Append a record; when this returns, the step has happened.

        If it could not be made as safe as it has to be, it has happened all the same, and this says so. Nobody knows
        then what the disk has kept, so the engine stops: what its users know may not be what is found after a crash.
        """
        self.check_writes()
        self._durability.check()
        with self._lock:
            merged = self._replacements.copy()
        before = self.snapshot
        record = self.before_commit(record, before)
        if not before.settings and record.settings is None:
            record = replace(record, settings=asdict(self._made))  # so that they are in the log from the first on
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
            self._files.doom((old | made) - new, after.version)
        try:
            self._durability.committed(after, new - old)
        except StorageError as error:
            happened = f"step {after.step} has happened" if after.step > before.step else "the change has happened"
            raise self._stop(
                f"{happened}, but it is not safe from a power cut: {error.what}",
                "do not apply it again: see to the disk, close this engine and open the location again; `step` then "
                "says which step is the last",
            ) from error
        self.after_commit(record, merged)

    def check_writes(self) -> None:
        """Refuse what only an engine may do that writes."""
        self._check_open()
        if self.read_only:
            raise StorageError("this engine is open for reading only", way_out="open it without read_only=True")
        self._check_fenced()

    def _stop(self, what: str, way_out: str) -> StorageError:
        """Let nothing more be asked of this engine; returns the error that says why."""
        self._stopped = StorageError(what, way_out=way_out)
        return self._stopped

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
        except BaseException as error:
            if isinstance(error.__cause__, RefusedRequestError):
                raise
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
        pin = self._pin({run.name for run in runs})
        try:
            with self._files.making() as new:
                yield new
        finally:
            self.discard(new - self._replacing())
            self._unpin(pin)

    def discard(self, names: Collection[str]) -> None:
        """Remove those of some files that nothing needs: no commit names them, or none that may still be the last."""
        with self._lock:
            gone = set(names) - _names(self.snapshot) - self._files.kept()
        if self._fenced is None and self._stopped is None:  # otherwise nobody knows what the log names
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
        if self._stopped is not None:
            return
        # The log is read again, because an interrupt may have come right after the commit, before `snapshot` was set.
        if self._fenced is not None:
            return
        try:
            with self._durability.paused():
                before, found = self.snapshot, self._log.load()
        except HeadraceError as error:  # whoever calls this has an error of their own to raise
            if self.location.remote is not None and not isinstance(error, CorruptFileError):
                return  # a request failed; a commit whose answer is not known has fenced this engine already
            self._stop(
                f"the log could not be read after a failure: {error.what}",
                "see to the disk, and open the location again",
            )
            return
        if self._is_replaced(found):
            if isinstance(sys.exception(), CorruptFileError):
                self._check_fenced()  # the step failed because the new writer has removed what it read
            return
        self.snapshot = found
        if self.snapshot.version > before.version:
            old, new = _names(before), _names(self.snapshot)
            self._files.doom(old - new, self.snapshot.version)
            try:
                self._durability.committed(self.snapshot, new - old)
            except StorageError as error:
                self._stop(f"a commit has happened, but is not safe from a power cut: {error.what}", error.way_out)
                return
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
        self._lease.close()
        try:
            if not self.read_only:
                self._durability.stop()
        finally:
            OPEN.forget_all(self.location.path)
            self.location.unlock()

    def _check_open(self) -> None:
        if self._closed:
            raise StorageError(f"the engine of {self.location.shown} is closed", way_out="open the location again")
        if self._stopped is not None:
            raise StorageError(
                f"the engine of {self.location.shown} has stopped: {self._stopped.what}",
                way_out="close it, see to the disk and open the location again: what is whole will be there",
            )

    def _pin(self, names: set[str]) -> int:
        return self._files.pin(self.snapshot.version, names)

    def _replacing(self) -> set[str]:
        """The files of merges that wait for a commit."""
        with self._lock:
            return {name for replacement in self._replacements for name in replacement.files()}

    def _unpin(self, pin: int) -> None:
        self._files.unpin(pin)
        self._hold()
        self._bury(asking=True)

    def _unpin_later(self, pin: int, earliest: float) -> None:
        wait = earliest - time.monotonic()
        if wait <= 0:
            self._unpin(pin)
            return
        timer = threading.Timer(wait, self._unpin, (pin,))
        timer.daemon = True
        timer.start()

    def _bury(self, *, asking: bool = False) -> None:
        """Remove files that nothing needs any more; elsewhere it is asked first whether this engine still writes."""
        if self.read_only or self._fenced is not None:
            return
        gone = self._files.free(self._durability.version)
        if asking and gone and self.location.remote is not None:
            try:
                if self._is_replaced(self._log.settled()[-1].snapshot):
                    return
            except StorageError:
                return  # the next commit tries again
        self._files.bury(gone)


def _wait(attempt: int) -> None:
    """Wait a moment before trying again, longer each time."""
    time.sleep(min(0.2, 0.001 * 2**attempt))


def _names(snapshot: Snapshot) -> set[str]:
    """The names of all files that a snapshot needs, of runs and of rows that were set aside."""
    return snapshot.files() | snapshot.set_aside()

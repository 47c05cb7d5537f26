"""The commit log: numbered records, each put in place by one rename; what the log names is what exists.

A record gives the new list of runs of every bucket it changed, and whatever else changed with it (definitions, source
offsets, quarantine). The state is the fold of all records; now and then a record that holds everything (a checkpoint)
makes the older ones unnecessary. Files that no record names are orphans of a step that never happened, and are
removed when the location is opened.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from headrace.errors import CorruptFileError, StorageError
from headrace.relation import disk
from headrace.relation.from_log import REPAIR
from headrace.remote.store import READ_AGAIN
from headrace.runtime.location import Location, TakenError, partial_of, write_once, writing
from headrace.runtime.record import FINAL, PENDING, Arrangements, Changes, Record, RunRef

CHECKPOINT_EVERY = 64
_ATTEMPTS = 20  # to read a log that changes meanwhile
COMMIT, CHECKPOINT, SYNCED = ".commit", ".checkpoint", ".synced"

V = TypeVar("V")


@dataclass
class Snapshot:
    """The state of everything as of one commit. Committed snapshots are never changed, only replaced."""

    version: int = 0
    step: int = 0
    arrangements: Arrangements = field(default_factory=dict)
    tables: dict[str, Any] = field(default_factory=dict)
    views: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, int] = field(default_factory=dict)
    changes: Changes = field(default_factory=dict)
    quarantine: dict[str, list[str]] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    watermarks: dict[str, int] = field(default_factory=dict)
    late: dict[str, list[str]] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    goals: dict[str, Any] = field(default_factory=dict)
    learnt: dict[str, Any] = field(default_factory=dict)
    shown: Arrangements = field(default_factory=dict)
    unshown: Changes = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict)
    unshared: list[Any] = field(default_factory=list)
    unkept: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    unmerged: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)  # empty before the first commit
    writer: str = ""
    claims: tuple[int, ...] = ()  # the commits with which engines became the writer, where no lock tells

    @cached_property
    def read(self) -> Arrangements:
        """All arrangements as readers see them: an answer that is ahead of its trigger is that of the last trigger."""
        return self.arrangements | self.shown if self.shown else self.arrangements

    def after(self, record: Record) -> Snapshot:
        """The snapshot that a record leads to; shares with this one what did not change.

        What a record removes is gone before it adds anything, so a view that it has in both places is another one.
        """
        arrangements = {name: buckets for name, buckets in self.arrangements.items() if name not in record.dropped}
        for name, buckets in record.buckets.items():
            arrangements[name] = arrangements.get(name, {}) | buckets
        gone = record.removed
        tables, views = _left(self.tables, gone) | record.tables, _left(self.views, gone) | record.views
        watermarks, rates = _left(self.watermarks, gone) | record.watermarks, _left(self.rates, gone) | record.rates
        goals, learnt = _left(self.goals, gone) | record.goals, _left(self.learnt, gone) | record.learnt
        unkept = _left(self.unkept, gone) | record.unkept
        unseen = {*record.dropped, *record.published}
        return Snapshot(
            record.version,
            record.step,
            arrangements,
            tables,
            views,
            self.sources | record.sources,
            {name: runs for name, runs in record.changes.items() if name in views},
            _present(self.quarantine | record.quarantine),
            _without(record.summary or self.summary, record.removed),
            watermarks,
            _present(self.late | record.late),
            rates,
            goals,
            learnt,
            {name: buckets for name, buckets in self.shown.items() if name not in unseen} | record.shown,
            {name: runs for name, runs in record.unshown.items() if name in views},
            self.shared if record.shared is None else record.shared,
            self.unshared if record.unshared is None else record.unshared,
            {name: parts for name, parts in unkept.items() if parts},
            self.memory if record.memory is None else record.memory,
            [name for name in (self.unmerged if record.unmerged is None else record.unmerged) if name in views],
            self.settings if record.settings is None else record.settings,
            record.writer,
            self._claims_after(record),
        )

    def _claims_after(self, record: Record) -> tuple[int, ...]:
        if record.claims is not None:
            return tuple(record.claims)
        return self.claims if record.writer == self.writer else (*self.claims, record.version)

    def record(self) -> Record:
        """This snapshot as one record that holds everything."""
        return Record(
            self.version,
            self.step,
            buckets=self.arrangements,
            tables=self.tables,
            views=self.views,
            sources=self.sources,
            changes=self.changes,
            quarantine=self.quarantine,
            summary=self.summary,
            watermarks=self.watermarks,
            late=self.late,
            rates=self.rates,
            goals=self.goals,
            learnt=self.learnt,
            shown=self.shown,
            unshown=self.unshown,
            shared=self.shared,
            unshared=self.unshared,
            unkept=self.unkept,
            memory=self.memory,
            unmerged=self.unmerged,
            settings=self.settings or None,
            writer=self.writer,
            claims=list(self.claims),
        )

    def runs(self) -> Iterator[RunRef]:
        """All runs that belong to this snapshot: of its state, and the changes of views that it tells of."""
        for arrangements in (self.arrangements, self.shown):
            for buckets in arrangements.values():
                for state in buckets.values():
                    yield from state.runs
        for changes in (self.changes, self.unshown):
            for runs in changes.values():
                yield from runs

    def defines_what(self, other: Snapshot) -> bool:
        """Whether both have the same tables and views, kept in the same way, in as many buckets."""
        what = ("tables", "views", "shared", "unkept", "settings")
        return all(getattr(self, name) == getattr(other, name) for name in what)

    def waiting(self) -> list[str]:
        """The arrangements of changes that wait, as far as any do."""
        pending = ((name, buckets) for name, buckets in self.arrangements.items() if name.startswith(PENDING))
        return [name for name, buckets in pending if any(state.runs for state in buckets.values())]

    def files(self) -> set[str]:
        """Names of all files in runs/ that this snapshot needs."""
        return {run.name for run in self.runs()}

    def set_aside(self) -> set[str]:
        """Names of all files in quarantine/ that this snapshot needs: of bad rows and of late ones."""
        return {name for aside in (self.quarantine, self.late) for files in aside.values() for name in files}

    def bytes(self) -> int:
        """Size of the state, without final arrangements, which no step reads any more.

        A run that two arrangements refer to counts once.
        """
        kept = [buckets for name, buckets in self.arrangements.items() if not name.startswith(FINAL)]
        return sum(run.bytes for run in {run for buckets in kept for state in buckets.values() for run in state.runs})


def _left(known: dict[str, V], removed: Collection[str]) -> dict[str, V]:
    return {name: one for name, one in known.items() if name not in removed} if removed else known


def _without(summary: dict[str, Any], removed: Collection[str]) -> dict[str, Any]:
    """Return the summary of a step without views that are gone: a new view of the same name has had no step yet."""
    if not removed:
        return summary
    return {
        what: {name: said for name, said in of.items() if name not in removed} if isinstance(of, dict) else of
        for what, of in summary.items()
    }


def _present(aside: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: files for name, files in aside.items() if files}


@dataclass(frozen=True)
class Version:
    """A snapshot of the log, and what keeps it from leading further; None if nothing is wrong."""

    snapshot: Snapshot
    broken: str | None


class CommitLog:
    """Reads and appends commit records.

    Parameters
    ----------
    fsync : a record is on the disk before it gets its name.
    """

    def __init__(self, location: Location, *, fsync: bool = False) -> None:
        self.location = location
        self.fsync = fsync

    def load(self) -> Snapshot:
        """Fold the records into the current snapshot; all of them have to be whole."""
        *_, found = self.history()
        if found.broken is not None:
            raise CorruptFileError(found.broken, way_out=REPAIR)
        return found.snapshot

    def settled(self) -> list[Version]:
        """The history at one moment, although an engine may be writing, which replaces records by checkpoints."""
        for _ in range(_ATTEMPTS):
            before = self._names()
            found = list(self.history())
            if found[-1].broken is None or self._names() == before:
                break
        return found

    def _names(self) -> set[str]:
        return {path.name for files in self._listed().values() for path in files.values()}

    def history(self) -> Iterator[Version]:
        """The snapshots that the log leads to, one per record from the newest readable checkpoint on."""
        listed = self._listed()
        found = listed[CHECKPOINT]
        broken, snapshot = None, Snapshot()
        for version in sorted(found, reverse=True):
            try:
                snapshot = Snapshot().after(Record.read(found[version]))
                break
            except CorruptFileError as error:
                broken = broken or error.what
        records = {at: path for at, path in listed[COMMIT].items() if at > snapshot.version}
        for version in range(snapshot.version + 1, max(records, default=0) + 1):
            try:
                record = Record.read(records[version]) if version in records else None
            except CorruptFileError as error:
                yield Version(snapshot, error.what)
                return
            if record is None:
                yield Version(snapshot, broken or f"commit record {self.record_path(version)} is missing")
                return
            yield Version(snapshot, None)
            snapshot = snapshot.after(record)
        # A checkpoint that is not whole is no loss, if all of its records are still there.
        lost = any(version > snapshot.version for version in found)
        yield Version(snapshot, broken if lost else None)

    def append(self, record: Record) -> None:
        """Commit: when this returns, the record exists; if it raises, it does not."""
        write_once(self.record_path(record.version), record.to_bytes(), fsync=self.fsync)

    def claim(self, record: Record) -> None:
        """Become the writer of a location elsewhere, by a record that takes the next number.

        A checkpoint frees the numbers of the records that it holds. So a number that was used may look free; then
        there is a checkpoint of it, or of a later one, since records are only removed after that is there.

        Raises
        ------
        TakenError : the number was used.
        """
        self.append(record)
        if self.checkpointed >= record.version:
            raise TakenError(
                f"{self.record_path(record.version)} was used before: another engine writes to this location",
                way_out="close that engine, and try again",
            )

    def checkpoint(self, snapshot: Snapshot) -> None:
        """Write everything into one file; what made it up is removed once the file is on the disk.

        Raises
        ------
        StorageError : the file could not be written. All is as it was.
        OSError : a sync has failed.
        """
        log, version = self.location.log, snapshot.version
        path = log / f"{version:012d}{CHECKPOINT}"
        partial = partial_of(path)
        with writing(partial):
            disk.DISK.write(partial, snapshot.record().to_bytes())
        disk.DISK.sync(partial)
        with writing(partial):
            disk.DISK.rename(partial, path)
        disk.DISK.sync_folder(log)
        listed = self._listed()
        old = [path for at, path in listed[CHECKPOINT].items() if at < version]
        # A claim stays for good: the number that an engine before it needs, however late it comes, has to be taken.
        old += [path for at, path in listed[COMMIT].items() if at <= version and at not in snapshot.claims]
        disk.tidy(old)

    def after(self, version: int) -> list[Path]:
        """All files of the log that belong to later versions."""
        return [path for files in self._listed().values() for at, path in files.items() if at > version]

    def record_path(self, version: int) -> Path:
        """The file of a record."""
        return self.location.log / f"{version:012d}{COMMIT}"

    @property
    def newest(self) -> int:
        """The newest version that has a file."""
        listed = self._listed()
        return max((at for suffix in (CHECKPOINT, COMMIT) for at in listed[suffix]), default=0)

    @property
    def end(self) -> tuple[int, int]:
        """The newest version that has a file, and what tells that file from an earlier one of this version."""
        newest = self.newest
        if self.location.remote is not None:  # where no number is used twice
            return newest, 0
        with suppress(OSError):
            return newest, self.record_path(newest).stat().st_ino
        return newest, 0

    # -- what is on the disk --------------------------------------------------------------------------------------

    @property
    def checkpointed(self) -> int:
        """The version of the newest checkpoint."""
        return max(self._listed()[CHECKPOINT], default=0)

    @property
    def synced(self) -> int:
        """A version that has been on the disk with all of its files, as far as the log knows."""
        return max(self._listed()[SYNCED], default=0)

    def mark(self, version: int) -> None:
        """Note that a version is on the disk with all of its files. To lose the note costs a longer look at them."""
        old = [path for at, path in self._listed()[SYNCED].items() if at < version]
        path = self.location.log / f"{version:012d}{SYNCED}"
        if not path.exists():
            with suppress(OSError):
                disk.DISK.write(path, b"")
        disk.tidy(old)

    def _listed(self) -> dict[str, dict[int, Path]]:
        """The files of each kind, by version; whatever has no number is none of them."""
        found: dict[str, dict[int, Path]] = {suffix: {} for suffix in (CHECKPOINT, COMMIT, SYNCED)}
        try:
            there = disk.DISK.files(self.location.log)
        except (FileNotFoundError, NotADirectoryError):
            there = []
        except OSError as error:
            said = error.strerror or error
            raise StorageError(f"{self.location.shown} could not be read: {said}", way_out=READ_AGAIN) from error
        for path in there:
            number, _, kind = path.name.partition(".")
            if number.isdecimal() and f".{kind}" in found:
                found[f".{kind}"][int(number)] = path
        return found

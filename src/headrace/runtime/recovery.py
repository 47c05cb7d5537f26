"""Opening a location after a power cut: the newest commit that is whole, with all of its files.

Up to a version that the log knows to be on the disk (`CommitLog.synced`), everything is there, and what is not is
damage. Later commits may have been lost, in part or out of order. So each of these is believed only if its record and
all records before it are whole, and if the runs that it names are, to the last checksum. The newest such commit is the
state; what comes after it was never safe, and is cut off.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import CorruptFileError, StorageError
from headrace.relation import disk, runfile
from headrace.relation.from_log import REPAIR
from headrace.remote.store import READ_AGAIN
from headrace.runtime.location import Location, naming
from headrace.runtime.log import SYNCED, CommitLog, Snapshot, Version
from headrace.runtime.record import RunRef

_LOG = logging.getLogger("headrace")


@dataclass(frozen=True)
class Recovered:
    """What a location comes to.

    Parameters
    ----------
    on_disk : a version up to which everything has been on the disk.
    later : the names of the snapshot's files that came after that.
    lost : why the log does not lead further, if it ends with commits that are not whole.
    cut : the files of the log that belong to these.
    """

    snapshot: Snapshot
    on_disk: int
    later: frozenset[str]
    lost: str | None
    cut: tuple[Path, ...]

    @property
    def commits(self) -> int:
        """How many commits are cut off."""
        return len({path.name.partition(".")[0] for path in self.cut if path.suffix != SYNCED})

    def said(self) -> str | None:
        """What was lost, in words; None if nothing was."""
        if self.lost is None:
            return None
        last = f"the last commit that is whole is number {self.snapshot.version}, of step {self.snapshot.step}"
        return f"{last}; later ones were never on the disk as a whole: {self.lost}"


@dataclass(frozen=True)
class Seen:
    """What somebody sees who only reads: the newest state that is whole, and what a writer would cut off."""

    snapshot: Snapshot
    unsafe: str | None = None


def seen(log: CommitLog) -> Seen:
    """Read the log beside whoever may be writing to it; changes nothing.

    As long as an engine writes, its files are there, since it has written them; whether a power cut would leave them is
    not known. Without one, the end of the log may be what a power cut left, and that is no damage.

    Raises
    ------
    CorruptFileError : something is damaged that was on the disk.
    """
    if log.location.has_writer():
        last = log.settled()[-1]
        if last.broken is not None:
            raise CorruptFileError(last.broken, way_out=REPAIR)
        return Seen(last.snapshot)
    found = recovered(log)
    if not found.commits:
        return Seen(found.snapshot)
    which = "the last commit was" if found.commits == 1 else f"the last {found.commits} commits were"
    return Seen(
        found.snapshot,
        f"{which} never whole, as after a power cut; they are cut back when an engine that writes opens the location, "
        f"and step {found.snapshot.step} is the last one until then: {found.lost}",
    )


def recovered(log: CommitLog) -> Recovered:
    """Find the newest commit that is whole; changes nothing.

    Raises
    ------
    CorruptFileError : something is damaged that was on the disk.
    """
    history = list(log.history())
    on_disk, last = max(log.synced, history[0].snapshot.version), history[-1]
    if last.snapshot.version < on_disk:
        raise CorruptFileError(f"{last.broken}: it was on the disk", way_out=REPAIR)
    # The files of this one are not looked at.
    trusted = next((one.snapshot for one in history if one.snapshot.version == on_disk), Snapshot())
    found, broken = newest_whole(log.location, [one for one in history if one.snapshot.version >= on_disk], trusted)
    if found is None:
        raise CorruptFileError(f"{broken}: it was on the disk", way_out=REPAIR)
    cut = tuple(log.after(found.version))
    later = found.files() | found.set_aside()
    later -= trusted.files() | trusted.set_aside()
    return Recovered(found, on_disk, frozenset(later), broken if cut else None, cut)


def newest_whole(
    location: Location, history: Sequence[Version], trusted: Snapshot
) -> tuple[Snapshot | None, str | None]:
    """The newest snapshot whose files are whole, and what is wrong with the next one.

    Parameters
    ----------
    trusted : a snapshot whose files are taken to be whole.
    """
    known, aside = set(trusted.runs()), trusted.set_aside()
    check, broken = _Checked(location), history[-1].broken
    for one in reversed(history):
        wrong = check.first_wrong(set(one.snapshot.runs()) - known, one.snapshot.set_aside() - aside)
        if wrong is None:
            return one.snapshot, broken
        broken = wrong
    return None, broken


def cut_back(log: CommitLog, found: Recovered) -> None:
    """Remove the commits that are not whole, so that nothing of them can ever come back."""
    if not found.cut:
        return
    _LOG.warning("%s: %s", log.location.root, found.said() or "files of commits that never happened were removed")
    with naming(log.location.log):
        for path in found.cut:
            disk.DISK.remove(path)
        disk.DISK.sync_folder(log.location.log)  # or what was cut off could be there again, beside what follows now


class _Checked:
    """Looks at each file once, however many commits name it."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._seen: dict[RunRef | str, str | None] = {}

    def first_wrong(self, runs: Iterable[RunRef], aside: Iterable[str]) -> str | None:
        """What is wrong with the first of these that is not whole; None if all are."""
        named: list[RunRef | str] = [*runs, *aside]
        for one in named:
            if one not in self._seen:
                self._seen[one] = self._damage(one)
            if self._seen[one] is not None:
                return self._seen[one]
        return None

    def _damage(self, one: RunRef | str) -> str | None:
        return (
            run_damage(self._location, one)
            if isinstance(one, RunRef)
            else aside_damage(self._location.quarantine / one)
        )


def damage(location: Location, snapshot: Snapshot) -> list[str]:
    """Read all files of a snapshot and check every checksum; returns one line per problem.

    An engine that writes may remove files meanwhile. It removes none that its newest commit needs, so only what that
    one still needs is damaged.
    """
    runs = sorted(set(snapshot.runs()), key=lambda run: (run.name, run.at))
    found = [(run.name, run_damage(location, run)) for run in runs]
    found += [(name, aside_damage(location.quarantine / name)) for name in sorted(snapshot.set_aside())]
    wrong = [(name, problem) for name, problem in found if problem is not None]
    if not wrong:
        return []
    newest = CommitLog(location).settled()[-1].snapshot
    needed = newest.files() | newest.set_aside()
    return [problem for name, problem in wrong if name in needed or newest.version < snapshot.version]


def run_damage(location: Location, run: RunRef) -> str | None:
    """What is wrong with a run, by all of its checksums; None if it is whole."""
    try:
        found = runfile.read(location.runs / run.name, run.at, run.bytes, run.crc)
        found.check()
        if found.rows != run.rows:
            return f"{location.runs / run.name} has {found.rows} rows, and the log says {run.rows}"
    except CorruptFileError as error:
        return error.what
    return None


def aside_damage(path: Path) -> str | None:
    """What is wrong with a file of rows that were set aside; None if it is whole."""
    try:
        aside_content(path)
    except CorruptFileError as error:
        return error.what
    return None


def aside_content(path: Path) -> bytes:
    """The content of a file of rows that were set aside, once it matches the checksum in its name."""
    try:
        data = disk.read(path)
    except OSError as error:
        if disk.is_damage(error):
            raise CorruptFileError(f"{path} cannot be read: {error.strerror}", way_out=REPAIR) from error
        raise StorageError(f"{path} could not be read: {error.strerror or error}", way_out=READ_AGAIN) from error
    if not _matches(path, data) and disk.DISK.renewed(path):
        data = disk.read(path)
    if not _matches(path, data):
        raise CorruptFileError(f"{path} does not match its checksum", way_out=REPAIR)
    return data


def _matches(path: Path, data: bytes) -> bool:
    return f"{zlib.crc32(data):08x}" == path.name.split(".")[-2]

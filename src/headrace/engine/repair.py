"""Looking at every file of a location, and going back to its last state that is whole.

Opening a location cuts off what a power cut left of commits that were never safe. This is for everything else: a file
that somebody changed or removed, or that the disk lost after it had promised to keep it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from headrace.engine.opening import check_writable, existing, location_at
from headrace.engine.reader import Reader
from headrace.errors import CorruptFileError
from headrace.relation import disk
from headrace.remote.root import Place
from headrace.runtime.location import Location
from headrace.runtime.log import CommitLog, Snapshot
from headrace.runtime.openruns import OPEN
from headrace.runtime.record import Record
from headrace.runtime.recovery import newest_whole, run_damage


@dataclass(frozen=True)
class Repaired:
    """What a repair came to.

    Parameters
    ----------
    step : the last step that is there.
    commits : how many commits after that are gone.
    why : what was wrong with the next one; None if nothing was, so that nothing has changed.
    """

    location: str
    step: int
    commits: int
    why: str | None

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        if self.why is None:
            return f"{self.location}: step {self.step} is whole; nothing was changed"
        gone = f"{self.commits} later commit{'' if self.commits == 1 else 's'}"
        return f"{self.location}: step {self.step} is the last one now, and {gone} are gone: {self.why}"


def problems(path: str | Path) -> list[str]:
    """Read all files of a location and check every checksum; one line per problem."""
    location = location_at(path)
    try:
        settings = existing(location, None, read_only=True)
    except CorruptFileError as error:
        return [error.what]
    assert settings is not None
    history = list(CommitLog(location).history())
    last = history[-1]
    found = [] if last.broken is None else [last.broken]
    return found + Reader(location.path, settings.buckets, last.snapshot).damage()


def repair(path: str | Path) -> Repaired:
    """Go back to the newest commit whose record, with all before it, and whose files are whole.

    Raises
    ------
    CorruptFileError : there is none. Nothing was changed, and the error says what could still be done.
    """
    location = location_at(path)
    check_writable(location)
    existing(location, None, read_only=True)
    location.lock()
    try:
        return _repaired(location)
    finally:
        OPEN.forget_all(location.path)
        location.unlock()


def _repaired(location: Location) -> Repaired:
    log = CommitLog(location)
    history = list(log.history())
    found, why = newest_whole(location, history, Snapshot())
    if found is None or (found.version == 0 and log.after(0)):  # to lose everything is no repair
        newest = history[-1].snapshot
        damaged = "; ".join(dict.fromkeys(_damaged(location, newest)))
        raise CorruptFileError(
            f"{location.shown} has no state that is whole: {damaged or why}",
            way_out="restore it from a backup; or, if only views are damaged, open it, drop these views and create "
            "them again: they are filled from their tables",
        )
    cut = log.after(found.version)
    if location.remote is not None:
        if cut:
            _superseded(log, location.remote, found)
    else:
        disk.DISK.remove_all(cut)
        disk.DISK.sync_folder(location.log)
    commits = len({file.name.partition(".")[0] for file in cut})
    return Repaired(location.shown, found.step, commits, why if cut else None)


def _superseded(log: CommitLog, place: Place, whole: Snapshot) -> None:
    """Have the log go on after a damaged commit with an older state, where no lock keeps other engines from writing.

    Numbers are never used twice there, so the next one is claimed, which ends any other writer, and what is whole is
    written as the checkpoint of that number. Until it is there, nothing has changed.
    """
    claim = Record(log.newest + 1, whole.step, writer=place.writer)
    log.append(claim)
    # Some of those between were claims; which ones, nobody may be able to read.
    claims = (*whole.claims, *range(whole.version + 1, claim.version + 1))
    log.checkpoint(replace(whole, version=claim.version, writer=place.writer, claims=claims))


def _damaged(location: Location, snapshot: Snapshot) -> Iterator[str]:
    """The tables and views that have damaged files, in words."""
    for name, states in snapshot.arrangements.items():
        if any(run_damage(location, run) for state in states.values() for run in state.runs):
            kind, _, rest = name.partition("/")
            yield f"{kind} {rest.partition('/')[0]} is damaged"

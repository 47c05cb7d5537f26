"""Looking at every file of a location, and going back to its last state that is whole.

Opening a location cuts off what a power cut left of commits that were never safe. This is for everything else: a file
that somebody changed or removed, or that the disk lost after it had promised to keep it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headrace.engine.gone import Gone, gone
from headrace.engine.opening import check_writable, existing, location_at
from headrace.errors import CorruptFileError
from headrace.relation import disk
from headrace.runtime.location import Location, naming
from headrace.runtime.log import CommitLog, Snapshot
from headrace.runtime.openruns import OPEN
from headrace.runtime.recovery import Seen, damage, newest_whole, run_damage, seen


@dataclass(frozen=True)
class Verified:
    """What looking at every file came to.

    Parameters
    ----------
    problems : what is damaged, one line each.
    unsafe : what a power cut left of the last commits, which is no damage: a writer cuts it off.
    """

    problems: list[str] = field(default_factory=list)
    unsafe: str | None = None


@dataclass(frozen=True)
class Repaired:
    """What a repair came to.

    Parameters
    ----------
    step : the last step that is there.
    why : what was wrong with the next commit; None if nothing was, so that nothing has changed.
    gone : what is there no more.
    """

    location: str
    step: int
    why: str | None
    gone: Gone = field(default_factory=Gone)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        data = asdict(self)
        return data | {"commits": self.gone.commits}

    def __str__(self) -> str:
        if self.why is None:
            return f"{self.location}: step {self.step} is whole; nothing was changed"
        return f"{self.location}: step {self.step} is the last one now, because {self.why}\n{self.gone}"


def verified(path: str | Path) -> Verified:
    """Read all files of a location and check every checksum. An engine may be writing to it meanwhile."""
    location = location_at(path)
    try:
        settings = existing(location, None, read_only=True)
    except CorruptFileError as error:
        return Verified([error.what])
    assert settings is not None
    log = CommitLog(location)
    try:
        found = _seen(log)
    except CorruptFileError as error:
        last = log.settled()[-1]
        return Verified([last.broken or error.what, *damage(location, last.snapshot)])
    return Verified(damage(location, found.snapshot), found.unsafe)


def _seen(log: CommitLog) -> Seen:
    try:
        return seen(log)
    except CorruptFileError:
        if not log.location.has_writer():
            raise
        return seen(log)  # an engine may have begun to write just then


def problems(path: str | Path) -> list[str]:
    """Read all files of a location and check every checksum; one line per problem."""
    return verified(path).problems


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
        OPEN.forget_all(str(location.root))
        location.unlock()


def _repaired(location: Location) -> Repaired:
    log = CommitLog(location)
    history = list(log.history())
    found, why = newest_whole(location, history, Snapshot())
    if found is None or (found.version == 0 and log.after(0)):  # to lose everything is no repair
        newest = history[-1].snapshot
        damaged = "; ".join(dict.fromkeys(_damaged(location, newest)))
        raise CorruptFileError(
            f"{location.root} has no state that is whole: {damaged or why}",
            way_out="restore it from a backup; or, if only views are damaged, open it, drop these views and create "
            "them again: they are filled from their tables",
        )
    cut = log.after(found.version)
    lost = gone(location, found, cut)
    with naming(location.log):
        for file in cut:
            disk.DISK.remove(file)
        disk.DISK.sync_folder(location.log)
    return Repaired(str(location.root), found.step, why if cut else None, lost)


def _damaged(location: Location, snapshot: Snapshot) -> Iterator[str]:
    """The tables and views that have damaged files, in words."""
    for name, states in snapshot.arrangements.items():
        if any(run_damage(location, run) for state in states.values() for run in state.runs):
            kind, _, rest = name.partition("/")
            yield f"{kind} {rest.partition('/')[0]} is damaged"

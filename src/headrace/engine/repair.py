"""Looking at every file of a location, and going back to its last state that is whole.

Opening a location cuts off what a power cut left of commits that were never safe. This is for everything else: a file
that somebody changed or removed, or that the disk lost after it had promised to keep it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from headrace.engine.gone import Gone, gone
from headrace.engine.opening import check_writable, existing, location_at
from headrace.errors import CorruptFileError
from headrace.relation import disk
from headrace.remote.root import Place
from headrace.runtime.location import Location, Settings, naming
from headrace.runtime.log import CHECKPOINT, COMMIT, CommitLog, Snapshot
from headrace.runtime.openruns import OPEN
from headrace.runtime.record import Record
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
    why : what was wrong with the next commit; None if nothing was, so that no commit is gone.
    gone : what is there no more.
    settings : whether `headrace.json` was lost or damaged, and made again from the log.
    """

    location: str
    step: int
    why: str | None
    gone: Gone = field(default_factory=Gone)
    settings: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        data = asdict(self)
        return data | {"commits": self.gone.commits}

    def __str__(self) -> str:
        if self.settings:
            rest = str(replace(self, settings=False)).removesuffix("; nothing was changed")
            return f"{rest}; headrace.json was made again, by the settings that the log has"
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
    _forget_copies(location)
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
    lost = _lost_settings(location)
    if lost is None:
        check_writable(location)
        existing(location, None, read_only=True)
    location.lock()
    try:
        done = _repaired(location)
        if lost is None:
            return done
        location.write_settings(lost, again=True)
        return replace(done, settings=True)
    finally:
        OPEN.forget_all(location.path)
        location.unlock()


def _lost_settings(location: Location) -> Settings | None:
    """The settings of a location that has no whole `headrace.json`, if its log has them.

    Any record will do: the number of buckets that counts is that of the commit, and nothing else ever changes.
    """
    try:
        location.settings()
    except CorruptFileError:
        for file in sorted(CommitLog(location).after(-1), reverse=True):
            with suppress(CorruptFileError):
                if file.suffix in (COMMIT, CHECKPOINT) and (said := Record.read(file).settings) is not None:
                    return Settings.from_json(said)
    return None


def _repaired(location: Location) -> Repaired:
    log = CommitLog(location)
    _forget_copies(location)
    # First: elsewhere, nobody is kept from writing meanwhile. Here, an earlier repair may have been cut short, so that
    # the note of a later commit is still there without that commit.
    newest = log.newest if location.remote is not None else sys.maxsize
    history = log.settled()
    found, why = newest_whole(location, history, Snapshot())
    if found is None or (found.version == 0 and log.after(0)):  # to lose everything is no repair
        damaged = "; ".join(dict.fromkeys(_damaged(location, history[-1].snapshot)))
        raise CorruptFileError(
            f"{location.shown} has no state that is whole: {damaged or why}",
            way_out="restore it from a backup; or, if only views are damaged, open it, drop these views and create "
            "them again: they are filled from their tables",
        )
    cut = [path for path in log.after(found.version) if int(path.name.partition(".")[0]) <= newest]
    lost = gone(location, found, cut)
    if location.remote is not None:
        if cut:
            _superseded(log, location.remote, newest, history[-1].snapshot, found)
    else:
        with naming(location.log):
            disk.DISK.remove_all(cut)
            disk.DISK.sync_folder(location.log)
    return Repaired(location.shown, found.step, why if cut else None, lost)


def _forget_copies(location: Location) -> None:
    """Have the files of a location elsewhere looked at, and not what this machine has of them."""
    disk.DISK.forget_copies(location.runs)
    disk.DISK.forget_copies(location.quarantine)


def _superseded(log: CommitLog, place: Place, newest: int, last: Snapshot, whole: Snapshot) -> None:
    """Have the log go on after a damaged commit with an older state, where no lock keeps other engines from writing.

    Numbers are never used twice there, so the next one is claimed, which ends any other writer, and what is whole is
    written as the checkpoint of that number. The claim changes nothing of the last state that can be read, so until the
    checkpoint is there, all is as it was.

    Parameters
    ----------
    newest : the newest number when the log was read: if another was taken since, there is a commit that nobody checked.

    Raises
    ------
    TakenError : another engine has committed meanwhile.
    """
    claim = Record(
        newest + 1,
        last.step,
        changes=last.changes,
        unshown=last.unshown,
        summary=last.summary,
        writer=place.writer,
    )
    log.claim(claim)
    # Some of those between were claims; which ones, nobody may be able to read.
    claims = (*whole.claims, *range(whole.version + 1, claim.version + 1))
    log.checkpoint(replace(whole, version=claim.version, writer=place.writer, claims=claims))


def _damaged(location: Location, snapshot: Snapshot) -> Iterator[str]:
    """The tables and views that have damaged files, in words."""
    for name, states in snapshot.arrangements.items():
        if any(run_damage(location, run) for state in states.values() for run in state.runs):
            kind, _, rest = name.partition("/")
            yield f"{kind} {rest.partition('/')[0]} is damaged"

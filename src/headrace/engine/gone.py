"""What goes with the commits that a repair gives up, as far as their records still tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.engine import quarantine
from headrace.errors import CorruptFileError
from headrace.runtime.location import Location
from headrace.runtime.log import CHECKPOINT, SYNCED, Snapshot
from headrace.runtime.record import Record


@dataclass(frozen=True)
class Gone:
    """What there is no more.

    Parameters
    ----------
    commits : how many commits are gone.
    unread : of how many of them no record can be read, so that nobody knows what they changed.
    steps : the numbers of the first and the last step that are gone; None if no step is.
    tables, views : those that are gone.
    back : tables and views that had been dropped, and are there again.
    earlier : views that had been made anew, and are what they were before.
    set_aside : rows that were set aside, bad ones and late ones, by table; None where they cannot be counted.
    sources : the first and the last micro-batch that are gone, by source; Spark does not bring them again.
    """

    commits: int = 0
    unread: int = 0
    steps: tuple[int, int] | None = None
    tables: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    back: tuple[str, ...] = ()
    earlier: tuple[str, ...] = ()
    set_aside: Mapping[str, int | None] = field(default_factory=dict)
    sources: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def __str__(self) -> str:
        said = [_numbered("commit", self.commits)]
        if self.steps is not None:
            first, last = self.steps
            said.append(f"step {first}" if first == last else f"steps {first} to {last}")
        said += [f"{_named(kind, names)}" for kind, names in (("table", self.tables), ("view", self.views)) if names]
        for table, rows in self.set_aside.items():
            counted = "rows" if rows is None else _numbered("row", rows)
            said.append(f"{counted} of {table} that had been set aside")
        for source, (first, last) in self.sources.items():
            said.append(f"micro-batches {first} to {last} of {source}, which Spark does not bring again")
        text = f"gone: {'; '.join(said)}"
        if self.back:
            text += f". There again, though dropped: {', '.join(self.back)}"
        if self.earlier:
            text += f". As before they were made anew: {', '.join(self.earlier)}"
        if self.unread:
            text += f". What {self.unread} of these commits changed cannot be read"
        return text


def gone(location: Location, kept: Snapshot, cut: Iterable[Path]) -> Gone:
    """What goes with some files of the log, if what is kept is the state from then on."""
    files = sorted((path for path in cut if path.suffix != SYNCED), key=lambda path: path.name)
    versions, unread, until = {_version(path) for path in files}, set[int](), kept
    for path in files:
        try:
            record = Record.read(path)
        except CorruptFileError:
            unread.add(_version(path))
            continue
        if path.suffix == CHECKPOINT:  # it has all that came before
            unread, record = set(), _since(kept, record)
        unread.discard(record.version)
        until = until.after(record)
    is_other = {name for name in kept.views.keys() & until.views.keys() if _asked(kept, name) != _asked(until, name)}
    before, after = {*kept.tables, *kept.views}, {*until.tables, *until.views}
    return Gone(
        commits=len(versions),
        unread=len(unread),
        steps=(kept.step + 1, until.step) if until.step > kept.step else None,
        tables=tuple(sorted(until.tables.keys() - kept.tables.keys())),
        views=tuple(sorted(until.views.keys() - kept.views.keys())),
        back=tuple(sorted(before - after)),
        earlier=tuple(sorted(is_other)),
        set_aside=_set_aside(location, kept, until),
        sources={
            name: (kept.sources.get(name, -1) + 1, last)
            for name, last in until.sources.items()
            if last > kept.sources.get(name, -1)
        },
    )


def _since(kept: Snapshot, checkpoint: Record) -> Record:
    """A checkpoint as a record that follows what is kept: names that it does not have were dropped."""
    there = {*checkpoint.tables, *checkpoint.views}
    removed = tuple(name for name in (*kept.tables, *kept.views) if name not in there)
    aside = {
        kind: {table: [] for table in getattr(kept, kind)} | getattr(checkpoint, kind)
        for kind in ("quarantine", "late")
    }
    return Record(**checkpoint.__dict__ | {"removed": removed} | aside)


def _asked(snapshot: Snapshot, view: str) -> Any:
    return snapshot.views[view].get("request")


def _set_aside(location: Location, kept: Snapshot, until: Snapshot) -> dict[str, int | None]:
    out: dict[str, int | None] = {}
    for before, after in ((kept.quarantine, until.quarantine), (kept.late, until.late)):
        for table, files in after.items():
            new = [location.quarantine / name for name in files if name not in before.get(table, ())]
            if new:
                out[table] = _sum(out.get(table, 0), _counted(new))
    return out


def _counted(files: Iterable[Path]) -> int | None:
    try:
        return quarantine.count(files)
    except CorruptFileError:
        return None


def _sum(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right


def _version(path: Path) -> int:
    return int(path.name.partition(".")[0])


def _numbered(what: str, number: int) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _named(kind: str, names: tuple[str, ...]) -> str:
    return f"{kind}{'' if len(names) == 1 else 's'} {', '.join(names)}"

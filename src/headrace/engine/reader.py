"""A reader: a snapshot of the state as of one commit.

All reading of the state goes through a reader. While a reader is open, the files that it needs stay, although later
steps may have merged them away. A DataFrame is read whenever its user runs it, so it holds its reader: the files then
stay as long as the DataFrame object, and a while longer for DataFrames derived from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from headrace.relation import runfile
from headrace.relation.storedrun import StoredRun
from headrace.runtime.location import Location
from headrace.runtime.log import Snapshot
from headrace.runtime.merges import merge_owed
from headrace.runtime.openruns import OPEN
from headrace.runtime.program import final_arrangement, table_arrangement, view_arrangement
from headrace.runtime.record import Arrangements, BucketState, RunRef
from headrace.runtime.recovery import damage
from headrace.thrifty.schedule import Progress, progress_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = TypeVar("T")


class Readers(Protocol):
    """A source of readers: the part of the store that code which only reads can see."""

    @property
    def latest(self) -> Reader:
        """A reader of the current snapshot for numbers only: its files may be deleted at any moment."""
        ...

    @property
    def read_only(self) -> bool:
        """Whether nothing is ever committed here."""
        ...

    def follow(self) -> None:
        """Take over what another engine has committed, if this one only reads."""
        ...

    def reader(self) -> Reader:
        """Open a reader of the current snapshot. If it is not closed, its files go some time after nobody holds it."""
        ...

    def read(self, work: Callable[[Reader], T]) -> T:
        """Call a function with a reader of the current snapshot; its files stay until the function returns."""
        ...


class Reader:
    """Answers questions about one snapshot; close it, use it in a `with` statement, or let something hold it.

    Parameters
    ----------
    release : releases the files; does nothing for a reader of numbers only.
    """

    def __init__(self, root: str, buckets: int, snapshot: Snapshot, release: Callable[[], None] = lambda: None) -> None:
        self._root = root
        self._buckets = buckets
        self._snapshot = snapshot
        self._release = release

    # -- as a whole ---------------------------------------------------------------------------------------------

    @property
    def root(self) -> str:
        """The location."""
        return self._root

    @property
    def shown(self) -> str:
        """What the user calls the location."""
        return Location(self._root).shown

    @property
    def buckets(self) -> int:
        """Number of hash partitions of all state."""
        return self._buckets

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot itself."""
        return self._snapshot

    @property
    def unmerged(self) -> list[str]:
        """The views that have still to be merged with others."""
        return self._snapshot.unmerged

    @property
    def unshared(self) -> list[Any]:
        """What was taken apart and stays so, as the log has it."""
        return self._snapshot.unshared

    @property
    def arrangements(self) -> Arrangements:
        """All arrangements, by name: those of tables, of parts of views, and of final groups."""
        return self._snapshot.read

    @property
    def version(self) -> int:
        """Number of the commit."""
        return self._snapshot.version

    @property
    def step(self) -> int:
        """Number of the last step."""
        return self._snapshot.step

    @property
    def summary(self) -> dict[str, Any]:
        """The summary that the last step committed."""
        return self._snapshot.summary

    @property
    def state_bytes(self) -> int:
        """Size of the state."""
        return self._snapshot.bytes()

    @property
    def owed_merges(self) -> int:
        """In how many buckets runs wait to be merged."""
        found = ((name, states, bucket) for name, states in self.arrangements.items() for bucket in states)
        return sum(merge_owed(name, states, bucket, self._buckets) is not None for name, states, bucket in found)

    @property
    def sources(self) -> dict[str, int]:
        """The number of the last committed micro-batch, by source."""
        return dict(self._snapshot.sources)

    @property
    def quarantine(self) -> dict[str, list[Path]]:
        """The files of bad rows, by table."""
        return self._aside(self._snapshot.quarantine)

    @property
    def late(self) -> dict[str, list[Path]]:
        """The files of late rows, by table."""
        return self._aside(self._snapshot.late)

    def damage(self) -> list[str]:
        """Read all files and check every checksum; returns one line per problem."""
        return damage(Location(self._root), self._snapshot)

    # -- tables -------------------------------------------------------------------------------------------------

    def rows(self, table: str) -> int:
        """How many rows a table has."""
        return _live(self.arrangements.get(table_arrangement(table), {}))

    @property
    def rates(self) -> Mapping[str, float]:
        """How many rows of each table recent steps changed, for the tables where that is known."""
        return self._snapshot.rates

    @property
    def unkept(self) -> Mapping[str, Mapping[str, list[int]]]:
        """The arrangements of each view that are dropped for now: entries and bytes that each of them had."""
        return self._snapshot.unkept

    @property
    def memory(self) -> Mapping[str, Any]:
        """What the memory budget has led to, and which changes are expected next."""
        return self._snapshot.memory

    def watermark(self, table: str) -> int | None:
        """The watermark of a table, in microseconds since 1970; None if it has none yet."""
        return self._snapshot.watermarks.get(table)

    def progress(self, view: str) -> Progress:
        """How far a view with a goal is."""
        return progress_of(self._snapshot.goals, view)

    def has_goal(self, view: str) -> bool:
        """Whether a view has a goal; without one it follows every step."""
        return self._snapshot.views.get(view, {}).get("freshness") is not None

    def learnt(self, view: str) -> Mapping[str, Any] | None:
        """What the triggers of a view with a goal have shown, as the log keeps it."""
        return self._snapshot.learnt.get(view)

    # -- views --------------------------------------------------------------------------------------------------

    def states(self, view: str, part: str) -> Mapping[int, BucketState]:
        """An arrangement of a view, by bucket."""
        return self.arrangements.get(view_arrangement(view, part), {})

    def runs(self, view: str, part: str) -> list[StoredRun]:
        """The runs of an arrangement of a view, in all buckets."""
        return OPEN.everything(self.root, self.states(view, part))

    def live(self, view: str, part: str) -> int:
        """How many entries of an arrangement are alive."""
        return _live(self.states(view, part))

    def final(self, view: str) -> int:
        """How many groups of a view are final."""
        return _live(self.arrangements.get(final_arrangement(view), {}))

    def sizes(self, view: str, parts: Iterable[str]) -> dict[str, list[tuple[int, int, int]]]:
        """Per arrangement, (runs, entries, bytes) of each bucket."""
        out = {}
        for part in parts:
            states = self.states(view, part).values()
            out[part] = [(len(s.runs), sum(r.rows for r in s.runs), sum(r.bytes for r in s.runs)) for s in states]
        return out

    def bytes(self, view: str, parts: Iterable[str]) -> int:
        """The size of some arrangements of a view."""
        return sum(taken for buckets in self.sizes(view, parts).values() for _, _, taken in buckets)

    def changes(self, view: str) -> list[StoredRun]:
        """The changes of a view in the last step, as stored runs; the checksum of each is checked."""
        runs = [self._read(run) for run in self._snapshot.changes.get(view, [])]
        for run in runs:
            run.check()
        return runs

    def _read(self, run: RunRef) -> StoredRun:
        return runfile.read(Path(self._root) / "runs" / run.name, run.at, run.bytes, run.crc)

    def _aside(self, files: Mapping[str, list[str]]) -> dict[str, list[Path]]:
        return {table: [Path(self._root) / "quarantine" / name for name in names] for table, names in files.items()}

    # -- pins ---------------------------------------------------------------------------------------------------

    def held_by(self, frame: DataFrame) -> DataFrame:
        """Make a DataFrame hold this reader, so that the files it reads stay."""
        frame.__dict__["_headrace_reader"] = self
        return frame

    def close(self) -> None:
        """Release the files."""
        self._release()

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _live(states: Mapping[int, BucketState]) -> int:
    return sum(state.live for state in states.values())

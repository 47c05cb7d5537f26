"""Run sets: all runs of an arrangement, searched and read as one.

The runs may be those of one bucket, or of all buckets. In the second case most runs hold the keys of one bucket only,
and the bucket of a probe tells in which of them to look (`Router`). A run that has entries of all buckets is looked at
for every probe. Without a router, every run is: the sum over all runs is the same, it only takes longer.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.relation import kernels, probing
from headrace.relation.kernels import Positions, Words
from headrace.relation.run import Place, Run, Values, consolidate, refit, widen
from headrace.relation.runlayout import corrupt, kinds_of
from headrace.relation.storedrun import StoredRun
from headrace.rings import Group, Payload, gathers

AnyRun: TypeAlias = Run | StoredRun
Router = Callable[[Words], NDArray[np.int32]]
"""A function that tells in which bucket the entries with some keys lie, or with keys that begin with these words."""


@dataclass(frozen=True)
class Entries:
    """Entries of several runs: the run of each (by number), its position there, and the probe that it belongs to."""

    runs: Positions
    positions: Positions
    owners: Positions

    def __len__(self) -> int:
        return len(self.runs)

    def take(self, at: NDArray[np.integer]) -> Entries:
        """Pick entries."""
        return Entries(self.runs[at], self.positions[at], self.owners[at])


class RunSet(Sequence[AnyRun]):
    """The runs of an arrangement.

    Parameters
    ----------
    homes : the bucket of each run, -1 for a run that has entries of all buckets; None if there is one bucket only.
    buckets : how many buckets there are.
    """

    def __init__(
        self,
        runs: Iterable[AnyRun],
        homes: Sequence[int] | None = None,
        buckets: int = 1,
        router: Router | None = None,
    ) -> None:
        self.runs = tuple(runs)
        self.homes = homes
        self.buckets = buckets
        self.router = router
        self._last: tuple[Words, NDArray[np.int64]] | None = None  # the keys looked for last, and what was found

    @overload
    def __getitem__(self, index: int) -> AnyRun: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[AnyRun]: ...
    def __getitem__(self, index: int | slice) -> AnyRun | Sequence[AnyRun]:
        return self.runs[index]

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[AnyRun]:
        return iter(self.runs)

    def with_run(self, run: Run) -> RunSet:
        """The same runs and one more, which may have entries of all buckets."""
        homes = None if self.homes is None else [*self.homes, -1]
        out = RunSet([*self.runs, run], homes, self.buckets, self.router)
        if self.runs:
            out._table = self._table + _Table.of([run], None if homes is None else [-1])
        # Whoever looks for the same keys again has only one run to search, unless its keys have another width.
        if self._last is not None and self._last[0].shape[0] <= run.words.shape[0]:
            probes, found = self._last
            more = RunSet([run]).find(probes)
            more[0] = len(self.runs)
            out._last = probes, np.concatenate([found, more], axis=1)
        return out

    def after(self, runs: Sequence[AnyRun], router: Router | None) -> RunSet:
        """Some runs with entries of all buckets, and then these; with the way to tell the bucket of a key."""
        assert self.homes is not None
        more = [-1] * len(runs)
        out = RunSet((*runs, *self.runs), [*more, *self.homes], self.buckets, router)
        out._table = _Table.of(runs, more) + self._table if runs else self._table
        return out

    # -- searching ----------------------------------------------------------------------------------------------------

    def find(self, probes: Words) -> NDArray[np.int64]:
        """Find the stretches of keys that begin with a probe: columns (run, first, last, probe), ordered by run."""
        if not probes.shape[1] or not self.runs:
            return np.zeros((4, 0), np.int64)
        if self._last is not None and self._last[0] is probes:
            return self._last[1]
        if probes.shape[0] > self._table.least_width:
            self._refuse_width(probes.shape[0])
        asked, probes = probes, np.ascontiguousarray(probes)
        order, starts = self._routed(probes)
        # Mostly a key is in one run at most; where that is not so, all of the search is done again.
        room = _room() if probes.shape[1] <= _ROOM // 2 else np.empty((2 * probes.shape[1], 4), np.int64)
        while True:
            missing = np.zeros(len(self.runs), np.int64)
            count = probing.find(self._table.places, probes, order, starts, missing, room)
            self._verify("words", missing)
            if count <= len(room):
                break
            room = np.empty((count, 4), np.int64)
        found = room[:count].T.copy()
        self._last = asked, found
        return found

    def entries(self, probes: Words) -> Entries:
        """All entries whose keys begin with one of the probes."""
        return Entries(*probing.expand(self.find(probes)))

    def lookup(self, group: Group, probes: Words) -> Payload:
        """Sum, over the runs, the payloads of each probed key (zero where there is none)."""
        m, found = probes.shape[1], self.find(probes)
        total = group.zeros(m)
        if not found.shape[1]:
            return total
        self._check_fits(group)
        if gathers(group):
            edges = np.flatnonzero(np.diff(found[0], prepend=-1, append=-1))
            for start, stop in pairwise(edges):
                run, positions = self.runs[found[0, start]], found[1, start:stop]
                run.check(positions)
                group.gather(total, run.payload, positions, found[3, start:stop])
            return total
        return group.sum_by(self.payload(found[0], found[1]), found[3], m)

    def matching(self, group: Group, probes: Words) -> Run | None:
        """Add up all entries whose keys begin with one of the probes, which are distinct; None if there are none."""
        entries = self.entries(probes)
        if not len(entries):
            return None
        self._check_fits(group)
        found = self.take(entries)
        return consolidate(group, found.words, found.payload, found.values)

    def bounds(self, probes: Words, *, above: bool) -> NDArray[np.int64]:
        """Per run and probe, the position of the first entry that is not below a key or a beginning of keys.

        With `above`, that of the first entry which is above all keys that begin so.
        """
        out, missing = np.zeros((len(self.runs), probes.shape[1]), np.int64), np.zeros(len(self.runs), np.int64)
        if self.runs and probes.shape[1]:
            if probes.shape[0] > self._table.least_width:
                self._refuse_width(probes.shape[0])
            probing.bounds(self._table.places, np.ascontiguousarray(probes), int(above), missing, out)
            self._verify("words", missing)
        return out

    def starts(self, stretches: NDArray[np.int64], keys: Words) -> Positions:
        """Per stretch, as `find` gives them, the position of the first entry that is not below the key of its probe."""
        out, missing = np.zeros(stretches.shape[1], np.int64), np.zeros(len(self.runs), np.int64)
        if stretches.shape[1]:
            probing.starts(self._table.places, np.ascontiguousarray(stretches), keys, missing, out)
            self._verify("words", missing)
        return out

    def _routed(self, probes: Words) -> tuple[Positions, Positions]:
        """The probes by bucket."""
        m = probes.shape[1]
        if self.router is None or self.homes is None:
            return np.arange(m), np.array([0, m])
        order, starts = np.empty(m, np.int64), np.empty(self.buckets + 1, np.int64)
        kernels.split_by(self.router(probes), self.buckets, order, starts)
        return order, starts

    # -- reading ------------------------------------------------------------------------------------------------------

    def payload(self, runs: Positions, positions: Positions) -> Payload:
        """Copy payloads out, verified."""
        if not self.runs:
            return ()
        self._ensure("payload", runs, positions)
        out = []
        for i, column in enumerate(self.runs[0].payload):
            shape = (len(runs), *column.shape[1:])
            size = int(np.prod(column.shape[1:], dtype=np.int64))
            copied = np.empty(len(runs) * size, np.uint64)
            probing.gather(self._table.payload[i], size, runs, positions, copied)
            out.append(copied.view(column.dtype).reshape(shape))
        return tuple(out)

    def words(self, runs: Positions, positions: Positions, begin: int = 0, width: int | None = None) -> Words:
        """Copy the words of keys out, from word number `begin` on; narrower keys are widened to `width` words."""
        self._ensure("words", runs, positions)
        width = max(self._widths, default=begin) if width is None else width
        if len(self._widths) <= 1:
            return self._gathered(runs, positions, begin, width)
        out = np.zeros((width - begin, len(runs)), np.uint64)
        width_of = np.array(self._table.widths)[runs]
        for own in self._widths:
            at = np.flatnonzero(width_of == own)
            out[:, at] = widen(self._gathered(runs[at], positions[at], begin, own), width - begin)
        return out

    def _gathered(self, runs: Positions, positions: Positions, begin: int, width: int) -> Words:
        out = np.empty((width - begin, len(runs)), np.uint64)
        probing.gather_keys(self._table.places, runs, positions, begin, out)
        return out

    def take(self, entries: Entries) -> Run:
        """Copy entries out, verified. The result is no run in that its keys may come twice and in any order."""
        words = self.words(entries.runs, entries.positions)
        payload = self.payload(entries.runs, entries.positions)
        return Run(words, payload, self.values(entries))

    def values(self, entries: Entries) -> Values:
        """Copy what is stored beside the keys of entries out, verified; the entries are ordered by run."""
        if not self.runs or not self.runs[0].values:
            return {}
        if not len(entries):
            return {name: column.slice(0, 0) for name, column in self.runs[0].values.items()}
        edges = np.flatnonzero(np.diff(entries.runs, prepend=-1, append=-1))
        parts: list[Values] = []
        for start, stop in pairwise(edges):
            parts.append(self.runs[int(entries.runs[start])].values_at(entries.positions[start:stop]))
        return {name: pa.concat_arrays([part[name] for part in parts]) for name in parts[0]}

    # -- widths -------------------------------------------------------------------------------------------------------

    @property
    def _widths(self) -> list[int]:
        """The widths of the keys: runs of strings are as wide as their longest, all others are alike."""
        return sorted(set(self._table.widths))

    def fitted(self, probes: Words) -> Iterator[tuple[RunSet, Words, Positions]]:
        """Bring whole keys to the width of the runs they are looked for in; with the positions of those that fit.

        A key that is too long for a run is not in that run.
        """
        for width in self._widths:
            words, possible = refit(probes, width)
            if len(self._widths) == 1:
                yield self, words, possible
                return
            chosen = [i for i, own in enumerate(self._table.widths) if own == width]
            homes = None if self.homes is None else [self.homes[i] for i in chosen]
            yield RunSet([self.runs[i] for i in chosen], homes, self.buckets, self.router), words, possible

    # -- places and flags ---------------------------------------------------------------------------------------------

    @cached_property
    def _table(self) -> _Table:
        return _Table.of(self.runs, self.homes)

    def _check_fits(self, group: Group) -> None:
        """Refuse runs from files whose payloads are not of the group."""
        if self._table.kinds - {kinds_of(group)}:
            for run in self.runs:
                run.check_fits(group)

    def _refuse_width(self, width: int) -> None:
        for run in self.runs:
            if run.rows and run.words.shape[0] < width:
                name = run.name if isinstance(run, StoredRun) else "a run in memory"
                raise corrupt(name, f"its keys have {run.words.shape[0]} words, and {width} are looked for")

    def _ensure(self, part: str, runs: Positions, positions: Positions) -> None:
        # Again and again, because other threads that search the same files may clear marks.
        table = self._table
        while True:
            missing = np.zeros(len(self.runs), np.int64)
            probing.mark(table.ready[part], table.wanted, runs, positions, missing)
            if not missing.any():
                return
            self._verify(part, missing)

    def _verify(self, part: str, missing: NDArray[np.int64]) -> None:
        """Verify the blocks of rows that a search has marked, in the runs that have some."""
        for run in np.flatnonzero(missing):
            self.runs[run].verify_wanted(part)


_SCRATCH = threading.local()
_ROOM = 1 << 16  # 2 MB; a larger search costs more than new memory


def _room() -> NDArray[np.int64]:
    """Room for the stretches of a small step, kept per thread: new memory would cost as much as the search."""
    room: NDArray[np.int64] | None = getattr(_SCRATCH, "room", None)
    if room is None:
        room = _SCRATCH.room = np.empty((_ROOM, 4), np.int64)
    return room


@dataclass(frozen=True)
class _Table:
    """The places of several runs as arrays, one element per run, as compiled searches read them."""

    places: NDArray[np.uint64]
    payload: NDArray[np.uint64]  # per column of the payload, the addresses of that column
    ready: dict[str, NDArray[np.uint64]]  # per part, the addresses of the flags of blocks
    wanted: NDArray[np.uint64]
    widths: tuple[int, ...]  # how many words a key has
    least_width: float  # of those that have rows
    kinds: frozenset[tuple[str, ...]]  # the types of payloads that runs from files have
    held: tuple[Place, ...]

    @classmethod
    def of(cls, runs: Sequence[AnyRun], homes: Sequence[int] | None) -> _Table:
        held = tuple(run.place for run in runs)
        places = np.array([place.row for place in held], np.uint64).reshape(len(held), probing.PLACE)
        if homes is not None:
            places[:, probing.HOME] = np.array(homes, np.int64).view(np.uint64)
        columns = len(held[0].payload) if held else 0
        payload = np.array([place.payload for place in held], np.uint64).reshape(len(held), columns).T.copy()
        ready = {part: np.array([p.ready[part] for p in held], np.uint64) for part in ("words", "payload")}
        wanted = np.ascontiguousarray(places[:, probing.WANTED])
        widths = tuple(run.words.shape[0] for run in runs)
        kinds = frozenset(run.kinds for run in runs if isinstance(run, StoredRun))
        least = min((run.words.shape[0] for run in runs if run.rows), default=math.inf)
        return cls(places, payload, ready, wanted, widths, least, kinds, held)

    def __add__(self, other: _Table) -> _Table:
        if not other.held or not self.held:
            return self if self.held else other
        return _Table(
            np.concatenate([self.places, other.places]),
            np.concatenate([self.payload, other.payload], axis=1),
            {part: np.concatenate([flags, other.ready[part]]) for part, flags in self.ready.items()},
            np.concatenate([self.wanted, other.wanted]),
            self.widths + other.widths,
            min(self.least_width, other.least_width),
            self.kinds | other.kinds,
            self.held + other.held,
        )


def as_set(runs: Sequence[AnyRun]) -> RunSet:
    """Some runs as a set."""
    return runs if isinstance(runs, RunSet) else RunSet(runs)


def bytes_of(run: AnyRun) -> int:
    """How many bytes the entries of a run take."""
    payload = sum(int(column.nbytes) for column in run.payload)
    return int(run.words.nbytes) + payload + sum(int(column.nbytes) for column in run.values.values())

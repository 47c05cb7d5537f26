"""How rows of two streams meet in one bucket: what they travel as, which state is kept, and what they add to windows.

There are two kinds: all rows of a window meet (`SameWindow`), or rows that are close in time (`CloseInTime`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from headrace.relation.run import Run, consolidate, merge
from headrace.relation.runset import AnyRun
from headrace.rings import Group
from headrace.rings.double import Compensated
from headrace.window.arrivals import Arrivals
from headrace.window.exact import (
    Matched,
    entries_before,
    match_change,
    ring_of,
    rows_by_key,
    time_words,
    times_of,
    windows_of,
)
from headrace.window.interval import ROWS, IntervalJoin
from headrace.window.spec import Times, WindowSpec
from headrace.window.totals import Deltas

State = Mapping[str, Sequence[AnyRun]]
Grown = dict[str, tuple[Run, int]]
"""Per arrangement, the run to add, and by about how many entries it grows."""


@dataclass(frozen=True)
class Counted:
    """What a batch of rows changes: the totals of windows, the state, and the matches per (window, key)."""

    deltas: Deltas
    grown: Grown
    matched: list[Matched]


class Matching(Protocol):
    """Matches the rows of one bucket."""

    @property
    def arrangements(self) -> Mapping[str, Group]:
        """The state, as a ring per arrangement."""
        ...

    @property
    def key_at(self) -> Mapping[str, int]:
        """Per arrangement, the word of an entry with which the join's key begins."""
        ...

    @property
    def row_ring(self) -> Group:
        """The ring in which the runs of rows are added up on their way to the bucket."""
        ...

    def run(self, arrivals: Arrivals, moments: Times) -> Run:
        """Return rows as a run that travels to the bucket; `moments` says from when on each row is seen."""
        ...

    def count(self, state: State, rows: Run, now: int) -> Counted:
        """Match rows with the state; remove from it what is complete by the moment `now`."""
        ...


@dataclass(frozen=True)
class SameWindow:
    """All rows of a window meet. The state has counts and sums per (window, key)."""

    spec: WindowSpec

    NAME = "windows"

    @property
    def arrangements(self) -> Mapping[str, Group]:
        return {self.NAME: ring_of(self.spec)}

    @property
    def key_at(self) -> Mapping[str, int]:
        return {self.NAME: 1}

    @property
    def row_ring(self) -> Group:
        return ring_of(self.spec)

    def run(self, arrivals: Arrivals, moments: Times) -> Run:
        window, rows = windows_of(self.spec, arrivals.event)
        if rows is not None:
            arrivals, moments = arrivals.take(rows), moments[rows]
        return rows_by_key(self.spec, arrivals, window, moments)

    def count(self, state: State, rows: Run, now: int) -> Counted:
        ring, before, runs = ring_of(self.spec), self.spec.completed_by(now), state[self.NAME]
        deltas, change, matched = match_change(self.spec, runs, rows)
        (gone,) = entries_before([change], before)
        kept = change.take(np.arange(gone, change.rows)) if gone else change
        counts = entries_before(runs, before)
        closed = [run.take(np.arange(count)) for run, count in zip(runs, counts, strict=True) if count]
        changes = [kept, *(Run(run.words, ring.negate(run.payload)) for run in closed)]
        grown = {self.NAME: (merge(ring, changes) if closed else kept, kept.rows - sum(run.rows for run in closed))}
        return Counted(deltas, grown, [matched])


@dataclass(frozen=True)
class CloseInTime:
    """Rows that are close in time meet. The state has the rows of both sides per (key, time)."""

    spec: WindowSpec

    NAMES = ("left_rows", "right_rows")

    @property
    def arrangements(self) -> Mapping[str, Group]:
        return dict.fromkeys(self.NAMES, ROWS)

    @property
    def key_at(self) -> Mapping[str, int]:
        return dict.fromkeys(self.NAMES, 0)

    @property
    def row_ring(self) -> Group:
        return ROWS

    def run(self, arrivals: Arrivals, moments: Times) -> Run:
        first = time_words(np.stack([moments, arrivals.side.astype(np.int64)]))
        words = np.concatenate([first, arrivals.key, time_words(arrivals.event)[None, :]])
        return consolidate(ROWS, words, (np.ones(len(arrivals), np.int64), *Compensated().lift(arrivals.value)), {})

    def count(self, state: State, rows: Run, now: int) -> Counted:
        join = IntervalJoin(self.spec, [state[name] for name in self.NAMES])
        times = rows.payload[0]
        value = np.repeat(Compensated().values(rows.payload[1:]) / times, times)
        moments, sides = (np.repeat(times_of(rows.words[i]), times) for i in (0, 1))
        event = np.repeat(times_of(rows.words[-1]), times)
        key = np.repeat(rows.words[2:-1], times, axis=1)
        deltas = join.add(Arrivals(sides.astype(np.int8), key, value, event, event), moments)
        grown: Grown = {}
        for side, name in enumerate(self.NAMES):
            change = join.change(side, state[name], self.spec.completed_by(now))
            if change is not None:
                grown[name] = change
        return Counted(deltas, grown, join.matched)


def matching_of(spec: WindowSpec) -> Matching:
    """Return how rows of a window join meet."""
    return SameWindow(spec) if spec.within is None else CloseInTime(spec)

"""The exact part of an interval join: rows of equal keys match if their times are at most so far apart.

A pair belongs to the window of its left row. Both sides are kept per (key, time), so the partners of a row are a
stretch of a run, and cumulated counts and sums give their number without visiting them. With dL and dR the rows of a
batch,

    d(L x R) = dL x (R + dR)  +  L x dR

where a new row of the right side probes once per window that its partners may be in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.relation import kernels
from headrace.relation.arrangement import runs_to_merge
from headrace.relation.kernels import Words
from headrace.relation.run import Run, consolidate, merge
from headrace.relation.runset import AnyRun
from headrace.rings.double import Compensated
from headrace.rings.integer import Integer
from headrace.rings.product import Product
from headrace.window.arrivals import LEFT, RIGHT, Arrivals
from headrace.window.exact import Matched, counting_on, time_words, windows_of
from headrace.window.spec import Times, WindowSpec
from headrace.window.totals import Deltas, Floats

_Amounts = tuple[Times, Floats]

ROWS = Product((Integer(), Compensated()))  # per (key, time): the number of rows, and the sum of their values


@dataclass(frozen=True)
class _Kept:
    """A run of one side, with cumulated counts and sums."""

    run: Run
    counts: Floats
    sums: Floats

    @classmethod
    def of(cls, given: AnyRun) -> _Kept:
        run = given if isinstance(given, Run) else given.take(np.arange(given.rows))
        values = Compensated().values(run.payload[1:])
        return cls(run, *(np.concatenate([[0.0], np.cumsum(column)]) for column in (run.payload[0], values)))

    def in_range(self, key: Words, first: Times, last: Times) -> tuple[Floats, Floats]:
        """Return, per key, the number of rows from a first to a last time, and the sum of their values."""
        edges = []
        for kernel, times in ((kernels.lower_bounds, first), (kernels.upper_bounds, last)):
            out = np.empty(len(times), np.int64)
            probes = np.concatenate([key, time_words(times)[None, :]])
            kernel(self.run.words, probes, np.zeros(len(times), np.int64), np.full(len(times), self.run.rows), out)
            edges.append(out)
        empty = last < first
        found = (np.where(empty, 0.0, column[edges[1]] - column[edges[0]]) for column in (self.counts, self.sums))
        counts, sums = found
        return counts, sums


class IntervalJoin:
    """Matches the rows of one step in one bucket.

    Parameters
    ----------
    state : the runs of the left and of the right side before the step.
    """

    def __init__(self, spec: WindowSpec, state: Sequence[Sequence[AnyRun]] = ((), ())) -> None:
        assert spec.within is not None
        self.spec = spec
        self.within = spec.within
        left, right = ([_Kept.of(run) for run in runs] for runs in state)
        self._sides: tuple[list[_Kept], list[_Kept]] = (left, right)
        self._added: tuple[list[Run], list[Run]] = ([], [])
        self.matched: list[Matched] = []  # by the rows that were added last

    def add(self, arrivals: Arrivals, moments: Times) -> Deltas:
        """Take rows in; return the change of windows' totals, per moment at which rows are first seen."""
        if not len(arrivals):
            return Deltas.nothing()
        self.matched = []
        return Deltas.total([self._add(arrivals.take(moments == at), int(at)) for at in np.unique(moments)])

    def change(self, side: int, before: Sequence[AnyRun], closed: int) -> tuple[Run, int] | None:
        """Return the run to add to the state of a side, and by about how many entries that grows; None for no change.

        If many of the entries `before` have no partners to come, as windows before `closed` are complete, the run
        removes them.
        """
        added = self._added[side]
        edge = time_words(np.array([self._limit(side, closed)]))[0]
        gone = [np.flatnonzero(run.words[-1] < edge) for run in before]
        expired = sum(map(len, gone))
        # Entries are in the order of their keys, so those to remove are all over: it pays only if they are many.
        if 4 * expired < sum(run.rows for run in before):
            gone, expired = [], 0
        runs = list(added)
        for run, at in zip(before, gone, strict=bool(gone)):
            some = run.take(at)
            runs.append(Run(some.words, ROWS.negate(some.payload)))
        merged = merge(ROWS, runs) if runs else None
        if merged is None or not merged.rows:
            return None
        return merged, sum(run.rows for run in added) - expired

    def _limit(self, side: int, closed: int) -> int:
        """Return the time before which a side has no partners to come, once windows before `closed` are complete."""
        return self.spec.start(closed) - (0 if side == LEFT else self.within)

    def _run(self, rows: Arrivals) -> list[_Kept]:
        if not len(rows):
            return []
        words = np.concatenate([rows.key, time_words(rows.event)[None, :]])
        payload = (np.ones(len(rows), np.int64), *Compensated().lift(rows.value))
        return [_Kept.of(consolidate(ROWS, words, payload, {}))]

    def _add(self, arrivals: Arrivals, moment: int) -> Deltas:
        left, right = (arrivals.take(arrivals.side == side) for side in (LEFT, RIGHT))
        coming = self._run(right)
        found = [*self._rows(left, right), *self._of_left(left, [*self._sides[RIGHT], *coming]), *self._of_right(right)]
        self._keep(LEFT, self._run(left))
        self._keep(RIGHT, coming)
        window, amounts = (np.concatenate(parts, axis=-1) for parts in zip(*found, strict=True))
        return Deltas.of(np.full(len(window), moment), window, amounts)

    def _rows(self, left: Arrivals, right: Arrivals) -> Iterator[_Amounts]:
        window, _ = windows_of(self.spec, left.event)
        yield _amounts(window, 0, np.ones(len(window)))
        window, _ = self._reached(right.event)
        yield _amounts(window, 1, np.ones(len(window)))

    def _of_left(self, left: Arrivals, others: list[_Kept]) -> Iterator[_Amounts]:
        """Match new rows of the left side."""
        window, rows = windows_of(self.spec, left.event)
        rows = np.arange(len(left)) if rows is None else rows
        key = left.key[:, rows]
        for other in others:
            counts, sums = other.in_range(left.key, left.event - self.within, left.event + self.within)
            total = left.value * counts if self.spec.aggregate.side == LEFT else sums
            self.matched.append(Matched(window, key, counts[rows], total[rows]))
            yield _amounts(window, 2, counts[rows], total[rows])

    def _of_right(self, right: Arrivals) -> Iterator[_Amounts]:
        """Match new rows of the right side with the rows of the left side that were there before."""
        window, rows = self._reached(right.event)
        event, key = right.event[rows], right.key[:, rows]
        first = np.maximum(event - self.within, window * self.spec.slide)
        last = np.minimum(event + self.within, window * self.spec.slide + self.spec.length - 1)
        for other in self._sides[LEFT]:
            counts, sums = other.in_range(key, first, last)
            total = sums if self.spec.aggregate.side == LEFT else right.value[rows] * counts
            self.matched.append(Matched(window, key, counts, total))
            yield _amounts(window, 2, counts, total)

    def _reached(self, event: Times) -> tuple[Times, NDArray[np.int64]]:
        """Return the windows in which rows of the right side may have partners, and which row each entry is."""
        first = self.spec.first_window(event - self.within)
        times = self.spec.last_window(event + self.within) - first + 1
        return counting_on(first, times)

    def _keep(self, side: int, coming: list[_Kept]) -> None:
        for one in coming:
            self._added[side].append(one.run)
            kept = self._sides[side]
            sizes = [other.run.rows for other in kept]
            chosen = runs_to_merge(sizes, one.run.rows, sum(sizes) + one.run.rows)
            merged = merge(ROWS, [*(kept[i].run for i in chosen), one.run]) if chosen else one.run
            rest = [other for i, other in enumerate(kept) if i not in chosen]
            self._sides[side][:] = [*rest, _Kept.of(merged) if chosen else one]


def _amounts(window: Times, first: int, *amounts: Floats) -> _Amounts:
    """Return what is added to the four totals of windows; `amounts` are those from position `first` on."""
    numbers = np.zeros((4, len(window)))
    for row, amount in enumerate(amounts, first):
        numbers[row] = amount
    return window, numbers

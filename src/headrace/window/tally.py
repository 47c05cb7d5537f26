"""What a batch of rows comes to in one bucket: all that answers are made of, summed up, so that buckets can be added.

Rows themselves never leave their bucket. What does is small: by the moment from which on it is seen, how much windows
grow, and how many rows had which delay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headrace.relation import kernels
from headrace.window.arrivals import Arrivals
from headrace.window.delays import bins_of
from headrace.window.exact import ExactJoin
from headrace.window.interval import IntervalJoin
from headrace.window.spec import Times, WindowSpec
from headrace.window.totals import Deltas, Floats


@dataclass(frozen=True)
class DelayCounts:
    """How many rows of a side had which delay, by the slot of their event; in the order of moments."""

    moment: Times
    cell: NDArray[np.int64]  # side, slot and bin, by entries
    count: Floats

    @classmethod
    def nothing(cls) -> DelayCounts:
        """No row."""
        return cls(np.zeros(0, np.int64), np.zeros((3, 0), np.int64), np.zeros(0))

    @classmethod
    def of(cls, moment: Times, cell: NDArray[np.int64], count: Floats) -> DelayCounts:
        """Add up entries that are about the same."""
        if not len(moment):
            return cls.nothing()
        # Rows are many and cells are few: they are added up by hashing, and only cells are sorted.
        words = np.concatenate([moment[None, :], cell]).view(np.uint64)
        group_of, first = np.empty(len(moment), np.int64), np.empty(len(moment), np.int64)
        groups = kernels.group_hashed(words, group_of, first)
        first = first[:groups]
        summed: Floats = np.bincount(group_of, count, minlength=groups).astype(np.float64)
        order = np.lexsort((cell[2, first], cell[1, first], cell[0, first], moment[first]))
        return cls(moment[first][order], cell[:, first[order]], summed[order])

    def slice(self, first: int, last: int) -> DelayCounts:
        """Some entries, by position."""
        return DelayCounts(self.moment[first:last], self.cell[:, first:last], self.count[first:last])

    def of_side(self, side: int) -> tuple[Times, Times, Floats]:
        """The slots, bins and counts of one side."""
        mine = self.cell[0] == side
        return self.cell[1, mine], self.cell[2, mine], self.count[mine]


@dataclass(frozen=True)
class Tally:
    """What some rows come to."""

    deltas: Deltas = field(default_factory=Deltas.nothing)
    delays: DelayCounts = field(default_factory=DelayCounts.nothing)
    earliest: int | None = None  # the first arrival; None if there is no row
    last: int | None = None  # the last arrival
    too_late: int = 0

    @classmethod
    def total(cls, parts: Sequence[Tally]) -> Tally:
        """Add up those of several buckets."""
        first = [part.earliest for part in parts if part.earliest is not None]
        last = [part.last for part in parts if part.last is not None]
        delays = [part.delays for part in parts] or [DelayCounts.nothing()]
        return cls(
            Deltas.total([part.deltas for part in parts]),
            DelayCounts.of(
                np.concatenate([one.moment for one in delays]),
                np.concatenate([one.cell for one in delays], axis=1),
                np.concatenate([one.count for one in delays]),
            ),
            min(first) if first else None,
            max(last) if last else None,
            sum(part.too_late for part in parts),
        )


def delay_cells(spec: WindowSpec, arrivals: Arrivals) -> NDArray[np.int64]:
    """The side, the slot of the event and the bin of the delay of each row."""
    return np.stack([arrivals.side.astype(np.int64), *bins_of(spec.horizon, arrivals.event, arrivals.arrival)])


class Bucket:
    """The rows of one bucket."""

    def __init__(self, spec: WindowSpec) -> None:
        self.spec = spec
        self.exact: ExactJoin | IntervalJoin = ExactJoin(spec) if spec.within is None else IntervalJoin(spec)

    def add(self, arrivals: Arrivals) -> Tally:
        """Take rows in, in any order; rows that come after the horizon are only counted."""
        if not len(arrivals):
            return Tally()
        late = arrivals.arrival - arrivals.event > self.spec.horizon
        last, too_late = int(arrivals.arrival.max()), int(np.count_nonzero(late))
        if too_late:
            arrivals = arrivals.take(~late)
            if not len(arrivals):
                return Tally(last=last, too_late=too_late)
        moments = self.spec.seen_from(arrivals.arrival)
        return Tally(
            self.exact.add(arrivals, moments),
            DelayCounts.of(moments, delay_cells(self.spec, arrivals), np.ones(len(arrivals))),
            int(arrivals.arrival.min()),
            last,
            too_late,
        )

    def close(self, before: int) -> None:
        """Let windows before one leave the state."""
        self.exact.close(before, before)

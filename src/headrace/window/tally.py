"""What a batch of rows in one bucket adds to the answers, summed up so that buckets can be added.

Rows never leave their bucket. What does is small: per moment, how much the totals of windows grow, and how many rows
had which delay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headrace.relation import kernels
from headrace.window.arrivals import Arrivals
from headrace.window.delay_distribution import bins_of
from headrace.window.spec import Times, WindowSpec
from headrace.window.totals import Deltas, Floats

_SLOT, _DELAY = 0, 1  # what a cell counts


@dataclass(frozen=True)
class DelayCounts:
    """Counts of rows, per side and slot of their event and per side and bin of their delay, in the order of moments."""

    moment: Times
    cell: NDArray[np.int64]  # per entry: side, _SLOT or _DELAY, and the number of the slot or bin
    count: Floats

    @classmethod
    def nothing(cls) -> DelayCounts:
        """Return the counts of no rows."""
        return cls(np.zeros(0, np.int64), np.zeros((3, 0), np.int64), np.zeros(0))

    @classmethod
    def of_rows(cls, spec: WindowSpec, arrivals: Arrivals, moments: Times) -> DelayCounts:
        """Count rows; `moments` says from when on each of them is seen."""
        side, rows = arrivals.side.astype(np.int64), len(arrivals)
        slot, delay = bins_of(spec.horizon, arrivals.event, arrivals.arrival)
        counts = [
            cls.of(moments, np.stack([side, np.full(rows, what), number]), np.ones(rows))
            for what, number in ((_SLOT, slot), (_DELAY, delay))
        ]
        return cls.total(counts)

    @classmethod
    def of(cls, moment: Times, cell: NDArray[np.int64], count: Floats) -> DelayCounts:
        """Add up the counts of equal moments and cells."""
        if not len(moment):
            return cls.nothing()
        # Rows are many and cells are few: they are added up by hashing, and only cells are sorted.
        least = int(cell[2].min())
        packed = ((cell[2] - least) * 2 + cell[1]) * 2 + cell[0]
        words = np.stack([moment, packed]).view(np.uint64)
        group_of, first = np.empty(len(moment), np.int64), np.empty(len(moment), np.int64)
        groups = kernels.group_hashed(words, group_of, first)
        first = first[:groups]
        summed: Floats = np.bincount(group_of, count, minlength=groups).astype(np.float64)
        order = np.lexsort((cell[2, first], cell[1, first], cell[0, first], moment[first]))
        return cls(moment[first][order], cell[:, first[order]], summed[order])

    @classmethod
    def total(cls, parts: Sequence[DelayCounts]) -> DelayCounts:
        """Add up the counts of several buckets or batches."""
        if not parts:
            return cls.nothing()
        return cls.of(
            np.concatenate([one.moment for one in parts]),
            np.concatenate([one.cell for one in parts], axis=1),
            np.concatenate([one.count for one in parts]),
        )

    def slice(self, first: int, last: int) -> DelayCounts:
        """Return the entries from `first` up to `last`."""
        return DelayCounts(self.moment[first:last], self.cell[:, first:last], self.count[first:last])

    def of_side(self, side: int) -> tuple[tuple[Times, Floats], tuple[Times, Times, Floats]]:
        """Return the counts of one side: slots with counts, and moments and bins of delays with counts."""
        slots, delays = (np.flatnonzero((self.cell[0] == side) & (self.cell[1] == what)) for what in (_SLOT, _DELAY))
        return (
            (self.cell[2, slots], self.count[slots]),
            (self.moment[delays], self.cell[2, delays], self.count[delays]),
        )


@dataclass(frozen=True)
class Tally:
    """What some rows add to the answers of a window join."""

    deltas: Deltas = field(default_factory=Deltas.nothing)
    delays: DelayCounts = field(default_factory=DelayCounts.nothing)
    earliest: int | None = None  # the first arrival of a row in time; None if there is none
    last: int | None = None  # the last arrival
    too_late: int = 0  # rows that came after the horizon

    @classmethod
    def total(cls, parts: Sequence[Tally]) -> Tally:
        """Add up the tallies of several buckets."""
        first = [part.earliest for part in parts if part.earliest is not None]
        last = [part.last for part in parts if part.last is not None]
        return cls(
            Deltas.total([part.deltas for part in parts]),
            DelayCounts.total([part.delays for part in parts]),
            min(first) if first else None,
            max(last) if last else None,
            sum(part.too_late for part in parts),
        )

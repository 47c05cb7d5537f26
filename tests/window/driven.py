"""A matching with its state in memory, driven batch by batch, and the totals that its deltas add up to."""

from __future__ import annotations

import numpy as np
from tests.window.streams import Windows

from headrace.relation.run import Run, merge
from headrace.window.arrivals import Arrivals
from headrace.window.matching import matching_of
from headrace.window.spec import Times, WindowSpec
from headrace.window.totals import Deltas, OpenWindows

NEVER = -(1 << 40)  # a moment at which nothing is complete


class DrivenMatching:
    """One bucket."""

    def __init__(self, spec: WindowSpec) -> None:
        self.matching = matching_of(spec)
        self.totals = OpenWindows()
        self.state: dict[str, list[Run]] = {name: [] for name in self.matching.arrangements}

    def add(self, arrivals: Arrivals, moments: Times | None = None, now: int = NEVER) -> Deltas:
        """Take rows in; what is complete at the moment `now` leaves the state."""
        if not len(arrivals):
            return Deltas.nothing()
        moments = np.zeros(len(arrivals), np.int64) if moments is None else moments
        counted = self.matching.count(self.state, self.matching.run(arrivals, moments), now)
        for name, (run, _) in counted.grown.items():
            merged = merge(self.matching.arrangements[name], [*self.state[name], run])
            self.state[name] = [merged] if merged.rows else []
        self.totals.add(counted.deltas.window, counted.deltas.amounts)
        return counted.deltas

    @property
    def entries(self) -> int:
        return sum(run.rows for runs in self.state.values() for run in runs)

    def windows(self, first: int, last: int) -> Windows:
        """The totals of all windows that have a row."""
        totals = self.totals.read(first, last)
        numbers = zip(totals.window, totals.left, totals.right, totals.matches, totals.total, strict=True)
        return {int(w): (int(a), int(b), int(m), float(t)) for w, a, b, m, t in numbers if a or b}

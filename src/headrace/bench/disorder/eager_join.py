"""An eager window join: each row meets the rows of the other side as it arrives, as in a symmetric hash join.

It joins by the functions that Headrace's own window joins use (`window.exact`), with its state in memory.
"""

from __future__ import annotations

import numpy as np

from headrace.relation.arrangement import runs_to_merge
from headrace.relation.run import Run, merge
from headrace.window.arrivals import Arrivals
from headrace.window.exact import entries_before, match_change, ring_of, rows_by_key, windows_of
from headrace.window.spec import WindowSpec
from headrace.window.totals import OpenWindows, Totals


class EagerJoin:
    """Joins all rows of a window; keeps counts and sums per (window, key), and the totals of windows."""

    def __init__(self, spec: WindowSpec) -> None:
        self.spec = spec
        self.ring = ring_of(spec)
        self.runs: list[Run] = []
        self._totals = OpenWindows()

    def add(self, arrivals: Arrivals) -> None:
        if not len(arrivals):
            return
        window, rows = windows_of(self.spec, arrivals.event)
        if rows is not None:
            arrivals = arrivals.take(rows)
        change = rows_by_key(self.spec, arrivals, window, np.zeros(len(arrivals), np.int64))
        deltas, kept, _ = match_change(self.spec, self.runs, change)
        self._keep(kept)
        self._totals.add(deltas.window, deltas.amounts)

    def read(self, first: int, last: int) -> Totals:
        return self._totals.read(first, last)

    def close(self, before: int, known: int) -> None:
        self._totals.forget(known)
        gone = entries_before(self.runs, before)
        self.runs = [
            run.take(np.arange(count, run.rows)) if count else run
            for run, count in zip(self.runs, gone, strict=True)
            if count < run.rows
        ]

    @property
    def entries(self) -> int:
        """The number of entries of the state."""
        return sum(run.rows for run in self.runs)

    def _keep(self, change: Run) -> None:
        live = self.entries + change.rows
        chosen = runs_to_merge([run.rows for run in self.runs], change.rows, live)
        merged = merge(self.ring, [*(self.runs[i] for i in chosen), change])
        self.runs = [run for i, run in enumerate(self.runs) if i not in chosen] + [merged]

"""A window join in one process: the matching and the answers of a `WindowView`, with the state in memory.

Benchmarks and tests feed it rows and read answers without an engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from headrace.relation.arrangement import runs_to_merge
from headrace.relation.run import Run, merge
from headrace.window.answers import Answer, Answers
from headrace.window.arrivals import Arrivals, bucket_of
from headrace.window.estimate import Estimator
from headrace.window.matching import matching_of
from headrace.window.spec import Times, WindowSpec
from headrace.window.tally import DelayCounts, Tally
from headrace.window.totals import Deltas


class WindowJoin:
    """Answers windows from rows that are fed to it.

    Parameters
    ----------
    estimators : by name; all of them see the same rows.
    interval : how often an answer should be within its bounds.
    buckets : number of buckets that keys are spread over.
    """

    def __init__(
        self, spec: WindowSpec, estimators: Mapping[str, Estimator], interval: float = 0.95, buckets: int = 1
    ) -> None:
        self.spec = spec
        self.answers = Answers(spec, estimators, interval)
        self.buckets = [Bucket(spec) for _ in range(buckets)]

    def feed(self, arrivals: Arrivals, until: int | None = None) -> Iterator[Answer]:
        """Take rows in; yield all answers that are due by the last arrival, or by the moment `until` if it is later."""
        yield from self.answers.advance(self.tally(arrivals), until)

    def tally(self, arrivals: Arrivals) -> Tally:
        """Take rows into their buckets."""
        if len(self.buckets) == 1:
            return self.buckets[0].add(arrivals)
        number = bucket_of(arrivals, len(self.buckets))
        return Tally.total([bucket.add(arrivals.take(number == i)) for i, bucket in enumerate(self.buckets)])


class Bucket:
    """The state of one bucket."""

    def __init__(self, spec: WindowSpec) -> None:
        self.spec = spec
        self._matching = matching_of(spec)
        self._state: dict[str, list[Run]] = {name: [] for name in self._matching.arrangements}

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
            self.match(arrivals, moments, last),
            DelayCounts.of_rows(self.spec, arrivals, moments),
            int(arrivals.arrival.min()),
            last,
            too_late,
        )

    def match(self, arrivals: Arrivals, moments: Times, now: int) -> Deltas:
        """Match rows with the state and add them to it; drop from it what is complete by the moment `now`."""
        counted = self._matching.count(self._state, self._matching.run(arrivals, moments), now)
        for name, (run, _) in counted.grown.items():
            self._keep(name, run)
        return counted.deltas

    def _keep(self, name: str, change: Run) -> None:
        kept = self._state[name]
        sizes = [run.rows for run in kept]
        chosen = runs_to_merge(sizes, change.rows, sum(sizes) + change.rows)
        merged = merge(self._matching.arrangements[name], [*(kept[i] for i in chosen), change]) if chosen else change
        rest = [run for i, run in enumerate(kept) if i not in chosen]
        self._state[name] = [*rest, merged] if merged.rows else rest

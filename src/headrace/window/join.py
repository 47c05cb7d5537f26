"""A window join at work: rows come in, windows are answered at their moment, and corrected and closed later.

The driver of everything in this package, without Spark: it owns the exact part, the estimators with the calibration of
each, and the order in which windows are answered. Time is what arrivals say it is, so a replay gives the same answers
as the stream did, however it is cut into batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from headrace.window.arrivals import Arrivals
from headrace.window.calibration import Calibration
from headrace.window.estimate import Estimate, Estimator, Seen, answer_of
from headrace.window.exact import ExactJoin
from headrace.window.interval import IntervalJoin
from headrace.window.spec import WindowSpec

_FEWEST, _MOST = 64, 256  # windows before one that estimators look at; if they can be, some that are complete


@dataclass(frozen=True)
class Answer:
    """What a window is said to come to, at a moment."""

    window: int
    at: int
    observed: float  # the exact part
    estimates: Mapping[str, Estimate]
    final: bool


@dataclass
class _Progress:
    first: int  # the first window that there is
    emitted: int  # the next window to answer
    completed: int  # the next window to complete


@dataclass
class WindowJoin:
    """One window join.

    Parameters
    ----------
    estimators : by name; all of them see the same rows.
    interval : how often the answer should be within its bounds.
    """

    spec: WindowSpec
    estimators: Mapping[str, Estimator]
    interval: float = 0.95
    exact: ExactJoin | IntervalJoin = field(init=False)
    too_late: int = 0
    _calibrations: dict[str, Calibration] = field(init=False)
    _progress: _Progress | None = None

    def __post_init__(self) -> None:
        self.exact = exact_join(self.spec)
        self._calibrations = {name: Calibration(self.interval) for name in self.estimators}

    def feed(self, arrivals: Arrivals, until: int | None = None) -> Iterator[Answer]:
        """Take in rows that arrive in this order; give all answers that are due until then, or until a later moment."""
        if self._progress is None and len(arrivals):
            first = int(self.spec.first_window(arrivals.event).min())
            self._progress = _Progress(first, first, first)
        at = 0
        end = until if until is not None else (int(arrivals.arrival[-1]) if len(arrivals) else None)
        while end is not None and self._progress is not None:
            moment, completes = self._next()
            if moment > end:
                break
            upto = arrivals.until(moment, at)
            self._take(arrivals.slice(at, upto))
            at = upto
            yield self._complete() if completes else self._answer()
        self._take(arrivals.slice(at, len(arrivals)))

    @property
    def _recent(self) -> int:
        incomplete = self.spec.complete_at(0) // self.spec.slide
        return min(_MOST, max(_FEWEST, incomplete + _FEWEST))

    def _next(self) -> tuple[int, bool]:
        """The next moment at which something is due, and whether a window completes then."""
        assert self._progress is not None
        answer = self.spec.emitted_at(self._progress.emitted)
        complete = self.spec.complete_at(self._progress.completed)
        return (complete, True) if complete < answer else (answer, False)

    def _take(self, arrivals: Arrivals) -> None:
        if not len(arrivals):
            return
        assert self._progress is not None
        late = arrivals.arrival - arrivals.event > self.spec.horizon
        if late.any():
            self.too_late += int(np.count_nonzero(late))
            arrivals = arrivals.take(~late)
        self.exact.add(arrivals)
        for estimator in self.estimators.values():
            estimator.observe(arrivals)

    def _seen(self, window: int) -> Seen:
        assert self._progress is not None
        known = max(self._progress.first, window - self._recent)
        totals = self.exact.read(known, window + 1)
        return Seen(self.spec, window, totals.take(slice(-1, None)), totals.take(slice(None, -1)))

    def _answer(self) -> Answer:
        assert self._progress is not None
        window = self._progress.emitted
        self._progress.emitted += 1
        seen, at = self._seen(window), self.spec.emitted_at(window)
        least = seen.observed if self.spec.aggregate.function == "count" else -np.inf
        estimates = {
            name: self._calibrations[name].bounds(window, estimator.estimate(seen, at), least)
            for name, estimator in self.estimators.items()
        }
        return Answer(window, at, seen.observed, estimates, final=False)

    def _complete(self) -> Answer:
        assert self._progress is not None
        window = self._progress.completed
        self._progress.completed += 1
        seen = self._seen(window)
        value = answer_of(self.spec, seen.matches, seen.total)
        for name, estimator in self.estimators.items():
            estimator.complete(seen)
            self._calibrations[name].complete(window, value)
        self.exact.close(window + 1, window + 1 - self._recent)
        return Answer(window, self.spec.complete_at(window), value, {}, final=True)


def exact_join(spec: WindowSpec) -> ExactJoin | IntervalJoin:
    """The exact part that a join needs."""
    return ExactJoin(spec) if spec.within is None else IntervalJoin(spec)

"""The answers of one window join, in their order.

A window is answered at its moment, may be revised while late rows change it, and completes when no row can change it
any more. Three things meet here, in one bucket: the totals of windows, summed over the buckets of keys; the estimators,
each with its calibration; and progress, which follows the times of arrival. So a replay gives the same answers as the
stream did, however either is cut into batches and buckets.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from headrace.window.calibration import Calibration
from headrace.window.estimate import Estimate, Estimator, WindowSnapshot
from headrace.window.estimator_state import Stateful
from headrace.window.spec import WindowSpec
from headrace.window.tally import Tally
from headrace.window.totals import OpenWindows

_FEWEST, _MOST = 64, 256  # how many earlier windows estimators look at: beyond the open ones, some complete ones


@dataclass(frozen=True)
class Answer:
    """The answer of one window at one moment."""

    window: int
    at: int
    observed: float  # the exact answer over the rows that have arrived
    estimates: Mapping[str, Estimate]  # per estimator; empty if the window is complete
    final: bool


@dataclass
class _Progress:
    """How far the answers of a window join have come."""

    emitted: int  # the next window to answer
    completed: int  # the next window to complete
    first: int | None = None  # the first window that was answered; None until a window that is due has a row
    earliest: int | None = None  # the first window that has a row, however late
    heard: int | None = None  # the last moment at which new rows were seen


@dataclass
class Answers(Stateful):
    """Yields the answers of one window join, as tallies of its rows come in.

    Parameters
    ----------
    estimators : by name; all of them see the same rows.
    interval : how often an answer should be within its bounds.
    revises : whether a window is answered again at the end of each batch that changed it.
    """

    state_fields: ClassVar = ("estimators", "windows", "too_late", "missed", "_calibrations", "_progress")
    state_records: ClassVar = {"_progress": _Progress}

    spec: WindowSpec
    estimators: Mapping[str, Estimator]
    interval: float = 0.95
    revises: bool = False
    windows: OpenWindows = field(default_factory=OpenWindows)
    too_late: int = 0  # rows that came after the horizon
    missed: int = 0  # rows of windows that had completed, or whose moment had passed before the first row arrived
    _calibrations: dict[str, Calibration] = field(init=False)
    _progress: _Progress | None = None

    def __post_init__(self) -> None:
        self._calibrations = {name: Calibration(self.interval) for name in self.estimators}

    @property
    def closed(self) -> int | None:
        """The window before which all windows are complete; None before the first row."""
        return None if self._progress is None else self._progress.completed

    def advance(self, tally: Tally, until: int | None = None) -> Iterator[Answer]:
        """Take a tally in; yield all answers due by its last arrival, or by the moment `until` if that is later."""
        self.too_late += tally.too_late
        if self._progress is None and tally.earliest is not None:
            # The first window whose moment has not passed when the first row arrives.
            due = -((self.spec.emit_after - tally.earliest) // self.spec.slide)
            self._progress = _Progress(due, due)
        end = max((moment for moment in (until, tally.last) if moment is not None), default=None)
        at = (0, 0)
        while end is not None and self._progress is not None:
            moment, completes = self._next()
            if moment > end:
                break
            if self._is_silent(moment):
                self._pass_over(tally, at[0], end)
                continue
            at = self._take(tally, moment, at)
            if not self._is_before_all():
                yield self._complete() if completes else self._answer()
        self._take(tally, None, at)
        if self.revises and end is not None:
            yield from self._revised(tally, end)

    def finish(self) -> Iterator[Answer]:
        """Let time pass until all windows that have rows are complete; yield the answers that become due."""
        last = self.windows.last
        if last is not None:
            due = self.advance(Tally(), self.spec.complete_at(last))
            yield from (answer for answer in due if answer.window <= last)

    def _revised(self, tally: Tally, at: int) -> Iterator[Answer]:
        """Answer again the open windows that were answered before and that this batch has changed since."""
        if self._progress is None:
            return
        changed = np.unique(tally.deltas.window)
        emitted = (changed >= self._progress.completed) & (changed < self._progress.emitted)
        for window in changed[emitted].tolist():
            since = self.spec.emitted_at(window)
            if since < at and (tally.deltas.moment[tally.deltas.window == window] > since).any():
                yield self._answer_of(window, at, again=True)

    def _next(self) -> tuple[int, bool]:
        """Return the next moment at which something is due, and whether a window completes then."""
        assert self._progress is not None
        answer = self.spec.emitted_at(self._progress.emitted)
        complete = self.spec.complete_at(self._progress.completed)
        return (complete, True) if complete < answer else (answer, False)

    def _take(self, tally: Tally, moment: int | None, at: tuple[int, int]) -> tuple[int, int]:
        """Take in what is seen by a moment, from the positions `at` on; without a moment, all the rest."""
        deltas, delays = tally.deltas, tally.delays
        upto = (
            len(deltas) if moment is None else int(deltas.moment.searchsorted(moment, side="right")),
            len(delays.moment) if moment is None else int(delays.moment.searchsorted(moment, side="right")),
        )
        if upto[0] > at[0]:
            more = deltas.slice(at[0], upto[0])
            self.windows.add(more.window, more.amounts)
            if self._progress is not None:
                past = more.window < self._progress.completed
                self.missed += round(float(more.amounts[:2, past].sum()))
                self._progress.heard = max(int(more.moment[-1]), self._progress.heard or int(more.moment[-1]))
            if self._progress is not None and self._progress.first is None:
                earliest = int(more.window.min())
                known = self._progress.earliest
                self._progress.earliest = earliest if known is None else min(known, earliest)
        if upto[1] > at[1]:
            new = delays.slice(at[1], upto[1])
            for estimator in self.estimators.values():
                estimator.observe(new)
        return upto

    def _is_silent(self, moment: int) -> bool:
        """Whether every window with rows is complete and no new row has come since."""
        assert self._progress is not None
        heard = self._progress.heard
        return heard is not None and moment > heard + self.spec.complete_at(0) + self.spec.slide

    def _pass_over(self, tally: Tally, at: int, end: int) -> None:
        """Skip the windows without rows up to the next row: windows of a silent stream are not answered."""
        assert self._progress is not None
        moments = tally.deltas.moment
        until = min(int(moments[at]), end + 1) if at < len(moments) else end + 1
        due = max(-((self.spec.emit_after - until) // self.spec.slide), self._progress.emitted)
        self._progress.emitted = self._progress.completed = due
        if self._progress.first is not None:
            self._progress.first = due  # a stream that begins again begins within a window
        if at < len(moments) and until == moments[at]:
            self._progress.heard = until

    def _is_before_all(self) -> bool:
        """Whether the window that is due comes before every window with rows; if so, skip it."""
        progress = self._progress
        assert progress is not None
        if progress.first is None:
            if progress.earliest is None or progress.emitted < progress.earliest:
                progress.emitted += 1
                progress.completed += 1
                return True
            progress.first = progress.completed = progress.emitted
        return False

    @property
    def _recent(self) -> int:
        incomplete = self.spec.complete_at(0) // self.spec.slide
        return min(_MOST, max(_FEWEST, incomplete + _FEWEST))

    def _seen(self, window: int, at: int) -> WindowSnapshot:
        assert self._progress is not None
        assert self._progress.first is not None
        # Streams begin within a window, so the first ones are not whole: nothing is learned from them.
        known = min(window, max(self._progress.first + self.spec.overlap, window - self._recent))
        begun = min((at - 1) // self.spec.slide, window + self._recent)
        return WindowSnapshot(self.spec, window, self.windows.read(known, max(window, begun) + 1), window - known)

    def _answer(self) -> Answer:
        assert self._progress is not None
        window = self._progress.emitted
        self._progress.emitted += 1
        return self._answer_of(window, self.spec.emitted_at(window))

    def _answer_of(self, window: int, at: int, *, again: bool = False) -> Answer:
        seen = self._seen(window, at)
        least = seen.observed if self.spec.aggregate.function == "count" else -math.inf
        estimates = {
            name: self._calibrations[name].bounds(window, estimator.estimate(seen, at, again=again), least, again=again)
            for name, estimator in self.estimators.items()
        }
        return Answer(window, at, seen.observed, estimates, final=False)

    def _complete(self) -> Answer:
        assert self._progress is not None
        window = self._progress.completed
        self._progress.completed += 1
        at = self.spec.complete_at(window)
        seen = self._seen(window, at)
        assert self._progress.first is not None
        if window >= self._progress.first + self.spec.overlap:
            for name, estimator in self.estimators.items():
                estimator.complete(seen)
                self._calibrations[name].complete(window, seen.observed)
        self.windows.forget(window + 1 - self._recent)
        return Answer(window, at, seen.observed, {}, final=True)

"""Intervals that hold as often as they promise, whatever the estimator: bounds follow the estimator's past errors.

Per completed window there is a score: the error of its estimate, in standard deviations that the estimator gave. Bounds
are quantiles of recent scores, a lower and an upper one, since errors are not symmetric. As streams change, the level
of each quantile moves too: down when a window was outside its bound, up a little when it was inside (adaptive conformal
inference). These moves are forgotten slowly, because when windows complete late, many windows have got the same bounds
and all of them move the level, after the scores have widened the bounds already.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from statistics import NormalDist
from typing import ClassVar

import numpy as np

from headrace.window.estimate import Estimate, bounded, log, pop_pending, unlog
from headrace.window.estimator_state import Stateful
from headrace.window.totals import Floats

_SCORES = 150  # recent completed windows whose scores are kept
_ENOUGH = 20  # scores; with fewer, bounds follow from the deviation that the estimator gives
_UNSURE = 0.05  # the smallest such deviation
_STEP = 0.05  # by which a level moves when a window was outside
_FORGOTTEN = 0.01  # the share of its moves that a level forgets per completed window, if windows complete late
_PENDING = 10  # with so many windows answered but not complete, a level moves, and forgets, half as much
_TYPICAL, _APART = 50, 1.4  # a deviation is clipped to 1.4 times the median of the last 50, and to its inverse
_LEAST = 5e-3  # the smallest relative deviation that is believed
_FURTHEST = 1.5  # bounds are clipped to 1.5 times the largest error seen so far: deviations may be far too large


class Calibration(Stateful):
    """Recalibrates the bounds of one estimator."""

    state_fields = ("_levels", "_scores", "_off", "_pending", "_informed", "_completed", "_deviations")
    state_records: ClassVar = {"_pending": Estimate}

    def __init__(self, interval: float = 0.95) -> None:
        self._miss = (1 - interval) / 2
        self._levels = [self._miss, self._miss]  # the share of scores that may be beyond each bound
        self._scores: deque[float] = deque(maxlen=_SCORES)
        self._off: deque[float] = deque(maxlen=_SCORES)  # errors of estimates, as differences of logarithms
        self._pending: dict[int, Estimate] = {}
        self._informed: int | None = None  # the first window that was answered after one had completed
        self._completed = 0
        self._deviations: deque[float] = deque(maxlen=_TYPICAL)

    def bounds(self, window: int, estimate: Estimate, least: float = -math.inf, *, again: bool = False) -> Estimate:
        """Return an estimate with calibrated bounds, and remember it until its window completes.

        Parameters
        ----------
        least : what the answer is at least, whatever comes.
        again : the window was answered before. Nothing is remembered then: scores are those of first answers.
        """
        if self._informed is None and self._completed and not again:
            self._informed = window
        estimate = replace(estimate, deviation=self._believable(estimate.deviation, again))
        unsure = bounded(replace(estimate, deviation=max(estimate.deviation, _UNSURE)), 1 - 2 * self._miss)
        low, high = unsure.low, unsure.high
        if len(self._scores) >= _ENOUGH:
            low, high = self._moved(estimate)
        low = max(min(low, estimate.value), least)
        given = replace(estimate, low=low, high=max(high, estimate.value, low))
        if not again:
            self._pending[window] = replace(given, factors={})
        return given

    def _moved(self, estimate: Estimate) -> tuple[float, float]:
        """Return the bounds of an estimate by the recent scores."""
        scores = np.array(self._scores)
        middle, times = float(np.median(scores)), _caution(scores, self._miss)
        low, high = (
            _scale(estimate) * (middle + times * (_quantile(scores, level) - middle))
            for level in (self._levels[0], 1 - self._levels[1])
        )
        low, high = max(low, _FURTHEST * min(0.0, *self._off)), min(high, _FURTHEST * max(0.0, *self._off))
        value = log(estimate.value)
        return unlog(value + low), unlog(value + high)

    def _believable(self, deviation: float, again: bool) -> float:
        """Clip a deviation to the usual ones: that one window is so much surer than others is seldom true."""
        usual = float(np.median([*self._deviations, deviation]))
        if not again:
            self._deviations.append(deviation)
        return min(max(deviation, usual / _APART), usual * _APART)

    def complete(self, window: int, final: float) -> None:
        """Learn from the final answer of a window."""
        given = pop_pending(self._pending, window)
        self._completed += 1
        # Before the first window had completed, estimators knew little: their errors of then say nothing now.
        if self._informed is None or window < self._informed:
            return
        if given is None or not math.isfinite(final) or not math.isfinite(given.value):
            return
        # Differences of logarithms are relative errors, and exist for answers of zero too.
        off = log(final) - log(given.value)
        self._off.append(off)
        self._scores.append(off / _scale(given))
        if len(self._scores) > _ENOUGH:
            # When a window completes, many later ones have been answered with the same bounds: small steps.
            waiting = len(self._pending) / (len(self._pending) + _PENDING)
            step, forgotten = _STEP * (1 - waiting), _FORGOTTEN * waiting
            for side, outside in enumerate((final < given.low, final > given.high)):
                level = self._levels[side] + forgotten * (self._miss - self._levels[side])
                self._levels[side] = min(0.5, max(-0.05, level + step * (self._miss - outside)))


def _scale(estimate: Estimate) -> float:
    return max(estimate.deviation, _LEAST)


def _quantile(scores: Floats, level: float) -> float:
    """Return a quantile of scores; at a level outside of (0, 1), a value beyond the outermost score."""
    if level <= 0 or level >= 1:
        edge = float(scores.min() if level <= 0 else scores.max())
        return edge + (edge - float(np.median(scores))) * min(1.0, 10 * abs(min(level, 1 - level)))
    return float(np.quantile(scores, level, method="lower" if level < 0.5 else "higher"))


def _caution(scores: Floats, miss: float) -> float:
    """Return the factor by which bounds are widened because scores are few.

    It is the ratio of Student's quantile to the normal one, with as many degrees of freedom as independent scores:
    neighbouring windows err together, and count as fewer.
    """
    free = max(2.0, len(scores) / _together(scores) - 1)
    z = -NormalDist().inv_cdf(miss)
    student = z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
    return student / z * math.sqrt(1 + 1 / free)


def _together(scores: Floats) -> float:
    """Return how many neighbouring scores are worth one independent score: their integrated autocorrelation."""
    centred = scores - scores.mean()
    squares = float(centred @ centred)
    if not squares:
        return 1.0
    reach = len(scores) // 3
    related = np.correlate(centred, centred, "full")[len(scores) : len(scores) + reach] / squares
    end = np.flatnonzero(related <= 0.05)  # beyond, it is noise that would be added up
    return 1.0 + 2.0 * float(related[: end[0] if len(end) else reach].sum())

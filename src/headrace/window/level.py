"""The level of something that is measured once per window, averaged over as many windows as agree.

A window's measurement differs from the level for two reasons: windows differ from each other, by a variance b; and only
some of a window's rows are there to be measured, which adds a variance f u, where u follows from how many are missing.
Both b and f are fitted to the differences of neighbouring windows, of which a change of level shows up in only one.

A long memory averages noise away, a short one follows changes. So levels are computed with several memories, and the
longest is chosen that no shorter one contradicts (Lepski's rule): over the windows before, those after, and both; the
level is the one of these three with the least spread. So windows on either side of a change do not count for the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numba as nb
import numpy as np

from headrace.window.totals import Floats

_jit: Any = nb.njit(cache=True, nogil=True)

_MEMORIES = np.array([0.0, 0.5, 0.75, 0.875, 0.9375, 0.97])  # the weight of a window relative to the next one
_SURPRISE = 3.0  # standard deviations by which levels must differ to contradict each other
_OUTLIER = 6.0  # squared differences are clipped to so many times the expected variance
_ROUNDS = 3
_LEAST = 1e-10  # a relative variance below this is rounding


@dataclass(frozen=True)
class Level:
    """The level at one window, and the variances around it.

    Parameters
    ----------
    spread : the standard deviation of the level itself.
    natural : the variance between windows.
    sampling : the variance that the window's own measurement has because rows are missing.
    """

    mean: float
    spread: float
    natural: float
    sampling: float

    @property
    def slope(self) -> float:
        """The weight of the window's own measurement, from 0 (believe the level) to 1."""
        both = self.natural + self.sampling
        return self.natural / both if both > 0 else 1.0

    @property
    def deviation(self) -> float:
        """The standard deviation of the window's final value, given its measurement."""
        return math.sqrt(self.slope * self.sampling + ((1 - self.slope) * self.spread) ** 2)


def level_of(value: Floats, unit: Floats, at: int, *, counts: bool = False) -> Level | None:
    """Return the level at a window; None if nothing was measured.

    Parameters
    ----------
    value : per window, in their order, its measurement; NaN where there is none.
    unit : per measurement, u: the part of its variance that comes from missing rows is proportional to it.
    at : the position of the window.
    counts : whether rows are counted. Theory then gives a least f, as rows arrive independently of each other;
        measurements give none while all windows but this one are complete.
    """
    known, mean, spread, natural, sampling = _level(value, unit, at, counts)
    return Level(mean, spread, natural, sampling) if known else None


@_jit
def _level(value, unit, at, counts):  # type: ignore[no-untyped-def]
    measured = np.flatnonzero(np.isfinite(value))
    if not len(measured):
        return False, 0.0, 0.0, 0.0, 0.0
    x, u = value[measured], unit[measured]
    largest = np.abs(x).max()
    if largest == 0.0:
        return True, 0.0, 0.0, 0.0, 0.0
    natural, factor = _variances(x, u, largest**2)
    if counts:
        factor = max(factor, np.median(x))
    sampling = factor * unit[at] if math.isfinite(unit[at]) else math.inf
    near = np.argmin(np.abs(measured - at))  # the nearest one, or the earlier of two
    if len(x) < 3:
        return True, x[near], abs(x[near]), natural, sampling
    variance = np.maximum(natural + factor * u, _LEAST * max(1e-300, largest**2))
    age = np.abs(measured - measured[near]).astype(np.float64)
    mean, spread = _longest(x[: near + 1], variance[: near + 1], age[: near + 1])
    if near + 1 < len(x):
        for first in (0, near):
            other, its_spread = _longest(x[first:], variance[first:], age[first:])
            if its_spread < spread:
                mean, spread = other, its_spread
    return True, mean, spread, natural, sampling


@_jit
def _longest(x, variance, age):  # type: ignore[no-untyped-def]
    """Return the mean and its spread by the longest memory that no shorter one contradicts."""
    means, spreads = np.empty(len(_MEMORIES)), np.empty(len(_MEMORIES))
    for memory in range(len(_MEMORIES)):
        whole, summed, squares = 0.0, 0.0, 0.0
        for i in range(len(x)):
            weight = _MEMORIES[memory] ** age[i] / variance[i]
            whole += weight
            summed += weight * x[i]
            squares += weight * weight * variance[i]
        means[memory] = summed / whole
        spreads[memory] = math.sqrt(squares) / whole
        for shorter in range(memory):
            if abs(means[memory] - means[shorter]) > _SURPRISE * spreads[shorter]:
                return means[memory - 1], spreads[memory - 1]
    return means[-1], spreads[-1]


@_jit
def _variances(x, u, scale):  # type: ignore[no-untyped-def]
    """Return the variance between windows, and that per unit of a measurement, from differences of neighbours."""
    if len(x) < 3:
        return 0.0, x[-1] ** 2
    squares, units = np.diff(x) ** 2 / scale, u[1:] + u[:-1]
    expected = np.full(len(squares), max(np.median(squares), _LEAST))
    natural, factor = 0.0, 0.0
    for _ in range(_ROUNDS):
        clipped = np.minimum(squares, _OUTLIER * expected)
        natural, factor = _fit(clipped, units, expected)
        expected = np.maximum(2 * natural + factor * units, max(1e-3 * clipped.mean(), _LEAST))
    return natural * scale, factor * scale


@_jit
def _fit(squares, units, expected):  # type: ignore[no-untyped-def]
    """Fit squares by 2 natural + factor units, neither negative; squares that are expected to be large weigh less."""
    s0, s1, s2, t0, t1 = 0.0, 0.0, 0.0, 0.0, 0.0
    least = expected.min()
    for i in range(len(squares)):
        weight = (least / expected[i]) ** 2
        s0 += weight
        s1 += weight * units[i]
        s2 += weight * units[i] * units[i]
        t0 += weight * squares[i]
        t1 += weight * units[i] * squares[i]
    determinant = s0 * s2 - s1 * s1
    if determinant > 1e-9 * s0 * s2:
        constant, factor = (s2 * t0 - s1 * t1) / determinant, (s0 * t1 - s1 * t0) / determinant
        if constant >= 0 and factor >= 0:
            return constant / 2, factor
        if factor < 0 or s2 == 0:
            return t0 / s0 / 2, 0.0
        return 0.0, t1 / s2
    return t0 / s0 / 2, 0.0

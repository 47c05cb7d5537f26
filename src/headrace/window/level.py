"""The level of something that is measured window by window, by as long a memory as the measurements agree with.

A window's measurement differs from the level for two reasons: windows differ from each other, by a variance b, and only
a part of a window's rows is there to be measured, which adds f u, where u is known from how many are missing. Both b
and f are told from the differences of neighbouring windows; a change of level shows up in one of these only.

A long memory averages noise away, a short one follows changes. So levels are taken by several memories, and the longest
is chosen that no shorter one contradicts (Lepski's rule): of the windows before, of those after, and of both; what has
the least spread of these is the level. So windows on either side of a change do not count for those on the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numba as nb
import numpy as np

from headrace.window.totals import Floats

_jit: Any = nb.njit(cache=True, nogil=True)

_MEMORIES = np.array([0.0, 0.5, 0.75, 0.875, 0.9375, 0.97])  # the weight of a window beside that of the next
_SURPRISE = 3.0  # standard deviations by which levels must differ to contradict each other
_OUTLIER = 6.0  # times the variance expected, beyond which a squared difference says no more
_ROUNDS = 3
_LEAST = 1e-10  # a relative variance below this is rounding


@dataclass(frozen=True)
class Level:
    """A level, and what is to be known of a window from it.

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
        """How far the window's own measurement is to be believed, against the level."""
        both = self.natural + self.sampling
        return self.natural / both if both > 0 else 1.0

    @property
    def deviation(self) -> float:
        """The standard deviation of what the window will be, given its measurement."""
        return math.sqrt(self.slope * self.sampling + ((1 - self.slope) * self.spread) ** 2)


def level_of(value: Floats, unit: Floats, at: int, *, counts: bool = False) -> Level | None:
    """The level at a window; None while nothing was measured.

    Parameters
    ----------
    value : the measurement of each window, in their order; not a number where there is none.
    unit : of each measurement, what its variance is in proportion to, as far as it comes from missing rows.
    at : the position of the window.
    counts : whether rows are counted: then theory says how large that variance is at least, if each comes or does not
        by itself. Measurements cannot, while all windows but this one are complete.
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
    near = np.argmin(np.abs(measured - at))  # the nearest that there is, the one before if there are two
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
    """The mean and the spread by the longest memory that no shorter one contradicts."""
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
    """The variance between windows, and that of a measurement a unit, from differences of neighbours."""
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
    """Fit squares by 2 natural + factor units, neither negative; what is expected to be large counts less."""
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

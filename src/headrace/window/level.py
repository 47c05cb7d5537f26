"""The level of something that is measured window by window, by as long a memory as the measurements agree with.

A window's measurement differs from the level for two reasons: windows differ from each other, by a variance b, and only
a part of a window's rows is there to be measured, which adds f u, where u is known from how many are missing. Both b
and f are told from the differences of neighbouring windows; a change of level shows up in one of these only.

A long memory averages noise away, a short one follows changes. So levels are taken by several memories, and the longest
is chosen that no shorter one contradicts (Lepski's rule).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from headrace.window.totals import Floats

_MEMORIES = np.array([0.0, 0.5, 0.75, 0.875, 0.9375, 0.97])  # the weight of a window beside that of the next
_SURPRISE = 4.0  # standard deviations by which levels must differ to contradict each other
_OUTLIER = 6.0  # times the variance expected, beyond which a squared difference says no more
_ROUNDS = 3
_LEAST = 1e-10  # a relative variance below this is rounding


@dataclass(frozen=True)
class Level:
    """A level, and what is to be known of the last window from it.

    Parameters
    ----------
    spread : the standard deviation of the level itself.
    natural : the variance between windows.
    sampling : the variance that the last window's measurement has because rows are missing.
    """

    mean: float
    spread: float
    natural: float
    sampling: float

    @property
    def slope(self) -> float:
        """How far the last window's own measurement is to be believed, against the level."""
        both = self.natural + self.sampling
        return self.natural / both if both > 0 else 1.0

    @property
    def deviation(self) -> float:
        """The standard deviation of what the last window will be, given its measurement."""
        return math.sqrt(self.slope * self.sampling + ((1 - self.slope) * self.spread) ** 2)


def level_of(value: Floats, unit: Floats, *, counts: bool = False) -> Level | None:
    """The level at the last window; None while nothing was measured.

    Parameters
    ----------
    value : the measurement of each window, the last one last; not a number where there is none.
    unit : of each measurement, what its variance is in proportion to, as far as it comes from missing rows.
    counts : whether rows are counted: then theory says how large that variance is at least, if each comes or does not
        by itself. Measurements cannot, while all windows but the last are complete.
    """
    measured = np.flatnonzero(np.isfinite(value))
    if not len(measured):
        return None
    age = (len(value) - 1 - measured).astype(float)
    x, u = value[measured], unit[measured]
    if not x.any():
        return Level(0.0, 0.0, 0.0, 0.0)
    natural, factor = _variances(x, u)
    if counts:
        factor = max(factor, float(np.median(x)))
    last = factor * float(unit[-1]) if math.isfinite(unit[-1]) else math.inf
    if len(x) < 3:
        return Level(float(x[-1]), abs(float(x[-1])), natural, last)
    variance = natural + factor * u
    variance = np.maximum(variance, _LEAST * max(1e-300, float(np.abs(x).max()) ** 2))
    weights = _MEMORIES[:, None] ** (age - age[-1])[None, :] / variance
    whole = weights.sum(axis=1)
    means = (weights @ x) / whole
    spread = np.sqrt((weights**2) @ variance) / whole
    chosen = 0
    for memory in range(1, len(_MEMORIES)):
        apart = np.abs(means[memory] - means[:memory])
        if (apart > _SURPRISE * spread[:memory]).any():
            break
        chosen = memory
    return Level(float(means[chosen]), float(spread[chosen]), natural, last)


def _variances(x: Floats, u: Floats) -> tuple[float, float]:
    """The variance between windows, and that of a measurement a unit, from differences of neighbours."""
    if len(x) < 3:
        return 0.0, float(x[-1] ** 2) if len(x) else 0.0
    scale = float(np.abs(x).max()) ** 2
    if not scale:
        return 0.0, 0.0
    squares, units = np.diff(x) ** 2 / scale, u[1:] + u[:-1]
    expected = np.full(len(squares), max(float(np.median(squares)), _LEAST))
    natural, factor = 0.0, 0.0
    for _ in range(_ROUNDS):
        clipped = np.minimum(squares, _OUTLIER * expected)
        natural, factor = _fit(clipped, units, expected**-2)
        expected = np.maximum(2 * natural + factor * units, max(1e-3 * float(clipped.mean()), _LEAST))
    return natural * scale, factor * scale


def _fit(squares: Floats, units: Floats, weights: Floats) -> tuple[float, float]:
    """Fit squares by 2 natural + factor units, neither negative."""
    weights = weights / weights.max()
    s0, s1, s2 = float(weights.sum()), float(weights @ units), float(weights @ units**2)
    t0, t1 = float(weights @ squares), float((weights * units) @ squares)
    determinant = s0 * s2 - s1 * s1
    if determinant > 1e-9 * s0 * s2:
        constant, factor = (s2 * t0 - s1 * t1) / determinant, (s0 * t1 - s1 * t0) / determinant
        if constant >= 0 and factor >= 0:
            return constant / 2, factor
        if factor < 0 or s2 == 0:
            return t0 / s0 / 2, 0.0
        return 0.0, t1 / s2
    return t0 / s0 / 2, 0.0

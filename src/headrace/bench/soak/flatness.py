"""Whether a series of samples grows: a line through its second half, drawn by medians, against a tolerance.

The slope is the median of the slopes between all pairs of samples (Theil and Sen): a third of the samples may be
anything, such as those taken while runs are merged, and it hardly moves.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations


@dataclass(frozen=True)
class Measure:
    """What is sampled, and by how much it may rise within the second half of a run before it counts as growing.

    Attributes
    ----------
    relative : a share of its median.
    absolute : at least so much, in its unit.
    """

    name: str
    unit: str
    about: str
    relative: float
    absolute: float


@dataclass(frozen=True)
class Trend:
    """A measure over the second half of a run."""

    median: float
    growth: float  # by the line, from the beginning of the second half to its end
    tolerance: float

    @property
    def grows(self) -> bool:
        """Whether it rises by more than it may."""
        return self.growth > self.tolerance


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """The median slope between two samples.

    >>> slope([0, 1, 2, 3, 4], [5.0, 7.0, 900.0, 11.0, 13.0])
    2.0
    """
    pairs = combinations(zip(times, values, strict=True), 2)
    return statistics.median((late - early) / (end - start) for (start, early), (end, late) in pairs if end > start)


def trend(measure: Measure, times: Sequence[float], values: Sequence[float]) -> Trend:
    """How a measure rises over some samples."""
    median = statistics.median(values)
    growth = slope(times, values) * (times[-1] - times[0])
    return Trend(median, growth, max(measure.relative * abs(median), measure.absolute))

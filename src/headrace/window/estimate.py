"""What an estimator is: it sees rows arrive and windows complete, and predicts the final answer of a window.

The answer of a window is O = sigma n_R n_S [alpha]: the rows of both sides, the share of their pairs that match, and
the mean of a column over the matches. Estimators predict each of these factors with a variance; `combined` multiplies
them, for all estimators alike: the relative variances of a product add up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Protocol, TypeVar

from headrace.window.spec import WindowSpec
from headrace.window.tally import DelayCounts
from headrace.window.totals import Totals

T = TypeVar("T")

LEFT_ROWS, RIGHT_ROWS, SELECTIVITY, PAYLOAD = "left", "right", "selectivity", "payload"
FACTORS = (LEFT_ROWS, RIGHT_ROWS, SELECTIVITY, PAYLOAD)

_LARGEST = 500.0  # the exponential of this is still a finite double


@dataclass(frozen=True)
class Factor:
    """The prediction of one factor of an answer."""

    mean: float
    deviation: float  # its standard deviation

    @property
    def relative(self) -> float:
        """The relative variance; 0 for a factor that is 0."""
        return (self.deviation / self.mean) ** 2 if self.mean else 0.0


@dataclass(frozen=True)
class Estimate:
    """The predicted answer of a window, with the bounds of its credible interval."""

    value: float
    low: float
    high: float
    deviation: float  # the standard deviation of the logarithm of the value
    factors: Mapping[str, Factor]


@dataclass(frozen=True)
class WindowSnapshot:
    """The totals of a window and of its neighbours at a moment, over the rows that have arrived."""

    spec: WindowSpec
    window: int
    around: Totals  # of this window, of some before it, and of those that have begun since
    position: int  # of this window in `around`

    @property
    def left(self) -> float:
        return float(self.around.left[self.position])

    @property
    def right(self) -> float:
        return float(self.around.right[self.position])

    @property
    def matches(self) -> float:
        return float(self.around.matches[self.position])

    @property
    def total(self) -> float:
        return float(self.around.total[self.position])

    @property
    def observed(self) -> float:
        """The answer over the rows that have arrived."""
        return answer_of(self.spec, self.matches, self.total)

    def factors(self) -> dict[str, float]:
        """Return the factors of the answer over the rows that have arrived; NaN where there are no rows."""
        pairs = self.left * self.right
        found = {
            LEFT_ROWS: self.left,
            RIGHT_ROWS: self.right,
            SELECTIVITY: self.matches / pairs if pairs else math.nan,
        }
        if self.spec.aggregate.function != "count":
            found[PAYLOAD] = self.total / self.matches if self.matches else math.nan
        return found


class Estimator(Protocol):
    """Predicts the final answers of windows."""

    name: str

    def observe(self, delays: DelayCounts) -> None:
        """Take in rows that have just arrived, as counts of their delays."""

    def estimate(self, window: WindowSnapshot, at: int, *, again: bool = False) -> Estimate:
        """Predict the final answer of a window at the moment `at`; `again` if it was answered before."""

    def complete(self, window: WindowSnapshot) -> None:
        """Learn from a window that is complete."""


def answer_of(spec: WindowSpec, matches: float, total: float) -> float:
    """Return the aggregate of a window from its totals; the mean of no values is NaN."""
    if spec.aggregate.function == "count":
        return matches
    if spec.aggregate.function == "sum":
        return total
    return total / matches if matches else math.nan


def combined(spec: WindowSpec, factors: Mapping[str, Factor], interval: float = 0.95) -> Estimate:
    """Multiply factors into an estimate with bounds."""
    wanted = [PAYLOAD] if spec.aggregate.function == "avg" else list(factors)
    value = math.prod(factors[name].mean for name in wanted)
    deviation = math.sqrt(sum(factors[name].relative for name in wanted))
    return bounded(Estimate(value, value, value, deviation, dict(factors)), interval)


def bounded(estimate: Estimate, interval: float) -> Estimate:
    """Return an estimate with the bounds that a normal distribution of its logarithm has."""
    times = math.exp(min(50.0, NormalDist().inv_cdf(0.5 + interval / 2) * estimate.deviation))
    low, high = sorted((estimate.value / times, estimate.value * times))
    return replace(estimate, low=low, high=high)


def log(value: float) -> float:
    """Return a signed logarithm, by which answers are compared: errors are relative, and 0 has one too.

    >>> round(unlog(log(-12.5)), 9), log(0.0)
    (-12.5, 0.0)
    """
    return math.copysign(math.log1p(abs(value)), value)


def unlog(value: float) -> float:
    """Return the value that has a signed logarithm."""
    return math.copysign(math.expm1(min(abs(value), _LARGEST)), value)


def pop_pending(pending: dict[int, T], window: int) -> T | None:
    """Remove and return what is remembered of a window until it completes; drop what belongs to earlier windows.

    >>> pending = {3: "a", 4: "b", 6: "c"}
    >>> pop_pending(pending, 4), pending
    ('b', {6: 'c'})
    """
    for past in [other for other in pending if other < window]:
        del pending[past]
    return pending.pop(window, None)

"""What an estimator is: it sees rows arrive and windows complete, and says what a window will come to.

The answer of a window is O = sigma n_R n_S [alpha]: the rows of both sides, the share of their pairs that match, and
the mean of a column over these. Each of these factors is estimated by itself, with a variance, and they are combined
here, once for all estimators: relative variances of a product add up.
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

_LARGEST = 500.0  # a logarithm whose number a double still has


@dataclass(frozen=True)
class Factor:
    """One part of an answer, as far as it can be known."""

    mean: float
    deviation: float  # the standard deviation of what is not known

    @property
    def relative(self) -> float:
        """The relative variance; of a part that is zero, there is none."""
        return (self.deviation / self.mean) ** 2 if self.mean else 0.0


@dataclass(frozen=True)
class Estimate:
    """What a window is estimated to come to, and between which bounds it should be."""

    value: float
    low: float
    high: float
    deviation: float  # relative; of the logarithm of the value
    factors: Mapping[str, Factor]


@dataclass(frozen=True)
class WindowSnapshot:
    """A window at a moment: what has arrived of it, and of others."""

    spec: WindowSpec
    window: int
    around: Totals  # it and others, in their order: some before, complete or not, and those that have begun since
    position: int  # which of these it is

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
        """The answer, if nothing more came."""
        return answer_of(self.spec, self.matches, self.total)

    def factors(self) -> dict[str, float]:
        """The factors of the answer, if nothing more came; what cannot be told from no rows is not a number."""
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
    """Estimates what windows come to."""

    name: str

    def observe(self, delays: DelayCounts) -> None:
        """See rows that have just arrived."""

    def estimate(self, window: WindowSnapshot, at: int, *, again: bool = False) -> Estimate:
        """Say what a window will come to, at a moment; `again` if it was answered before, which teaches nothing."""

    def complete(self, window: WindowSnapshot) -> None:
        """See a window to which nothing can be added any more."""


def answer_of(spec: WindowSpec, matches: float, total: float) -> float:
    """The aggregate of a window, from its totals; the mean of no values is not a number."""
    if spec.aggregate.function == "count":
        return matches
    if spec.aggregate.function == "sum":
        return total
    return total / matches if matches else math.nan


def combined(spec: WindowSpec, factors: Mapping[str, Factor], interval: float = 0.95) -> Estimate:
    """Put an estimate together from its factors."""
    wanted = [PAYLOAD] if spec.aggregate.function == "avg" else list(factors)
    value = math.prod(factors[name].mean for name in wanted)
    deviation = math.sqrt(sum(factors[name].relative for name in wanted))
    return bounded(Estimate(value, value, value, deviation, dict(factors)), interval)


def bounded(estimate: Estimate, interval: float) -> Estimate:
    """Give an estimate the bounds that a normal distribution of its logarithm would have."""
    times = math.exp(min(50.0, NormalDist().inv_cdf(0.5 + interval / 2) * estimate.deviation))
    low, high = sorted((estimate.value / times, estimate.value * times))
    return replace(estimate, low=low, high=high)


def log(value: float) -> float:
    """The logarithm by which answers are compared, since errors are relative; answers of zero have one too."""
    return math.copysign(math.log1p(abs(value)), value)


def unlog(value: float) -> float:
    """What has such a logarithm."""
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

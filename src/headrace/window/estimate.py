"""What an estimator is: it sees rows arrive and windows complete, and says what a window will come to.

The answer of a window is O = sigma n_R n_S [alpha]: the rows of both sides, the share of their pairs that match, and
the mean of a column over these. Each of these parts is estimated by itself, with a variance, and they are combined
here, once for all estimators: relative variances of a product add up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Protocol

from headrace.window.spec import WindowSpec
from headrace.window.tally import DelayCounts
from headrace.window.totals import Totals

LEFT_ROWS, RIGHT_ROWS, SELECTIVITY, PAYLOAD = "left", "right", "selectivity", "payload"
PARTS = (LEFT_ROWS, RIGHT_ROWS, SELECTIVITY, PAYLOAD)

_LARGEST = 500.0  # a logarithm whose number a double still has


@dataclass(frozen=True)
class Part:
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
    parts: Mapping[str, Part]


@dataclass(frozen=True)
class Seen:
    """A window at a moment: what has arrived of it, and of others."""

    spec: WindowSpec
    window: int
    around: Totals  # it and others, in their order: some before, complete or not, and those that have begun since
    place: int  # which of these it is

    @property
    def left(self) -> float:
        return float(self.around.left[self.place])

    @property
    def right(self) -> float:
        return float(self.around.right[self.place])

    @property
    def matches(self) -> float:
        return float(self.around.matches[self.place])

    @property
    def total(self) -> float:
        return float(self.around.total[self.place])

    @property
    def observed(self) -> float:
        """The answer, if nothing more came."""
        return answer_of(self.spec, self.matches, self.total)

    def parts(self) -> dict[str, float]:
        """The parts of the answer, if nothing more came; what cannot be told from no rows is not a number."""
        pairs = self.left * self.right
        found = {
            LEFT_ROWS: self.left,
            RIGHT_ROWS: self.right,
            SELECTIVITY: self.matches / pairs if pairs else math.nan,
        }
        if self.spec.aggregate.function != "count":
            found[PAYLOAD] = self.total / self.matches if self.matches else math.nan
        return found


@dataclass(frozen=True)
class Arrived:
    """Rows that have arrived since the last time, summed up; what they add to windows is seen in these."""

    delays: DelayCounts


class Estimator(Protocol):
    """Estimates what windows come to."""

    name: str

    def observe(self, arrivals: Arrived) -> None:
        """See rows that have just arrived."""

    def estimate(self, window: Seen, at: int, *, again: bool = False) -> Estimate:
        """Say what a window will come to, at a moment; `again` if it was answered before, which teaches nothing."""

    def complete(self, window: Seen) -> None:
        """See a window to which nothing can be added any more."""


def answer_of(spec: WindowSpec, matches: float, total: float) -> float:
    """The aggregate of a window, from its totals; the mean of no values is not a number."""
    if spec.aggregate.function == "count":
        return matches
    if spec.aggregate.function == "sum":
        return total
    return total / matches if matches else math.nan


def combined(spec: WindowSpec, parts: Mapping[str, Part], interval: float = 0.95) -> Estimate:
    """Put an estimate together from its parts."""
    wanted = [PAYLOAD] if spec.aggregate.function == "avg" else list(parts)
    value = math.prod(parts[name].mean for name in wanted)
    deviation = math.sqrt(sum(parts[name].relative for name in wanted))
    return bounded(Estimate(value, value, value, deviation, dict(parts)), interval)


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

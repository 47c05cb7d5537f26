"""The estimator `aema`: adaptive exponential averages, the simplest one of PECJ (section 5.1 of the paper).

A factor that is observed at its moment is a distortion of its final value: x = mu / z. Exponential averages over
completed windows follow both mu and z; the estimate of mu lies between its average and z x. The decay of an average is
the ratio of its mean error to its mean absolute error (Trigg and Leach): it hastens while errors are to one side, and
rests while they cancel out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

from headrace.window.estimate import FACTORS, Estimate, Factor, WindowSnapshot, combined, pop_pending
from headrace.window.estimator_state import Stateful
from headrace.window.shrinkage import Shrinkage
from headrace.window.spec import WindowSpec
from headrace.window.tally import DelayCounts

_STEADY = 0.2  # the decay of the averages of errors
_SLOWEST, _FASTEST = 0.05, 0.9


@dataclass
class AdaptiveAverage(Stateful):
    """An exponential average whose decay follows its errors."""

    state_fields: ClassVar = ("mean", "square", "_bias", "_size")

    mean: float = math.nan
    square: float = 0.0  # the mean square of errors
    _bias: float = 0.0
    _size: float = 0.0

    def learn(self, value: float) -> None:
        """Take in a value; one that is not finite is skipped."""
        if not math.isfinite(value):
            return
        if math.isnan(self.mean):
            self.mean = value
            return
        error = value - self.mean
        self._bias += _STEADY * (error - self._bias)
        self._size += _STEADY * (abs(error) - self._size)
        decay = min(_FASTEST, max(_SLOWEST, abs(self._bias) / self._size if self._size else 0.0))
        self.mean += decay * error
        self.square += _STEADY * (error * error - self.square)


@dataclass
class _Followed(Stateful):
    """One factor: the averages of its final value and of its distortion."""

    state_fields: ClassVar = ("level", "distortion", "shrinkage")

    level: AdaptiveAverage = field(default_factory=AdaptiveAverage)
    distortion: AdaptiveAverage = field(default_factory=AdaptiveAverage)
    shrinkage: Shrinkage = field(default_factory=Shrinkage)

    def estimate(self, observed: float) -> tuple[float, float]:
        """Return the predicted factor, and the window's own measurement of it."""
        distortion = 1.0 if math.isnan(self.distortion.mean) else self.distortion.mean
        own = observed * distortion
        level = self.level.mean
        if math.isnan(own) or math.isnan(level):
            return (0.0 if math.isnan(level) else level) if math.isnan(own) else own, own
        return self.shrinkage.blend(level, own, 0.5), own

    def learn(self, observed: float, own: float, final: float) -> None:
        self.shrinkage.learn(self.level.mean, own, final)
        self.level.learn(final)
        if observed > 0:
            self.distortion.learn(final / observed)

    @property
    def deviation(self) -> float:
        """The relative standard error of the average."""
        if not self.level.mean or math.isnan(self.level.mean):
            return 1.0
        return min(2.0, math.sqrt(self.level.square) / abs(self.level.mean))


class AemaEstimator(Stateful):
    """Estimates by adaptive exponential averages."""

    name = "aema"
    state_fields = ("_factors", "_pending")
    state_records: ClassVar = {"_pending": tuple}

    def __init__(self, spec: WindowSpec, interval: float = 0.95) -> None:
        self.spec = spec
        self.interval = interval
        self._factors = {name: _Followed() for name in FACTORS}
        self._pending: dict[int, dict[str, tuple[float, float]]] = {}

    def observe(self, delays: DelayCounts) -> None:
        """Rows are not looked at: it learns when windows complete."""

    def estimate(self, window: WindowSnapshot, at: int, *, again: bool = False) -> Estimate:
        factors, pending = {}, {}
        for name, observed in window.factors().items():
            followed = self._factors[name]
            mean, own = followed.estimate(observed)
            pending[name] = (observed, own)
            factors[name] = Factor(mean, abs(mean) * followed.deviation)
        if not again:
            self._pending[window.window] = pending
        return combined(self.spec, factors, self.interval)

    def complete(self, window: WindowSnapshot) -> None:
        pending = pop_pending(self._pending, window.window)
        if pending is not None:
            for name, final in window.factors().items():
                self._factors[name].learn(*pending[name], final)

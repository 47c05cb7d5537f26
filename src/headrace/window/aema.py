"""The estimator `aema`: adaptive exponential averages, the simplest one of PECJ (section 5.1 of the paper).

A part that is observed at its moment is a distortion of what it will be: x = mu / z. Both mu and z are followed by
exponential averages over completed windows, and mu is taken to be between its own average and z x. Their decay is not
fixed: it is the ratio of the averaged error to the averaged size of errors (Trigg and Leach), so that averages hasten
while they are off to one side, and rest while errors cancel out.
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
    square: float = 0.0  # the averaged square of errors
    _bias: float = 0.0
    _size: float = 0.0

    def learn(self, value: float) -> None:
        """Take a value in."""
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
    """One part: its average, and that of its distortion."""

    state_fields: ClassVar = ("level", "distortion", "shrinkage")

    level: AdaptiveAverage = field(default_factory=AdaptiveAverage)
    distortion: AdaptiveAverage = field(default_factory=AdaptiveAverage)
    shrinkage: Shrinkage = field(default_factory=Shrinkage)

    def estimate(self, observed: float) -> tuple[float, float]:
        """The part that is expected, and what the window itself says of it."""
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
        """How far off the average is, relatively."""
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
        """Nothing is learned before windows complete."""

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

"""The estimator `observed`: the answer over the rows that have arrived, as a join behind watermarks gives it (WMJ)."""

from __future__ import annotations

import math

from headrace.window.estimate import Estimate, Factor, WindowSnapshot, combined
from headrace.window.estimator_state import Stateful
from headrace.window.spec import WindowSpec
from headrace.window.tally import DelayCounts

_DEVIATION = 0.5  # relative; it does not know how much is missing


class ObservedEstimator(Stateful):
    """Expects nothing more to come."""

    name = "observed"

    def __init__(self, spec: WindowSpec, interval: float = 0.95) -> None:
        self.spec = spec
        self.interval = interval

    def observe(self, delays: DelayCounts) -> None:
        """Rows that arrive are in the totals of windows already."""

    def estimate(self, window: WindowSnapshot, at: int, *, again: bool = False) -> Estimate:
        known = {name: 0.0 if math.isnan(value) else value for name, value in window.factors().items()}
        return combined(
            self.spec, {name: Factor(value, _DEVIATION * abs(value)) for name, value in known.items()}, self.interval
        )

    def complete(self, window: WindowSnapshot) -> None:
        """There is nothing to learn."""

"""The estimator `observed`: a window is what has arrived of it, as a join behind watermarks says (WMJ)."""

from __future__ import annotations

import math

from headrace.window.estimate import Arrived, Estimate, Part, Seen, combined
from headrace.window.estimator_state import Saved
from headrace.window.spec import WindowSpec

_DEVIATION = 0.5  # it does not know how much is missing


class ObservedEstimator(Saved):
    """Expects nothing more to come."""

    name = "observed"

    def __init__(self, spec: WindowSpec, interval: float = 0.95) -> None:
        self.spec = spec
        self.interval = interval

    def observe(self, arrivals: Arrived) -> None:
        """What arrives is in the windows already."""

    def estimate(self, window: Seen, at: int, *, again: bool = False) -> Estimate:
        known = {name: 0.0 if math.isnan(value) else value for name, value in window.parts().items()}
        return combined(
            self.spec, {name: Part(value, _DEVIATION * abs(value)) for name, value in known.items()}, self.interval
        )

    def complete(self, window: Seen) -> None:
        """There is nothing to learn."""

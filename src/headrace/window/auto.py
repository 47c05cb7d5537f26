"""The estimator `auto`: all others, each weighed by how well it has done on windows that completed of late.

A weight falls with a high power of the error, so that the best ones decide and those that are nearly as good smooth
out their noise. What has merely arrived is among them: where nothing can be predicted, not predicting is best.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from headrace.window.estimate import Arrived, Estimate, Estimator, Part, Seen, answer_of, combined, log, unlog
from headrace.window.learned import taken
from headrace.window.saved import Saved
from headrace.window.spec import WindowSpec

_MEMORY = 0.96  # of errors
_POWER = 3
_PRIOR = 3.0  # completed windows that the first guess is worth
_LEAST = 1e-4  # an error below this is luck
_WORST = 50.0  # one window's error counts no more


class AutoEstimator(Saved):
    """Weighs other estimators; the first is preferred while nothing is known."""

    name = "auto"
    saved = ("estimators", "_errors", "_said")

    def __init__(self, spec: WindowSpec, estimators: Sequence[Estimator], interval: float = 0.95) -> None:
        self.spec = spec
        self.interval = interval
        self.estimators = tuple(estimators)
        # (sum of errors, number of them), both decaying
        self._errors = [(_PRIOR * (0.1 if i == 0 else 0.5), _PRIOR) for i in range(len(self.estimators))]
        self._said: dict[int, list[float]] = {}

    def observe(self, arrivals: Arrived) -> None:
        for estimator in self.estimators:
            estimator.observe(arrivals)

    @property
    def weights(self) -> dict[str, float]:
        """How much each estimator counts now."""
        raw = [max(_LEAST, total / count) ** -_POWER for total, count in self._errors]
        return {e.name: weight / sum(raw) for e, weight in zip(self.estimators, raw, strict=True)}

    def estimate(self, window: Seen, at: int, *, again: bool = False) -> Estimate:
        said = [estimator.estimate(window, at, again=again) for estimator in self.estimators]
        if not again:
            self._said[window.window] = [estimate.value for estimate in said]
        weights = list(self.weights.values())
        parts = {}
        for name in said[0].parts:
            mean = sum(w * e.parts[name].mean for w, e in zip(weights, said, strict=True))
            square = sum(
                w * (e.parts[name].deviation ** 2 + (e.parts[name].mean - mean) ** 2)
                for w, e in zip(weights, said, strict=True)
            )
            parts[name] = Part(mean, math.sqrt(square))
        found = combined(self.spec, parts, self.interval)
        # One that is far too large weighs no more than one that is as much too small.
        value = unlog(sum(w * log(e.value) for w, e in zip(weights, said, strict=True)))
        shift = value / found.value if found.value else 1.0
        return Estimate(value, found.low * shift, found.high * shift, found.deviation, parts)

    def complete(self, window: Seen) -> None:
        for estimator in self.estimators:
            estimator.complete(window)
        said = taken(self._said, window.window)
        final = answer_of(self.spec, window.matches, window.total)
        if said is None or not math.isfinite(final) or not final:
            return
        for i, value in enumerate(said):
            total, count = self._errors[i]
            error = min(_WORST, abs(value - final) / abs(final)) if math.isfinite(value) else _WORST
            self._errors[i] = (_MEMORY * total + error, _MEMORY * count + 1)

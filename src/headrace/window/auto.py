"""The estimator `auto`: all others, each weighted by how well it did on recently completed windows.

A weight falls with a high power of the error: the best estimators decide, and those that are nearly as good smooth out
their noise. `observed` is among them: where nothing can be predicted, not predicting is best.

Windows that complete late teach late. One estimator, the fresh one, learns from rows as they arrive instead, and knows
whether delays seem to be drifting. While they do not drift, an estimator that contradicts the fresh one by far more
than it used to has not heard of a change yet, and loses weight. While they drift, the fresh one loses weight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from headrace.window.estimate import (
    Estimate,
    Estimator,
    Factor,
    WindowSnapshot,
    answer_of,
    combined,
    log,
    pop_pending,
    unlog,
)
from headrace.window.estimator_state import Stateful
from headrace.window.spec import WindowSpec
from headrace.window.tally import DelayCounts

_MEMORY = 0.96  # of errors
_POWER = 3  # of the error, by which weights fall
_PRIOR = 3.0  # completed windows that the first guess is worth
_LEAST = 1e-4  # an error below this is luck
_WORST = 50.0  # errors are clipped to this
_DRIFTING = 0.07  # a drift beyond this is believed
_APART, _LITTLE = 4.0, 0.05  # an estimator may differ from the fresh one by this many times the usual, and a little


class Fresh(Estimator, Protocol):
    """An estimator that learns from rows as they arrive."""

    @property
    def drift(self) -> float:
        """How far the delays that it has learned seem to be changing, relatively."""
        ...


class AutoEstimator(Stateful):
    """The weighted mean of all estimators; the fresh one has most weight while nothing is known."""

    name = "auto"
    state_fields = ("estimators", "_errors", "_apart", "_pending")

    def __init__(self, spec: WindowSpec, fresh: Fresh, others: Sequence[Estimator], interval: float = 0.95) -> None:
        self.spec = spec
        self.interval = interval
        self._fresh = fresh
        self.estimators: tuple[Estimator, ...] = (fresh, *others)
        # Per estimator: (sum, count) of its errors and of its distances to the fresh one, both decaying.
        self._errors = [(_PRIOR * (0.1 if i == 0 else 0.5), _PRIOR) for i in range(len(self.estimators))]
        self._apart = [(0.0, 0.0)] * len(self.estimators)
        self._pending: dict[int, list[float]] = {}

    def observe(self, delays: DelayCounts) -> None:
        for estimator in self.estimators:
            estimator.observe(delays)

    def estimate(self, window: WindowSnapshot, at: int, *, again: bool = False) -> Estimate:
        estimates = [estimator.estimate(window, at, again=again) for estimator in self.estimators]
        values = [estimate.value for estimate in estimates]
        if not again:
            self._pending[window.window] = values
        raw = [max(_LEAST, error) ** -_POWER for error in self._expected(values)]
        weights = [weight / sum(raw) for weight in raw]
        factors = {}
        for name in estimates[0].factors:
            mean = sum(w * e.factors[name].mean for w, e in zip(weights, estimates, strict=True))
            square = sum(
                w * (e.factors[name].deviation ** 2 + (e.factors[name].mean - mean) ** 2)
                for w, e in zip(weights, estimates, strict=True)
            )
            factors[name] = Factor(mean, math.sqrt(square))
        found = combined(self.spec, factors, self.interval)
        # The mean is of logarithms, so that an estimate twice too large weighs as much as one twice too small.
        value = unlog(sum(w * log(e.value) for w, e in zip(weights, estimates, strict=True)))
        shift = value / found.value if found.value else 1.0
        return Estimate(value, found.low * shift, found.high * shift, found.deviation, factors)

    def _expected(self, values: list[float]) -> list[float]:
        """Return the error to expect of each estimator."""
        errors = [total / count for total, count in self._errors]
        if self._fresh.drift > _DRIFTING:
            return [max(errors[0], 1.0), *errors[1:]]
        for i, (total, count) in enumerate(self._apart):
            apart = abs(log(values[i]) - log(values[0]))
            if count and apart > _APART * total / count + _LITTLE:
                errors[i] = max(errors[i], apart)
        return errors

    def complete(self, window: WindowSnapshot) -> None:
        for estimator in self.estimators:
            estimator.complete(window)
        values = pop_pending(self._pending, window.window)
        final = answer_of(self.spec, window.matches, window.total)
        if values is None or not math.isfinite(final) or not final:
            return
        for i, value in enumerate(values):
            error = min(_WORST, abs(value - final) / abs(final)) if math.isfinite(value) else _WORST
            self._errors[i] = _decayed(self._errors[i], error)
            if math.isfinite(value) and math.isfinite(values[0]):
                self._apart[i] = _decayed(self._apart[i], abs(log(value) - log(values[0])))


def _decayed(before: tuple[float, float], more: float) -> tuple[float, float]:
    total, count = before
    return _MEMORY * total + more, _MEMORY * count + 1

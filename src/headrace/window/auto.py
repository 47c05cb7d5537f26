"""The estimator `auto`: all others, each weighed by how well it has done on windows that completed of late.

A weight falls with a high power of the error, so that the best ones decide and those that are nearly as good smooth
out their noise. What has merely arrived is among them: where nothing can be predicted, not predicting is best.

Windows that complete late teach late. One estimator rests on rows as they arrive, not on completed windows, and it
knows whether what it rests on seems to be changing. While that is not so, another one that contradicts it, by far more
than it used to, has not heard of a change yet. While it is so, it is the one that is not to be trusted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from headrace.window.estimate import Arrived, Estimate, Estimator, Part, Seen, answer_of, combined, log, unlog
from headrace.window.estimator_state import Saved
from headrace.window.shrinkage import taken
from headrace.window.spec import WindowSpec

_MEMORY = 0.96  # of errors
_POWER = 3
_PRIOR = 3.0  # completed windows that the first guess is worth
_LEAST = 1e-4  # an error below this is luck
_WORST = 50.0  # one window's error counts no more
_DRIFTING = 0.07  # beyond it, what the fresh one rests on is changing
_APART, _LITTLE = 4.0, 0.05  # times the usual, and relatively: how far another may be from the fresh one


class Fresh(Estimator, Protocol):
    """An estimator that rests on rows as they arrive."""

    @property
    def drift(self) -> float:
        """How far what it rests on seems to be changing, relatively."""
        ...


class AutoEstimator(Saved):
    """Weighs estimators; the fresh one is preferred while nothing is known."""

    name = "auto"
    saved = ("estimators", "_errors", "_apart", "_said")

    def __init__(self, spec: WindowSpec, fresh: Fresh, others: Sequence[Estimator], interval: float = 0.95) -> None:
        self.spec = spec
        self.interval = interval
        self._fresh = fresh
        self.estimators: tuple[Estimator, ...] = (fresh, *others)
        # (sum of errors, number of them), both decaying; and the same for how far each is apart from the fresh one
        self._errors = [(_PRIOR * (0.1 if i == 0 else 0.5), _PRIOR) for i in range(len(self.estimators))]
        self._apart = [(0.0, 0.0)] * len(self.estimators)
        self._said: dict[int, list[float]] = {}

    def observe(self, arrivals: Arrived) -> None:
        for estimator in self.estimators:
            estimator.observe(arrivals)

    def estimate(self, window: Seen, at: int, *, again: bool = False) -> Estimate:
        said = [estimator.estimate(window, at, again=again) for estimator in self.estimators]
        values = [estimate.value for estimate in said]
        if not again:
            self._said[window.window] = values
        raw = [max(_LEAST, error) ** -_POWER for error in self._expected(values)]
        weights = [weight / sum(raw) for weight in raw]
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

    def _expected(self, values: list[float]) -> list[float]:
        """The error that is to be expected of each estimator."""
        errors = [total / count for total, count in self._errors]
        if self._fresh.drift > _DRIFTING:
            return [max(errors[0], 1.0), *errors[1:]]
        for i, (total, count) in enumerate(self._apart):
            apart = abs(log(values[i]) - log(values[0]))
            if count and apart > _APART * total / count + _LITTLE:
                errors[i] = max(errors[i], apart)
        return errors

    def complete(self, window: Seen) -> None:
        for estimator in self.estimators:
            estimator.complete(window)
        said = taken(self._said, window.window)
        final = answer_of(self.spec, window.matches, window.total)
        if said is None or not math.isfinite(final) or not final:
            return
        for i, value in enumerate(said):
            error = min(_WORST, abs(value - final) / abs(final)) if math.isfinite(value) else _WORST
            self._errors[i] = _learned(self._errors[i], error)
            if math.isfinite(value) and math.isfinite(said[0]):
                self._apart[i] = _learned(self._apart[i], abs(log(value) - log(said[0])))


def _learned(before: tuple[float, float], more: float) -> tuple[float, float]:
    total, count = before
    return _MEMORY * total + more, _MEMORY * count + 1

"""The registry of estimators, by the names that users give."""

from __future__ import annotations

from collections.abc import Callable

from headrace.errors import SchemaError
from headrace.window.aema import AemaEstimator
from headrace.window.auto import AutoEstimator
from headrace.window.delay_estimator import DelayEstimator
from headrace.window.estimate import Estimator
from headrace.window.mlp import MlpEstimator
from headrace.window.observed import ObservedEstimator
from headrace.window.spec import WindowSpec
from headrace.window.svi import SviEstimator

AUTO = "auto"
_MADE: dict[str, Callable[[WindowSpec, float, int], Estimator]] = {
    "delay": lambda spec, interval, seed: DelayEstimator(spec, interval),
    "aema": lambda spec, interval, seed: AemaEstimator(spec, interval),
    "svi": lambda spec, interval, seed: SviEstimator(spec, interval),
    "mlp": MlpEstimator,
    "observed": lambda spec, interval, seed: ObservedEstimator(spec, interval),
}
ESTIMATORS = (AUTO, *_MADE)


def make_estimator(name: str, spec: WindowSpec, *, interval: float = 0.95, seed: int = 0) -> Estimator:
    """Return a new estimator; equal seeds give equal estimates."""
    if name not in ESTIMATORS:
        raise SchemaError(f"estimator {name!r} is not known", way_out=f"use one of {', '.join(map(repr, ESTIMATORS))}")
    if not 0 < interval < 1:
        raise SchemaError(
            f"an interval of {interval} holds never or always", way_out="give one between 0 and 1, as 0.95"
        )
    if name == AUTO:
        others = [make(spec, interval, seed) for other, make in _MADE.items() if other != DelayEstimator.name]
        return AutoEstimator(spec, DelayEstimator(spec, interval), others, interval)
    return _MADE[name](spec, interval, seed)

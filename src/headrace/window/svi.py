"""The estimator `svi`: the Gaussian model of PECJ (equations 6 to 10), by stochastic variational inference.

An observation x_i of a factor mu is distorted by a latent z_i: z_i x_i is normal around mu with precision phi.
Factorized approximations q(mu) q(phi) prod q(z_i) have closed updates; each new window takes a step towards them, of a
size that falls while nothing changes, and what was learned is the prior of what comes (equation 5). The prior of z
comes from windows that have completed, of which both x and mu are known.

    E(z_i) = (phi x_i mu + rho zeta) / (phi x_i^2 + rho)         with z ~ N(zeta, 1 / rho) before
    E(mu)  = (tau mu_0 + sum E(z_i) x_i) / (tau + n)             with mu ~ N(mu_0, 1 / (tau phi)) before
    E(phi) = (a + n / 2) / (b + sum E((z_i x_i - mu)^2) / 2)     with phi ~ Gamma(a, b) before

The credible interval is that of equation 10: mu is normal with precision (tau + n) E(phi).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numba as nb
import numpy as np

from headrace.window.estimate import FACTORS, Estimate, Factor, WindowSnapshot, combined, pop_pending
from headrace.window.estimator_state import Stateful
from headrace.window.spec import WindowSpec
from headrace.window.tally import DelayCounts

_jit: Any = nb.njit(cache=True, nogil=True)

_OBSERVATIONS = 10  # per posterior
_FORGET = 0.9  # the share of its weight that a prior keeps per completed window
_STRONGEST = 20.0  # windows that a prior may be worth
_MEMORY = 0.95  # of the distortions of completed windows
_ROUNDS = 3


@dataclass
class _Posterior(Stateful):
    """The posterior of one factor, scaled so that its mean is about 1."""

    state_fields: ClassVar = (
        "mean",
        "weight",
        "shape",
        "rate",
        "distortion",
        "spread",
        "scale",
        "_count",
        "observations",
    )

    mean: float = math.nan  # mu_0
    weight: float = 0.0  # tau
    shape: float = 1.0  # a
    rate: float = 0.01  # b
    distortion: float = math.nan  # zeta
    spread: float = 0.05  # 1 / rho
    scale: float = math.nan
    _count: float = 0.0
    observations: deque[float] = field(default_factory=lambda: deque(maxlen=_OBSERVATIONS))

    def estimate(self, observed: float) -> tuple[float, float]:
        """Return the mean and the standard deviation of the factor of a window, given those of the windows before."""
        if math.isnan(self.mean) or math.isnan(self.scale):
            return (0.0, 0.0) if math.isnan(observed) else (observed, abs(observed))
        x = np.array([*self.observations, observed]) / self.scale
        x = x[np.isfinite(x)]
        mean, phi = self.mean, self.shape / self.rate
        weight = self.weight
        if len(x):
            zeta = 1.0 if math.isnan(self.distortion) else self.distortion
            rho = 1.0 / max(self.spread, 1e-9)
            step = max(0.5, (1.0 + self._count) ** -0.6)  # Robbins and Monro: large while little is known
            prior = (self.mean, self.weight, self.shape, self.rate)
            mean, phi = _inferred(x, mean, phi, zeta, rho, step, *prior)
            weight += len(x)
        return mean * self.scale, self.scale / math.sqrt(max(1e-12, weight * phi))

    def learn(self, observed: float, final: float) -> None:
        """Learn the final value of a window: its posterior is the prior of the next one."""
        if not math.isfinite(final):
            return
        if math.isnan(self.scale) or not 0.1 < abs(final) / self.scale < 10:
            if final:
                self.scale, self.mean, self.weight = abs(final), math.copysign(1.0, final), 1.0
            return
        value = final / self.scale
        self._count += 1
        error = value - self.mean
        self.weight = min(_STRONGEST, _FORGET * self.weight + 1)
        self.mean += error / self.weight if self.weight > 1 else error
        self.shape, self.rate = _MEMORY * self.shape + 0.5, _MEMORY * self.rate + 0.5 * error * error
        if math.isfinite(observed) and observed:
            distortion = final / observed
            if math.isnan(self.distortion):
                self.distortion = distortion
            off = distortion - self.distortion
            self.distortion += (1 - _MEMORY) * off if self._count > 20 else off / self._count
            self.spread = _MEMORY * self.spread + (1 - _MEMORY) * off * off


@_jit
def _inferred(x, mean, phi, zeta, rho, step, prior, weight, shape, rate):  # type: ignore[no-untyped-def]
    """Return the means of mu and phi after some rounds of updates."""
    for _ in range(_ROUNDS):
        precision = phi * x**2 + rho
        z = (phi * x * mean + rho * zeta) / precision
        posterior = (weight * prior + (z * x).sum()) / (weight + len(x))
        misfit = ((z * x - posterior) ** 2 + x**2 / precision).sum()
        mean += step * (posterior - mean)
        phi = (shape + len(x) / 2) / (rate + misfit / 2)
    return mean, phi


class SviEstimator(Stateful):
    """Estimates by stochastic variational inference."""

    name = "svi"
    state_fields = ("_factors", "_pending")

    def __init__(self, spec: WindowSpec, interval: float = 0.95) -> None:
        self.spec = spec
        self.interval = interval
        self._factors = {name: _Posterior() for name in FACTORS}
        self._pending: dict[int, dict[str, float]] = {}

    def observe(self, delays: DelayCounts) -> None:
        """Rows are seen as the windows that they are in."""

    def estimate(self, window: WindowSnapshot, at: int, *, again: bool = False) -> Estimate:
        observed = window.factors()
        if not again:
            self._pending[window.window] = observed
        factors = {}
        for name, value in observed.items():
            posterior = self._factors[name]
            mean, deviation = posterior.estimate(value)
            if math.isfinite(value) and not again:
                posterior.observations.append(value)
            factors[name] = Factor(mean, min(deviation, 2 * abs(mean)))
        return combined(self.spec, factors, self.interval)

    def complete(self, window: WindowSnapshot) -> None:
        observed = pop_pending(self._pending, window.window)
        if observed is not None:
            for name, final in window.factors().items():
                self._factors[name].learn(observed[name], final)

"""The estimator `mlp`: a small neural network that learns from the stream itself (section 5.2 of PECJ's paper).

There is one network per factor. It sees the last observations, relative to a running scale of final values, and gives
the mean and the precision of the window's final value. Whenever a window completes, it is trained on recently completed
windows to raise the evidence lower bound: the likelihood of the final values, less the divergence of its predictions
from a prior, which is their recent average. There is no other training: as the stream changes, so do the labels.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numba as nb
import numpy as np
from numpy.typing import NDArray

from headrace.window.estimate import FACTORS, Estimate, Factor, WindowSnapshot, combined, pop_pending
from headrace.window.estimator_state import Stateful
from headrace.window.spec import WindowSpec
from headrace.window.tally import DelayCounts
from headrace.window.totals import Floats

_jit: Any = nb.njit(cache=True, nogil=True)

_PAST = 10  # observations that the network sees
_INPUTS = _PAST + 1  # and whether there is one of this window
_HIDDEN = 16
_BATCH, _BUFFER, _ROUNDS = 32, 256, 4  # examples per step, examples that are kept, steps per completed window
_RATE, _FIRST, _SECOND = 0.01, 0.9, 0.999  # learning rate and decays of Adam
_PULL = 0.02  # the weight of the divergence from the prior
_MEMORY = 0.95
_LEAST, _MOST = -6.0, 1.0  # of the logarithm of a deviation


_LAYER_SIZES = (_INPUTS * _HIDDEN, _HIDDEN, _HIDDEN * 2, 2)  # weights and offsets of both layers
_EDGES = tuple(itertools.accumulate(_LAYER_SIZES, initial=0))


@dataclass
class Network(Stateful):
    """Two layers, from observations to the mean and the logarithm of the deviation."""

    state_fields: ClassVar = ("weights", "_first", "_second", "_steps")

    rng: np.random.Generator
    weights: Floats = field(init=False)
    _first: Floats = field(init=False)  # the moments of gradients, as Adam has them
    _second: Floats = field(init=False)
    _steps: int = 0

    def __post_init__(self) -> None:
        drawn = [self.rng.normal(0, 1 / math.sqrt(_INPUTS), _LAYER_SIZES[0]), np.zeros(_LAYER_SIZES[1])]
        # Small weights: at first it predicts about what it sees.
        drawn += [0.1 * self.rng.normal(0, 1 / math.sqrt(_HIDDEN), _LAYER_SIZES[2]), np.zeros(_LAYER_SIZES[3])]
        self.weights = np.concatenate(drawn)
        self._first, self._second = np.zeros_like(self.weights), np.zeros_like(self.weights)

    def __call__(self, x: Floats) -> tuple[float, float]:
        """Return the mean and the logarithm of the deviation for one row of inputs."""
        mean, raw = _forward(self.weights, x, np.empty(_HIDDEN))
        return mean, min(max(raw, _LEAST), _MOST)

    def train(self, x: Floats, y: Floats, chosen: NDArray[np.int64], prior: tuple[float, float]) -> None:
        """Take one step of Adam per row of `chosen`, which holds the numbers of the examples to use."""
        _train(self.weights, self._first, self._second, self._steps, x, y, chosen, *prior)
        self._steps += len(chosen)


@_jit
def _forward(weights, x, hidden):  # type: ignore[no-untyped-def]
    """Fill the hidden layer; return the mean and the logarithm of the deviation, not clipped."""
    offsets, above = weights[_EDGES[1] : _EDGES[2]], weights[_EDGES[2] : _EDGES[3]]
    mean, deviation = weights[_EDGES[3]], weights[_EDGES[3] + 1]
    for h in range(_HIDDEN):
        total = offsets[h]
        for i in range(_INPUTS):
            total += x[i] * weights[i * _HIDDEN + h]
        hidden[h] = math.tanh(total)
        mean += hidden[h] * above[2 * h]
        deviation += hidden[h] * above[2 * h + 1]
    return mean, deviation - 2.0


@_jit
def _train(weights, first, second, steps, x, y, chosen, centre, spread):  # type: ignore[no-untyped-def]
    hidden, gradient = np.empty(_HIDDEN), np.empty_like(weights)
    above = weights[_EDGES[2] : _EDGES[3]]
    for step in range(len(chosen)):
        gradient[:] = 0.0
        for example in chosen[step]:
            mean, raw = _forward(weights, x[example], hidden)
            log_deviation = min(max(raw, _LEAST), _MOST)
            precision, off = math.exp(-2 * log_deviation), mean - y[example]
            # -log p(y) = log s + (y - m)^2 / 2 s^2; KL to N(c, d): log d / s + (s^2 + (m - c)^2) / 2 d^2
            by_mean = off * precision + _PULL * (mean - centre) / spread**2
            by_deviation = 1 - off**2 * precision + _PULL * (math.exp(2 * log_deviation) / spread**2 - 1)
            by_mean = min(max(by_mean / chosen.shape[1], -1.0), 1.0)
            by_deviation = min(max(by_deviation / chosen.shape[1], -1.0), 1.0)
            gradient[_EDGES[3]] += by_mean
            gradient[_EDGES[3] + 1] += by_deviation
            for h in range(_HIDDEN):
                below = (by_mean * above[2 * h] + by_deviation * above[2 * h + 1]) * (1 - hidden[h] ** 2)
                gradient[_EDGES[2] + 2 * h] += hidden[h] * by_mean
                gradient[_EDGES[2] + 2 * h + 1] += hidden[h] * by_deviation
                gradient[_EDGES[1] + h] += below
                for i in range(_INPUTS):
                    gradient[i * _HIDDEN + h] += x[example, i] * below
        taken_steps = steps + step + 1
        size = _RATE * math.sqrt(1 - _SECOND**taken_steps) / (1 - _FIRST**taken_steps)
        for w in range(len(weights)):
            first[w] += (1 - _FIRST) * (gradient[w] - first[w])
            second[w] += (1 - _SECOND) * (gradient[w] ** 2 - second[w])
            weights[w] -= size * first[w] / (math.sqrt(second[w]) + 1e-8)


class _Learner(Stateful):
    """The network of one factor, with its examples."""

    state_fields = ("rng", "network", "past", "seen", "labels", "trained", "scale", "centre", "spread")

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.network = Network(self.rng)
        self.past: deque[float] = deque(maxlen=_PAST)
        # The last examples, in a ring buffer: inputs of the network, and the outputs it should have given.
        self.seen, self.labels, self.trained = np.zeros((_BUFFER, _INPUTS)), np.zeros(_BUFFER), 0
        self.scale = math.nan  # of final values
        self.centre, self.spread = 0.0, 0.3

    def estimate(self, observed: float, again: bool) -> tuple[float, float, Floats | None]:
        """Return the mean, the deviation, and the inputs of the network (None before the first window completes)."""
        past = self.past.copy()
        if math.isfinite(observed):
            past.append(observed)
        if not again:
            self.past = past
        if math.isnan(self.scale) or not past:
            known = 0.0 if math.isnan(observed) else observed
            return known, abs(known), None
        x = self._inputs(past, observed)
        mean, log_deviation = self.network(x)
        value = self.scale * math.exp(min(max(mean, -5.0), 5.0))
        return value, value * math.exp(log_deviation), x

    def learn(self, x: Floats | None, scale: float, final: float) -> None:
        """Learn the final value of a window, and train."""
        if not math.isfinite(final) or final <= 0:
            return
        if x is not None and math.isfinite(scale):
            label = math.log(final / scale)
            at = self.trained % _BUFFER
            self.seen[at], self.labels[at], self.trained = x, label, self.trained + 1
            self.centre = _MEMORY * self.centre + (1 - _MEMORY) * label
            off = (label - self.centre) ** 2
            self.spread = math.sqrt(max(1e-4, _MEMORY * self.spread**2 + (1 - _MEMORY) * off))
            self._train()
        # The scale follows slowly, so that recent examples have about the same scale.
        self.scale = final if math.isnan(self.scale) else self.scale * (final / self.scale) ** (1 - _MEMORY)

    def _inputs(self, past: deque[float], observed: float) -> Floats:
        values = np.array(past, float)
        padded = np.concatenate([np.full(_PAST - len(values), values[0]), values])
        logs = np.log(np.maximum(padded, 1e-12 * self.scale) / self.scale)
        return np.append(np.clip(logs, -5, 5), 1.0 if math.isnan(observed) else 0.0)

    def _train(self) -> None:
        # Half of a batch are the last windows, so that a change is learned at once; the others are any kept ones.
        last = np.arange(max(0, self.trained - _BATCH // 2), self.trained) % _BUFFER
        others = self.rng.integers(0, min(self.trained, _BUFFER), (_ROUNDS, _BATCH - len(last)))
        chosen = np.concatenate([np.tile(last, (_ROUNDS, 1)), others], axis=1)
        self.network.train(self.seen, self.labels, chosen, (self.centre, max(self.spread, 0.02)))


class MlpEstimator(Stateful):
    """Estimates by one network per factor; equal seeds give equal estimates."""

    name = "mlp"
    state_fields = ("_factors", "_pending")
    state_records: ClassVar = {"_pending": tuple}

    def __init__(self, spec: WindowSpec, interval: float = 0.95, seed: int = 0) -> None:
        self.spec = spec
        self.interval = interval
        self._factors = {name: _Learner(seed * len(FACTORS) + i) for i, name in enumerate(FACTORS)}
        self._pending: dict[int, dict[str, tuple[Floats | None, float]]] = {}

    def observe(self, delays: DelayCounts) -> None:
        """Rows are seen as the windows that they are in."""

    def estimate(self, window: WindowSnapshot, at: int, *, again: bool = False) -> Estimate:
        factors, pending = {}, {}
        for name, observed in window.factors().items():
            learner = self._factors[name]
            mean, deviation, x = learner.estimate(observed, again)
            pending[name] = (x, learner.scale)
            factors[name] = Factor(mean, min(deviation, 2 * abs(mean)))
        if not again:
            self._pending[window.window] = pending
        return combined(self.spec, factors, self.interval)

    def complete(self, window: WindowSnapshot) -> None:
        pending = pop_pending(self._pending, window.window)
        if pending is not None:
            for name, final in window.factors().items():
                self._factors[name].learn(*pending[name], final)

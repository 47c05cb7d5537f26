"""The estimator `mlp`: a small neural network that learns from the stream itself (section 5.2 of PECJ's paper).

For each part, the network sees the last observations, relative to a running scale of what windows come to, and gives
the mean and the precision of what this window will come to. It is trained as windows complete, on those that have
completed of late, to raise the evidence lower bound: the likelihood of what came, less the divergence of what it said
from the prior, which is the average of late. There is no other training: as the stream changes, so do labels.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from headrace.window.estimate import PARTS, Arrived, Estimate, Part, Seen, combined
from headrace.window.learned import taken
from headrace.window.saved import Saved
from headrace.window.spec import WindowSpec
from headrace.window.totals import Floats

_PAST = 10  # observations that the network sees
_HIDDEN = 16
_BATCH, _BUFFER, _ROUNDS = 32, 256, 4  # examples a step, examples that are kept, steps a completed window
_RATE, _FIRST, _SECOND = 0.01, 0.9, 0.999  # of Adam
_PULL = 0.02  # the weight of the divergence from the prior
_MEMORY = 0.95
_LEAST, _MOST = -6.0, 1.0  # of the logarithm of a deviation


@dataclass
class Network(Saved):
    """Two layers: from observations to a correction of the last of them, and the logarithm of its deviation."""

    saved: ClassVar = ("weights", "_moments", "_steps")

    rng: np.random.Generator
    inputs: int
    weights: list[Floats] = field(init=False)
    _moments: list[tuple[Floats, Floats]] = field(init=False)
    _steps: int = 0

    def __post_init__(self) -> None:
        sizes = [(self.inputs, _HIDDEN), (_HIDDEN,), (_HIDDEN, 2), (2,)]
        self.weights = [
            self.rng.normal(0, 1 / math.sqrt(size[0]), size) if len(size) == 2 else np.zeros(size) for size in sizes
        ]
        self.weights[2] *= 0.1  # at first it says about what it sees
        self._moments = [(np.zeros_like(w), np.zeros_like(w)) for w in self.weights]

    def __call__(self, x: Floats) -> tuple[Floats, Floats]:
        """The mean and the logarithm of the deviation, for rows of inputs."""
        out = np.tanh(x @ self.weights[0] + self.weights[1]) @ self.weights[2] + self.weights[3]
        return out[:, 0], np.clip(out[:, 1] - 2.0, _LEAST, _MOST)

    def train(self, x: Floats, y: Floats, prior: tuple[float, float]) -> None:
        """Take one step of Adam up the evidence lower bound."""
        hidden = np.tanh(x @ self.weights[0] + self.weights[1])
        out = hidden @ self.weights[2] + self.weights[3]
        mean, log_deviation = out[:, 0], np.clip(out[:, 1] - 2.0, _LEAST, _MOST)
        precision = np.exp(-2 * log_deviation)
        centre, spread = prior
        # -log p(y) = log s + (y - m)^2 / 2 s^2; KL to N(c, d): log d / s + (s^2 + (m - c)^2) / 2 d^2
        by_mean = (mean - y) * precision + _PULL * (mean - centre) / spread**2
        by_deviation = 1 - (y - mean) ** 2 * precision + _PULL * (np.exp(2 * log_deviation) / spread**2 - 1)
        gradient = np.stack([by_mean, by_deviation], axis=1) / len(y)
        gradient = np.clip(gradient, -1.0, 1.0)
        below = (gradient @ self.weights[2].T) * (1 - hidden**2)
        self._adam([x.T @ below, below.sum(axis=0), hidden.T @ gradient, gradient.sum(axis=0)])

    def _adam(self, gradients: list[Floats]) -> None:
        self._steps += 1
        size = _RATE * math.sqrt(1 - _SECOND**self._steps) / (1 - _FIRST**self._steps)
        for weight, gradient, (first, second) in zip(self.weights, gradients, self._moments, strict=True):
            first += (1 - _FIRST) * (gradient - first)
            second += (1 - _SECOND) * (gradient**2 - second)
            weight -= size * first / (np.sqrt(second) + 1e-8)


class _Learner(Saved):
    """One part."""

    saved = ("rng", "network", "past", "examples", "scale", "centre", "spread")
    records: ClassVar = {"examples": tuple}

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.network = Network(self.rng, _PAST + 1)
        self.past: deque[float] = deque(maxlen=_PAST)
        self.examples: deque[tuple[Floats, float]] = deque(maxlen=_BUFFER)
        self.scale = math.nan  # of what windows come to
        self.centre, self.spread = 0.0, 0.3

    def estimate(self, observed: float, again: bool) -> tuple[float, float, Floats | None]:
        """The mean, the deviation, and what the network saw."""
        past = self.past.copy()
        if math.isfinite(observed):
            past.append(observed)
        if not again:
            self.past = past
        if math.isnan(self.scale) or not past:
            known = 0.0 if math.isnan(observed) else observed
            return known, abs(known), None
        x = self._inputs(past, observed)
        mean, log_deviation = self.network(x[None, :])
        value = self.scale * math.exp(float(np.clip(mean[0], -5, 5)))
        return value, value * math.exp(float(log_deviation[0])), x

    def learn(self, x: Floats | None, scale: float, final: float) -> None:
        """See what a window came to, and train."""
        if not math.isfinite(final) or final <= 0:
            return
        if x is not None and math.isfinite(scale):
            label = math.log(final / scale)
            self.examples.append((x, label))
            self.centre = _MEMORY * self.centre + (1 - _MEMORY) * label
            off = (label - self.centre) ** 2
            self.spread = math.sqrt(max(1e-4, _MEMORY * self.spread**2 + (1 - _MEMORY) * off))
            self._train()
        # The scale follows slowly, so that examples of late are about the same scale.
        self.scale = final if math.isnan(self.scale) else self.scale * (final / self.scale) ** (1 - _MEMORY)

    def _inputs(self, past: deque[float], observed: float) -> Floats:
        values = np.array(past, float)
        padded = np.concatenate([np.full(_PAST - len(values), values[0]), values])
        logs = np.log(np.maximum(padded, 1e-12 * self.scale) / self.scale)
        return np.append(np.clip(logs, -5, 5), 1.0 if math.isnan(observed) else 0.0)

    def _train(self) -> None:
        recent = len(self.examples)
        for _ in range(_ROUNDS):
            # Half of a batch is of the last windows, so that a change is learned at once, half of all that is kept.
            last = np.arange(max(0, recent - _BATCH // 2), recent)
            chosen = np.concatenate([last, self.rng.integers(0, recent, _BATCH - len(last))])
            x = np.stack([self.examples[i][0] for i in chosen])
            y = np.array([self.examples[i][1] for i in chosen])
            self.network.train(x, y, (self.centre, max(self.spread, 0.02)))


class MlpEstimator(Saved):
    """Estimates by a network for each part; deterministic under a seed."""

    name = "mlp"
    saved = ("_parts", "_said")
    records: ClassVar = {"_said": tuple}

    def __init__(self, spec: WindowSpec, interval: float = 0.95, seed: int = 0) -> None:
        self.spec = spec
        self.interval = interval
        self._parts = {name: _Learner(seed * len(PARTS) + i) for i, name in enumerate(PARTS)}
        self._said: dict[int, dict[str, tuple[Floats | None, float]]] = {}

    def observe(self, arrivals: Arrived) -> None:
        """Rows are seen as the windows that they are in."""

    def estimate(self, window: Seen, at: int, *, again: bool = False) -> Estimate:
        parts, said = {}, {}
        for name, observed in window.parts().items():
            learner = self._parts[name]
            mean, deviation, x = learner.estimate(observed, again)
            said[name] = (x, learner.scale)
            parts[name] = Part(mean, min(deviation, 2 * abs(mean)))
        if not again:
            self._said[window.window] = said
        return combined(self.spec, parts, self.interval)

    def complete(self, window: Seen) -> None:
        said = taken(self._said, window.window)
        if said is not None:
            for name, final in window.parts().items():
                self._parts[name].learn(*said[name], final)

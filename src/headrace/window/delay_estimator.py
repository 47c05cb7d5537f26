"""The estimator `delay`: what has arrived, divided by the probability of having arrived.

It learns the delays of each stream (`delay_distribution`). They give the share of a window's rows that should be there,
for open windows as for complete ones, so the level of the rates is known without waiting for any window to complete.
Delays do not choose keys, so the pairs that are there are a sample of all pairs, and give the selectivity. An estimate
lies between the window's own measurement and the level of the other windows; completed windows teach where
(`shrinkage`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headrace.window.arrivals import LEFT, RIGHT
from headrace.window.delay_distribution import Delays
from headrace.window.estimate import (
    FACTORS,
    LEFT_ROWS,
    PAYLOAD,
    RIGHT_ROWS,
    SELECTIVITY,
    Estimate,
    Factor,
    WindowSnapshot,
    combined,
    pop_pending,
)
from headrace.window.estimator_state import Stateful
from headrace.window.level import level_of
from headrace.window.shrinkage import Shrinkage
from headrace.window.spec import WindowSpec
from headrace.window.tally import DelayCounts
from headrace.window.totals import Floats

_MEMORY = 20  # windows after which an event counts half, or two horizons if that is longer
_LATELY = 5  # the same for recent delays, which show a drift, or an eighth of the horizon if that is longer


@dataclass(frozen=True)
class _Guess:
    """The level and the own measurement of one factor of a window, to learn from when the window completes."""

    level: float
    own: float


class DelayEstimator(Stateful):
    """Estimates by the delays that it learns of both streams."""

    name = "delay"
    state_fields = ("delays", "_shrinkage", "_pending")
    state_records: ClassVar = {"_pending": _Guess}

    def __init__(self, spec: WindowSpec, interval: float = 0.95) -> None:
        self.spec = spec
        self.interval = interval
        memory, lately = max(_MEMORY * spec.length, 2 * spec.horizon), max(_LATELY * spec.length, spec.horizon // 8)
        self.delays = (Delays(spec.horizon, memory, lately), Delays(spec.horizon, memory, lately))
        self._shrinkage = {name: Shrinkage() for name in FACTORS}
        self._pending: dict[int, dict[str, _Guess]] = {}

    def observe(self, delays: DelayCounts) -> None:
        for side, learner in enumerate(self.delays):
            learner.observe(*delays.of_side(side))

    def estimate(self, window: WindowSnapshot, at: int, *, again: bool = False) -> Estimate:
        spec, around = self.spec, window.around
        for delays in self.delays:
            delays.advance(at)
        start = (around.window * spec.slide).astype(np.float64)
        left, right = around.left, around.right
        there = (
            self.delays[LEFT].share(start, spec.length, at),
            self.delays[RIGHT].share(start - spec.reach, spec.length + 2 * spec.reach, at),
        )
        # Missing rows add to the variance: of a count in proportion to the odds, of a ratio to how few rows are there.
        few = _ratio(1 - there[LEFT], left) + _ratio(1 - there[RIGHT], right)
        measured = {
            LEFT_ROWS: (_ratio(left, there[LEFT]), _ratio(1 - there[LEFT], there[LEFT])),
            RIGHT_ROWS: (_ratio(right, there[RIGHT]), _ratio(1 - there[RIGHT], there[RIGHT])),
            SELECTIVITY: (_ratio(around.matches, around.pairs), few),
        }
        if spec.aggregate.function != "count":
            measured[PAYLOAD] = (_ratio(around.total, around.matches), few)
        factors, guesses = {}, {}
        for name, (value, unit) in measured.items():
            factors[name], guesses[name] = self._factor(name, value, unit, window)
        if not again:
            self._pending[window.window] = guesses
        return combined(spec, factors, self.interval)

    @property
    def drift(self) -> float:
        """The relative distance of recent delays to the learned ones; the larger one of both streams."""
        return max(delays.drift for delays in self.delays)

    def complete(self, window: WindowSnapshot) -> None:
        guesses = pop_pending(self._pending, window.window)
        if guesses is None:
            return
        for name, final in window.factors().items():
            one = guesses[name]
            self._shrinkage[name].learn(one.level, one.own, final)

    def _factor(self, name: str, value: Floats, unit: Floats, window: WindowSnapshot) -> tuple[Factor, _Guess]:
        """Estimate one factor of a window from the measurements of it and of its neighbours."""
        counts = {LEFT_ROWS: window.left, RIGHT_ROWS: window.right}
        level, own = level_of(value, unit, window.position, counts=name in counts), float(value[window.position])
        if level is None:
            return Factor(counts.get(name, 0.0), 0.0), _Guess(math.nan, own)
        if name == SELECTIVITY and level.mean > 0:
            # One match more, among as many pairs as usually have one: no match among few pairs does not mean none.
            pairs = window.left * window.right
            own = (own * pairs + 1) / (pairs + 1 / level.mean) if pairs else own
        mean = level.mean if math.isnan(own) else self._shrinkage[name].blend(level.mean, own, level.slope)
        deviation = level.deviation if math.isfinite(own) else math.sqrt(level.natural + level.spread**2)
        relative = min(2.0, deviation / abs(mean)) if mean else 1.0
        # Rows that have arrived stay.
        return Factor(max(mean, counts.get(name, mean)), abs(mean) * relative), _Guess(level.mean, own)


def _ratio(amount: Floats, size: Floats) -> Floats:
    """Divide; NaN where there is nothing to divide by."""
    found: Floats = np.divide(amount, size, out=np.full(len(size), math.nan), where=size > 0)
    return found

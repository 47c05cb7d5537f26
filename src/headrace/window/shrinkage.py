"""What completed windows teach: how far to trust what a window itself says, against the level of others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from headrace.window.estimator_state import Stateful

_MEMORY = 0.97  # the weight of a completed window beside that of the next
_PRIOR = 4.0  # completed windows that the first guess is worth


@dataclass
class Shrinkage(Stateful):
    """How far to go from a level towards what a window itself says: the slope that would have served best of late.

    Ratios are what matters, so it goes that share of the way between logarithms, if there are any.
    """

    state_fields: ClassVar = ("_products", "_squares", "_count")

    _products: float = 0.0
    _squares: float = 0.0
    _count: float = 0.0

    def blend(self, level: float, own: float, guess: float) -> float:
        """What to expect; `guess` is the slope to begin with."""
        slope = self._slope(guess)
        if level > 0 and own > 0:
            return level * math.exp(slope * math.log(own / level))
        return level + slope * (own - level)

    def learn(self, level: float, own: float, final: float) -> None:
        """See how it ended."""
        if not (level > 0 and own > 0 and final > 0 and math.isfinite(level + own + final)):
            return
        step = math.log(own / level)
        self._products = _MEMORY * self._products + step * math.log(final / level)
        self._squares = _MEMORY * self._squares + step * step
        self._count = _MEMORY * self._count + 1

    def _slope(self, guess: float) -> float:
        if not self._squares:
            return guess
        prior = _PRIOR * self._squares / self._count
        return min(1.0, max(0.0, (self._products + guess * prior) / (self._squares + prior)))

"""How far to trust what a window itself shows, against the level of its neighbours: completed windows teach it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from headrace.window.estimator_state import Stateful

_MEMORY = 0.97  # the weight of a completed window relative to the next one
_PRIOR = 4.0  # completed windows that the first guess is worth


@dataclass
class Shrinkage(Stateful):
    """The weight of a window's own measurement against the level: the one that would have served best recently.

    Errors are relative, so logarithms are weighted where they exist.

    >>> shrinkage = Shrinkage()
    >>> for _ in range(50):
    ...     shrinkage.learn(100, 150, 150)  # own measurements have been right
    >>> 145 < shrinkage.blend(100, 150, 0.5) <= 150
    True
    """

    state_fields: ClassVar = ("_products", "_squares", "_count")

    _products: float = 0.0
    _squares: float = 0.0
    _count: float = 0.0

    def blend(self, level: float, own: float, guess: float) -> float:
        """Return the weighted mean of a level and a window's own measurement; `guess` is the weight to begin with."""
        slope = self._slope(guess)
        if level > 0 and own > 0:
            return level * math.exp(slope * math.log(own / level))
        return level + slope * (own - level)

    def learn(self, level: float, own: float, final: float) -> None:
        """Learn from the final value of a window that had this level and measurement."""
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

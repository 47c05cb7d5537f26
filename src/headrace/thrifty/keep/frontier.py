"""The best cost by bytes, as its breakpoints.

The cost of an operator falls with the memory that it may use, in few steps: only where another state fits in. So a cost
function is the list of its steps, (bytes, cost), and not a table over all budgets. (The thesis finds the steps by
binary search over budgets, 5.3; combining lists of steps gives the same function, exactly, and never looks at
a budget at which nothing changes.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST = 2_000  # steps of a function; beyond, sizes are rounded up to a grid of as many


@dataclass(frozen=True)
class Frontier:
    """A non-increasing function from bytes to cost, and which states it takes: a bit per state.

    >>> better = Frontier.of([(0, 9.0, 0), (10, 4.0, 1), (12, 5.0, 2)], 100)
    >>> better.points()
    [(0, 9.0, 0), (10, 4.0, 1)]
    """

    bytes: NDArray[np.int64]
    cost: NDArray[np.float64]
    states: Sequence[int]

    @classmethod
    def of(cls, points: Iterable[tuple[int, float, int]], budget: int) -> Frontier:
        """The best of some points within the budget."""
        found = [point for point in points if point[0] <= budget]
        sizes = np.array([size for size, _, _ in found], np.int64)
        costs = np.array([cost for _, cost, _ in found], np.float64)
        return cls(sizes, costs, [states for _, _, states in found])._pruned(budget)

    def points(self) -> list[tuple[int, float, int]]:
        """All steps: bytes, cost, states."""
        return list(zip(self.bytes.tolist(), self.cost.tolist(), self.states, strict=True))

    def plus(self, other: Frontier, budget: int) -> Frontier:
        """The sum of two functions, with the memory split between them as is best."""
        size = np.add.outer(self.bytes, other.bytes).ravel()
        cost = np.add.outer(self.cost, other.cost).ravel()
        keep = _best(size, cost, budget)
        width = len(other.bytes)
        states = [self.states[i // width] | other.states[i % width] for i in keep.tolist()]
        return Frontier(size[keep], cost[keep], states)._coarser(budget)

    def moved(self, size: int, cost: float, states: int) -> Frontier:
        """The same function with states added that take so many bytes, and so much more cost."""
        return Frontier(self.bytes + size, self.cost + cost, [own | states for own in self.states])

    def _pruned(self, budget: int) -> Frontier:
        keep = _best(self.bytes, self.cost, budget)
        return Frontier(self.bytes[keep], self.cost[keep], [self.states[i] for i in keep.tolist()])

    def _coarser(self, budget: int) -> Frontier:
        if len(self.bytes) <= MOST:
            return self
        unit = max(1, int(min(budget, int(self.bytes[-1]))) // MOST)
        rounded = -(-self.bytes // unit) * unit
        return Frontier(np.minimum(rounded, np.maximum(self.bytes, budget)), self.cost, self.states)._pruned(budget)


def best_of(functions: Sequence[Frontier], budget: int) -> Frontier:
    """The lowest of several functions, at each budget."""
    states = [one for function in functions for one in function.states]
    size = np.concatenate([function.bytes for function in functions])
    cost = np.concatenate([function.cost for function in functions])
    return Frontier(size, cost, states)._pruned(budget)._coarser(budget)


def _best(size: NDArray[np.int64], cost: NDArray[np.float64], budget: int) -> NDArray[np.int64]:
    """The positions of points that fit into the budget, and than which no smaller one costs as little."""
    order = np.lexsort((cost, size))
    order = order[size[order] <= budget]
    if not len(order):
        return order
    lowest = np.minimum.accumulate(cost[order])
    new = np.ones(len(order), bool)
    new[1:] = lowest[1:] < lowest[:-1]
    found: NDArray[np.int64] = order[new]
    return found

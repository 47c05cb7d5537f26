"""What work costs: unit costs of operators and of flushes.

In a flush, an operator costs so much to start, so much per row that it takes, and so much per row that it gives. The
flush itself opens what waits and stores what has changed: that costs once, per row, and per operator that runs. A large
flush goes from bucket to bucket by threads, where a small one need not, so large flushes have costs of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace.thrifty.cardinalities import GROUP, TOP, Numbers

# Microseconds, as measured on the developers' machine: of an operator to start it, per row that it takes, and per row
# that it gives; of a flush once, per row that operators take, and per operator that runs.
_JOIN = (300.0, 0.1, 0.1)
_GROUP = (600.0, 0.12, 0.1)
_TOP = (400.0, 0.1, 0.1)
_FLUSH = (1000.0, 0.15, 500.0)
_MORE_PASSES = 0.75  # a further bucket costs so much of the first
_LARGE = 2.0  # how much more a row costs in a flush that could be small and is not


@dataclass(frozen=True)
class Passes:
    """How a view is flushed.

    Parameters
    ----------
    small, large : how many buckets a flush goes through one by one, if it is small and if it is large.
    limit : rows that operators take, beyond which a flush is large.
    """

    small: int = 1
    large: int = 1
    limit: float = float("inf")


@dataclass(frozen=True)
class UnitCosts:
    """Microseconds that a flush takes.

    Parameters
    ----------
    table : for small and for large flushes, three costs per operator, and those of the flush itself last.
    limit : rows that operators take, beyond which a flush is large.
    """

    table: Numbers
    limit: float = float("inf")

    @classmethod
    def alike(cls, operators: int, start: float, taken: float, given: float) -> UnitCosts:
        """The same costs for so many operators, and none for a flush."""
        one = np.array([*[(start, taken, given)] * operators, (0.0, 0.0, 0.0)])
        return cls(np.array([one, one]))

    @classmethod
    def assumed(cls, kinds: Sequence[int], passes: Passes | None = None) -> UnitCosts:
        """The costs of operators of some kinds, as long as no flush has said otherwise."""
        passes = passes or Passes()
        own = np.array([_TOP if kind == TOP else _GROUP if kind == GROUP else _JOIN for kind in kinds])
        table = np.empty((2, len(kinds) + 1, 3))
        for size, buckets in enumerate((passes.small, passes.large)):
            more = 1 + _MORE_PASSES * (buckets - 1)
            table[size] = [*own, _FLUSH]
            table[size, :-1, 0] *= more  # an operator is started in each bucket
            table[size, -1, 2] *= more
        if passes.large > passes.small:
            table[1, :, 1:] *= _LARGE
        return cls(table, passes.limit)

"""How many pairs of nodes the two-paths of a graph connect: the entries of a view of two-paths without indicators.

There are far more than edges, so they are counted and never kept: node by node, with a mark per node that was reached.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


def pairs_of_two_paths(a: Integers, b: Integers, nodes: int) -> int:
    """Count the pairs (x, z) that some edges (x, y) and (y, z) connect.

    >>> pairs_of_two_paths(np.array([0, 0, 1, 2]), np.array([1, 2, 3, 3]), 4)
    1
    """
    order = np.argsort(a, kind="stable")
    starts = np.searchsorted(a[order], np.arange(nodes + 1))
    return int(_count(starts, b[order].astype(np.int64), nodes))


@numba.njit(cache=True)
def _count(starts: Integers, ends: Integers, nodes: int) -> int:
    seen = np.full(nodes, -1, np.int64)  # from which node it was reached last
    pairs = 0
    for x in range(nodes):
        for i in range(starts[x], starts[x + 1]):
            y = ends[i]
            for j in range(starts[y], starts[y + 1]):
                if seen[ends[j]] != x:
                    seen[ends[j]] = x
                    pairs += 1
    return pairs

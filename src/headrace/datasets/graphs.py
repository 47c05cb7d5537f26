"""Power-law graphs, for triangles and paths: a few nodes have a large part of all edges, as in social networks.

Real graphs may not be shipped, so these are made from a seed: both ends of an edge are drawn independently, node i in
proportion to (i + 1) ** -skew, until there are enough distinct edges that are no loops (the model of Chung and Lu).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.errors import SchemaError

_ROUNDS = 200


def power_law_edges(nodes: int, edges: int, skew: float = 0.6, seed: int = 0) -> pa.Table:
    """Make the distinct directed edges (a, b) of a power-law graph, in random order.

    Parameters
    ----------
    skew : how much more edges low nodes have; 0 for none. The largest degree is about
        `edges * (1 - skew) * nodes ** (skew - 1)` for a skew below 1.

    >>> graph = power_law_edges(100, 500)
    >>> graph.num_rows, graph.schema.names, power_law_edges(100, 500).equals(graph)
    (500, ['a', 'b'], True)
    """
    if nodes < 2 or not 0 < edges <= nodes * (nodes - 1) // 2:
        raise SchemaError(
            f"there is no graph of {nodes} nodes and {edges} edges",
            way_out="give two nodes or more, and edges for at most half of the pairs of them",
        )
    random = np.random.default_rng(seed)
    share = np.cumsum(np.arange(1, nodes + 1, dtype=np.float64) ** -skew)
    names = random.permutation(nodes)  # so that hubs are not the lowest numbers
    found = np.zeros(0, np.int64)
    for _ in range(_ROUNDS):
        missing = edges - len(found)
        drawn = [_draw(random, share, 2 * missing + 16) for _ in range(2)]
        pairs = drawn[0] * nodes + drawn[1]
        found = np.unique(np.concatenate([found, pairs[drawn[0] != drawn[1]]]))
        if len(found) >= edges:
            break
    else:
        raise SchemaError(
            f"a skew of {skew:g} leaves fewer than {edges} likely edges between {nodes} nodes",
            way_out="give more nodes, fewer edges or a smaller skew",
        )
    found = random.permutation(found)[:edges]
    return pa.table({"a": names[found // nodes], "b": names[found % nodes]})


def _draw(random: np.random.Generator, share: NDArray[np.float64], size: int) -> NDArray[np.int64]:
    drawn: NDArray[np.int64] = np.searchsorted(share, random.random(size) * share[-1], side="right")
    return np.minimum(drawn, len(share) - 1)

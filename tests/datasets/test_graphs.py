"""Power-law graphs: distinct edges without loops, from a seed, with hubs as the skew says."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.datasets.graphs import power_law_edges
from headrace.errors import SchemaError


@pytest.mark.parametrize("skew", [0.0, 0.6, 0.9])
def test_edges_are_distinct_and_no_loops(skew: float) -> None:
    graph = power_law_edges(3_000, 20_000, skew, seed=4)
    a, b = graph["a"].to_numpy(), graph["b"].to_numpy()
    assert len(set(zip(a.tolist(), b.tolist(), strict=True))) == graph.num_rows == 20_000
    assert (a != b).all()
    assert min(a.min(), b.min()) >= 0
    assert max(a.max(), b.max()) < 3_000


def test_more_skew_makes_larger_hubs() -> None:
    largest = [np.bincount(power_law_edges(3_000, 20_000, skew)["a"].to_numpy()).max() for skew in (0.0, 0.5, 0.9)]
    assert largest == sorted(largest)
    assert largest[2] > 10 * largest[0]


def test_what_cannot_be() -> None:
    with pytest.raises(SchemaError, match="no graph"):
        power_law_edges(10, 100)
    with pytest.raises(SchemaError, match="likely edges"):
        power_law_edges(200, 15_000, skew=8.0)

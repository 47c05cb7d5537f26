"""Chow-Liu trees: the tree over features that keeps most of what they say of one another.

Of all Bayesian networks in which a feature depends on one other at most, it is the most likely one for the data: a
spanning tree of largest mutual information (Section 8.2; Chow and Liu, 1968).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from headrace.learn.bins import bins_of, derived_of
from headrace.learn.counts import Counts, check_categories, chosen
from headrace.learn.learner import CATEGORIES, Learner, Needs
from headrace.learn.moments import Doubles
from headrace.learn.mutual_information import information
from headrace.learn.tree_drawing import dot, drawn

Edge = tuple[str, str, float]
# Edges whose weights differ by less are equal, and the feature that was named first decides: the last bit of a sum may
# depend on the order of levels, and a tree must not.
_DIGITS = 12


@dataclass(frozen=True)
class TreeChanges:
    """The edges that a tree has gained and lost since it was last fitted to other data; none for a first fit."""

    added: tuple[Edge, ...] = ()
    removed: tuple[Edge, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


class ChowLiuTree(Learner):
    """The spanning tree of largest mutual information over categorical features.

    >>> from headrace.learn.counted_rows import CountedRows
    >>> rows = {"sky": ["sun", "sun", "rain", "rain"], "street": ["dry", "dry", "wet", "wet"], "day": list("abab")}
    >>> tree = ChowLiuTree().fit(CountedRows(rows))
    >>> [(a, b, round(weight, 4)) for a, b, weight in tree.edges_]
    [('sky', 'street', 0.6931), ('sky', 'day', 0.0)]

    Parameters
    ----------
    features
        The features: columns of any type whose values are categories; all columns of the query, if left out. The first
        is the root.
    bins
        For numbers that are no categories, the inner edges of their bins: {"price": [100, 200]} makes three.
    """

    shown: ClassVar[tuple[str, ...]] = (
        *("edges_", "changes_", "matrix_", "feature_names_", "count_", "to_dot", "to_svg"),
    )

    edges_: list[Edge]
    changes_: TreeChanges
    matrix_: Doubles
    feature_names_: tuple[str, ...]
    count_: int

    def __init__(
        self, features: Sequence[str] | None = None, bins: Mapping[str, Sequence[float]] | None = None
    ) -> None:
        check_categories(features, least=2)
        self.features = None if features is None else tuple(features)
        self.bins = bins_of(bins)

    def needs(self) -> Needs:
        return Needs(self.features, CATEGORIES, derived_of(self.bins))

    def says(self) -> str:
        return "the spanning tree of largest mutual information (Chow-Liu)"

    def fit(self, payload: Counts) -> ChowLiuTree:
        """Make the tree of counts; costs that of mutual information, and O(m^2) for m features."""
        names = chosen(payload, self.features)
        matrix, count = information(payload, names), round(payload.count)
        known = hasattr(self, "edges_") and (self.feature_names_, self.count_) == (names, count)
        if known and np.allclose(matrix, self.matrix_, rtol=0.0, atol=10.0**-_DIGITS):
            return self  # the same rows, stored in another way: what changed last is still the last change
        before = getattr(self, "edges_", None)
        self.matrix_, self.feature_names_, self.count_ = matrix, names, count
        self.edges_ = [(names[i], names[j], float(matrix[i, j])) for i, j in spanning_tree(matrix)]
        self.changes_ = _changes(before, self.edges_)
        return self

    def rows(self) -> list[dict[str, Any]]:
        """One row per edge, from the root on."""
        self.need_fit("edges_")
        return [{"a": a, "b": b, "information": weight} for a, b, weight in self.edges_]

    def to_dot(self) -> str:
        """The tree in the language of Graphviz."""
        self.need_fit("edges_")
        return dot(self.feature_names_, self.edges_)

    def to_svg(self, title: str = "Chow-Liu tree") -> str:
        """The tree as a drawing that stands alone; edges that say more are thicker."""
        self.need_fit("edges_")
        below = f"{self.count_:,} rows; on each edge, mutual information in nats"
        return drawn(self.feature_names_, self.edges_, title, below)


def spanning_tree(matrix: Doubles) -> list[tuple[int, int]]:
    """The edges of a maximum spanning tree, each from the tree to the node that it adds, from node 0 on (Prim).

    >>> spanning_tree(np.array([[9, 1, 3.0], [1, 9, 2], [3, 2, 9]]))
    [(0, 2), (2, 1)]
    """
    weights = np.round(matrix, _DIGITS)
    best, parent = weights[0].copy(), np.zeros(len(weights), np.int64)
    outside = np.ones(len(weights), bool)
    outside[0] = False
    edges = []
    for _ in range(1, len(weights)):
        node = int(np.argmax(np.where(outside, best, -np.inf)))
        edges.append((int(parent[node]), node))
        outside[node] = False
        closer = outside & (weights[node] > best)
        best[closer], parent[closer] = weights[node][closer], node
    return edges


def _changes(before: Sequence[Edge] | None, after: Sequence[Edge]) -> TreeChanges:
    if before is None:
        return TreeChanges()
    old, new = ({frozenset(edge[:2]): edge for edge in edges} for edges in (before, after))
    return TreeChanges(
        tuple(edge for pair, edge in new.items() if pair not in old),
        tuple(edge for pair, edge in old.items() if pair not in new),
    )

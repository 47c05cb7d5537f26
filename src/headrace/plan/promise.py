"""What the class of a query promises: the work per changed row, and the wait between two listed rows.

These are Theorems 13 and 26 of the F-IVM paper. Relations that never change ask for no work, so only the others decide
what a change costs.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from headrace.plan.classes import is_acyclic, is_free_connex, is_q_hierarchical
from headrace.plan.hypergraph import Hypergraph

CONSTANT, LINEAR, NONE = "O(1)", "O(N)", "unbounded"
_KINDS = ("q-hierarchical", "free-connex", "acyclic", "cyclic")


@dataclass(frozen=True)
class Promise:
    """What can be promised of a class of queries over N rows."""

    kind: str
    update: str
    delay: str
    filling: str

    def is_better_than(self, other: Promise) -> bool:
        """Whether it says more."""
        return _KINDS.index(self.kind) < _KINDS.index(other.kind)


def promise(query: Hypergraph) -> Promise:
    """What can be promised of a query.

    >>> from headrace.plan.hypergraph import Relation
    >>> path = (Relation("R", ("A", "B")), Relation("S", ("B", "C")), Relation("T", ("C", "D")))
    >>> promise(Hypergraph(path, ("A", "B", "C", "D"))).update, promise(Hypergraph(path, ("A", "D"))).kind
    ('O(N)', 'acyclic')
    """
    if is_q_hierarchical(query):
        return Promise("q-hierarchical", CONSTANT, CONSTANT, LINEAR)
    if is_free_connex(query):
        return Promise("free-connex", LINEAR, CONSTANT, LINEAR)
    return Promise("acyclic" if is_acyclic(query) else "cyclic", NONE, CONSTANT, NONE)


def changing(query: Hypergraph, static: Collection[str]) -> Hypergraph:
    """The query without the relations that never change, and without what only they have."""
    relations = tuple(relation for relation in query.relations if relation.name not in static)
    there = {variable for relation in relations for variable in relation.variables}
    return Hypergraph(relations, tuple(variable for variable in query.free if variable in there))

"""The classes of join queries that decide what maintenance can promise.

With n rows, a q-hierarchical query takes constant time per changed row and lists its answer with constant delay; a
free-connex query takes at most linear time per changed row, with the same delay; the others promise less (F-IVM,
Theorem 13). Each class is a function that reads like its definition (F-IVM, Sections 7.1 and 7.2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import permutations

from headrace.plan.hypergraph import Hypergraph


def is_acyclic(query: Hypergraph) -> bool:
    """Whether the query is alpha-acyclic: its relations can be taken off one ear at a time (Graham, Yu, Ozsoyoglu).

    >>> from headrace.plan.hypergraph import Relation
    >>> is_acyclic(Hypergraph((Relation("R", ("A", "B")), Relation("S", ("B", "C")), Relation("T", ("C", "A")))))
    False
    """
    return _reduces_to_nothing(relation.variables for relation in query.relations)


def is_free_connex(query: Hypergraph) -> bool:
    """Whether the query is acyclic, and still is with one more relation over its free variables."""
    return is_acyclic(query) and _reduces_to_nothing(
        [*(relation.variables for relation in query.relations), query.free]
    )


def is_hierarchical(query: Hypergraph) -> bool:
    """Whether the relations of any two variables are nested or disjoint."""
    return all(
        query.rels(x) <= query.rels(y) or query.rels(y) <= query.rels(x) or query.rels(x).isdisjoint(query.rels(y))
        for x, y in permutations(query.variables, 2)
    )


def is_q_hierarchical(query: Hypergraph) -> bool:
    """Whether the query is hierarchical and no bound variable is in all relations of a free one and in more."""
    return is_hierarchical(query) and all(
        x in query.free for x in query.variables for y in query.free if query.rels(x) > query.rels(y)
    )


_CLASSES = {
    "acyclic": is_acyclic,
    "free-connex": is_free_connex,
    "hierarchical": is_hierarchical,
    "q-hierarchical": is_q_hierarchical,
}


def classes(query: Hypergraph) -> tuple[str, ...]:
    """The names of the classes that the query is in.

    >>> from headrace.plan.hypergraph import Relation
    >>> classes(Hypergraph((Relation("R", ("A", "B")), Relation("S", ("B", "C"))), free=("A",)))
    ('acyclic', 'free-connex', 'hierarchical')
    """
    return tuple(name for name, holds in _CLASSES.items() if holds(query))


def _reduces_to_nothing(schemas: Iterable[Iterable[str]]) -> bool:
    edges = [set(schema) for schema in schemas]
    while edges:
        before = sum(map(len, edges)), len(edges)
        shared = {v for v, n in Counter(v for edge in edges for v in edge).items() if n > 1}
        edges = [edge & shared for edge in edges]
        # Of equal edges the first stays, so that two of them do not take each other off.
        edges = [
            edge
            for i, edge in enumerate(edges)
            if edge and not any(edge < other or (edge == other and j < i) for j, other in enumerate(edges))
        ]
        if (sum(map(len, edges)), len(edges)) == before:
            return False
    return True

"""Query classes on the examples of the F-IVM paper, and against definitions written another way."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.plan.classes import classes, is_acyclic, is_free_connex, is_hierarchical, is_q_hierarchical
from headrace.plan.hypergraph import Hypergraph, Relation


def query(schemas: str, free: str = "") -> Hypergraph:
    return Hypergraph(tuple(Relation(f"R{i}", tuple(s)) for i, s in enumerate(schemas.split())), tuple(free))


@pytest.mark.parametrize(
    ("schemas", "free", "expected"),
    [
        ("AB ACE CD", "ABC", ("acyclic", "free-connex")),  # Examples 15 and 22
        ("AB ACE CD", "BC", ("acyclic",)),
        ("AB ACE ACD", "ABC", ("acyclic", "free-connex", "hierarchical", "q-hierarchical")),
        ("AB ACE ACD", "BC", ("acyclic", "hierarchical")),
        ("AB BC CA", "", ()),
        ("AB BC CA", "ABC", ()),
        ("AB BC CA ABC", "", ("acyclic", "free-connex")),  # the fourth relation closes the triangle
        ("AB BC", "", ("acyclic", "free-connex", "hierarchical", "q-hierarchical")),
        ("AB BC", "A", ("acyclic", "free-connex", "hierarchical")),
        ("AB BC", "AC", ("acyclic", "hierarchical")),  # matrix multiplication
        ("AB BC CD", "", ("acyclic", "free-connex")),
        ("AB BC CD", "ABCD", ("acyclic", "free-connex")),
        ("AB BC CD DA", "", ()),
        ("AB CD", "AC", ("acyclic", "free-connex", "hierarchical", "q-hierarchical")),
        ("A A", "", ("acyclic", "free-connex", "hierarchical", "q-hierarchical")),
    ],
)
def test_known_queries(schemas, free, expected):
    assert classes(query(schemas, free)) == expected


def test_no_relations_and_relations_without_variables_are_in_all_classes():
    everything = ("acyclic", "free-connex", "hierarchical", "q-hierarchical")
    assert classes(Hypergraph(())) == everything
    assert classes(Hypergraph((Relation("R", ()), Relation("S", ("A",))))) == everything


queries = st.builds(
    lambda schemas, free: Hypergraph(
        tuple(Relation(f"R{i}", tuple(sorted(s))) for i, s in enumerate(schemas)),
        tuple(sorted(free & set().union(*schemas))),
    ),
    st.lists(st.frozensets(st.sampled_from("ABCDE"), min_size=1, max_size=4), min_size=1, max_size=4),
    st.frozensets(st.sampled_from("ABCDE")),
)


def has_join_tree(schemas: list[frozenset[str]]) -> bool:
    """Try all trees: each relation but the first has a parent before it, in some order of the relations."""
    for parents in product(*(range(len(schemas)) for _ in schemas[1:])):
        edges = [(i, parent) for i, parent in enumerate(parents, start=1)]
        whole = range(len(schemas))
        if all(linked([i for i in whole if v in schemas[i]], edges) for v in frozenset().union(*schemas)) and linked(
            list(whole), edges
        ):
            return True
    return False


def linked(nodes: list[int], edges: list[tuple[int, int]]) -> bool:
    reached = {nodes[0]}
    for _ in nodes:
        reached |= {j for e in edges for i, j in (e, e[::-1]) if i in reached and j in nodes}
    return len(reached) == len(nodes)


@settings(max_examples=150, deadline=None)
@given(queries)
def test_acyclic_means_that_there_is_a_join_tree(q):
    schemas = [frozenset(r.variables) for r in q.relations]
    assert is_acyclic(q) == has_join_tree(schemas)
    if q.free:
        assert is_free_connex(q) == (has_join_tree(schemas) and has_join_tree([*schemas, frozenset(q.free)]))


@settings(max_examples=150, deadline=None)
@given(queries)
def test_each_class_is_within_the_next(q):
    if is_q_hierarchical(q):
        assert is_hierarchical(q)
        assert is_free_connex(q)
    if is_hierarchical(q) or is_free_connex(q):
        assert is_acyclic(q)
    for free in ((), q.variables):
        assert is_free_connex(Hypergraph(q.relations, free)) == is_acyclic(q)

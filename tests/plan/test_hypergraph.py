"""What a hypergraph says of its variables and relations, and what it refuses to be."""

from __future__ import annotations

import pytest

from headrace.errors import SchemaError
from headrace.plan.hypergraph import Hypergraph, Relation

QUERY = Hypergraph(
    (Relation("R", ("A", "B")), Relation("S", ("A", "C", "E")), Relation("T", ("C", "D")), Relation("U", ("F", "G"))),
    free=("G", "A"),
)


def test_variables_come_in_order_of_first_appearance():
    assert QUERY.variables == ("A", "B", "C", "E", "D", "F", "G")
    assert QUERY.join_variables == ("A", "C")
    assert QUERY.local_variables == ("B", "E", "D", "F")


def test_relations_of_variables_and_variables_of_relations():
    assert QUERY.rels("A") == {"R", "S"}
    assert QUERY.rels("nothing") == frozenset()
    assert QUERY.neighbours("C") == {"A", "E", "D"}
    assert QUERY.relation("T").variables == ("C", "D")
    assert [relation.name for relation in QUERY.touching(["B", "D"])] == ["R", "T"]
    assert QUERY.touching([]) == ()


def test_components_are_linked_by_shared_variables():
    assert QUERY.components() == [("R", "S", "T"), ("U",)]
    chain = Hypergraph((Relation("X", ("A", "B")), Relation("Y", ("C", "D")), Relation("Z", ("B", "C"))))
    assert chain.components() == [("X", "Y", "Z")]
    assert Hypergraph(()).components() == []


def test_a_relation_may_have_no_variable():
    assert Hypergraph((Relation("R", ()), Relation("S", ()))).components() == [("R",), ("S",)]


def test_restricting_keeps_the_relations_that_have_something_left():
    smaller = QUERY.restricted({"A", "C", "D"})
    assert smaller.relations == (Relation("R", ("A",)), Relation("S", ("A", "C")), Relation("T", ("C", "D")))
    assert smaller.free == ("A",)


@pytest.mark.parametrize(
    ("relations", "free", "message"),
    [
        ((Relation("R", ("A",)), Relation("R", ("B",))), (), "called R"),
        ((Relation("R", ("A", "A")),), (), "R has variable A twice"),
        ((Relation("R", ("A",)),), ("A", "A"), "A is free twice"),
        ((Relation("R", ("A",)),), ("Z",), "Free variable Z is in no relation"),
    ],
)
def test_what_cannot_be_a_query_is_refused(relations, free, message):
    with pytest.raises(SchemaError, match=message):
        Hypergraph(relations, free)


def test_an_unknown_relation_is_named_with_the_known_ones():
    with pytest.raises(SchemaError, match=r"no relation X(.|\n)*R, S, T, U"):
        QUERY.relation("X")

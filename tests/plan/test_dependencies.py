"""Sigma-reducts: Example 27 of the F-IVM paper, and Retailer's query."""

from __future__ import annotations

from headrace.plan.classes import classes
from headrace.plan.dependencies import Dependency, dependencies_of, reduct
from headrace.plan.expression import Expression, column
from headrace.plan.hypergraph import Hypergraph, Relation
from headrace.plan.join import Source
from headrace.relation.types import SqlType

INT, BIGINT = SqlType("int"), SqlType("bigint")


def test_example_27() -> None:
    relations = (Relation("R", ("A", "B")), Relation("S", ("B", "C")), Relation("T", ("C", "D")))
    query = Hypergraph(relations, ("A", "B", "C", "D"))
    made = reduct(query, [Dependency(("B",), ("C",)), Dependency(("C",), ("D",))])
    assert {r.name: set(r.variables) for r in made.relations} == {"R": set("ABCD"), "S": set("BCD"), "T": set("CD")}
    assert "hierarchical" not in classes(query)
    assert "q-hierarchical" in classes(made)


def test_retailer_without_item_is_q_hierarchical_if_a_zip_has_one_location() -> None:
    relations = (
        Relation("Inventory", ("locn", "dateid", "ksn")),
        Relation("Weather", ("locn", "dateid")),
        Relation("Location", ("locn", "zip")),
        Relation("Census", ("zip",)),
    )
    query = Hypergraph(relations, ("locn", "dateid", "ksn", "zip"))
    assert "q-hierarchical" not in classes(query)
    assert "q-hierarchical" in classes(reduct(query, [Dependency(("zip",), ("locn",))]))


def test_what_is_shown_is_extended_too() -> None:
    query = Hypergraph((Relation("R", ("A", "B")),), ("A",))
    assert reduct(query, [Dependency(("A",), ("B",))]).free == ("A", "B")


def test_dependencies_between_variables_of_a_source() -> None:
    wide = Expression("Cast", BIGINT, "CAST(c AS BIGINT)", (column("c", INT),))
    doubled = Expression("Multiply", BIGINT, "b * 2", (column("b", BIGINT),))
    source = Source(
        "t",
        "t",
        None,
        (("A", column("a", BIGINT)), ("B2", doubled), ("C", column("c", INT)), ("W", wide)),
    )
    found = dependencies_of(source, [Dependency(("a",), ("b",))])
    assert Dependency(("A",), ("B2",)) in found  # what is computed of a determined column is determined
    assert Dependency(("C",), ("W",)) in found
    assert Dependency(("W",), ("C",)) in found  # widening loses nothing
    assert not any("A" in dependency.determines for dependency in found)


def test_columns_that_the_join_does_not_have_determine_nothing() -> None:
    source = Source("t", "t", None, (("B", column("b", BIGINT)), ("C", column("c", BIGINT))))
    assert dependencies_of(source, [Dependency(("a",), ("b", "c"))]) == []

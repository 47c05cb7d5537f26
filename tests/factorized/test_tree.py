"""View trees: the figures of F-IVM by name, and what must hold of the tree of any order of any join."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from tests.factorized.shapes import EXAMPLE, ORDER, hypergraph, random_schemas

from headrace.factorized.order import completed
from headrace.factorized.order_text import parse
from headrace.factorized.tree import ViewNode, view_tree, views_to_keep
from headrace.testing.joins import random_order


def tree(schemas: dict[str, tuple[str, ...]], order: str, free: tuple[str, ...] = ()) -> ViewNode:
    query = hypergraph(schemas, free)
    return view_tree(completed(parse(order), query), query)


def keys(root: ViewNode) -> dict[str, tuple[str, ...]]:
    """The keys of each view, by the variable that it stands at."""
    return {node.variables[0]: node.keys for node in root.walk()}


def test_figure_3() -> None:
    root = tree(EXAMPLE, ORDER)
    assert keys(root) == {"A": (), "B": ("A",), "C": ("A",), "D": ("C",), "E": ("A", "C")}
    assert {node.variables[0]: "".join(sorted(node.relations)) for node in root.walk()} == {
        "A": "RST",
        "B": "R",
        "C": "ST",
        "D": "T",
        "E": "S",
    }
    assert {node.variables[0]: node.marginalised for node in root.walk()} == {v: (v,) for v in "ABCDE"}


def test_figure_5() -> None:
    root = tree(EXAMPLE, ORDER, free=("A", "C"))
    assert keys(root) == {"A": ("A", "C"), "B": ("A",), "C": ("A", "C"), "D": ("C",), "E": ("A", "C")}
    assert {node.variables[0]: node.marginalised for node in root.walk() if node.marginalised} == {
        "B": ("B",),
        "D": ("D",),
        "E": ("E",),
    }


@pytest.mark.parametrize(
    ("updatable", "kept"),
    [
        ("T", {"A", "B", "E"}),  # Example 10: the root, V_R and V_S
        ("R", {"A", "C"}),  # Section 1.1: V_ST
        ("S", {"A", "B", "D"}),  # V_R and V_T
        ("RST", {"A", "B", "C", "D", "E"}),
        ("RS", {"A", "B", "C", "D"}),
        ("ST", {"A", "B", "D", "E"}),
        ("", {"A"}),
    ],
)
def test_example_10(updatable: str, kept: set[str]) -> None:
    root = tree(EXAMPLE, ORDER)
    chosen = views_to_keep(root, frozenset(updatable))
    assert {node.variables[0] for node in chosen} == kept
    assert chosen[root] == "it is the answer"
    assert all("joined with it" in why for node, why in chosen.items() if node is not root)


def test_reasons_name_the_relations_that_change() -> None:
    root = tree(EXAMPLE, ORDER)
    reasons = {node.variables[0]: why for node, why in views_to_keep(root, frozenset("RST")).items()}
    assert reasons["B"] == "changes of S, T are joined with it"
    assert reasons["C"] == "changes of R are joined with it"


def test_chains_become_one_view() -> None:
    """Variables of a wide relation are summed away by one view (Section 4, after Example 8)."""
    root = tree({"W": ("A", "X", "Y", "Z"), "R": ("A", "B")}, "A")
    wide = next(node for node in root.walk() if node.relation == "W")
    assert (wide.variables, wide.marginalised, wide.keys) == (("X", "Y", "Z"), ("X", "Y", "Z"), ("A",))
    assert len(list(root.walk())) == 3  # the root and one leaf a relation


def test_a_single_relation_is_a_single_view() -> None:
    root = tree({"W": ("A", "X", "Y")}, "A", free=("A",))
    assert list(root.walk()) == [root]
    assert (root.relation, root.keys, set(root.marginalised)) == ("W", ("A",), {"X", "Y"})


def test_where_summing_stops_the_view_above_joins_all_and_sums_the_variable() -> None:
    root = tree(EXAMPLE, "A\n  B\n  C !stop\n    D\n    E")
    assert keys(root) == {"A": (), "B": ("A",), "D": ("C",), "E": ("A", "C")}
    assert {node.variables[0]: set(node.marginalised) for node in root.walk()} == {
        "A": {"A", "C"},
        "B": {"B"},
        "D": {"D"},
        "E": {"E"},
    }
    assert len(root.children) == 3


def test_a_local_variable_that_is_not_summed_stays_a_key_until_the_view_above() -> None:
    root = tree(EXAMPLE, "A\n  B\n  C !stop\n    D\n    E !stop")
    assert set(keys(root)["E"]) == {"A", "C", "E"}
    assert set(root.marginalised) == {"A", "C", "E"}


def test_a_mark_at_the_root_has_nothing_above_to_wait_for() -> None:
    assert keys(tree(EXAMPLE, "A !stop\n  B\n  C\n    D\n    E")) == keys(tree(EXAMPLE, ORDER))


def test_stop_pushdown_within_a_chain() -> None:
    root = tree({"W": ("A", "X", "Y"), "R": ("A",)}, "A\n  X\n    Y !stop: W")
    wide = next(node for node in root.walk() if node.relation == "W")
    assert (wide.keys, set(wide.marginalised)) == (("A",), {"X", "Y"})  # composed with X, which sums both


def test_parts_that_share_nothing_are_multiplied() -> None:
    root = tree({"R": ("A", "B"), "S": ("C",), "T": ("C", "D")}, "A\nC\n  D", free=("D",))
    assert (root.keys, root.variables, root.marginalised) == (("D",), (), ())
    assert [child.keys for child in root.children] == [(), ("D",)]
    assert [set(child.relations) for child in root.children] == [{"R"}, {"S", "T"}]
    # each factor is kept for the changes of the other
    assert set(root.children) <= set(views_to_keep(root, frozenset("RST")))


def test_a_relation_without_variables_is_a_factor_of_all() -> None:
    root = tree({"R": ("A", "B"), "S": ("A",), "N": ()}, "A")
    assert root.keys == ()
    assert [(child.relation, child.keys) for child in root.children] == [(None, ()), ("N", ())]
    alone = tree({"N": ()}, "")
    assert (alone.relation, alone.keys, alone.children) == ("N", (), ())


def test_names_say_where_a_view_stands() -> None:
    names = [node.name for node in tree(EXAMPLE, ORDER).walk()]
    assert names == ["V_@A[]", "V_R[A]", "V_@C[A]", "V_T[C]", "V_S[A, C]"]


@pytest.mark.parametrize("seed", range(150))
def test_what_holds_of_every_tree(seed: int) -> None:
    rng = random.Random(seed)
    schemas = random_schemas(rng)
    variables = hypergraph(schemas).variables
    query = hypergraph(schemas, tuple(rng.sample(variables, rng.randint(0, min(3, len(variables))))))
    order = random_order(rng, query, stop=rng.choice([0.0, 0.4]))
    root = view_tree(order, query)
    leaves = Counter(node.relation for node in root.walk() if node.relation)
    assert leaves == dict.fromkeys(schemas, 1)  # each relation is one leaf
    summed = Counter(variable for node in root.walk() for variable in node.marginalised)
    assert not summed or max(summed.values()) == 1
    assert not set(summed) & set(query.free)
    # Also where a root of the order is marked: nothing is above it that could sum what it keeps.
    assert set(root.keys) == set(query.free)
    assert set(summed) == set(query.variables) - set(query.free)
    for node in root.walk():
        below = set(query.relation(node.relation).variables) if node.relation else set()
        for child in node.children:
            below |= set(child.keys)
        assert below == set(node.keys) | set(node.marginalised) if not node.relation else set(node.keys) <= below
        if node.variables and node is not root:
            assert set(node.keys) == set(order.keys(query, node.variables[0]))
    kept = views_to_keep(root, frozenset(schemas))
    assert kept.keys() == set(root.walk())  # everything can change, so everything has a sibling or is the answer

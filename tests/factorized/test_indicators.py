"""Indicator projections: Examples 28 to 31 of F-IVM with their numbers, where they are added, and what they save."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest
from tests.factorized.harness import InMemory, natural_join
from tests.factorized.shapes import CHORD, CLIQUE, EXAMPLE, PROJECTED, TRIANGLE, Schemas, hypergraph

from headrace.factorized import intersection
from headrace.factorized.bucket import part_name
from headrace.factorized.delta import indicator, transitions
from headrace.factorized.indicators import closing_cycles, joined_at_once, with_indicators
from headrace.factorized.order import completed
from headrace.factorized.order_text import parse, to_json
from headrace.factorized.planner import Options, Planned, moments_view, plan_join
from headrace.factorized.tree import view_tree
from headrace.rings import Covariance, Integer, Ring

LINE = "A\n  B\n    C"
Edges = list[tuple[int, int]]


def added(schemas: Schemas, order: str, free: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    """The indicator projections of a tree: each with the view that it is below."""
    query = hypergraph(schemas, free)
    tree = with_indicators(view_tree(completed(parse(order), query), query), query)
    return [(child.name, node.name) for node in tree.walk() for child in node.children if child.indicator]


def test_example_31() -> None:
    assert added(TRIANGLE, LINE) == [("∃R[A, B]", "V_@C[A, B]")]


def test_the_chord_is_below_both_triangles() -> None:
    assert added(CHORD, "A\n  C\n    B\n    D") == [("∃W[A, C]", "V_@B[A, C]"), ("∃W[A, C]", "V_@D[A, C]")]


def test_other_orders_and_joins() -> None:
    cycle = {"R": ("A", "B"), "S": ("B", "C"), "T": ("C", "D"), "U": ("D", "A")}
    assert added(cycle, "A\n  C\n    B\n    D") == []  # T and U say of A and C only which of them are there at all
    assert added(cycle, "A\n  B\n    C\n      D") == [("∃R[A, B]", "V_@C[A, B]")]
    assert added(EXAMPLE, "A\n  B\n  C\n    D\n    E") == []
    assert [name for name, _ in added(PROJECTED, "A\n  B\n    C\n    E")] == ["∃R[A, B]"]
    clique = added(CLIQUE, "A\n  B\n    C\n      D")
    assert clique == [
        ("∃R[A, B]", "V_@C[A, B]"),
        ("∃R[A, B]", "V_@D[A, B, C]"),
        ("∃S[A, C]", "V_@D[A, B, C]"),
        ("∃U[B, C]", "V_@D[A, B, C]"),
    ]


def test_a_projection_that_a_relation_covers_closes_nothing() -> None:
    assert closing_cycles({"R": ("A", "B")}, {"S": ("A", "B", "C"), "T": ("C", "A")}) == ()
    assert closing_cycles({"Q": ("A", "B"), "R": ("A", "B")}, {"S": ("B", "C"), "T": ("C", "A")}) == ("Q",)


def test_example_30() -> None:
    """a1 has two rows and a2 one: a1 vanishes with its second row only."""
    ring = Integer(1)

    def changed(before: list[int], change: list[int]) -> list[int]:
        return transitions(ring, (np.array(before),), (np.array(change),))[0].tolist()

    assert indicator((np.array([2, 1, 0]),))[0].tolist() == [1, 1, 0]
    assert changed([2, 1], [-1, 0]) == [0, 0]  # without (a1, b2)
    assert changed([1, 1], [-1, 0]) == [-1, 0]  # and without (a1, b1)
    assert changed([0, 0, 3], [2, 0, 1]) == [1, 0, 0]


@pytest.mark.parametrize("ring", [Integer(1), Covariance(2)], ids=repr)
def test_definition_29(ring: Ring) -> None:
    """A key of the projection has payload 1 while some row of it has a payload other than 0; the paper has no
    Example 29. Deleting one of several equal rows, or one of several rows of a key, changes nothing.
    """
    multiplicities: Counter[tuple[int, int]] = Counter({(1, 1): 2, (1, 2): 1, (2, 1): 1})
    memory = play(TRIANGLE, {"R": list(multiplicities.elements())}, order=LINE)
    rng = np.random.default_rng(29)
    for _ in range(30):
        row = (int(rng.integers(3)), int(rng.integers(3)))
        diff = -1 if multiplicities[row] and rng.random() < 0.5 else 1
        before = +multiplicities
        multiplicities[row] += diff
        memory.step({"R": ({"A": np.array([row[0]]), "B": np.array([row[1]])}, np.array([diff]))})
        counts = projection(memory)
        assert {key: times for key, times in counts.items() if times} == +multiplicities
        shown = indicator((np.array([counts.get(row, 0)]),))[0].tolist()
        assert shown == [int(multiplicities[row] > 0)]
        # One change of the relation is at most one change of the projection.
        assert len((+multiplicities).keys() ^ before.keys()) <= 1
    ones = ring.ones(2)
    assert not ring.is_zero(ones).any(), "what it is multiplied with stays as it is, in any ring"
    assert ring.equal(ring.multiply(ones, ones), ones).all()


def projection(memory: InMemory) -> dict[tuple[int, int], int]:
    """The counted keys of the projection of R."""
    views, variables = memory.view.plan.views, memory.view.variables
    (at,) = (i for i, view in enumerate(views) if view.indicator)
    run = memory.contents(part_name(at, 0))
    if run is None:
        return {}
    slices = variables.slices(views[at].orders[0])
    a, b = (variables.numbers(name, run.words[slices[name]]).astype(int).tolist() for name in "AB")
    counts = run.payload[0].reshape(run.rows).astype(int).tolist()
    return dict(zip(zip(a, b, strict=True), counts, strict=True))


def play(schemas: Schemas, edges: Mapping[str, Edges], **options: object) -> InMemory:
    view, _ = moments_view(natural_join(schemas), (), ("A",), Options(**options), 1, 7, {})  # type: ignore[arg-type]
    memory = InMemory(view)
    memory.step(
        {
            name: (dict(zip(schemas[name], np.array(rows).T, strict=True)), np.ones(len(rows), np.int64))
            for name, rows in edges.items()
        }
    )
    return memory


def sizes(memory: InMemory) -> dict[str, int]:
    """The entries of each kept view."""
    views = memory.view.plan.views
    kept = {f"v{i}": view.name for i, view in enumerate(views) if view.kept and i != memory.view.plan.root}
    found = {name: memory.contents(part) for part, name in kept.items()}
    return {name: 0 if run is None else run.rows for name, run in found.items()}


@pytest.mark.parametrize("n", [10, 40])
def test_example_28(n: int) -> None:
    """A hub c with n nodes on either side: n * n pairs without the projection, n with it."""
    edges = {"R": [(a, a) for a in range(n)], "S": [(b, 0) for b in range(n)], "T": [(a, 0) for a in range(n)]}
    without = play(TRIANGLE, edges, order=LINE, indicators=False)
    bounded = play(TRIANGLE, edges, order=LINE)
    assert sizes(without)["V_@C[A, B]"] == n * n
    assert sizes(bounded)["V_@C[A, B]"] == n
    for memory in (without, bounded):
        run = memory.contents("moments")
        assert run is not None
        assert run.payload[0][0, 0] == n


def test_a_triangle_that_changes_everywhere_is_joined_at_once() -> None:
    query = hypergraph(TRIANGLE)
    order = completed(parse(LINE), query)
    assert [n.variable for n in joined_at_once(order, query, "RST").nodes() if n.stop_pushdown] == ["C"]
    assert joined_at_once(order, query, "R") is order  # V_@C never changes, so it is worth keeping
    chord, both = hypergraph(CHORD), "A\n  C\n    B\n    D"
    assert joined_at_once(completed(parse(both), chord), chord, "RSTUW") == completed(parse(both), chord)
    clique = hypergraph(CLIQUE)
    marked = joined_at_once(completed(parse("A\n  B\n    C\n      D"), clique), clique, "RSTUVW")
    assert [n.variable for n in marked.nodes() if n.stop_pushdown] == ["C", "D"]


def planned(schemas: Schemas, **options: object) -> Planned:
    return plan_join(hypergraph(schemas), ("A",), Options(**options), 4)  # type: ignore[arg-type]


def test_an_order_that_was_chosen_gives_the_same_plan_again() -> None:
    for schemas in (TRIANGLE, CHORD, CLIQUE, PROJECTED):
        first = planned(schemas)
        assert first.order is not None
        again = planned(
            schemas,
            order=to_json(first.order),
            stages={first.plan.views[stage.root].name: stage.partition for stage in first.plan.stages},
        )
        assert again.plan.views == first.plan.views
        assert again.plan.triggers == first.plan.triggers


def test_what_is_only_filled_once() -> None:
    """The projection of a relation that changes is kept: its counts tell when a key appears."""
    plan = planned(TRIANGLE, order=LINE, static=frozenset("ST")).plan
    kept = {view.name for view in plan.views if view.kept}
    assert kept == {"V_@A[]", "V_@C[A, B]", "V_R[A, B]", "V_S[B, C]", "V_T[A, C]", "∃R[A, B]"}
    plan = planned(TRIANGLE, order=LINE, static=frozenset("RST")).plan
    assert {view.name for view in plan.views if view.kept} == {"V_@A[]"}


def listed(monkeypatch: pytest.MonkeyPatch, hub: int, **options: object) -> int:
    """How many entries are listed to join one edge at the hub of a star with what closes a triangle there."""
    edges: dict[str, Edges] = {
        "R": [(a, 0) for a in range(3)],
        "S": [(b, 1) for b in range(1, 5)],
        "T": [(a, 0) for a in range(hub)],
    }
    memory, count = play(TRIANGLE, edges, **options), 0
    original = intersection.expanded

    def counting(first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        nonlocal count
        count += int((last - first).sum())
        return original(first, last)

    monkeypatch.setattr(intersection, "expanded", counting)
    memory.step({"S": ({"B": np.array([0]), "C": np.array([0])}, np.array([1]))})
    run = memory.contents("moments")
    assert run is not None
    assert run.payload[0][0, 0] == 3
    return count


@pytest.mark.parametrize("options", [{}, {"order": LINE}], ids=["at once", "indicator"])
def test_an_edge_at_a_hub_costs_what_its_smaller_side_costs(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, object]
) -> None:
    assert [listed(monkeypatch, hub, **options) for hub in (10, 100, 1000)] == [3, 3, 3]

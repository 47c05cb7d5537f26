"""Orders that are found: right for random queries, and the cheapest of all that there are for small ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headrace.errors import VariableOrderError
from headrace.factorized.order import Node, VariableOrder, completed, validate
from headrace.factorized.order_search import EXACT, Sizes, canonical, choose, cost, worth_pushing
from headrace.factorized.order_text import from_text, to_text
from headrace.plan.classes import is_acyclic, is_hierarchical, is_q_hierarchical
from headrace.plan.hypergraph import Hypergraph, Relation

RETAILER = Hypergraph(
    (
        Relation("Inventory", ("locn", "dateid", "ksn", "inventoryunits")),
        Relation("Location", ("locn", "zip", "rgn_cd", "avghhi")),
        Relation("Census", ("zip", "population", "medianage")),
        Relation("Item", ("ksn", "subcategory", "category", "prize")),
        Relation("Weather", ("locn", "dateid", "rain", "maxtemp")),
    )
)
RETAILER_ROWS = {"Inventory": 84_000_000, "Location": 1_317, "Census": 1_302, "Item": 5_618, "Weather": 1_159_457}
RETAILER_DISTINCT = {"locn": 1_317, "dateid": 880, "ksn": 5_618, "zip": 1_302}


def query(schemas: str, free: str = "") -> Hypergraph:
    return Hypergraph(tuple(Relation(f"R{i}", tuple(s)) for i, s in enumerate(schemas.split())), tuple(free))


@st.composite
def acyclic_queries(draw, variables: int = 12) -> Hypergraph:
    """Each relation takes some variables of one before it, and new ones: that is a join tree."""
    fresh = iter(f"v{i}" for i in range(variables))
    schemas: list[list[str]] = []
    for _ in range(draw(st.integers(1, 6))):
        before = draw(st.sampled_from(schemas)) if schemas else []
        shared = [v for v in before if draw(st.booleans())]
        schemas.append(shared + [v for v, _ in zip(fresh, range(draw(st.integers(0, 3))), strict=False)])
    return draw(with_free([tuple(schema) for schema in schemas]))


@st.composite
def hierarchical_queries(draw) -> Hypergraph:
    """Paths of a random forest: a relation takes a variable with all variables above it."""
    parents = [draw(st.integers(-1, i - 1)) for i in range(draw(st.integers(1, 8)))]
    schemas = []
    for _ in range(draw(st.integers(1, 5))):
        at, schema = draw(st.integers(0, len(parents) - 1)), []
        while at >= 0:
            schema.append(f"v{at}")
            at = parents[at]
        schemas.append(tuple(draw(st.permutations(schema))))
    return draw(with_free(schemas))


@st.composite
def with_free(draw, schemas: list[tuple[str, ...]]) -> Hypergraph:
    free = [v for v in dict.fromkeys(v for s in schemas for v in s) if draw(st.booleans())]
    return Hypergraph(tuple(Relation(f"R{i}", s) for i, s in enumerate(schemas)), tuple(free))


@st.composite
def sizes_of(draw, q: Hypergraph) -> tuple[dict[str, int], dict[str, int]]:
    some = st.sampled_from([None, 1, 7, 50, 1000, 100_000])
    rows = {r.name: n for r in q.relations if (n := draw(some))}
    return rows, {v: n for v in q.variables if (n := draw(some))}


def all_orders(q: Hypergraph, variables: tuple[str, ...]) -> Iterator[VariableOrder]:
    """All orders of these variables in which no branch falls apart: every assignment of parents, filtered."""
    for parents in product((None, *variables), repeat=len(variables)):
        children: dict[str | None, list[str]] = {}
        for variable, parent in zip(variables, parents, strict=True):
            children.setdefault(parent, []).append(variable)

        def grown(parent: str | None, children=children) -> tuple[Node, ...]:
            return tuple(Node(child, grown(child)) for child in children.get(parent, ()))

        order = VariableOrder(grown(None))
        if len(order.variables) == len(variables) and all(is_connected(q, node) for node in order.nodes()):
            try:
                validate(order, q)
            except VariableOrderError:
                continue
            yield order


def is_connected(q: Hypergraph, node: Node) -> bool:
    return len(q.restricted(n.variable for n in node.subtree()).components()) == 1


@settings(max_examples=150, deadline=None)
@given(hierarchical_queries())
def test_canonical_orders_are_orders_and_free_top_when_q_hierarchical(q):
    assert is_hierarchical(q)
    order = canonical(q)
    validate(order, q)
    assert completed(order, q) == order
    for relation in q.relations:
        (leaf,) = (node.variable for node in order.nodes() if relation.name in node.relations)
        assert {*order.path(leaf), leaf} == set(relation.variables)
    if is_q_hierarchical(q):
        assert order.is_free_top(q.free)
    assert choose(q, {}, {}).order == order


def test_only_hierarchical_queries_have_a_canonical_order():
    with pytest.raises(VariableOrderError, match="not hierarchical"):
        canonical(query("AB BC CD"))


@settings(max_examples=150, deadline=None)
@given(st.data(), acyclic_queries(), st.booleans())
def test_chosen_orders_are_orders(data, q, free_top):
    assert is_acyclic(q)
    rows, distinct = data.draw(sizes_of(q))
    chosen = choose(q, rows, distinct, free_top=free_top)
    validate(chosen.order, q)
    assert set(chosen.order.variables) == set(q.variables)
    assert chosen == choose(q, rows, distinct, free_top=free_top)
    assert chosen.cost == cost(chosen.order, q, rows, distinct)
    if free_top:
        assert chosen.order.is_free_top(q.free)


@settings(max_examples=60, deadline=None)
@given(
    st.data(),
    st.lists(
        st.sampled_from(["AB", "BC", "CD", "DA", "AC", "ABC", "BCD", "CE", "DE"]), min_size=2, max_size=5, unique=True
    ),
    st.sets(st.sampled_from("ABCDE")),
    st.booleans(),
)
def test_the_chosen_order_is_the_cheapest_of_all(data, schemas, free, free_top):
    variables = set("".join(schemas))
    q = query(" ".join(schemas), "".join(sorted(free & variables)))
    rows, distinct = data.draw(sizes_of(q))
    shaping = tuple(v for v in q.variables if v not in q.local_variables)
    assume(not is_hierarchical(q) and len(shaping) <= 4)
    orders = [order for order in all_orders(q, shaping) if not free_top or order.is_free_top(q.free)]
    chosen = choose(q, rows, distinct, free_top=free_top)
    assert chosen.cost == min(cost(order, q, rows, distinct) for order in orders)


@pytest.mark.parametrize("free", ["", "A", "AE", "BD", "ABCDE"])
@pytest.mark.parametrize("schemas", ["AB BC CD DE EA", "ABC CD DE EA", "ABX BCX CDX DE AE"])
def test_the_chosen_order_is_the_cheapest_of_five_variables(schemas, free):
    q = query(schemas, free)
    rows = {"R0": 100, "R1": 5000, "R2": 800, "R3": 20_000}
    distinct = {"A": 10, "B": 300, "C": 40, "D": 2000}
    shaping = tuple(v for v in q.variables if v not in q.local_variables)[:5]
    q = q.restricted(shaping)
    assert choose(q, rows, distinct).cost == min(cost(order, q, rows, distinct) for order in all_orders(q, shaping))


def test_retailer_is_partitioned_by_location_as_in_the_paper():
    chosen = choose(RETAILER, RETAILER_ROWS, RETAILER_DISTINCT)
    expected = from_text("locn\n  dateid: Weather\n    ksn: Inventory, Item\n  zip: Location, Census")
    assert chosen.order == completed(expected, RETAILER)
    assert "(Item lacks locn, Census lacks locn)" in chosen.why
    # Weather has a row for most pairs of location and date, and bounds the view over Inventory and Item at them.
    assert chosen.cost == 1 + 1_317 + 1_317 + 1_317 * 880 + 5_618 + 1_302


def test_a_triangle_gets_a_path():
    chosen = choose(query("AB BC CA"), {"R0": 100, "R1": 100, "R2": 100}, {"A": 5, "B": 50, "C": 50})
    assert "not hierarchical" in chosen.why
    # Two relations meet at the lowest variable, in a view whose keys are the two others: A has the fewest values.
    assert max(len(chosen.order.path(v)) for v in "ABC") == 2
    assert "A" in chosen.order.path(chosen.order.variables[-1])


def test_parts_that_share_nothing_are_trees_of_their_own():
    chosen = choose(query("AB BC CD XY YZ PQ"), {}, {})
    validate(chosen.order, query("AB BC CD XY YZ PQ"))
    assert len(chosen.order.roots) == 3


def test_a_query_that_is_hierarchical_but_not_q_hierarchical_is_searched_for_a_free_top_order():
    q = query("AB BC", "AC")
    assert to_text(choose(q, {}, {}).order).startswith("B")
    chosen = choose(q, {}, {}, free_top=True)
    assert chosen.order.is_free_top("AC")
    assert "not free-top" in chosen.why


def test_large_queries_are_searched_greedily():
    n = 3 * EXACT
    q = Hypergraph(tuple(Relation(f"R{i}", (f"v{i:02}", f"v{i + 1:02}")) for i in range(n)))
    chosen = choose(q, {}, {})
    validate(chosen.order, q)
    assert "greedily" in chosen.why
    # A chain has an order in which no view has more than two keys, which default sizes bound by a relation's rows.
    assert all(len(chosen.order.keys(q, v)) <= 2 for v in chosen.order.variables)


def test_large_cycles_and_wide_group_bys_take_no_time():
    n = 2 * EXACT
    cycle = Hypergraph(tuple(Relation(f"R{i}", (f"v{i}", f"v{(i + 1) % n}")) for i in range(n)), ("v0", "v7"))
    wide = tuple(f"g{i}" for i in range(40))
    grouped = Hypergraph((Relation("R", ("a", "b", *wide)), Relation("S", ("b", "c")), Relation("T", ("c", "d"))), wide)
    for q in (cycle, grouped):
        for free_top in (False, True):
            chosen = choose(q, {}, {}, free_top=free_top)
            validate(chosen.order, q)
            assert not free_top or chosen.order.is_free_top(q.free)


def test_sizes_are_bounded_by_values_and_by_relations():
    q = query("AB BC CD")
    sizes = Sizes(q, {"R0": 100, "R1": 30, "R2": 10**6}, {"A": 50, "B": 20, "C": 10, "D": 4})
    assert sizes.keys("A", ["R0"]) == 50
    assert sizes.keys("AB", ["R0"]) == 100
    assert sizes.keys("BC", ["R1"]) == 30
    assert sizes.keys("ABCD", ["R0", "R1", "R2"]) == 100 * 10 * 4
    assert sizes.keys("", ["R0"]) == 1
    unknown = Sizes(q, {"R0": 400}, {})
    assert [unknown.rows_of(name) for name in ("R1", "R2")] == [10_000, 1_000]  # R2 is joined on C only
    assert unknown.distinct_of("B") == 400  # R0 is joined on B only, and so likely looked up by it
    assert Sizes(query("AB BC CA"), {"R0": 400}, {}).distinct_of("B") == 20
    assert Sizes(q, {"R0": 0}, {"A": 0}).keys("A", ["R0"]) == 1


def test_the_order_of_a_snowflake_of_unknown_sizes_is_the_papers():
    """Shops by date are fewer than shops by item: one is the key of a table, the other is not."""
    schemas = {
        "inventory": ("locn", "ksn", "dateid", "units"),  # in whichever order the variables come
        "location": ("locn", "zip", "area"),
        "census": ("zip", "population"),
        "item": ("ksn", "price"),
        "weather": ("locn", "dateid", "rain"),
    }
    chosen = choose(Hypergraph(tuple(Relation(*item) for item in schemas.items())), {}, {}).order
    dateid = next(node for node in chosen.nodes() if node.variable == "dateid")
    assert [root.variable for root in chosen.roots] == ["locn"]
    assert "ksn" in [node.variable for node in dateid.subtree()]


def test_hundreds_of_keys_stay_within_the_range_of_a_double():
    wide = tuple(f"v{i}" for i in range(300))
    sizes = Sizes(Hypergraph((Relation("R", wide),)), {"R": 10**12}, dict.fromkeys(wide, 10**6))
    assert sizes.keys(wide, []) < float("inf")
    assert sizes.keys(wide, ["R"]) == pytest.approx(10**12)


def test_pushing_pays_when_groups_are_few():
    assert worth_pushing(groups=10, marginalised=2, free=1, rows=1000)
    assert not worth_pushing(groups=1000, marginalised=2, free=1, rows=1000)
    # g (1 + n + n (n + 1) / 2 + f) = 3 * 7 = 21 against r (n + f) = 7 * 3 = 21: no gain
    assert not worth_pushing(groups=3, marginalised=2, free=1, rows=7)
    assert worth_pushing(groups=3, marginalised=2, free=1, rows=8)

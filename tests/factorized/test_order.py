"""Variable orders: the paper's example, the orders of its data sets, completion, and every way to be wrong."""

from __future__ import annotations

import pytest

from headrace.errors import VariableOrderError
from headrace.factorized.order import Node, VariableOrder, completed, placed, validate, without
from headrace.factorized.order_text import from_text, to_text
from headrace.plan.hypergraph import Hypergraph, Relation

QUERY = Hypergraph((Relation("R", ("A", "B")), Relation("S", ("A", "C", "E")), Relation("T", ("C", "D"))))
ORDER = VariableOrder((Node("A", (Node("B"), Node("C", (Node("D"), Node("E"))))),))

HOUSING = Hypergraph(
    (
        Relation("House", ("postcode", "livingarea", "price", "nbbedrooms", "kitchensize")),
        Relation("Shop", ("postcode", "openinghoursshop", "pricerangeshop")),
        Relation("Institution", ("postcode", "typeeducation", "sizeinstitution")),
        Relation("Restaurant", ("postcode", "openinghoursrest", "pricerangerest")),
        Relation("Demographics", ("postcode", "averagesalary", "crimesperyear")),
        Relation("Transport", ("postcode", "nbbuslines", "nbtrainstations")),
    )
)
RETAILER = Hypergraph(
    (
        Relation("Inventory", ("locn", "dateid", "ksn", "inventoryunits")),
        Relation("Location", ("locn", "zip", "rgn_cd", "avghhi")),
        Relation("Census", ("zip", "population", "medianage")),
        Relation("Item", ("ksn", "subcategory", "category", "prize")),
        Relation("Weather", ("locn", "dateid", "rain", "maxtemp")),
    )
)
FAVORITA = Hypergraph(
    (
        Relation("Sales", ("date", "store", "item", "unit_sales", "onpromotion")),
        Relation("Oil", ("date", "oilprize")),
        Relation("Holiday", ("date", "holiday_type", "locale")),
        Relation("Transactions", ("date", "store", "transactions")),
        Relation("Stores", ("store", "city", "cluster")),
        Relation("Items", ("item", "family", "perishable")),
    )
)
ORDERS = {
    "housing": (HOUSING, "postcode: House, Shop, Institution, Restaurant, Demographics, Transport"),
    "retailer": (RETAILER, "locn\n  dateid: Weather\n    ksn: Inventory, Item\n  zip: Location, Census"),
    "favorita": (FAVORITA, "date: Oil, Holiday\n  store: Transactions, Stores\n    item: Sales, Items"),
}


def test_the_example_of_the_paper():
    assert ORDER.variables == ("A", "B", "C", "D", "E")
    assert [ORDER.path(v) for v in "ABD"] == [(), ("A",), ("A", "C")]
    assert {v: ORDER.dep(QUERY, v) for v in "ABCDE"} == {
        "A": (),
        "B": ("A",),
        "C": ("A",),
        "D": ("C",),
        "E": ("A", "C"),
    }
    validate(ORDER, QUERY)
    assert {node.variable: node.relations for node in placed(ORDER, QUERY).nodes() if node.relations} == {
        "B": ("R",),
        "D": ("T",),
        "E": ("S",),
    }


def test_keys_are_the_dependencies_and_what_is_free_below():
    query = Hypergraph(QUERY.relations, free=("A", "C"))
    assert {v: ORDER.keys(query, v) for v in "ABCDE"} == {
        "A": ("A", "C"),
        "B": ("A",),
        "C": ("A", "C"),
        "D": ("C",),
        "E": ("A", "C"),
    }


def test_a_stopped_variable_stays_a_key_until_a_node_without_the_mark():
    order = from_text("A\n  B !stop\n  C !stop\n    D\n    E !stop")
    assert {v: order.keys(QUERY, v) for v in "ABCDE"} == {
        "A": (),
        "B": ("A", "B"),
        "C": ("A", "C", "E"),
        "D": ("C",),
        "E": ("A", "C", "E"),
    }


def test_free_top():
    assert ORDER.is_free_top(())
    assert ORDER.is_free_top(("A", "C"))
    assert ORDER.is_free_top(("A", "B", "C", "D", "E"))
    assert not ORDER.is_free_top(("C",))
    assert not ORDER.is_free_top(("A", "D"))


@pytest.mark.parametrize("name", ORDERS)
def test_the_orders_of_the_papers_data_sets(name):
    query, text = ORDERS[name]
    order = from_text(text)
    validate(order, query)
    whole = completed(order, query)
    validate(whole, query)
    assert sorted(whole.variables) == sorted(query.variables)
    assert completed(whole, query) == whole
    for relation in query.relations:
        (leaf,) = (node.variable for node in whole.nodes() if relation.name in node.relations)
        assert set(relation.variables) <= {*whole.path(leaf), leaf}


def test_local_variables_follow_as_chains_below_their_relations_lowest():
    query = Hypergraph((*QUERY.relations, Relation("U", ("X", "Y"))))
    assert completed(from_text("A\n  C: S, T"), query) == from_text("A\n  C\n    E: S\n    D: T\n  B: R\nX\n  Y: U")


def test_a_local_variable_that_is_written_stays_where_it_is():
    query = Hypergraph((Relation("R", ("A", "B", "C")), Relation("S", ("A",))))
    assert completed(from_text("B\n  A"), query) == from_text("B\n  A: S\n    C: R")


def test_a_relation_without_variables_has_no_place():
    query = Hypergraph((Relation("R", ("A",)), Relation("One", ())))
    assert completed(VariableOrder(()), query) == from_text("A: R")


def test_wide_tables_do_not_need_a_deep_stack():
    wide = Hypergraph((Relation("R", tuple(f"c{i}" for i in range(3000))), Relation("S", ("c0",))))
    order = completed(from_text("c0"), wide)
    assert len(order.variables) == 3000
    assert order.path("c2999") == wide.variables[:-1]


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("A\n  B\n  C\n    D\n    E\n    Z", ["variable Z", "in no relation", "A, B, C, E, D"]),
        ("A\n  B\n  C\n    A", ["variable A twice"]),
        ("A\n  B", ["lacks variable C", "shared by S, T"]),
        ("A\nC", ["C and A of relation S", "different branches"]),
        ("A\n  B\n  E\n  C", ["E and C of relation S", "different branches"]),
        ("A\n  C: R", ["R is written under variable C", "lowest variable is A"]),
        ("A\n  C: S\n    E", ["S is written under variable C", "lowest variable is E"]),
        ("A: R\n  C: X", ["Relation X", "not in the query", "R, S, T"]),
        ("A: R, R\n  C", ["Relation R", "twice", "under A"]),
    ],
)
def test_wrong_orders_are_refused_with_what_is_wrong(text, messages):
    with pytest.raises(VariableOrderError) as error:
        validate(from_text(text), QUERY)
    for message in messages:
        assert message in str(error.value)
    assert error.value.way_out


def test_a_free_variable_must_be_written():
    with pytest.raises(VariableOrderError, match="lacks variable B, which is free"):
        validate(from_text("A\n  C"), Hypergraph(QUERY.relations, free=("B",)))


def test_unknown_variables_and_places_are_named():
    with pytest.raises(VariableOrderError, match="no variable Q"):
        ORDER.path("Q")
    with pytest.raises(VariableOrderError, match="none of the variables of relation R"):
        placed(from_text("C"), QUERY)


def test_without_some_variables() -> None:
    order = from_text("A\n  B\n    C !stop: S\n    D\n  E")
    assert to_text(without(order, ["B", "E"])) == "A\n  C !stop\n  D"
    assert to_text(without(order, ["A"])) == "B\n  C !stop\n  D\nE"
    assert without(order, "ABCDE").roots == ()

import json
from pathlib import Path

import pytest
from tests.factorized.explained import LAST_STEP, SMALL, explained, of_dataset, sql_explained

from headrace.datasets.dataset import Dataset
from headrace.datasets.housing import HOUSING
from headrace.datasets.retailer import RETAILER
from headrace.explain.report import Report
from headrace.factorized.described import shortened
from headrace.factorized.order import completed
from headrace.factorized.order_text import parse, to_text
from headrace.plan.hypergraph import Hypergraph, Relation

FIXTURES = Path(__file__).parents[1] / "fixtures" / "explain"
STRATEGIES = ["factorized", "recursive", "first-order"]


def hypergraph(schemas: dict[str, tuple[str, ...]], free: tuple[str, ...] = ()) -> Hypergraph:
    return Hypergraph(tuple(Relation(name, variables) for name, variables in schemas.items()), free)


def small(strategy: str) -> Report:
    return explained(SMALL, ["B", "D", "E"], name="small", last_step=LAST_STEP, strategy=strategy)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_text_of_the_small_example(strategy: str) -> None:
    assert str(small(strategy)) + "\n" == (FIXTURES / f"small_{strategy}.txt").read_text()


def test_text_of_retailer() -> None:
    text = str(of_dataset(RETAILER, order=RETAILER.order, static=frozenset(["census"])))
    assert text + "\n" == (FIXTURES / "retailer.txt").read_text()


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("data", [HOUSING, RETAILER], ids=lambda data: data.name)
def test_text_fits_a_terminal_and_names_each_view(data: Dataset, strategy: str) -> None:
    explanation = of_dataset(data, strategy=strategy)
    text = str(explanation)
    assert max(map(len, text.splitlines())) <= 120
    assert text.startswith(f"covariance {explanation.name}: a join kept ")
    for view in explanation["views"]:
        # Long names are cut, but not so short that they could be another's.
        assert sum(line.strip().startswith(view.name[:40]) for line in text.split("\nstages\n")[0].splitlines()) == 1


def test_the_order_is_short_and_can_be_given_back() -> None:
    query = hypergraph({table.name: tuple(table.schema.names) for table in RETAILER.tables})
    explanation = of_dataset(RETAILER, order=RETAILER.order)
    assert explanation["order"] == RETAILER.order
    whole = completed(parse(RETAILER.order), query)
    assert completed(parse(explanation["order"]), query) == whole
    assert len(to_text(whole).splitlines()) == 43


def test_only_local_variables_at_the_bottom_are_left_out_of_the_order() -> None:
    query = hypergraph({"R": ("A", "B", "F"), "S": ("A", "C")}, free=("F",))
    # B is local but above A; F is free; C is the whole branch of S.
    order = completed(parse("B\n  A\n    F\n    C"), query)
    assert to_text(shortened(order, query)) == "B\n  A: S\n    F: R"


def test_names_that_fit_no_line_do_not_stop_it() -> None:
    explanation = explained({"R": ("A\nB",), "S\x1b[31m": ("A\nB",)}, [])
    assert parse(explanation["order"]).variables == ("A\nB",)
    assert "\x1b" not in str(explanation)
    assert all(line.isprintable() for line in str(explanation).splitlines())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_plain_values_survive_json(strategy: str) -> None:
    data = small(strategy).to_dict()
    assert json.loads(json.dumps(data)) == data
    assert data["values"]["relations"] == {name: list(variables) for name, variables in SMALL.items()}
    assert data["values"]["classes"] == ["acyclic", "free-connex"]
    assert data["last_step"] == LAST_STEP
    names = [view["name"] for view in data["values"]["views"]]
    assert len(set(names)) == len(names)
    for view in data["values"]["views"]:
        assert set(view["children"]) <= set(names)
        assert set(view["changes"]) <= set(SMALL)


def test_a_view_says_where_it_is_and_how_large() -> None:
    views = {view.name: view for view in small("factorized")["views"]}
    assert views["V_@A[]"].where == "answer: summed over buckets"
    assert views["V_R[A]"].where == "partitioned by A"
    assert views["V_T[C]"].where == "replicated: stored once, read by every bucket"
    assert views["V_T[C]"].replicated
    # The answer's sizes are those of the arrangement that no view of the tree has: it comes last.
    assert [(view.entries, view.bytes) for view in views.values()] == [
        (56, 5600),
        (40, 4000),
        (44, 4400),
        (48, 4800),
        (52, 5200),
    ]
    assert small("factorized").state_bytes == sum(view.bytes for view in views.values())
    assert views["V_@C[A]"].changes == {
        "S": "dV_S[A, C] * V_T[C]",
        "T": "dV_T[C] * V_S[A, C]",
    }


def test_a_view_in_two_orders_counts_its_entries_once() -> None:
    view = next(
        v for v in of_dataset(RETAILER, strategy="recursive")["views"] if v.name == "inventory[locn, dateid, ksn]"
    )
    assert view.arrangements == (("ksn", "locn", "dateid"), ("locn", "dateid", "ksn"))
    assert (view.entries, view.bytes) == (4 * 10, 4 * (1000 + 1100))


def test_a_view_that_lost_the_partition_variable_says_so() -> None:
    views = {view.name: view for view in of_dataset(RETAILER, strategy="recursive")["views"]}
    lost = views["V_inventory_location_item_weather[zip]"]
    assert lost.where == "partitioned by locn, which is summed away: a part in every bucket"


def test_triggers_say_how_factors_are_found() -> None:
    triggers = {trigger["relation"]: trigger for trigger in small("factorized")["triggers"]}
    assert triggers["R"]["cost"] == "constant a key"
    assert triggers["T"]["cost"] == "as many as match"
    assert [s["text"] for s in triggers["T"]["statements"]] == [
        "dV_@C[A] += dV_T[C] * V_S[A, C]",
        "dV_@A[] += dV_@C[A] * V_R[A]",
    ]
    assert triggers["T"]["statements"][0]["found"] == {"V_S[A, C]": "by C, all matches"}
    assert triggers["R"]["statements"][0]["found"] == {"V_@C[A]": "by its whole key"}
    product = explained({"R": ("A",), "S": ("B",)}, [], groups=("A", "B"))
    assert {how for t in product["triggers"] for s in t["statements"] for how in s["found"].values()} == {"all of it"}


def test_static_relations_have_no_cost() -> None:
    explanation = explained(SMALL, ["B", "D", "E"], static=frozenset(["R", "S", "T"]))
    assert explanation["static"] == ("R", "S", "T")
    assert explanation.step == "no relation changes, so there is nothing to do"
    assert [view.name for view in explanation["views"] if view.kept] == ["V_@A[]"]


def test_views_of_the_same_name_are_told_apart() -> None:
    # The views over {a_b, c} and {a, b_c}, both by y: their names are made of the relations' names.
    schemas = {"a": ("x", "y"), "b_c": ("x", "z"), "a_b": ("y", "u"), "c": ("u", "w")}
    names = [view.name for view in explained(schemas, [], strategy="recursive")["views"]]
    assert len(set(names)) == len(names)
    assert any(name.endswith(" (2)") for name in names)


def test_a_sql_view_counts_sums() -> None:
    explanation = sql_explained()
    answer = explanation["views"][0]
    assert (answer.payload, answer.degree) == ("count, sum of B * D", 2)
    assert {view.name: view.degree for view in explanation["views"]} == {
        "V_@A[A]": 2,
        "V_@C[A]": 2,
        "V_S[A, C]": 1,
        "V_T[C]": 2,
        "V_R[A]": 2,
    }
    assert str(explanation) + "\n" == (FIXTURES / "sql.txt").read_text()

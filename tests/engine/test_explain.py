"""EXPLAIN is one thing for all strategies: a report, which is text, JSON and a drawing."""

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator

import pandas as pd
import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.errors import SchemaError

JOIN = "FROM sale JOIN shop ON shop.id = sale.shop"
BY_TOWN = f"SELECT town, count(*) AS n, sum(price) AS paid {JOIN} GROUP BY town"
STRATEGIES = ("operators", "foreign-key", "factorized", "recursive", "first-order")


@pytest.fixture(scope="module")
def engine(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[hr.Engine]:
    with hr.Engine(spark, tmp_path_factory.mktemp("explain") / "s", executor="inline", buckets=2) as engine:
        engine.table("shop", "id BIGINT NOT NULL, town STRING", key="id")
        engine.table("sale", "id BIGINT NOT NULL, shop BIGINT NOT NULL, price BIGINT NOT NULL", key="id")
        engine.table("click", "k BIGINT, at TIMESTAMP, came TIMESTAMP", append_only=True)
        engine.view("one_table", "SELECT shop, count(*) AS n, max(price) AS most FROM sale GROUP BY shop")
        engine.view("total", "SELECT count(*) AS n FROM sale WHERE price > 1")
        engine.view("rows", "SELECT id, price FROM sale WHERE price > 1")
        for strategy in STRATEGIES:
            engine.view(strategy.replace("-", "_"), BY_TOWN, strategy=strategy)
        engine.view("recompute", BY_TOWN, refresh="full")
        engine.covariance("moments", f"SELECT price, shop.id {JOIN}")
        engine.covariance("by_spark", f"SELECT price, shop.id {JOIN}", strategy="f-sql")
        engine.window_join("windows", "click", "click", on="k", time="at", arrival="came", window="10 ms")
        engine.apply({"shop": pd.DataFrame({"id": [1, 2], "town": ["Bree", "Dale"]})})
        yield engine


NAMES = [
    "one_table",
    "total",
    "rows",
    *(strategy.replace("-", "_") for strategy in STRATEGIES),
    "recompute",
    "moments",
    "by_spark",
    "windows",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_report_is_text_json_and_a_drawing(engine: hr.Engine, name: str) -> None:
    report = engine.views[name].explain()
    assert isinstance(report, hr.Report)
    lines = str(report).splitlines()
    assert max(map(len, lines)) <= 120
    assert lines[0].startswith(f"{report.kind} {name}: ")
    # What is kept, what a step costs and why come first, in this order; theory last, if there is any.
    labels = [line.split("  ")[1] for line in lines[1:12] if line.startswith("  ") and line[2] != " "]
    assert labels[:3] == ["kept", "a step", "why"]
    assert (report.kept, report.step, report.why) != ("", "", "")
    assert "theory" not in [section.title for section in report.sections[:-1]]
    data = report.to_dict()
    assert json.loads(json.dumps(data)) == data
    assert data["state_bytes"] == sum(arrangement["bytes"] for arrangement in data["arrangements"])
    names = {node["name"] for node in data["graph"]["nodes"]}
    assert len(names) == len(data["graph"]["nodes"]) > 1
    assert {end for edge in data["graph"]["edges"] for end in (edge["upper"], edge["lower"])} == names
    ET.fromstring(report.to_svg())
    assert report == engine.views[name].explain()


@pytest.mark.parametrize("name", NAMES)
def test_every_arrangement_is_in_the_report(engine: hr.Engine, name: str) -> None:
    view = engine.views[name]
    assert len(view.explain().arrangements) == len(view.planned.kernel.arrangements)


def test_analyzing_adds_to_the_report(engine: hr.Engine) -> None:
    plain, analysed = engine.views["operators"].explain(), engine.views["operators"].analyze()
    assert isinstance(analysed, hr.Report)
    assert analysed.section("strategies").parts
    assert not plain.section("strategies").parts
    added = {analysed.section("strategies"), analysed.section("cost by operator")}
    assert set(analysed.sections) - set(plain.sections) == added
    assert {cost["strategy"] for cost in analysed["costs"]} >= {"operators", "factorized", "recompute"}
    assert analysed.strategy == "operators"


@pytest.mark.parametrize("name", NAMES)
def test_costs_by_operator_add_to_the_report(engine: hr.Engine, name: str) -> None:
    plain, costed = engine.views[name].explain(), engine.views[name].explain(cost=True)
    assert set(costed.sections) - set(plain.sections) == {costed.section("cost by operator")}
    operators = plain.values.get("operators", ())
    costs = costed["operator_costs"]
    assert [cost["operator"] for cost in costs] == sorted(operator.number for operator in operators)
    for operator in operators:
        cost = costs[operator.number]
        took = sum(
            0 if change is None else change.inserted + change.deleted + 2 * change.updated
            for change in (operator.taken, operator.given)
        )
        assert (cost["rows"] or 0) == took
        assert (cost["rows"] is None) == (cost["seconds"] is None)
        assert cost["seconds"] is None or 0 < cost["seconds"] < 60
        assert cost["estimated_rows"] >= 0
    assert json.loads(json.dumps(costed.to_dict())) == costed.to_dict()


def test_what_a_report_does_not_say_is_refused_with_what_it_says(engine: hr.Engine) -> None:
    with pytest.raises(SchemaError, match="nothing of 'triggers'") as refused:
        engine.views["total"].explain()["triggers"]
    assert "operators" in str(refused.value)

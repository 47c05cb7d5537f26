"""Paces that the engine chooses: what triggers teach it, what it forecasts, and what it says about that."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.errors import NotEnoughDataError, SchemaError
from headrace.testing.oracle import assert_same
from headrace.thrifty.schedule import LEARNING, Progress, paths_due

# Orders below a share of the average of their product, as in TPC-H's query 17: an average that follows its rows takes
# back what it gave.
SMALL_ORDERS = """
    SELECT SUM(price) AS total FROM sales AS s
    WHERE s.units < (SELECT 0.6 * AVG(t.units) FROM sales AS t WHERE t.product = s.product)
"""
TRIGGER, STEPS = 20_000, 40


def sales(number: int) -> dict[str, pa.Table]:
    rng, rows = np.random.default_rng(number), TRIGGER // STEPS
    ids = np.arange(number * rows, (number + 1) * rows)
    columns = {"id": ids, "product": rng.integers(0, 200, rows), "units": rng.integers(1, 50, rows)}
    return {"sales": pa.table({**columns, "price": rng.random(rows)})}


def opened(spark: SparkSession, location: Path) -> hr.Engine:
    engine = hr.Engine(spark, location, calibrate=False)
    if not engine.tables:
        engine.table("sales", "id BIGINT, product BIGINT, units BIGINT, price DOUBLE", key="id")
    return engine


@pytest.fixture(scope="module")
def location(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three triggers of a view with a goal, beside a view that follows every step."""
    location = tmp_path_factory.mktemp("paces") / "state"
    with opened(spark, location) as engine:
        engine.view("paced", SMALL_ORDERS, goal=hr.FinalWork(0.15), trigger=hr.EveryRows(TRIGGER))
        engine.view("eager", SMALL_ORDERS)
        view = engine.views["paced"]
        assert set(view.progress.paces.values()) == {LEARNING}
        assert "to learn from" in str(view.explain())
        with pytest.raises(NotEnoughDataError, match="no trigger has shown yet"):
            view.tradeoff()
        for number in range(3 * STEPS):
            engine.apply(sales(number))
        assert view.progress.triggers == 3
        assert_same(view.to_arrow(), engine.views["eager"].to_arrow())
    return location


@pytest.fixture
def view(spark: SparkSession, location: Path) -> Any:
    with opened(spark, location) as engine:
        yield engine.views["paced"]


def test_flushes_to_learn_from_are_small_and_large() -> None:
    flushed, sizes, last = 0, [], 0
    for rows in range(1, 101):
        due = paths_due(Progress(rows=rows, paces={"a": LEARNING}, flushed={"a": flushed}), 100)
        if due:
            flushed = due["a"]
            sizes.append(rows - last)
            last = rows
    assert sizes == [1, 2, 4, 8, 16, 38, 16, 8, 4, 2]


def test_paces_are_chosen_after_the_first_trigger_and_survive_a_restart(view: Any) -> None:
    paces = view.progress.paces
    assert min(paces.values()) >= 1
    assert max(paces.values()) > 1, "the batch leaves more than that share to the trigger"
    values = view.explain()["freshness"]
    assert values["paces"] == paces
    assert values["feasible"] in (True, False)


def test_what_was_forecast_stands_beside_what_was_measured(view: Any) -> None:
    costs = {cost["operator"]: cost for cost in view.explain(cost=True)["operator_costs"]}
    assert sorted(costs) == [-1, 0, 1, 2], "flushes beside their operators, and three operators"
    taken = {number: (cost["estimated_rows"], cost["rows"]) for number, cost in costs.items() if number >= 0}
    estimated, measured = (sum(pair[side] for pair in taken.values()) for side in (0, 1))
    assert measured > 0
    assert estimated == pytest.approx(measured, rel=0.25), taken
    assert all(cost["seconds"] > 0 and cost["estimated_seconds"] > 0 for cost in costs.values())
    text = str(view.explain(cost=True))
    assert "cost by operator" in text
    assert "as forecast by the cost model and as measured" in text


def test_a_tradeoff_is_a_table_a_picture_and_plain_values(view: Any) -> None:
    found = view.tradeoff()
    data = found.to_dict()
    assert json.loads(json.dumps(data)) == data
    assert [point["share"] for point in data["points"]] == [1.0, 0.5, 0.2, 0.1, 0.05, 0.02]
    assert data["measured"].keys() == {"final", "additional", "seconds"}
    ET.fromstring(found.to_svg())
    assert len(str(found).splitlines()) == 8


def test_the_path_that_takes_back_what_it_gave_is_named(view: Any) -> None:
    kinds = {one.path: one.kind for one in view.incrementability()}
    assert set(kinds.values()) > {"fully"}, "the average is not fully incrementable, and some path is"


def test_a_goal_out_of_reach_is_refused_or_approached_as_the_user_says(view: Any) -> None:
    before = view.progress.paces
    with pytest.raises(SchemaError, match="out of reach"):
        view.goal = hr.Freshness(hr.FinalWork(0.0001), hr.EveryRows(TRIGGER), infeasible="fail")
    assert view.progress.paces == before
    view.goal = hr.Freshness(hr.FinalWork(0.0001), hr.EveryRows(TRIGGER))
    assert max(view.progress.paces.values()) > 1
    view.goal = hr.Freshness(hr.FinalWork(0.15), hr.EveryRows(TRIGGER))

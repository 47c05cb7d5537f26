"""EXPLAIN of an engine says how often everything runs, what sharing saves, and what can never be part of a subplan."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.engine.test_shared_goals import ABOVE
from tests.engine.test_sharing import BOARD, JOIN, Changing, always, opened

import headrace as hr
from headrace.engine.looking import Look
from headrace.engine.sharing_work import SharedWork
from headrace.thrifty.schedule import LEARNING

# Of both tables, or the join would stand above.
PARTNERS = "EXISTS (SELECT 1 FROM items i WHERE i.order_id = o.id AND i.units = s.size)"


def said(engine: hr.Engine) -> str:
    """The report as one line."""
    return " ".join(str(engine.explain()).split())


def test_what_stands_above_a_subplan_is_named(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    always(monkeypatch)
    queries = {
        "left": ABOVE[0],
        "anti": f"SELECT o.id FROM {JOIN} WHERE NOT {PARTNERS}",
        "first": ABOVE[3],
        "cities": f"SELECT DISTINCT s.city FROM {JOIN}",
        "semi": f"SELECT o.id FROM {JOIN} WHERE {PARTNERS}",
        "plain": BOARD["by_city"],
    }
    with opened(spark, tmp_path / "state") as engine:
        for name, sql in queries.items():
            engine.view(name, sql, strategy="operators")
        (shared,) = engine._catalogue.shared.values()
        assert {*shared.views} == {*queries}
        text = said(engine)
        fact = text.partition("not part ")[2].partition(": outer, semi and anti joins")[0]
        for what in ("left outer join [1] of left", "top-k [1] of first", "DISTINCT [1] of cities"):
            assert f"the {what}" in fact
        assert "anti join [1] of anti" in fact
        assert "semi join [1] of semi" in fact
        assert "plain" not in fact
        assert "outer, semi and anti joins, DISTINCT and top-k share only what is below them" in text


def test_views_of_which_all_may_be_shared_have_nothing_above(spark: SparkSession, tmp_path: Path) -> None:
    with opened(spark, tmp_path / "state") as engine:
        for name, sql in BOARD.items():
            engine.view(name, sql, strategy="operators")
        assert len(engine._catalogue.shared) == 1
        assert "not part" not in said(engine)


def test_paces_stand_in_the_text_the_drawing_and_the_values(spark: SparkSession, tmp_path: Path) -> None:
    """Of subplans and of views; without a goal something runs in every step, and at first it learns."""
    with opened(spark, tmp_path / "state") as engine:
        for name in ("by_city", "by_day"):
            goal = hr.Freshness(hr.FinalWork(0.3), hr.EveryRows(100))
            engine.view(name, BOARD[name], strategy="operators", goal=goal)
        engine.view("alone", "SELECT what, SUM(units) AS units FROM items GROUP BY what")
        (subplan,) = engine._catalogue.shared
        assert "by_day FINAL WORK 0.3 EVERY 100 ROWS flushes of several sizes, to learn from" in said(engine)
        assert "runs when one of its views needs it; until then changes wait before it" in said(engine)
        assert "runs when a view needs it" in engine.explain().to_svg()
        goals = engine._maintenance.goals
        for name, own in (("by_city", 7), ("by_day", 2)):
            assert set(goals.progress(name).paces.values()) == {LEARNING}
            paths = engine.views[name].planned.kernel.holds
            goals.set_paces(name, {subplan: 9} | dict.fromkeys(paths, own), 100)
        text, report = said(engine), engine.explain()
        assert "runs so many times until the trigger of a view: 9 for by_city and 9 for by_day" in text
        assert "by_city FINAL WORK 0.3 EVERY 100 ROWS pace 7" in text
        assert "by_day FINAL WORK 0.3 EVERY 100 ROWS pace 2" in text
        values = report.to_dict()["values"]
        assert values["shared"][0]["paces"] == {"by_city": 9, "by_day": 9}
        assert values["paces"]["by_day"][subplan] == 9
        drawn = {node.name: node.notes for node in report.graph.nodes}
        assert drawn[subplan][0] == "pace 9"
        assert (drawn["by_city"], drawn["by_day"]) == (("pace 7",), ("pace 2",))
        assert drawn["alone"] == ("runs in every step",)
        assert "pace 9" in report.to_svg()
        with Look(engine.location) as look:  # without Spark
            assert str(look.explain()) == str(report)


def test_the_work_that_sharing_saves_is_estimated(spark: SparkSession, tmp_path: Path) -> None:
    changing = Changing(random.Random(1))
    with opened(spark, tmp_path / "state") as engine:
        for name, sql in BOARD.items():
            engine.view(name, sql, strategy="operators")
        assert "nothing is known yet of how many rows a step changes" in said(engine)
        for count in (30_000, 2_000, 2_000, 2_000):  # a load says nothing about later steps
            engine.apply({"orders": changing.table("orders", changing.come("orders", count))})
        ((name, work),) = engine.explain().to_dict()["values"]["work"].items()
        assert name in engine._catalogue.shared
        # Three views join 2,000 rows; shared, one subplan does, with the columns of all, and each view picks its rows.
        assert 0.3 * work["apart"] < work["shared"] < work["apart"]
        assert 1e-4 < work["apart"] < 1e-1
        assert str(SharedWork(work["shared"], work["apart"])) in said(engine)
        assert "of work in an average step" in engine.explain().to_svg()


def test_sharing_that_costs_more_says_what_it_saves() -> None:
    assert str(SharedWork(0.002, 0.004)) == "2 ms of work in an average step in place of 4 ms (0.5)"
    assert str(SharedWork(0.004, 0.002)).endswith("in place of 2 ms (2); state is kept once")

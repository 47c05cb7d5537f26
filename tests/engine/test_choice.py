"""strategy="auto" takes what is cheapest by estimate, says so, and refresh= has its way."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.errors import SchemaError, UnsupportedSQLError
from headrace.testing.oracle import Oracle, assert_same

JOIN = "FROM item JOIN shop ON item.shop = shop.id"


def tables(engine: hr.Engine, shops: int = 20, items: int = 4_000) -> None:
    engine.table("shop", "id BIGINT, city STRING", key="id")
    engine.table("item", "id BIGINT, shop BIGINT, units INT", key="id", references={"shop": "shop"})
    rows = range(items)
    engine.apply(
        {
            "shop": pd.DataFrame({"id": range(shops), "city": [f"c{i % 5}" for i in range(shops)]}),
            "item": pd.DataFrame({"id": rows, "shop": [i % shops for i in rows], "units": [i % 7 for i in rows]}),
        }
    )


def chosen(view: hr.View) -> str:
    return view.planned.definition.strategy


def costs(view: hr.View) -> dict[str, dict[str, object]]:
    return {cost["strategy"]: cost for cost in view.analyze()["costs"]}


def cheapest(view: hr.View) -> str:
    kept = {s: c["seconds"] for s, c in costs(view).items() if "seconds" in c and s != "recompute"}
    return min(kept, key=lambda strategy: kept[strategy])


def test_sums_are_factorized_where_dimensions_change_and_rows_follow_keys(spark: SparkSession, tmp_path: Path) -> None:
    by_city = f"SELECT city, SUM(units) AS units {JOIN} GROUP BY city"
    with hr.Engine(spark, tmp_path) as engine:
        tables(engine)
        rows = engine.view("rows", f"SELECT item.id, city {JOIN}")
        assert cheapest(rows) == chosen(rows)  # the choice is what the numbers say
        assert costs(rows)["recompute"]["rows"] == 4_020
        early = engine.view("early", by_city)  # nothing is known of shops but that items look them up
        for number in range(5):  # then they are seen to move, each with all its items
            moved = pd.DataFrame({"id": [number], "city": [f"c{number}"]})
            engine.apply({"shop": pd.concat([moved.assign(__diff=-1), moved.assign(city="new", __diff=1)])})
        late = engine.view("late", by_city)
        assert (chosen(rows), chosen(early), chosen(late)) == ("foreign-key", "foreign-key", "factorized")
        assert cheapest(late) == chosen(late)
        assert_same(late.to_arrow(), early.to_arrow())


def test_what_only_operators_keep_is_kept_by_them(spark: SparkSession, tmp_path: Path) -> None:
    sql = "SELECT id FROM shop WHERE id NOT IN (SELECT shop FROM item)"
    with hr.Engine(spark, tmp_path) as engine:
        tables(engine, shops=30)
        view = engine.view("idle", sql)
        assert chosen(view) == "operators"
        text = str(view.analyze())
        assert re.search(r"-> +operators", text)
        assert re.search(r"factorized +cannot keep it", text)
        assert "chosen by estimated cost" in text
        engine.apply({"item": pd.DataFrame({"id": [0], "shop": [0], "units": [0], "__diff": [-1]})})
        oracle = Oracle(spark)
        oracle.set_rows({name: table.to_arrow().combine_chunks() for name, table in engine.tables.items()})
        assert_same(view.to_arrow(), oracle.answer(sql))
        assert view.analyze()["spent"] is not None
    with hr.Engine(spark, tmp_path) as engine:  # the choice is part of the definition
        assert chosen(engine.views["idle"]) == "operators"
        assert_same(engine.views["idle"].to_arrow(), oracle.answer(sql))


def test_a_view_is_recomputed_where_that_is_estimated_cheaper(spark: SparkSession, tmp_path: Path) -> None:
    # Every pair of items: a changed item meets all others, and Spark is not slower to meet all of them again.
    sql = "SELECT COUNT(*) AS n FROM item a JOIN item b ON a.units < b.units"
    with hr.Engine(spark, tmp_path) as engine:
        tables(engine, items=10)
        engine.tables["item"]
        engine.table("big", "id BIGINT, x INT", key="id", expected_rows=50_000_000)
        pairs = sql.replace("item", "big").replace("units", "x")
        full = engine.view("full", pairs)
        assert chosen(full) == "recompute"
        assert "estimated cheapest" in full.explain().why
        assert chosen(engine.view("kept", pairs, refresh="incremental")) == "operators"
        assert chosen(engine.view("small", sql)) == "operators"
        engine.apply({"big": pd.DataFrame({"id": [1, 2, 3], "x": [1, 2, 2]})})
        assert engine.views["full"].to_arrow().to_pylist() == engine.views["kept"].to_arrow().to_pylist() == [{"n": 2}]
    with hr.Engine(spark, tmp_path) as engine:
        assert chosen(engine.views["full"]) == "recompute"
        engine.apply({"big": pd.DataFrame({"id": [4], "x": [0]})})
        assert engine.views["full"].to_arrow().to_pylist() == [{"n": 5}]


def test_refresh_is_checked_and_full_always_works(spark: SparkSession, tmp_path: Path) -> None:
    sql = "SELECT id, CAST(covar_pop(id, id) OVER (ORDER BY id) * 0 + 1 AS INT) AS n FROM shop"
    with hr.Engine(spark, tmp_path) as engine:
        tables(engine, shops=3, items=3)
        with pytest.raises(UnsupportedSQLError, match="OVER"):
            engine.view("numbers", sql)
        view = engine.view("numbers", sql, refresh="full")
        engine.apply({"shop": pd.DataFrame({"id": [9], "city": ["x"]})})
        assert [row["n"] for row in view.to_arrow().to_pylist()] == [1, 1, 1, 1]
        assert engine.view("one", "SELECT city, COUNT(*) AS n FROM shop GROUP BY city", refresh="incremental").rows == 4
        with pytest.raises(SchemaError, match="refresh"):
            engine.view("other", sql, refresh="sometimes")
        with pytest.raises(SchemaError, match="recomputes"):
            engine.view("other", sql, refresh="full", strategy="operators")


def test_a_view_made_again_knows_nothing_of_the_steps_of_the_one_before(spark: SparkSession, tmp_path: Path) -> None:
    sql = f"SELECT city, MAX(units) AS most {JOIN} GROUP BY city"
    with hr.Engine(spark, tmp_path) as engine:
        tables(engine, shops=3, items=9)
        view = engine.view("most", sql, strategy="operators")
        engine.apply({"item": pd.DataFrame({"id": [9], "shop": [0], "units": [9]})})
        assert view.analyze()["spent"] is not None
        assert view.explain()["operators"][0].taken
        engine.drop("most")
        again = engine.view("most", sql, strategy="operators")
        assert again.analyze()["spent"] is None
        assert not again.explain()["operators"][0].taken
    with hr.Engine(spark, tmp_path) as engine:
        assert engine.views["most"].analyze()["spent"] is None


def test_a_semi_join_keeps_less_beside_an_append_only_table(spark: SparkSession, tmp_path: Path) -> None:
    sql = "SELECT id, city FROM shop WHERE EXISTS (SELECT * FROM visit WHERE visit.shop = id)"
    with hr.Engine(spark, tmp_path) as engine:
        tables(engine)
        engine.table("visit", "shop BIGINT, at INT", append_only=True)
        view = engine.view("visited", sql, strategy="operators")
        for shops in ([1, 2, 2], [2, 3], []):
            gone = pd.DataFrame({"id": [len(shops)], "city": [f"c{len(shops)}"], "__diff": [-1]})
            engine.apply({"visit": pd.DataFrame({"shop": shops, "at": [0] * len(shops)}), "shop": gone})
            oracle = Oracle(spark)
            oracle.set_rows({name: table.to_arrow().combine_chunks() for name, table in engine.tables.items()})
            assert_same(view.to_arrow(), oracle.answer(sql))
        waiting = {a.name: a for a in view.explain().arrangements}["waiting left rows"]
        assert waiting.why.endswith("the right side only grows, so all others are settled")
        assert "settled left rows" in [left_out.what for o in view.explain()["operators"] for left_out in o.not_kept]


def test_a_restart_remembers_how_much_of_a_table_changes(spark: SparkSession, tmp_path: Path) -> None:
    by_city = f"SELECT city, SUM(units) AS units {JOIN} GROUP BY city"
    with hr.Engine(spark, tmp_path) as engine:
        tables(engine)
        for number in range(5):  # shops move, each with all its items
            moved = pd.DataFrame({"id": [number], "city": [f"c{number}"]})
            engine.apply({"shop": pd.concat([moved.assign(__diff=-1), moved.assign(city="new", __diff=1)])})
        before = costs(engine.view("before", by_city, strategy="factorized"))
        engine.drop("before")
    with hr.Engine(spark, tmp_path) as engine:
        view = engine.view("after", by_city)
        assert chosen(view) == "factorized"  # by the assumptions, foreign keys would have it
        assert costs(view) == before
        engine.drop("after")
        engine.drop("item")
        engine.drop("shop")
        tables(engine)
        assert chosen(engine.view("anew", by_city)) == "foreign-key"  # it is another table of the same name

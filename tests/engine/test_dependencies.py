"""Functional dependencies through the front door: rows that break them, and what queries gain by them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headrace as hr
from headrace.errors import BadRowsError
from headrace.testing.oracle import assert_same


def opened(spark: SparkSession, tmp_path: Path, executor: str = "inline", **options: object) -> hr.Engine:
    engine = hr.Engine(spark, tmp_path / "state", executor=executor, **options)  # type: ignore[arg-type]
    engine.table("place", "zip BIGINT, city STRING, n BIGINT", fds={"zip": ["city"]})
    return engine


def rows(*given: tuple[int | None, str | None, int, int]) -> pa.Table:
    zips, cities, numbers, diff = (list(column) for column in zip(*given, strict=True))
    return pa.table({"zip": pa.array(zips, pa.int64()), "city": cities, "n": numbers, "__diff": diff})


@pytest.mark.parametrize("executor", ["inline", "spark"])
def test_a_row_that_breaks_a_dependency_is_refused(executor: str, spark: SparkSession, tmp_path: Path) -> None:
    with opened(spark, tmp_path, executor, buckets=3) as engine:
        engine.apply({"place": rows((8001, "Zurich", 1, 1), (3000, "Bern", 1, 1))})
        with pytest.raises(BadRowsError, match="breaks zip -> city: rows that are there have another city") as caught:
            engine.apply({"place": rows((8001, "Bern", 2, 1), (3000, "Bern", 2, 1))})
        assert "zip=8001, city='Bern', n=2" in str(caught.value)
        assert "zip=3000" not in str(caught.value)
        assert engine.tables["place"].rows == 2  # nothing was applied
    with hr.Engine(spark, tmp_path / "state", executor=executor) as engine:  # and it is known after a restart
        with pytest.raises(BadRowsError, match="breaks zip -> city"):
            engine.apply({"place": rows((8001, "Bern", 2, 1))})
        engine.apply({"place": rows((8001, "Zurich", 1, -1), (8001, "Bern", 2, 1))})
        with pytest.raises(BadRowsError, match="breaks zip -> city"):
            engine.apply({"place": rows((8001, "Zurich", 1, 1))})


@pytest.mark.parametrize("executor", ["inline", "spark"])
def test_bad_rows_go_to_quarantine(executor: str, spark: SparkSession, tmp_path: Path) -> None:
    with opened(spark, tmp_path, executor, on_bad_rows="quarantine", buckets=3) as engine:
        view = engine.view("cities", "SELECT city, COUNT(*) AS n FROM place GROUP BY city")
        engine.apply({"place": rows((8001, "Zurich", 1, 1), (3000, "Bern", 1, 1))})
        engine.apply({"place": rows((8001, "Bern", 2, 1), (3000, "Bern", 2, 1), (1, "Chur", 1, 1), (1, "Olten", 1, 1))})
        aside = engine.quarantine("place").to_pylist()
        assert sorted((row["zip"], row["city"]) for row in aside) == [(1, "Chur"), (1, "Olten"), (8001, "Bern")]
        assert all("breaks zip -> city" in row["__reason"] for row in aside)
        assert_same(view.to_arrow(), pa.table({"city": ["Zurich", "Bern"], "n": [1, 2]}).cast(view.schema))


def test_a_row_that_a_bad_deletion_was_to_make_room_for_is_bad_too(spark: SparkSession, tmp_path: Path) -> None:
    with opened(spark, tmp_path, on_bad_rows="quarantine") as engine:
        engine.apply({"place": rows((8001, "Zurich", 1, 1))})
        engine.apply({"place": rows((8001, "Zurich", 7, -1), (8001, "Bern", 1, 1), (3000, "Bern", 1, 1))})
        assert {row["zip"]: row["city"] for row in engine.tables["place"].to_arrow().to_pylist()} == {
            8001: "Zurich",
            3000: "Bern",
        }
        assert engine.quarantine("place").num_rows == 2


def test_a_table_with_other_dependencies_is_another_table(spark: SparkSession, tmp_path: Path) -> None:
    with opened(spark, tmp_path) as engine:
        assert engine.tables["place"].schema.fds == ((("zip",), ("city",)),)
        with pytest.raises(hr.HeadraceError):
            engine.table("place", "zip BIGINT, city STRING, n BIGINT")


def test_many_small_steps_are_merged(spark: SparkSession, tmp_path: Path) -> None:
    with opened(spark, tmp_path, buckets=2) as engine:
        for step in range(40):
            engine.apply({"place": rows((step % 5, f"c{step // 20}", step, 1), (None, "x", step, 1))})
            if step % 20 == 19:  # all rows of the zips go, so that others may come
                engine.apply({"place": rows(*((s % 5, f"c{s // 20}", s, -1) for s in range(step - 19, step + 1)))})
        engine.apply({"place": rows((3, "c7", 1, 1))})
        with pytest.raises(BadRowsError, match="breaks zip -> city"):
            engine.apply({"place": rows((3, "c1", 1, 1))})


def test_explain_says_what_dependencies_are_worth(spark: SparkSession, tmp_path: Path) -> None:
    sql = "SELECT * FROM r NATURAL JOIN s NATURAL JOIN t"
    with hr.Engine(spark, tmp_path / "state", executor="inline") as engine:
        engine.table("r", "a BIGINT, b BIGINT")
        engine.table("s", "b BIGINT, c BIGINT", fds={"b": ["c"]})
        engine.table("t", "c BIGINT, d BIGINT", fds={"c": ["d"]})
        said = engine.view("q", sql, representation="factorized").explain()
        assert said["result"]["update"] == "O(1)"
        assert said["result"]["update_without_dependencies"] == "O(N)"
        assert "q-hierarchical" in said["result"]["classes_under_dependencies"]
        assert "q-hierarchical" not in said["result"]["classes"]
        assert "under the dependencies b -> c; c -> d it is" in " ".join(str(said).split())
        engine.table("keyed", "c BIGINT, e BIGINT", key="c")  # a key determines its row without being declared
        keyed = engine.view("k", "SELECT * FROM r NATURAL JOIN s NATURAL JOIN keyed", representation="factorized")
        assert "c -> e" in keyed.explain()["result"]["dependencies"]
        assert keyed.explain()["result"]["update"] == "O(1)"
        engine.apply(
            {
                "r": pa.table({"a": [1, 2, 3], "b": [1, 1, 2]}),
                "s": pa.table({"b": [1, 2], "c": [5, 5]}),
                "t": pa.table({"c": [5], "d": [9]}),
                "keyed": pa.table({"c": [5], "e": [8]}),
            }
        )
        assert engine.views["q"].count() == keyed.count() == 3  # type: ignore[union-attr]


def test_a_null_determines_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Rows without a zip may have any city, so a column that may be NULL is no reason to list another beside it."""
    with opened(spark, tmp_path) as engine:
        engine.table("visit", "n BIGINT, who BIGINT")
        sql = "SELECT DISTINCT zip, who FROM place JOIN visit USING (n)"
        view = engine.view("q", sql, representation="factorized")
        assert view.explain()["result"]["dependencies"] == []
        engine.apply({"place": rows((None, "Bern", 1, 1), (None, "Chur", 1, 1), (7, "Chur", 1, 1))})
        engine.apply({"visit": pa.table({"n": [1, 1], "who": [5, 6]})})
        assert view.count() == 4
        found = sorted((row["zip"] or 0, row["who"]) for row in view.enumerate())
        assert found == [(0, 5), (0, 6), (7, 5), (7, 6)]


def test_sums_follow_the_order_of_the_reduct(spark: SparkSession, tmp_path: Path) -> None:
    """Retailer's shape: a change of census matches one location, if a zip has one."""
    sql = "SELECT SUM(units * people) AS n FROM inventory NATURAL JOIN location NATURAL JOIN census"
    orders = {}
    for name, fds in (("with", {"zip": ["locn"]}), ("without", None)):
        with hr.Engine(spark, tmp_path / name, executor="inline") as engine:
            engine.table("inventory", "locn BIGINT, ksn BIGINT, units BIGINT")
            engine.table("location", "locn BIGINT, zip BIGINT", fds=fds)
            engine.table("census", "zip BIGINT, people BIGINT")
            view = engine.view("sums", sql, strategy="factorized")
            engine.apply(
                {
                    "inventory": pa.table({"locn": [1, 1, 2], "ksn": [1, 2, 1], "units": [10, 20, 30]}),
                    "location": pa.table({"locn": [1, 2], "zip": [80, 30]}),
                    "census": pa.table({"zip": [80, 30], "people": [2, 3]}),
                }
            )
            engine.apply({"census": pa.table({"zip": [80, 80], "people": [2, 5], "__diff": [-1, 1]})})
            assert view.to_arrow().to_pylist() == [{"n": 30 * 5 + 30 * 3}]
            said = view.explain()
            orders[name] = said["order_why"], "q-hierarchical" in said["classes_under_dependencies"]
        with hr.Engine(spark, tmp_path / name, executor="inline") as engine:
            assert engine.views["sums"].to_arrow().to_pylist() == [{"n": 240}]  # type: ignore[union-attr]
            assert engine.views["sums"].explain()["order_why"] == orders[name][0]
    assert "canonical order of its reduct" in orders["with"][0]
    assert orders["with"][1]
    assert not orders["without"][1]

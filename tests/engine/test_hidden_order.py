"""ORDER BY of what is not in the SELECT list: rows come in that order, and what they are sorted by is in no answer."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.engine.test_sharing import Changing, opened

QUERIES = {
    "rows": "SELECT note FROM orders ORDER BY price * 2 DESC, id",
    "groups": "SELECT day FROM orders WHERE day IS NOT NULL GROUP BY day ORDER BY COUNT(*) DESC, day",
    "first": "SELECT price FROM orders ORDER BY id DESC LIMIT 4",
    "joined": "SELECT s.city, o.price FROM orders o JOIN shops s ON o.shop = s.id ORDER BY o.id DESC",
    "by_catalyst": "SELECT price FROM orders ORDER BY sqrt(price) DESC, id",
}


@pytest.mark.parametrize("strategy", ["auto", "operators"])
def test_rows_come_in_an_order_that_they_do_not_show(spark: SparkSession, tmp_path: Path, strategy: str) -> None:
    tables = Changing(random.Random(3))
    with opened(spark, tmp_path / "s", executor="inline") as engine:
        able = [name for name in QUERIES if strategy == "auto" or name == "joined"]
        for name in able:
            engine.view(name, QUERIES[name], strategy=strategy)
        engine.view("above", "SELECT city, COUNT(*) AS n FROM joined GROUP BY city")
        for _ in range(4):
            engine.apply(tables.change())
        for name in able:
            expected = tables.rows_of(QUERIES[name])
            view = engine.views[name]
            assert [tuple(row.values()) for row in view.to_arrow().to_pylist()] == expected, name
            assert [tuple(row) for row in view.to_df().collect()] == expected, name
            assert not any("__order" in column for column in [*view.schema.names, *view.changes().column_names])
        assert sum(row["n"] for row in engine.views["above"].to_arrow().to_pylist()) == len(
            tables.rows_of(QUERIES["joined"])
        )


def test_what_only_changes_places_is_no_change(spark: SparkSession, tmp_path: Path) -> None:
    tables = Changing(random.Random(5))
    with opened(spark, tmp_path / "s", executor="inline") as engine:
        view = engine.view("v", "SELECT day FROM orders ORDER BY price")
        engine.apply({"orders": tables.table("orders", [(1, 1, 1, 5, "a"), (2, 1, 2, 6, "b")])})
        changed = tables.table("orders", [(1, 1, 1, 5, "a"), (1, 1, 1, 9, "a")])
        engine.apply({"orders": changed.append_column("__diff", pa.array([-1, 1], pa.int64()))})
        assert view.to_arrow().to_pylist() == [{"day": 2}, {"day": 1}]
        assert view.changes().num_rows == 0

"""A view that takes the place of another one, which answers until the new one is there, and of which nothing stays."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.engine.test_sharing import Changing, answer, opened

import headrace as hr
from headrace.engine.planning import Planner
from headrace.engine.store import Store
from headrace.errors import SchemaError, StepFailedError, UnsupportedSQLError

OLD = "SELECT shop, SUM(price) AS price FROM orders GROUP BY shop"
# One per way to keep a view; the columns of each have other types than those of the old one.
NEW: dict[str, dict[str, Any]] = {
    "SELECT day, MAX(price) AS most, COUNT(*) AS n FROM orders GROUP BY day": {},
    "SELECT s.city, COUNT(*) AS n, SUM(o.id) AS i FROM orders o JOIN shops s ON o.shop = s.id GROUP BY s.city": {
        "strategy": "factorized"
    },
    "SELECT o.id, s.city FROM orders o LEFT JOIN shops s ON o.shop = s.id": {"strategy": "operators"},
    "SELECT id, note FROM orders WHERE price > 3": {"refresh": "full"},
    "SELECT SUM(n) AS n, MAX(day) AS day FROM daily": {},
}


def kept(view: hr.View) -> list[tuple[str, int, int]]:
    return [(one.name, one.entries, one.bytes) for one in view.explain().arrangements]


@pytest.mark.parametrize("sql", NEW)
def test_one_definition_after_another(spark: SparkSession, tmp_path: Path, sql: str) -> None:
    tables = Changing(random.Random(3))
    daily = "SELECT shop, day, COUNT(*) AS n FROM orders GROUP BY shop, day"

    def expected() -> Counter[str]:
        return tables.answer(f"WITH daily AS ({daily}) {sql}")

    with (
        opened(spark, tmp_path / "s", executor="inline") as engine,
        hr.Engine(spark, tmp_path / "s", read_only=True) as reader,
    ):
        engine.view("daily", daily)
        old = engine.view("v", OLD)
        for _ in range(3):
            engine.apply(tables.change())
        version = engine.status()["version"]
        assert engine.view("v", OLD, replace=True) is old
        assert engine.status()["version"] == version, "there was nothing to do"
        assert answer(reader.views["v"]) == answer(old)
        new = engine.view("v", sql, replace=True, **NEW[sql])
        assert answer(new) == expected() == answer(reader.views["v"])
        assert new.changes().num_rows == 0
        other = engine.view("w", sql, **NEW[sql])  # nothing of the old one is left in the state of the new one
        assert kept(new) == kept(other)
        with pytest.raises(SchemaError, match="has been dropped"):
            old.to_arrow()
        for _ in range(2):
            engine.apply(tables.change())
        assert answer(new) == expected() == answer(reader.views["v"])
        assert engine.verify() == []
    with opened(spark, tmp_path / "s", executor="inline") as engine:
        engine.apply(tables.change())
        assert answer(engine.views["v"]) == expected()


def test_when_it_cannot_be_made_the_old_one_stays(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = Changing(random.Random(5))
    with opened(spark, tmp_path / "s", executor="inline") as engine:
        view = engine.view("v", OLD)
        engine.apply({"orders": tables.table("orders", tables.come("orders", 20))})
        for sql, why in [
            ("SELECT nothing FROM orders", "nothing"),
            ("SELECT shop FROM v", "view 'v' reads itself"),
            ("SELECT 1 / (id - id) AS x FROM orders", "view 'v' cannot be filled"),
        ]:
            with pytest.raises((SchemaError, UnsupportedSQLError, StepFailedError), match=why):
                engine.view("v", sql, replace=True)

        def fails(self: Store, record: Any) -> None:
            raise OSError("the disk is gone")

        with monkeypatch.context() as patched:
            patched.setattr(Store, "commit", fails)
            with pytest.raises(OSError, match="the disk is gone"):
                engine.view("v", "SELECT id FROM orders", replace=True)
        engine.apply(tables.change())
        assert answer(view) == tables.answer(OLD)
        engine.view("above", "SELECT COUNT(*) AS n FROM v")
        with pytest.raises(SchemaError, match="view 'v' is read by above"):
            engine.view("v", "SELECT id FROM orders", replace=True)
        with pytest.raises(SchemaError, match="the name 'orders' is taken"):
            engine.view("orders", "SELECT id FROM shops", replace=True)
        assert engine.verify() == []


def test_only_when_it_is_brought_up_to_date(spark: SparkSession, tmp_path: Path) -> None:
    tables = Changing(random.Random(7))
    with opened(spark, tmp_path / "s", executor="inline") as engine:
        view = engine.view("v", OLD)
        engine.apply(tables.change())
        assert engine.view("v", OLD, goal=hr.Manual(), idle_after="10 minutes", replace=True) is view
        assert (str(view.goal), str(view.idle_after)) == ("MANUAL ON REFRESH", "10 minutes")
        engine.apply(tables.change())
        new = engine.view("v", "SELECT COUNT(*) AS n FROM orders", replace=True)  # whose changes do not wait
        engine.apply(tables.change())
        assert new.goal is None
        assert answer(new) == tables.answer("SELECT COUNT(*) AS n FROM orders")


def test_one_that_could_not_be_opened(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = Changing(random.Random(9))
    with opened(spark, tmp_path / "s", executor="inline") as engine:
        engine.view("v", OLD)
        engine.apply(tables.change())
    plan = Planner.plan

    def broken(self: Planner, name: str, definition: Any, *rest: Any) -> Any:
        if definition.sql == OLD:
            raise UnsupportedSQLError("view 'v': its plan is another one now", way_out="use the Spark of before")
        return plan(self, name, definition, *rest)

    monkeypatch.setattr(Planner, "plan", broken)
    with opened(spark, tmp_path / "s", executor="inline") as engine:
        with pytest.raises(SchemaError, match="could not be opened"):
            engine.view("v", "SELECT COUNT(*) AS n FROM orders")
        engine.view("v", "SELECT COUNT(*) AS n FROM orders", replace=True)
        engine.apply(tables.change())
        assert answer(engine.views["v"]) == tables.answer("SELECT COUNT(*) AS n FROM orders")
        assert "failed" not in engine.status()

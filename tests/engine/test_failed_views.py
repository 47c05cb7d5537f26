"""A view that cannot be opened keeps nobody from the others; once it can be opened again, it answers as if it had."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import headrace as hr
from headrace.cli.main import app
from headrace.engine.looking import Look
from headrace.engine.planning import Planner
from headrace.errors import SchemaError, StorageError, UnsupportedSQLError

JOIN = "FROM orders JOIN shops USING (shop)"
VIEWS = {
    "by_city": f"SELECT city, MAX(price) AS dearest {JOIN} GROUP BY city",
    "by_size": f"SELECT size, COUNT(DISTINCT price) AS prices {JOIN} GROUP BY size",
    "broken": f"SELECT city, size, MIN(price) AS cheapest {JOIN} GROUP BY city, size",
    "total": "SELECT COUNT(*) AS n, SUM(price) AS s FROM orders",
}


def opened(spark: SparkSession, folder: Path) -> hr.Engine:
    return hr.Engine(spark, folder, executor="inline", buckets=2, calibrate=False)


def orders(*ids: int, diff: int = 1) -> dict[str, pa.Table]:
    rows = {"id": ids, "shop": [i % 3 for i in ids], "price": [i * 7 % 11 for i in ids], "__diff": [diff] * len(ids)}
    return {"orders": pa.table(rows)}


def made(spark: SparkSession, folder: Path, *, keep_rows: bool = True) -> None:
    with opened(spark, folder) as engine:
        engine.table("orders", "id BIGINT, shop BIGINT, price BIGINT", keep_rows=keep_rows)
        engine.table("shops", "shop BIGINT, city STRING, size STRING", key="shop")
        for name, sql in VIEWS.items():
            engine.view(name, sql)
        shops = {"shop": [0, 1, 2], "city": ["a", "b", "a"], "size": ["L", "S", "S"]}
        engine.apply({"shops": pa.table(shops)} | orders(*range(20)))
        engine.settle()


@pytest.fixture
def breaking(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let the planner refuse a view, as it would if Spark read its query in another way."""
    plan = Planner.plan

    def broken(self: Planner, name: str, *rest: object) -> object:
        if name == "broken":
            raise UnsupportedSQLError("view 'broken': its plan is another one now", way_out="use the Spark of before")
        return plan(self, name, *rest)  # type: ignore[arg-type]

    def switch(what: str) -> None:
        monkeypatch.setattr(Planner, "plan", broken if what == "on" else plan)

    return switch


def answers(engine: hr.Engine) -> dict[str, list[str]]:
    return {name: sorted(map(repr, view.to_arrow().to_pylist())) for name, view in engine.views.items()}


def test_the_others_go_on_and_it_is_filled_again(
    spark: SparkSession, tmp_path: Path, breaking: Callable[[str], None]
) -> None:
    made(spark, tmp_path / "s")
    made(spark, tmp_path / "twin")
    changes = [orders(100, 101), orders(3, 4, diff=-1), orders(102)]
    with opened(spark, tmp_path / "twin") as engine:
        for change in changes:
            engine.apply(change)
        expected = answers(engine)
    breaking("on")
    for change in changes:
        with opened(spark, tmp_path / "s") as engine:
            assert engine.status()["failed"].keys() == {"broken"}
            assert set(engine.apply(change).views) == {"by_city", "by_size", "total"}
    with opened(spark, tmp_path / "s") as engine:
        view = engine.views["broken"]
        assert (view.name, "its plan is another one now" in view.problem) == ("broken", True)
        for read in ("to_arrow", "to_pandas", "explain", "changes", "goal", "coef_"):
            with pytest.raises(StorageError, match=r"'broken' could not be opened: .* another one now"):
                getattr(view, read)
        others = {name: engine.views[name] for name in VIEWS if name != "broken"}
        assert {n: sorted(map(repr, v.to_arrow().to_pylist())) for n, v in others.items()} == {
            name: rows for name, rows in expected.items() if name != "broken"
        }
    with Look(tmp_path / "s") as look:
        assert "out of date" in look.status()["failed"]["broken"]
    breaking("off")
    with hr.Engine(spark, tmp_path / "s", read_only=True) as engine:
        assert "open the location for writing once" in engine.views["broken"].problem
    with opened(spark, tmp_path / "s") as engine:
        assert "failed" not in engine.status()
        assert answers(engine) == expected
        engine.settle()
        engine.apply(orders(5, diff=-1))
        assert engine.verify() == []
        again = answers(engine)
    with opened(spark, tmp_path / "twin") as engine:
        engine.apply(orders(5, diff=-1))
        assert answers(engine) == again


def test_without_a_step_its_state_is_as_it_was(
    spark: SparkSession, tmp_path: Path, breaking: Callable[[str], None]
) -> None:
    made(spark, tmp_path / "s")
    with opened(spark, tmp_path / "s") as engine:
        expected, runs = answers(engine), set(engine._store.snapshot.runs())
    breaking("on")
    with opened(spark, tmp_path / "s") as engine:
        engine.table("other", "id BIGINT")
    breaking("off")
    with opened(spark, tmp_path / "s") as engine:
        assert set(engine._store.snapshot.runs()) == runs
        assert answers(engine) == expected


def test_it_can_be_dropped_and_nothing_of_it_stays(
    spark: SparkSession, tmp_path: Path, breaking: Callable[[str], None]
) -> None:
    made(spark, tmp_path / "s")
    breaking("on")
    with opened(spark, tmp_path / "s") as engine:
        with pytest.raises(SchemaError, match="'broken' exists, and could not be opened"):
            engine.view("Broken", "SELECT COUNT(*) AS n FROM orders")
        for name in ("by_city", "by_size", "total"):
            engine.drop(name)
        with pytest.raises(SchemaError, match="'shops' is used by broken"):
            engine.drop("shops")
        engine.drop("broken")
        assert "failed" not in engine.status()
        engine.drop("shops")
        assert not [name for name in engine._store.snapshot.arrangements if "broken" in name]
        engine.view("total", VIEWS["total"])
        engine.sync()
        there = {path.name for path in (tmp_path / "s" / "runs").iterdir()}
        assert there == engine._store.snapshot.files()
    breaking("off")
    with opened(spark, tmp_path / "s") as engine:
        assert set(engine.views) == {"total"}


def test_a_view_whose_tables_keep_no_rows_stays_failed(
    spark: SparkSession, tmp_path: Path, breaking: Callable[[str], None]
) -> None:
    made(spark, tmp_path / "s", keep_rows=False)
    breaking("on")
    with opened(spark, tmp_path / "s") as engine:
        engine.apply(orders(50))
    breaking("off")
    with opened(spark, tmp_path / "s") as engine:
        assert "table orders keeps no rows" in engine.views["broken"].problem
        engine.drop("broken")
        engine.apply(orders(51))


def test_a_view_with_a_goal_waits_again(spark: SparkSession, tmp_path: Path, breaking: Callable[[str], None]) -> None:
    made(spark, tmp_path / "s")
    with opened(spark, tmp_path / "s") as engine:
        engine.views["broken"].goal = hr.Manual()
        engine.apply(orders(30, 31))
    breaking("on")
    with opened(spark, tmp_path / "s") as engine:
        engine.apply(orders(32))
        engine.refresh()
    breaking("off")
    with opened(spark, tmp_path / "s") as engine:
        engine.apply(orders(33))
        before = answers(engine)["broken"]
        engine.refresh("broken")
        engine.view("same", VIEWS["broken"])
        after = answers(engine)
        assert after["broken"] == after["same"]
        assert before


def test_a_definition_that_cannot_be_read_fails_its_view_only(spark: SparkSession, tmp_path: Path) -> None:
    made(spark, tmp_path / "s")
    for path in (tmp_path / "s" / "log").glob("*.c*"):
        data = json.loads(path.read_bytes().split(b"\n")[0])
        for definition in (one for name, one in data["views"].items() if name == "broken"):
            definition["request"] = {"sql": 7}
        text = json.dumps(data).encode()
        path.write_bytes(text + f"\n{zlib.crc32(text):08x}\n".encode())
    with opened(spark, tmp_path / "s") as engine:
        assert "view 'broken'" in engine.views["broken"].problem
        engine.apply(orders(40))
        engine.drop("broken")


def test_the_status_command_names_it(spark: SparkSession, tmp_path: Path, breaking: Callable[[str], None]) -> None:
    made(spark, tmp_path / "s")
    breaking("on")
    with opened(spark, tmp_path / "s") as engine:
        engine.apply(orders(60))
    shown = CliRunner().invoke(app, ["status", str(tmp_path / "s")])
    assert shown.exit_code == 0
    assert "broken could not be opened: view 'broken' is out of date" in shown.output

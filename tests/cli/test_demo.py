"""The demo's own parts: its data follow its changes, and its referee tells right from wrong."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.cli.recompute import Referee, difference
from headrace.cli.sales import VIEWS, Sales


def bag(table: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


@pytest.mark.parametrize(("rows", "changes"), [(1000, 50), (3, 50), (1, 1), (10, 10)])
def test_the_kept_rows_are_the_sum_of_the_changes(rows: int, changes: int) -> None:
    sales = Sales(rows)
    expected = bag(sales.current())
    for _ in range(5):
        step = sales.step(changes)
        for row, diff in zip(step.drop_columns("__diff").to_pylist(), step["__diff"].to_pylist(), strict=True):
            expected[tuple(row.values())] += diff
    assert min(expected.values()) >= 0
    assert bag(sales.current()) == +expected
    ids = sales.current()["sale_id"]
    assert len(ids.unique()) == len(ids) == len(sales)


def test_the_same_seed_gives_the_same_sales() -> None:
    one, two = Sales(100), Sales(100)
    assert one.step(20) == two.step(20)
    assert one.current() == two.current()


def test_columns_have_the_types_of_the_schema() -> None:
    table = Sales(1000).current()
    assert table.schema.field("price").type == pa.decimal128(10, 2)
    assert table.schema.field("day").type == pa.date32()
    assert min(table["price"].to_pylist()) >= Decimal("0.01")
    assert 0 < table["rating"].null_count < 1000


def test_difference() -> None:
    table = pa.table({"a": [1, None, 2], "b": ["x", "y", None]})
    assert difference(table, table.take([2, 0, 1])) is None
    assert difference(table, table.slice(0, 2)) == "3 rows against 2"
    assert "row (None, 'y') against (None, 'z')" in str(
        difference(table, pa.table({"a": [1, None, 2], "b": ["x", "z", None]}))
    )
    assert "columns" in str(difference(table, table.rename_columns(["a", "c"])))


def test_the_referee_answers_the_views(spark: SparkSession, tmp_path: Path) -> None:
    spark = spark.newSession()  # without the views of other tests
    sales = Sales(500)
    sales.step(50)
    referee = Referee(spark, "sales", sales.current(), tmp_path)
    answers = {name: referee.answer(sql) for name, sql in VIEWS.items()}
    assert answers["total"]["sales"].to_pylist() == [len(sales)]
    assert all(answer.num_rows for answer in answers.values())
    assert referee.seconds({"total": VIEWS["total"]}, times=1) > 0
    assert not spark.catalog.tableExists("sales"), "the referee keeps to its own session"


def test_the_demo_on_the_real_engine(spark: SparkSession, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app, ["demo", "--rows", "2000", "--steps", "2", "--location", str(tmp_path / "s"), "--json"]
    )
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert printed["equal"]
    assert [step["changed"] for step in printed["steps"]] == [2800, 2800]
    assert set(printed["views"]) == set(VIEWS)
    assert (tmp_path / "s").is_dir(), "a location that was asked for is kept"


def test_the_demo_fails_when_a_view_is_wrong(fake: Any, spark: SparkSession) -> None:
    fake.spark = spark
    done = CliRunner().invoke(app, ["demo", "--rows", "50", "--steps", "1", "--json"])
    assert done.exit_code == 1
    printed = json.loads(done.stdout)
    assert not printed["equal"]
    assert "columns" in printed["views"]["total"]["difference"]
    assert "all 4 views equal" not in CliRunner().invoke(app, ["demo", "--rows", "50", "--steps", "1"]).output

"""Looking at a location without Spark: what is seen is what the engine says, or that Spark is needed, and why.

That all kinds of views are seen the same is a law of `headrace.testing.contracts`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import headrace as hr
from headrace.cli import screen
from headrace.cli.main import app
from headrace.engine import looking
from headrace.engine.looking import Look
from headrace.engine.spark_needed import SparkNeeded

SOURCES = str(Path(hr.__file__).parent.parent)
NATIVE = (
    "SELECT shop, COUNT(*) AS n, SUM(qty) + 1 AS more, CONCAT(shop, '!') AS loud FROM sales "
    "GROUP BY shop HAVING COUNT(*) > 1 ORDER BY more DESC"
)
BY_CATALYST = "SELECT shop, TO_JSON(NAMED_STRUCT('n', COUNT(*))) AS said FROM sales GROUP BY shop"


@pytest.fixture
def location(spark: SparkSession, tmp_path: Path) -> Path:
    with hr.Engine(spark, tmp_path / "s", buckets=3, executor="inline") as engine:
        engine.table("sales", "id BIGINT, shop STRING, qty INT", key="id")
        engine.view("native", NATIVE)
        engine.view("by_catalyst", BY_CATALYST)
        shops = [f"s{i % 5}" for i in range(23)]
        engine.apply({"sales": pa.table({"id": range(23), "shop": shops, "qty": pa.array(range(23), pa.int32())})})
    return tmp_path / "s"


def test_expressions_of_an_answer_are_evaluated_without_spark(location: Path, spark: SparkSession) -> None:
    shops = [{"shop": f"s{i % 5}", "qty": i} for i in range(23)]
    spark.createDataFrame(shops, "shop STRING, qty INT").createOrReplaceTempView("sales")
    try:
        expected = spark.sql(NATIVE).toArrow()
    finally:
        spark.catalog.dropTempView("sales")
    with Look(location) as look:
        view: Any = look.views["native"]
        assert view.to_arrow().to_pylist() == expected.to_pylist()
        assert view.rows == 5
        assert view.changes().num_rows == 5


def test_what_only_spark_knows_is_said(location: Path) -> None:
    with Look(location) as look:
        view: Any = look.views["by_catalyst"]
        assert view.rows == 5  # groups can be counted
        assert "by_catalyst" in str(view.explain(cost=True))
        with pytest.raises(SparkNeeded, match="Catalyst evaluates an expression of the answer"):
            view.to_arrow()
        with pytest.raises(SparkNeeded, match="a DataFrame is Spark's"):
            view.to_df()
        with pytest.raises(SparkNeeded, match="plans the query by every strategy"):
            view.analyze()


def test_a_plan_is_used_only_for_its_own_definition(location: Path, spark: SparkSession) -> None:
    path = location / "plans" / "native.json"
    stored = path.read_text()
    for damaged in ("", "{}", "[]", stored[:-9], stored.replace("headrace.plan.view:Order", "headrace.plan.view:Gone")):
        path.write_text(damaged)
        with Look(location) as look:
            assert look.views["by_catalyst"].name == "by_catalyst"
            with pytest.raises(SparkNeeded, match="plan of view native"):
                look.status()
    path.unlink()
    with Look(location) as look, pytest.raises(SparkNeeded, match="plan of view native is not stored"):
        look.status()
    with hr.Engine(spark, location, read_only=True):
        assert not path.exists(), "who only reads writes nothing"
    with hr.Engine(spark, location) as engine:
        assert path.read_text() == stored
        engine.drop("native")
        assert not path.exists()
        engine.view("native", NATIVE.replace("> 1", "> 100"))
        with Look(location) as look:
            assert look.views["native"].rows == 0
    path.write_text(stored)
    with Look(location) as look, pytest.raises(SparkNeeded, match="another version"):
        look.status()


def test_a_new_view_is_seen_after_its_commit(location: Path, spark: SparkSession) -> None:
    with hr.Engine(spark, location) as engine:
        engine.view("later", "SELECT COUNT(*) AS n FROM sales")
        with Look(location) as look:
            assert list(look.views) == ["native", "by_catalyst", "later"]
            assert look.status() == engine.status()
            assert look.verify() == []


COMMANDS = [
    ["status"],
    ["status", "--json"],
    ["status", "--verify"],
    ["explain", "native"],
    ["explain", "native", "--json"],
    ["explain", "by_catalyst"],
    ["read", "native"],
    ["read", "native", "--json", "--limit", "2"],
]


def test_commands_print_the_same_without_spark(
    location: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command runs in a process that cannot find Java, and in this one, by Spark."""
    program = (
        "import json, sys, typer.testing; from headrace.cli.main import app\n"
        f"for given in {COMMANDS!r}:\n"
        f"    done = typer.testing.CliRunner().invoke(app, [given[0], {str(location)!r}, *given[1:]])\n"
        "    print(json.dumps([done.exit_code, done.stdout, done.stderr]))\n"
        "print([name for name in ('pyspark', 'headrace.sql') if name in sys.modules])"
    )
    environment = {**os.environ, "PYTHONPATH": SOURCES, "JAVA_HOME": "/nowhere", "PATH": "", "COLUMNS": "200"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    *lines, loaded = done.stdout.splitlines()
    assert loaded == "[]", "Spark was loaded"

    def look(location: Path) -> None:
        raise SparkNeeded("it is to be compared")

    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(looking, "Look", look)
    monkeypatch.setattr(hr, "connect", lambda location, **options: hr.Engine(spark, location, **options), raising=False)
    for given, line in zip(COMMANDS, lines, strict=True):
        screen.out.cache_clear()
        screen.err.cache_clear()
        by_spark = CliRunner().invoke(app, [given[0], str(location), *given[1:]])
        assert "Starting Spark, because it is to be compared" in by_spark.stderr
        assert json.loads(line)[:2] == [by_spark.exit_code, by_spark.stdout]
        assert by_spark.exit_code == 0

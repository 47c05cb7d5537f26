"""Cycles and paths over copies of one edge table: one change reaches all copies, and DuckDB agrees after every step."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import headrace as hr

TRIANGLE = "e AS e1 JOIN e AS e2 ON e1.b = e2.a JOIN e AS e3 ON e2.b = e3.a AND e3.b = e1.a"
CHORD = (
    "e AS r JOIN e AS s ON r.b = s.a JOIN e AS t ON s.b = t.a JOIN e AS u ON t.b = u.a AND u.b = r.a "
    "JOIN e AS w ON w.a = r.a AND w.b = s.b"
)


def path(joins: int) -> str:
    return "e AS e1 " + " ".join(f"JOIN e AS e{i} ON e{i - 1}.b = e{i}.a" for i in range(2, joins + 1))


QUERIES = {
    "triangles": f"SELECT COUNT(*) AS n FROM {TRIANGLE}",
    "weights": f"SELECT SUM(e1.w * e2.w) AS w, SUM(e3.w) AS v, COUNT(*) AS n FROM {TRIANGLE}",
    "by_node": f"SELECT e1.a AS node, COUNT(*) AS n, SUM(e2.w) AS w FROM {TRIANGLE} GROUP BY e1.a",
    "by_name": f"SELECT e1.name AS name, COUNT(*) AS n FROM {TRIANGLE} GROUP BY e1.name",
    "chord": f"SELECT COUNT(*) AS n, SUM(w.w) AS w FROM {CHORD}",
    "path3": f"SELECT COUNT(*) AS n, SUM(e1.w * e3.w) AS w FROM {path(3)}",
    "path7": f"SELECT COUNT(*) AS n FROM {path(7)}",
    "ends": f"SELECT e1.a AS first, e4.b AS last, COUNT(*) AS n FROM {path(4)} GROUP BY e1.a, e4.b",
}
SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("w", pa.int64()), ("name", pa.string())])
Edge = tuple[int | None, int, int, str]


def rows_of(table: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


def recomputed(edges: list[Edge], sql: str) -> Counter[tuple[object, ...]]:
    e = pa.table([list(column) for column in zip(*edges, strict=True)] if edges else [[]] * 4, schema=SCHEMA)
    with duckdb.connect() as connection:
        connection.register("e", e)
        return Counter(connection.execute(sql).fetchall())


def edge(rng: random.Random) -> Edge:
    a = None if rng.random() < 0.03 else rng.randrange(7)
    return a, rng.randrange(7), rng.randrange(-3, 9), rng.choice(["x", "y", "a long name of an edge"])


def batch(inserted: list[Edge], deleted: list[Edge]) -> pa.Table:
    columns = [list(column) for column in zip(*inserted, *deleted, strict=True)]
    diff = pa.array([1] * len(inserted) + [-1] * len(deleted), pa.int64())
    return pa.table(columns, schema=SCHEMA).append_column("__diff", diff)


@pytest.mark.parametrize("executor", ["inline", "spark"])
def test_every_copy_of_the_table_sees_every_change(spark: SparkSession, tmp_path: Path, executor: str) -> None:
    rng = random.Random(11)
    edges: list[Edge] = []
    names = list(QUERIES) if executor == "inline" else ["triangles", "by_node", "chord"]
    with hr.Engine(spark, tmp_path / "state", executor=executor, buckets=3) as engine:
        engine.table("e", "a BIGINT, b BIGINT, w BIGINT, name STRING")
        views = {name: engine.view(name, QUERIES[name], strategy="factorized") for name in names}
        for size in (40, 6, 1, 9) if executor == "inline" else (30, 5):
            gone = [edges.pop(rng.randrange(len(edges))) for _ in range(min(len(edges), size // 2))]
            new = [edge(rng) for _ in range(size)]
            edges += new
            engine.apply({"e": batch(new, gone)})
            for name, view in views.items():
                assert rows_of(view.to_arrow()) == recomputed(edges, QUERIES[name]), name
    with hr.Engine(spark, tmp_path / "state", executor=executor) as engine:  # the plans are those of before
        last = [edge(rng) for _ in range(5)]
        edges += last
        engine.apply({"e": batch(last, [])})
        for name in names:
            assert rows_of(engine.views[name].to_arrow()) == recomputed(edges, QUERIES[name]), name


def test_any_batching_and_everything_deleted(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(3)
    edges = [edge(rng) for _ in range(24)]
    answers = []
    for size in (24, 5, 1):
        with hr.Engine(spark, tmp_path / str(size), executor="inline", buckets=2) as engine:
            engine.table("e", "a BIGINT, b BIGINT, w BIGINT, name STRING")
            views = [engine.view(name, QUERIES[name]) for name in ("weights", "chord", "path7")]
            for start in range(0, len(edges), size):
                engine.apply({"e": batch(edges[start : start + size], [])})
            answers.append([view.to_arrow().to_pylist() for view in views])
            engine.apply({"e": batch([], edges)})
            assert [view.to_arrow().column("n").to_pylist() for view in views] == [[0]] * 3
    assert answers[0] == answers[1] == answers[2]


def test_a_20_path_is_planned_and_kept(spark: SparkSession, tmp_path: Path) -> None:
    """A ring of nodes: as many 20-paths as edges, twice as many through a doubled edge."""
    with hr.Engine(spark, tmp_path / "state", executor="inline") as engine:
        engine.table("e", "a BIGINT, b BIGINT")
        view = engine.view("paths", f"SELECT COUNT(*) AS n FROM {path(20)}", strategy="factorized")
        ring = pa.table({"a": list(range(30)), "b": [(i + 1) % 30 for i in range(30)]})
        engine.apply({"e": ring})
        assert view.to_arrow()["n"].to_pylist() == [30]
        engine.apply({"e": pa.table({"a": [0], "b": [1]})})
        assert view.to_arrow()["n"].to_pylist() == [10 + 2 * 20]
        engine.apply({"e": pa.table({"a": [7], "b": [8], "__diff": [-1]})})
        assert view.to_arrow()["n"].to_pylist() == [
            3 + 2 * 7
        ]  # they start at 8 to 17, and from 11 on pass the doubled edge


def test_explain_says_which_indicators_there_are(spark: SparkSession, tmp_path: Path) -> None:
    with hr.Engine(spark, tmp_path / "state", executor="inline") as engine:
        engine.table("e", "a BIGINT, b BIGINT, w BIGINT, name STRING")
        said = str(engine.view("chord", QUERIES["chord"]).explain())
        assert said.count("indicator") >= 2
        assert "it closes a cycle with" in said
        assert "is not summed before" in str(engine.view("triangles", QUERIES["triangles"]).explain())


def test_changes_of_indicators_wait_with_their_rows(spark: SparkSession, tmp_path: Path) -> None:
    """A view with a goal takes the changes of its indicator projections when it takes those of its tables."""
    rng = random.Random(8)
    with hr.Engine(spark, tmp_path / "state", executor="inline", buckets=3) as engine:
        engine.table("e", "a BIGINT, b BIGINT, w BIGINT, name STRING")
        view = engine.view("chord", QUERIES["chord"], strategy="factorized", goal=hr.Manual())
        edges = [edge(rng) for _ in range(40)]
        engine.apply({"e": batch(edges[:30], [])})
        engine.apply({"e": batch(edges[30:], edges[:9])})
        engine.refresh("chord")
        assert rows_of(view.to_arrow()) == recomputed(edges[9:], QUERIES["chord"])

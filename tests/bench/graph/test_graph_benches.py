"""The benchmarks of triangles and paths, small: answers agree, and rows say what was kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from headrace.bench.graph import paths, triangle
from headrace.bench.graph.plans import filled_by_the_smaller_side
from headrace.bench.graph.playing import Workload, play, play_over_loaded
from headrace.bench.graph.two_paths import pairs_of_two_paths
from headrace.datasets.graphs import power_law_edges
from headrace.engine.engine import Engine


def test_triangle(spark: SparkSession, tmp_path: Path) -> None:
    argv = ["--nodes", "60", "--edges", "400", "--batch", "40", "--batches", "2", "--pieces", "200"]
    result = triangle.run([*argv, "--location", str(tmp_path)])
    rows = {row["case"]: row for row in result["results"]}
    assert list(rows) == list(triangle.CASES)
    assert not any("wrong" in row for row in rows.values())
    assert any(name.startswith("∃") for name in rows["indicators"]["views"])
    assert not any(name.startswith("∃") for name in rows["factorized"]["views"])
    assert "first-order, a batch / factorized, a batch" in result["ratios"]
    assert all(row["loaded"] == 1 for case, row in rows.items() if case != "recompute")
    # What a projection saves is a number of the run, and so is what there would be without it.
    edges = 400 - 2 * 20
    assert 0 < triangle._largest(rows["indicators"]) < triangle._largest(rows[triangle.WITHOUT])
    largest = triangle._largest(rows[triangle.WITHOUT])
    assert edges < largest <= result["config"]["pairs_of_two_paths"]
    ratio = result["ratios"][f"{triangle.WITHOUT} / indicators, entries of the largest view over a join"]
    assert ratio == largest / triangle._largest(rows["indicators"])
    assert [target["met"] for target in result["targets"]] == [None]
    assert "the target is for nodes 100,000" in result["targets"][0]["not_measured"]
    assert triangle.table(result).renderables


@pytest.mark.parametrize("load", ["first", "pieces"])
def test_cycles_with_a_chord(spark: SparkSession, tmp_path: Path, load: str) -> None:
    argv = ["--query", "chord", "--nodes", "60", "--edges", "300", "--batch", "30", "--batches", "1", "--load", load]
    result = triangle.run([*argv, "--cases", *CHORD_CASES, "--location", str(tmp_path)])
    rows = {row["case"]: row for row in result["results"]}
    assert not any("wrong" in row for row in rows.values())
    assert any(name.startswith("∃") for name in rows["factorized"]["views"])
    assert not any(name.startswith("∃") for name in rows[triangle.WITHOUT]["views"])
    assert rows["first-order"]["fill_seconds"] == 0


CHORD_CASES = ("factorized", triangle.WITHOUT, "first-order", "recompute")


def test_first_order_deltas_are_its_own_once_its_view_is_filled(spark: SparkSession, tmp_path: Path) -> None:
    work = Workload.of(power_law_edges(60, 400), 40, 3)
    asked = {"strategy": "first-order"}
    given = (spark, tmp_path / "first", "first-order", triangle.SQL, work, 200, print)
    filled = play_over_loaded(*given, filling=filled_by_the_smaller_side(), **asked)
    loaded = play(spark, tmp_path / "pieces", *given[2:], **asked)
    assert filled.answers == loaded.answers
    assert filled.views.keys() == loaded.views.keys()
    with Engine(spark, tmp_path / "first" / "state") as engine:
        triggers = engine.views["n"].explain()["triggers"]  # type: ignore[union-attr]
        assert not any("smaller side" in trigger["cost"] for trigger in triggers)
        assert not engine.verify()


def test_pairs_of_two_paths() -> None:
    graph = power_law_edges(50, 300)
    a, b = graph["a"].to_numpy(), graph["b"].to_numpy()
    adjacency = np.zeros((50, 50), bool)
    adjacency[a, b] = True
    assert pairs_of_two_paths(a, b, 50) == (adjacency.astype(int) @ adjacency.astype(int) > 0).sum()


def test_paths(spark: SparkSession, tmp_path: Path) -> None:
    argv = ["--joins", "6", "--nodes", "50", "--batch", "20", "--rounds", "4", "--most-paths", "40"]
    result = paths.run([*argv, "--location", str(tmp_path)])
    rows = {row["case"]: row for row in result["results"]}
    assert not any("wrong" in row for row in rows.values())
    assert rows["6-path, factorized"]["rounds"] == 4
    assert "would list" in rows["6-path, first-order"]["stopped"]
    assert rows["6-path, first-order"]["rounds_in_time"] == 4
    assert [target["met"] for target in result["targets"]] == [None]
    assert paths.table(result).renderables


def test_numpy_counts_paths() -> None:
    a, b = np.array([0, 1, 2, 0]), np.array([1, 2, 0, 2])  # a triangle and a shortcut
    adjacency = np.zeros((3, 3), np.int64)
    np.add.at(adjacency, (a, b), 1)
    for joins in (1, 2, 5):
        assert paths._paths(a, b, 3, joins) == np.linalg.matrix_power(adjacency, joins).sum()


def test_a_peer_that_does_not_load_the_graph_gives_a_lower_bound(spark: SparkSession, tmp_path: Path) -> None:
    graph = power_law_edges(60, 400)
    work = Workload.of(graph, 40, 2)
    part = play(spark, tmp_path, "first-order", triangle.SQL, work, 100, print, load_limit=0.0, strategy="first-order")
    assert part.loaded == 100 / work.loaded.num_rows
    assert len(part.seconds) == 2
    assert "28% of the graph" in part.stopped
    ours = {"case": "factorized", "batch_seconds": 0.01, "state_mb": 1.0, "loaded": 1.0, "seconds": 0.02}
    theirs = part.row(40) | {"batch_seconds": 0.07}
    spark_row = {"case": "recompute", "seconds": 3.0, "stopped": "3 s are over"}
    ratios = triangle._ratios([ours, theirs, spark_row])
    assert ratios == {
        "first-order, a batch / factorized, a batch (at least)": pytest.approx(7),
        "one recomputation / factorized, a batch (at least)": pytest.approx(300),
    }
    found = triangle._target(triangle._SIZES, [ours, theirs, spark_row], ratios)
    assert found["met"]
    assert "28% of the graph" in found["at_least"]
    ratios["first-order, a batch / factorized, a batch (at least)"] = 3.0
    assert triangle._target(triangle._SIZES, [ours, theirs, spark_row], ratios)["met"] is None


def test_rounds_in_time_go_on_at_the_rate_of_the_last_round() -> None:
    counted = paths._Counted(power_law_edges(50, 200), 50, 20, 4)
    lists = [counted.listed(number) for number in range(10)]
    after_two = sum(lists[2:5]) / lists[1]  # seconds of the third to the fifth round, if the second took one
    assert paths._more_rounds(counted, [1.0, 1.0], 2 + after_two - 1e-6, 10) == 3
    assert paths._more_rounds(counted, [1.0, 1.0], 1e9, 10) == 8
    assert paths._more_rounds(counted, [], 1.0, 10) == 0

"""The benchmarks of triangles and paths, small: answers agree, and rows say what was kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from headrace.bench.graph import paths, triangle


def test_triangle(spark: SparkSession, tmp_path: Path) -> None:
    argv = ["--nodes", "60", "--edges", "400", "--batch", "40", "--batches", "2", "--pieces", "200"]
    result = triangle.run([*argv, "--location", str(tmp_path)])
    rows = {row["case"]: row for row in result["results"]}
    assert list(rows) == list(triangle.CASES)
    assert not any("wrong" in row for row in rows.values())
    assert any(name.startswith("∃") for name in rows["indicators"]["views"])
    assert not any(name.startswith("∃") for name in rows["factorized"]["views"])
    assert "first-order, a batch / factorized, a batch" in result["ratios"]
    assert triangle.table(result).renderables


def test_paths(spark: SparkSession, tmp_path: Path) -> None:
    argv = ["--joins", "6", "--nodes", "50", "--batch", "20", "--rounds", "4", "--most-paths", "40"]
    result = paths.run([*argv, "--location", str(tmp_path)])
    rows = {row["case"]: row for row in result["results"]}
    assert not any("wrong" in row for row in rows.values())
    assert rows["6-path, factorized"]["rounds"] == 4
    assert "would list" in rows["6-path, first-order"]["stopped"]
    assert paths.table(result).renderables


def test_numpy_counts_paths() -> None:
    a, b = np.array([0, 1, 2, 0]), np.array([1, 2, 0, 2])  # a triangle and a shortcut
    adjacency = np.zeros((3, 3), np.int64)
    np.add.at(adjacency, (a, b), 1)
    for joins in (1, 2, 5):
        assert paths._paths(a, b, 3, joins) == np.linalg.matrix_power(adjacency, joins).sum()

"""The benchmark of matrix chains, small: products agree, and every case has its peers."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from headrace.bench.matrix import chain
from headrace.factorized.dense import most_factors


def test_chain(spark: SparkSession, tmp_path: Path) -> None:
    argv = ["--sizes", "64", "--ranks", "1", "2", "--repeat", "2", "--recompute", "1", "--location", str(tmp_path)]
    result = chain.run(argv)
    cases = [row["case"] for row in result["results"]]
    assert cases[:4] == [f"64, one row: {w}" for w in ("step", "step and reading all", "recompute", "first-order")]
    assert cases[4] == "64, one row, as rows: step"
    assert len(cases) == 16
    assert not any("wrong" in row for row in result["results"])
    assert "64, rank 2: recompute / step" in result["ratios"]
    assert "64, one row, as rows: recompute / step" in result["ratios"]
    assert result["targets"][0]["met"] is None
    assert chain.table(result).renderables


def test_changes_go_on_until_factors_are_multiplied_out(spark: SparkSession, tmp_path: Path) -> None:
    argv = ["--sizes", "48", "--ranks", "3", "--recompute", "1", "--location", str(tmp_path)]
    rows = {row["case"]: row for row in chain.run(argv)["results"]}
    assert rows["48, one row: step"]["changes"] == 150 > most_factors((48, 48))
    assert rows["48, rank 3: step"]["changes"] == 50
    assert rows["48, rank 3: step and reading all"]["changes"] == 10
    assert not any("wrong" in row for row in rows.values())

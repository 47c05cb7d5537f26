"""The benchmark of matrix chains, small: products agree, and every case has its peers."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from headrace.bench.matrix import chain


def test_chain(spark: SparkSession, tmp_path: Path) -> None:
    argv = ["--sizes", "64", "--ranks", "1", "2", "--repeat", "2", "--recompute", "1", "--location", str(tmp_path)]
    result = chain.run(argv)
    cases = [row["case"] for row in result["results"]]
    assert cases[:4] == [f"64, one row: {w}" for w in ("step", "step and reading all", "recompute", "first-order")]
    assert len(cases) == 12
    assert not any("wrong" in row for row in result["results"])
    assert "64, rank 2: recompute / step" in result["ratios"]
    assert result["targets"][0]["met"] is None
    assert chain.table(result).renderables

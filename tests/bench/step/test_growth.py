from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from headrace.bench.step import growth


def test_growth(spark: SparkSession, tmp_path: Path) -> None:
    argv = ["--small", "0.002", "--large", "0.004", "--batch", "100", "--repeat", "3", "--warm", "1"]
    result = growth.run([*argv, "--location", str(tmp_path)])
    small, large = result["results"]
    assert (small["case"], large["case"]) == ("batch into 2,000 rows", "batch into 4,000 rows")
    assert 0 < small["seconds"] <= small["max_seconds"]
    assert result["ratios"]["batch into 4,000 rows / into 2,000 (median)"] == large["seconds"] / small["seconds"]
    assert large["state_mb"] > small["state_mb"]
    assert growth.table(result).renderables
    assert list(tmp_path.iterdir()) == []

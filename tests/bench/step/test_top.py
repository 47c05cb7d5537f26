"""The benchmark of tops: it checks its answers, and puts steps of all sizes beside recomputations."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from headrace.bench.step import top


def test_steps_in_which_top_rows_leave_are_measured(spark: SparkSession, tmp_path: Path) -> None:
    argv = ["--rows", "300", "900", "--limit", "5", "--leave", "3", "--repeat", "4", "--warm", "1"]
    result = top.run([*argv, "--location", str(tmp_path)])
    cases = [(row["table_rows"], row["case"]) for row in result["results"]]
    assert cases == [(n, c) for n in (300, 900) for c in ("best rows leave", "other rows come", "recomputation")]
    small, large = (row for row in result["results"] if row["case"] == "best rows leave")
    ratios = result["ratios"]
    assert ratios["best rows leave: 900 rows / 300 (median)"] == large["seconds"] / small["seconds"]
    assert ratios["recomputation / step in which best rows leave, 900 rows"] > 0
    assert top.table(result).renderables
    assert list(tmp_path.iterdir()) == []

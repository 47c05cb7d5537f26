"""The benchmark of one table: it measures what it says, with several numbers of buckets."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from headrace.bench.step import one_table


def test_steps_are_measured_with_every_number_of_buckets(spark: SparkSession, tmp_path: Path) -> None:
    argv = ["--rows", "3000", "--groups", "50", "--sizes", "1", "40", "--repeat", "2", "--buckets", "7"]
    result = one_table.run([*argv, "--location", str(tmp_path)])
    cases = {row["case"] for row in result["results"]}
    assert {"step of 1", "step of 40", "step of 1, 7 buckets", "step of 40, 7 buckets"} <= cases
    assert any(name.startswith("step of 40: 7 buckets / ") for name in result["ratios"])

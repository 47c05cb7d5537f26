from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from headrace.bench.stream import micro_batches


def test_micro_batches(spark: SparkSession, tmp_path: Path) -> None:
    result = micro_batches.run(["--sizes", "5", "--repeat", "2", "--groups", "3", "--location", str(tmp_path)])
    rows = {row["case"]: row for row in result["results"]}
    assert [row["system"] for row in rows.values()] == ["spark", "spark", "headrace", "spark", "headrace"]
    assert (rows["stream"]["ran"], rows["DataFrame"]["ran"]) == ("driver", "driver")
    assert all(0 < row["seconds"] <= row["max_seconds"] for row in rows.values())
    beyond = rows["stream"]["seconds"] - rows["empty foreachBatch"]["seconds"]
    assert result["ratios"]["5 rows: stream - empty foreachBatch (ms)"] == 1e3 * beyond
    assert micro_batches.table(result).renderables
    assert list(tmp_path.iterdir()) == []

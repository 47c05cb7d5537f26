"""The benchmark of upserts: it checks its answers, and puts steps beside its peers."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from headrace.bench.step import upserts


def test_upserts_are_measured_beside_peers_and_checked(spark: SparkSession, tmp_path: Path) -> None:
    argv = ["--rows", "3000", "--size", "200", "--repeat", "2", "--warm", "1", "--peer-repeat", "1"]
    result = upserts.run([*argv, "--location", str(tmp_path)])
    rows = {row["case"]: row for row in result["results"]}
    assert {"Arrow tables", "Spark DataFrames", "Arrow tables, with a view", "anti-join and rewrite"} <= rows.keys()
    assert not any("wrong" in row for row in rows.values())
    own, peer = rows["Arrow tables"], rows["anti-join and rewrite"]
    assert result["ratios"]["spark / headrace, Arrow tables"] == peer["seconds"] / own["seconds"]
    assert own["rows_per_s"] == 200 / own["seconds"]
    assert upserts.table(result).renderables
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_row_is_told() -> None:
    right = upserts._Source(20, 4, 0.5).there
    wrong = right.set_column(2, "amount", [[0.0] * 20])
    assert upserts._difference(right.take(list(reversed(range(20)))), right) == ""
    assert upserts._difference(wrong, right) == "other values of amount"
    assert upserts._difference(right.slice(1), right) == "19 rows, and not 20"

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from headrace.bench.results import factorized_join


def test_factorized_join(spark: SparkSession, tmp_path: Path) -> None:
    argv = ["--scales", "0.004", "0.02", "--batch", "200", "--deletes", "0.05", "--most-rows", "150"]
    result = factorized_join.run([*argv, "--location", str(tmp_path)])
    rows = {(row["scale"], row["case"]): row for row in result["results"]}
    assert set(rows) == {(scale, system) for scale in (0.004, 0.02) for system in factorized_join.SYSTEMS}
    assert not any("wrong" in row for row in rows.values())
    assert rows[0.004, "listing"]["sum_of_label"] > 0
    assert rows[0.02, "listing"]["extrapolated"]
    assert not rows[0.004, "listing"].get("extrapolated")
    said = "listing / factorized at scale 0.02, seconds (extrapolated)"
    assert result["ratios"][said] == rows[0.02, "listing"]["seconds"] / rows[0.02, "factorized"]["seconds"]
    assert {target["met"] for target in result["targets"]} == {None}
    assert factorized_join.table(result).renderables
    assert list(tmp_path.iterdir()) == []


def test_answers_that_differ_are_said_to_be_wrong() -> None:
    rows = [{"case": "factorized", "joined_rows": 10}, {"case": "listing", "joined_rows": 11}]
    factorized_join._compare(rows)
    assert "wrong" in rows[1]


def test_what_is_extrapolated_is_a_lower_bound_of_its_target() -> None:
    config = {"data": "housing", "changes": "all", "deletes": 0.0, "cores": 2}
    ours = {"case": "factorized", "scale": 20.0, "values": 10, "state_mb": 2.0, "seconds": 1.0}
    listed = {"case": "listing", "scale": 4.0, "values": 50, "state_mb": 300.0, "seconds": 20.0}
    guess = {"case": "listing", "scale": 20.0, "values": 5000, "state_mb": 30_000.0, "seconds": 2_000.0}
    rows = [ours, listed, guess | {"extrapolated": True, "from_scale": 4.0}]
    by_values, by_bytes, by_seconds = factorized_join.targets(config, rows)
    assert (by_values["value"], by_values["met"]) == (500, True)
    assert (by_bytes["value"], by_bytes["met"]) == (150, True)
    assert (by_seconds["value"], by_seconds["met"]) == (20, None)
    assert "it would be 2,000" in by_seconds["not_measured"]
    assert {one["met"] for one in factorized_join.targets(config, [ours])} == {None}

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from headrace.bench import BENCHMARKS
from headrace.bench.covariance import scikit, strategies
from headrace.bench.covariance.batch_files import Batches
from headrace.bench.covariance.options import DATA
from headrace.bench.covariance.recomputation import within
from headrace.datasets import stream
from headrace.datasets.housing import HOUSING
from headrace.errors import HeadraceError
from headrace.learn.moments import Moments

SLOW = ("--time-limit", "250")  # nothing here takes that long, unless the machine is very busy


def shown(renderable: object) -> str:
    console = Console(file=io.StringIO(), width=160)
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_every_strategy_and_peer(spark: SparkSession, tmp_path: Path) -> None:
    told: list[str] = []
    argv = ["housing", "--scale", "0.002", "--batch", "100", "--deletes", "0.2", "--fit", "--on-paper", "64"]
    argv += ["--sorted", "--progress", "4"]
    names = "factorized,recursive,first-order,recompute-numpy"
    result = strategies.run([*argv, "--strategies", names, *SLOW, "--location", str(tmp_path)], told.append)
    assert json.loads(json.dumps(result)) == result
    assert (result["bench"], result["config"]["features"], result["config"]["deletes"]) == ("housing", 26, 0.2)
    rows = {row["case"]: row for row in result["results"]}
    refits = ("refit, gradient", "refit, gradient from scratch", "refit, cholesky")
    assert set(rows) == {*names.split(","), *refits, scikit.REGRESSION}
    theirs = rows[scikit.REGRESSION]
    assert theirs["difference"] <= 1e-6
    assert theirs["rows"] > 0
    assert any(name.startswith(scikit.REGRESSION) for name in result["ratios"])
    for name in ("factorized", "recursive", "first-order"):
        row = rows[name]
        assert (row["system"], row["rows"], row["finished"]) == ("headrace", result["config"]["rows"], True)
        assert row["rows_per_s"] == pytest.approx(row["rows"] / row["seconds"])
        assert row["state_mb"] > 0
        assert 1 <= row["views_kept"] <= row["views"]
        assert row["partition"] == "postcode"
    # The answers were compared, deletions and all.
    batches = result["config"]["batches"]
    assert all(rows[name]["agrees_after"] == batches for name in ("recursive", "first-order"))
    assert rows["recompute-numpy"]["agrees_after"] == min(10, batches)
    assert rows["recompute-numpy"]["count"] > 0
    assert rows["refit, gradient"]["iterations"] <= rows["refit, gradient"]["iterations_from_scratch"]
    for case in ("factorized", *refits):
        shares = [part["share"] for part in rows[case]["progress"]]
        assert (shares, shares[-1]) == (sorted(shares), 1.0)
    assert rows["factorized"]["progress"][-1]["state_mb"] == rows["factorized"]["state_mb"]
    for case in refits[:2]:
        counted = [part["iterations"] for part in rows[case]["iterations_by_share"]]
        assert (counted, counted[-1]) == (sorted(counted), rows[case]["total_iterations"])
    alone = rows["factorized"]["rows_per_s"]
    assert all(0 < rows[case]["rows_per_s_with_batches"] < alone for case in refits)
    assert f"recursive / factorized, seconds of {batches} batches" in result["ratios"]
    assert "first-order / factorized, peak memory" in result["ratios"]
    assert any(name.startswith("recompute-numpy after") for name in result["ratios"])
    assert result["paper"]["cores"] == 64
    assert any("batch 1 of" in stage for stage in told)
    assert "recursive / factorized, state" in shown(strategies.table(result))
    assert list(tmp_path.iterdir()) == []


def test_spark_sql_agrees(spark: SparkSession, tmp_path: Path) -> None:
    argv = ["favorita", "--scale", "0.001", "--batch", "300", "--recompute-after", "2", "--order", "chosen"]
    result = strategies.run([*argv, "--strategies", "factorized,recompute,f-sql", *SLOW, "--location", str(tmp_path)])
    assert [row["case"] for row in result["results"]] == ["factorized", "recompute", "f-sql"]
    assert all(row["agrees_after"] == row["batches"] == 2 for row in result["results"][1:])
    assert "recompute after 2 batches / a factorized batch" in result["ratios"]


def test_limits_are_honest(spark: SparkSession, tmp_path: Path) -> None:
    argv = ["favorita", "--scale", "0.001", "--batch", "300", "--time-limit", "0.001", "--location", str(tmp_path)]
    result = strategies.run([*argv, "--strategies", "factorized,recompute"])
    factorized, recompute = result["results"]
    assert (factorized["batches"], factorized["finished"]) == (1, False)
    assert (recompute["finished"], recompute["seconds"], "rows_per_s" in recompute) == (False, 0.001, False)
    assert all(name.endswith("(at least)") for name in result["ratios"])
    assert ">= 0.001" in shown(strategies.table(result))


def test_work_that_ends_in_time_gives_its_answer(spark: SparkSession) -> None:
    assert within(spark, 60.0, lambda: spark.range(10).count()) == 10
    with pytest.raises(ZeroDivisionError):
        within(spark, 60.0, lambda: 1 / 0)


def test_strategies_that_disagree_are_an_error() -> None:
    right = Moments(("a",), 2, np.array([3.0]), np.array([[5.0]]))
    wrong = Moments(("a",), 2, np.array([3.0]), np.array([[5.1]]))
    reference = strategies._Run("factorized", moments={3: right})
    with pytest.raises(HeadraceError, match="factorized and recompute disagree after 3 batches"):
        strategies._compare([{"case": "recompute"}], reference, "recompute", {3: wrong})


def test_files_hold_the_stream(tmp_path: Path) -> None:
    tables = HOUSING.generate(0.002)
    batches = Batches.write(tmp_path / "b", stream(tables, 100, 0.3), deletes=True)
    assert (len(batches), batches.rows[0], batches.full) == (len(batches.rows), 100, len(batches) - 1)
    net = sum(table["__diff"].to_numpy().sum() for n in range(len(batches)) for table in batches.read(n).values())
    written = [Path(batches.write_rows(tmp_path / "rows", name, len(batches))) for name in tables]
    assert sum(pq.read_metadata(path).num_rows for path in written) == net
    plain = Batches.write(tmp_path / "p", stream(tables, 100), deletes=False)
    assert "__diff" not in plain.read(0)["house"].column_names


def test_unknown_strategies_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        strategies.run(["housing", "--strategies", "magic"])
    assert "use one or more of factorized" in capsys.readouterr().err


def test_names_of_the_registry() -> None:
    assert {found.arguments[0] for found in BENCHMARKS.values() if found.arguments} == set(DATA)

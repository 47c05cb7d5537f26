from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from headrace.bench import BENCHMARKS
from headrace.bench.covariance import scikit
from headrace.bench.mixed import strategies
from headrace.bench.mixed.answers import Answer, difference
from headrace.errors import HeadraceError


def test_every_case_and_peer(spark: SparkSession, tmp_path: Path) -> None:
    told: list[str] = []
    argv = [
        "--scale",
        "0.003",
        "--batch",
        "1500",
        "--deletes",
        "0.2",
        "--time-limit",
        "250",
        "--location",
        str(tmp_path),
    ]
    result = strategies.run([*argv, "--data", "retailer", "--progress", "3"], told.append)
    assert json.loads(json.dumps(result, default=str))["bench"] == "mixed"
    rows = {row["case"]: row for row in result["results"]}
    peers = (*strategies.RECOMPUTING, scikit.REGRESSION)
    assert set(rows) == {f"retailer, {case}" for case in (*strategies.CASES, *peers)}
    assert all(row["finished"] for row in rows.values())
    # The answers were compared, deletions and all.
    compared = {name for name, row in rows.items() if "difference" in row}
    assert compared == {f"retailer, {case}" for case in ("kept", *strategies.BASELINES, *peers)}
    theirs = rows[f"retailer, {scikit.REGRESSION}"]
    assert theirs["rows"] > 0
    assert theirs["difference"] <= 1e-6
    assert any("joining and fitting / reading and fitting" in name for name in result["ratios"])
    for case in strategies.CASES:
        row = rows[f"retailer, {case}"]
        assert row["progress"][-1] | {"share": 1.0, "state_mb": row["state_mb"]} == row["progress"][-1]
        assert row["views"] >= row["views_kept"] > 0
    assert "retailer, kept / retailer, not kept, rows per second" in result["ratios"]
    assert any("batch 2 of" in stage for stage in told)
    assert {target["met"] for target in result["targets"]} == {None}
    console = Console(file=io.StringIO(), width=160)
    console.print(strategies.table(result))
    assert "retailer, duckdb" in console.file.getvalue()  # type: ignore[attr-defined]
    assert list(tmp_path.iterdir()) == []
    assert BENCHMARKS["mixed"].module == "mixed.strategies"


def test_a_wrong_answer_is_found() -> None:
    right = Answer({(): 3, (("a", 1),): 2}, {(): np.array([4.0])})
    assert difference("one", right, "other", right) == 0
    with pytest.raises(HeadraceError, match="1 counts"):
        difference("one", right, "other", Answer(right.counts | {(("a", 1),): 1}, right.sums))
    with pytest.raises(HeadraceError, match="sums by up to"):
        difference("one", right, "other", Answer(right.counts, {(): np.array([5.0])}))


def test_targets_are_of_the_sizes_of_the_papers() -> None:
    rows = [{"case": "retailer, not kept", "rows_per_s": 8e5, "finished": True}]
    found = strategies._targets(strategies._SIZES, rows)
    assert [target["met"] for target in found] == [True, None]
    assert [target["met"] for target in strategies._targets(strategies._SIZES | {"scale": 1.0}, rows)] == [None, None]
    assert strategies._targets(strategies._SIZES, [rows[0] | {"finished": False}])[0]["met"] is None

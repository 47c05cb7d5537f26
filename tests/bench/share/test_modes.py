from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.bench.share.modes import CASES, run, table
from headrace.cli.screen import out


def test_all_modes_take_the_same_steps(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--scale", "0.002", "--steps", "6", "--share", "0.01", "--cases", "board", "--location", str(tmp_path)]
    result = run(small)
    rows = {row["sharing"]: row for row in result["results"]}
    assert list(rows) == ["off", "exact", "auto"]
    assert not any("wrong" in row for row in rows.values())
    assert rows["off"]["shared"] == {}
    assert list(rows["exact"]["shared"].values()) == [list(CASES["board"])]
    # Six views join once: what goes through joins is a sixth, what goes through aggregates stays.
    assert result["ratios"]["board: operator_rows, exact / off"] < 0.6
    assert result["ratios"]["board: state_mb, exact / off"] < 0.9
    out().print(table(result))
    assert "by_segment, by_priority" in " ".join(capsys.readouterr().out.split())

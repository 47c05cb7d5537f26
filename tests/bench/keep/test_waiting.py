from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from pyspark.sql import SparkSession

from headrace.bench.keep.waiting import run, table
from headrace.cli.screen import out


def test_all_approaches_wait_for_the_same_changes(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--scale", "0.002", "--queries", "q3", "--chain-rows", "2000", "--repeats", "2"]
    small += ["--location", str(tmp_path), "--plots", str(tmp_path / "plots")]
    result = run(small)
    rows = result["results"]
    assert not any("wrong" in row for row in rows)
    assert {row["scenario"] for row in rows} == {"late", "budgets", "deletes", "cleaning", "predictions", "many ways"}
    assert {row["system"] for row in rows} == {"headrace", "everything", "recursive", "rebatch", "recycler", "spark"}
    everything = next(row["state_mb"] for row in rows if row["scenario"] == "budgets" and row["system"] == "everything")
    for row in rows:
        if row["scenario"] == "budgets" and row["system"] in ("headrace", "recycler"):
            assert row["state_mb"] <= row["budget_share"] * 1.2 * everything
    picture = ElementTree.fromstring((tmp_path / "plots" / "keep-q3.svg").read_text())
    drawn = [mark.get("class") for mark in picture.iter("{http://www.w3.org/2000/svg}circle")]
    assert drawn.count("headrace") == len({row["budget_share"] for row in rows if row["scenario"] == "budgets"})
    out().print(table(result))
    assert "many ways" in capsys.readouterr().out

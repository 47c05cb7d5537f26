from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from pyspark.sql import SparkSession

from headrace.bench.keep.targets import targets
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
    assert all(target["value"] is not None for target in result["targets"])
    out().print(table(result))
    assert "many ways" in capsys.readouterr().out


def test_targets_compare_all_budgets() -> None:
    def row(system: str, cpu: float, mb: float, share: float) -> dict[str, Any]:
        shown = {"scenario": "budgets", "case": "q3", "system": system, "cpu_seconds": cpu, "state_mb": mb}
        return shown | {"budget_share": share}

    rows = [row("headrace", 1.0, 10.0, 1.0), row("headrace", 2.0, 5.0, 0.5), row("headrace", 4.0, 0.0, 0.0)]
    rows += [row("recycler", 1.1, 10.0, 1.0), row("recycler", 1.8, 5.0, 0.5), row("recycler", 4.4, 0.0, 0.0)]
    rows += [row("rebatch", 4.0, 0.0, 0.0), row("recursive", 2.0, 60.0, 1.0)]
    found = targets(rows)
    values = [target["value"] for target in found]
    assert values[:3] == [1.0, pytest.approx(0.5), pytest.approx(0.9)]
    assert values[4] == pytest.approx(1.0)  # in 5 MB of 60, where ours takes as long
    assert [target["met"] for target in found] == [True, True, False, True, True, None, None, None]
    assert found[5]["not_measured"] == "the run has no --scenarios cleaning"

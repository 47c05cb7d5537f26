from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.bench.keep.targets import targets
from headrace.bench.keep.waiting import run, table
from headrace.bench.keep.workload import Tables, Truth, after
from headrace.cli.screen import out


def test_all_approaches_wait_for_the_same_changes(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[str | None] = []
    wrong = Truth.wrong
    monkeypatch.setattr(Truth, "wrong", lambda *given: compared.append(wrong(*given)) or compared[-1])
    small = ["--scale", "0.002", "--queries", "q3", "--chain-rows", "2000", "--repeats", "2"]
    small += ["--location", str(tmp_path), "--plots", str(tmp_path / "plots")]
    result = run(small)
    rows = result["results"]
    assert not any("wrong" in row for row in rows)
    between = {"supplier", "customer", "part", "orders"}  # tables that are cleaned before the last one
    last = [row for row in rows if row["case"] not in between and row.get("deleted_share", 1.0) == 1.0]
    assert compared == [None] * len([row for row in last if row["system"] != "spark"]), "all answers are compared"
    predictions = {(row["case"], row["system"]) for row in rows if row["scenario"] == "predictions"}
    assert {("right", "rebatch"), ("lineitem alone: right", "rebatch")} <= predictions
    assert {("30 times too much", "headrace"), ("lineitem alone: all 6 tables", "headrace")} <= predictions
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


def test_an_answer_is_compared_with_that_over_all_changes(spark: SparkSession, tmp_path: Path) -> None:
    columns = pa.schema([("id", pa.int64()), ("v", pa.string())])
    first = {"t": pa.table([[1, 2, 3], ["a", "b", "c"]], schema=columns), "u": pa.table([[1], ["x"]], schema=columns)}
    come = pa.table([[4, 2], ["d", "b"]], schema=columns).append_column("__diff", pa.array([1, -1]))
    then = pa.table([[5], ["e"]], schema=columns)
    rows = after(first, [{"t": come}, {"t": then}])
    assert sorted(rows["t"]["id"].to_pylist()) == [1, 3, 4, 5]
    assert rows["u"] == first["u"]
    options = {name: {"schema": "id BIGINT, v STRING"} for name in rows}
    truth = Truth.of(spark, tmp_path / "after", Tables(rows, options, ("t",)), rows)
    assert truth.wrong("SELECT COUNT(*) AS n FROM t", pa.table({"n": [4]})) is None
    assert truth.wrong("SELECT COUNT(*) AS n FROM t", pa.table({"n": [3]})) is not None


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

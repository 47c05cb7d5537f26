"""The benchmark of paces: right answers, the keys that it documents, and figures that follow from its rows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.bench.pace import final_work, playing
from headrace.bench.pace.options import parser
from headrace.bench.pace.summary import ratios, targets
from headrace.cli.screen import out

SMALL = ["--scale", "0.002", "--parts", "10"]
KEYS = {
    *("system", "case", "query", "approach", "share", "paces", "flushes", "feasible", "planning_ms"),
    *("total_rows", "final_rows", "additional_rows", "final_rows_ratio", "row_error"),
    *("cpu_seconds", "final_cpu_seconds", "held_cpu_seconds", "additional_cpu_seconds"),
    *("latency_ratio", "met", "final_cpu_ratio", "at_once_ratio"),
    *("estimated_rows", "estimated_final_rows", "estimated_cpu_seconds", "estimated_final_cpu_seconds"),
    "estimated_latency_ratio",
}


def by_goal(result: dict[str, Any]) -> dict[tuple[str, float, str], dict[str, Any]]:
    return {(row["query"], row["share"], row["approach"]): row for row in result["results"] if "approach" in row}


def test_results_and_figures(spark: SparkSession, tmp_path: Path) -> None:
    told: list[str] = []
    argv = [*SMALL, "--queries", "3,q17", "--shares", "0.2,0.5", "--location", str(tmp_path), "--repeat", "2"]
    result = final_work.run(argv, told.append)
    assert not any({"wrong", "failed"} & row.keys() for row in result["results"])
    rows = by_goal(result)
    assert len(rows) == 2 * 2 * 6
    for (query, share, approach), row in rows.items():
        assert row.keys() == KEYS
        assert row["met"] == (row["latency_ratio"] <= share)
        assert row["total_rows"] >= row["final_rows"]
        assert row["flushes"] >= max(row["paces"].values())
        uniform = rows[query, share, "uniform"]
        if approach == "ours" and row["feasible"] and uniform["feasible"]:
            assert row["estimated_cpu_seconds"] <= 1.0001 * uniform["estimated_cpu_seconds"]
        if approach == "batch":
            assert row["flushes"] == 1
            assert row["additional_rows"] == row["additional_cpu_seconds"] == 0
        if approach == "eager":
            assert set(row["paces"].values()) == {10}
    about = [row for row in result["results"] if "batch_rows" in row]
    assert [row["query"] for row in about] == ["q3", "q17"]
    assert all(row["python_cpu_seconds"] > 0 and row["jvm_cpu_seconds"] >= 0 for row in about)
    assert len(result["targets"]) == 9
    assert {"target", "value", "queries", "met"} == result["targets"][0].keys()
    assert "q17 (2 of 2): choosing paces" in told
    assert any(stage.endswith("different paces (2 of 2)") for stage in told)
    assert json.loads(json.dumps(result)) == result
    out().print(final_work.table(result))
    assert list(tmp_path.iterdir()) == []


def test_what_goes_wrong_is_a_row_that_says_so(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    played = playing._played

    def failing(engine: Any, view: Any) -> playing.Played:
        done = played(engine, view)
        if "customer" in view.planned.tables:
            raise RuntimeError("planted failure")
        if view.name == "v1":
            return replace(done, answer=done.answer.slice(1))
        return done

    monkeypatch.setattr(playing, "_played", failing)
    argv = [*SMALL, "--queries", "3,17", "--shares", "0.5", "--approaches", "eager,batch"]
    result = final_work.run(argv)
    rows = by_goal(result)
    assert rows["q17", 0.5, "eager"]["wrong"].startswith("not the answer of the batch: ")
    assert "wrong" not in rows["q17", 0.5, "batch"]
    assert [row["failed"] for row in result["results"] if row["query"] == "q3"] == ["RuntimeError: planted failure"]
    assert {(target["queries"], target["met"]) for target in result["targets"]} == {("0 of 2", False)}
    out().print(final_work.table(result))


def test_figures_count_feasible_goals_and_paces_that_differ() -> None:
    def row(query: str, approach: str, share: float, **more: Any) -> dict[str, Any]:
        numbers = {"row_error": 0.1, "additional_rows": 50.0, "additional_cpu_seconds": 2.0, "at_once_ratio": 0.9}
        known = {"query": query, "approach": approach, "share": share, "paces": {"0": 1}, "feasible": True, "met": True}
        return {**known, **numbers, **more}

    batch = {"batch_rows": 100.0, "batch_cpu_seconds": 4.0, "planning_ms": 5.0}
    batch |= {"batch_again_cpu_seconds": 5.0, "batch_final_cpu_seconds": 2.0, "batch_again_final_cpu_seconds": 1.0}
    rows = [
        row("q17", "ours", 0.5),
        row("q17", "uniform", 0.5),
        row("q17", "ours", 0.2, paces={"0": 3}, additional_rows=10.0, additional_cpu_seconds=1.0, at_once_ratio=0.1),
        row("q17", "uniform", 0.2, paces={"0": 9}, met=False),
        row("q17", "ours", 0.02, feasible=False, met=False, row_error=-0.4),
        row("q17", "uniform", 0.02, feasible=False, met=False),
        {"query": "q17", **batch, "batch_met": [0.5]},
        row("q3", "ours", 0.5, row_error=9.0),
        row("q3", "uniform", 0.5),
        {"query": "q3", **batch, "batch_met": [0.5], "planning_ms": 7.0},
    ]
    found = ratios(rows)
    assert found["feasible goals"] == 0.75
    assert found["goals met by batch"] == pytest.approx(2 / 3)
    assert found["goals met by ours"] == 1
    assert found["goals met by uniform"] == pytest.approx(2 / 3)
    assert found["goals met by uniform, of the 1 that the batch misses"] == 0
    assert found["goals met by ours, as shares of everything in one step"] == pytest.approx(1 / 3)
    assert found["queries whose paces differ, ours and uniform"] == 1
    assert found["additional CPU, ours / uniform, worst"] == 0.75  # 3 of 4 seconds
    assert found["additional rows, ours / uniform, geometric mean"] == pytest.approx(0.6)
    assert found["largest error of estimated rows, ours"] == 0.4  # q3 is not one of these queries
    assert found["ms of planning, largest"] == 7
    assert found["CPU of the batch, played twice, worst"] == 1.25
    assert found["final CPU of the batch, played twice, worst"] == 2
    config = {"queries": ["q3", "q17"]}
    met = {target["target"]: target["met"] for target in targets(found, config, rows)}
    assert met["goals met by ours >= 0.9"]
    assert not met["largest error of estimated rows, ours <= 0.25"]
    assert not met["largest error of estimated rows, eager <= 0.25"]  # there is no such row


def test_options() -> None:
    given = parser().parse_args([])
    assert len(given.queries) == 24
    assert given.shares == [1.0, 0.5, 0.2, 0.1, 0.05, 0.02]
    assert given.approaches == ["ours", "uniform", "leaf", "hand", "eager", "batch"]
    assert parser().parse_args(["--shares", "0.1, 0.5,0.1"]).shares == [0.5, 0.1]
    for wrong in (
        ["--queries", "23"],
        ["--shares", "0"],
        ["--shares", "a"],
        ["--parts", "1"],
        ["--approaches", "magic"],
    ):
        with pytest.raises(SystemExit):
            parser().parse_args(wrong)

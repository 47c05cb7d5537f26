"""Figures of the paper, run very small: answers agree, and there are rows, lines, ratios and pictures."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from pyspark.sql import SparkSession
from rich.console import Console
from typer.testing import CliRunner

from headrace.bench.graph import triangle_covariance
from headrace.bench.paper import (
    batch_sizes,
    enumeration,
    figures,
    matrices,
    mutual_information,
    paths,
    throughput,
    training,
    triangle,
)
from headrace.bench.results.enumeration import one_place_a_zip
from headrace.bench.sums import one_sum
from headrace.cli.main import app
from headrace.datasets import dataset
from headrace.errors import HeadraceError

_SVG = "{http://www.w3.org/2000/svg}"


def _run(tmp_path: Path, *argv: str) -> dict[str, Any]:
    place = tmp_path / "state"
    place.mkdir()
    result = figures.run([*argv, "--plots", str(tmp_path / "plots"), "--location", str(place)])
    assert not [row for row in result["results"] if "wrong" in row]
    assert not any(figure["errors"] for figure in result["figures"])
    assert json.loads(json.dumps(result)) == result
    console = Console(file=io.StringIO(), width=200)
    console.print(figures.table(result))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for figure in result["figures"]:
        assert f"Figure {figure['figure']}: {figure['title']}" in shown
        picture = ElementTree.parse(figure["picture"]).getroot()
        classes = {part.get("class") for part in picture.iter(f"{_SVG}circle")}
        assert "here" in classes
    assert list(place.iterdir()) == []
    return result


def _lines(result: dict[str, Any], panel: int) -> dict[str, list[list[float]]]:
    return {
        line["name"]: line["points"] for line in result["figures"][0]["panels"][panel]["lines"] if not line["paper"]
    }


def test_paths(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "JOINS", (3, 4))
    result = _run(tmp_path, "--figure", "27", "--scale", "0.01", "--batch", "60")
    rows = [row for row in result["results"] if row["system"] == "headrace"]
    assert {(row["piece"], row["joins"]) for row in rows} == {(g, j) for g in ("TikTok", "Twitter") for j in (3, 4)}
    assert all(row["figures"] == [27] for row in rows)
    assert _lines(result, 0)["factorized (F-IVM)"] == [[3.0, 2], [4.0, 2]]


def test_matrices(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrices, "SIZES", (256, 512))
    monkeypatch.setattr(matrices, "RANKS", (1, 3))
    result = _run(tmp_path, "--figure", "29", "--scale", "0.1")
    assert [size for size, _ in _lines(result, 0)["factorized (F-IVM)"]] == [26.0, 51.0, 205.0]
    assert [rank for rank, _ in _lines(result, 1)["NumPy (REEVAL)"]] == [1.0, 3.0]
    seconds = {row["case"]: row["seconds"] for row in result["results"]}
    gap = seconds["26, one row: first-order"] / seconds["26, one row: step"]
    assert dict(map(tuple, _lines(result, 2)["factorized (F-IVM)"]))[26.0] == pytest.approx(gap)
    assert any(name.startswith("figure 29, highest rank") for name in result["ratios"])


def test_conjunctive_queries(spark: SparkSession, tmp_path: Path) -> None:
    result = _run(tmp_path, "--figure", "30", "--scale", "0.005", "--batch", "1000")
    rows = {(row["piece"], row["case"], row["scale"]): row for row in result["results"]}
    assert {case for piece, case, _ in rows if piece == "Retailer"} == {*_systems()}
    # All but the largest table are there before, so that what is timed are the changes of inventory.
    retailer = rows["Retailer", "factorized", 0.0025]
    assert (retailer["rows"], retailer["joined_rows"]) == (2_500, 2_500)
    listing, ours = rows["Housing", "listing", 0.04], rows["Housing", "factorized", 0.04]
    here = result["ratios"]["figure 30, Housing: time, listing / factorized"]
    assert here == pytest.approx(listing["seconds"] / ours["seconds"])
    assert result["paper"]["figure 30, Housing: time, listing / factorized"] == 481


def _systems() -> tuple[str, ...]:
    return ("factorized", "listing", "recursive", "recompute")


def test_enumeration(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enumeration, "INTERVALS", (2, 1_000))
    result = _run(tmp_path, "--figure", "26", "--scale", "0.01", "--batch", "400", "--time-limit", "250")
    rows = {(row["piece"], row["variant"], row["interval"]): row for row in result["results"]}
    assert len(rows) == 3 * 4 * 2
    for (piece, variant, interval), row in rows.items():
        assert row["finished"]
        assert row["enumerations"] == row["batches"] // interval
        assert row["joined_rows"] == rows[piece, "eager-list", 2]["joined_rows"] > 0
        # By static tables and dependencies, all three are q-hierarchical.
        assert row.get("update") == ("O(1)" if variant.endswith("fact") else None)
    assert len(_lines(result, 0)) == 4


def _all_lines_are_drawn(result: dict[str, Any]) -> None:
    for panel in result["figures"][0]["panels"]:
        assert any(line["points"] and not line["paper"] for line in panel["lines"]), panel["title"]


def test_training(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "SCALES", {"housing": 0.4, "retailer": 0.4, "favorita": 0.4})
    result = _run(tmp_path, "--figure", "22", "--scale", "0.005", "--batch", "700", "--time-limit", "60")
    _all_lines_are_drawn(result)
    assert len(result["figures"][0]["panels"]) == 6
    assert {training.NONE, training.CONT, training.CLOSED} <= _lines(result, 0).keys()
    assert result["ratios"]["figure 22, Housing: throughput lost, train: from scratch, %"] > 0


def test_covariance_over_triangles(spark: SparkSession, tmp_path: Path) -> None:
    result = _run(tmp_path, "--figure", "23", "--scale", "0.005", "--batch", "200")
    _all_lines_are_drawn(result)
    assert _lines(result, 0).keys() == set(triangle.CASES.values())
    assert result["ratios"][f"figure 23, memory, {triangle.RECURSIVE} / factorized (F-IVM)"] > 0


def test_batch_sizes(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_sizes, "BATCHES", (900,))
    monkeypatch.setattr(batch_sizes, "SCALES", {"housing": 0.4, "retailer": 0.4})
    result = _run(tmp_path, "--figure", "24", "--scale", "0.005", "--time-limit", "30")
    _all_lines_are_drawn(result)
    assert [batch for batch, _ in _lines(result, 0)["factorized (F-IVM)"]] == [900.0]


def test_mutual_information(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutual_information, "SCALES", {"housing": 0.4, "favorita": 0.2})
    result = _run(tmp_path, "--figure", "25", "--scale", "0.005", "--batch", "700", "--time-limit", "60")
    named = _lines(result, 0)
    assert named.keys() == set(mutual_information.CASES)
    assert all(points[-1][0] == 1.0 for points in named.values())
    assert result["ratios"]["figure 25, Housing: throughput lost by MI and tree, %"] > 0


def test_sums(spark: SparkSession, tmp_path: Path) -> None:
    result = _run(tmp_path, "--figure", "28", "--scale", "0.004", "--batch", "2000", "--time-limit", "60")
    assert {row["piece"] for row in result["results"]} == {"Retailer", "Housing"}
    assert any(name.startswith("figure 28, Retailer") for name in result["ratios"])


def test_one_sum_is_that_of_a_recomputation(spark: SparkSession, tmp_path: Path) -> None:
    for data in one_sum.SUMMED:
        argv = ["--data", data, "--scale", "0.01", "--batch", "2000", "--batches", "3", "--location", str(tmp_path)]
        result = one_sum.run(argv)
        rows = {row["case"]: row for row in result["results"]}
        assert set(rows) == {*one_sum.CASES}
        assert not [row for row in rows.values() if "wrong" in row]
        assert all(row["batches"] == rows["factorized"]["batches"] for row in rows.values())
        assert one_sum.table(result).renderables
    assert list(tmp_path.iterdir()) == []


def test_covariance_of_triangles(spark: SparkSession, tmp_path: Path) -> None:
    argv = ["--nodes", "40", "--edges", "200", "--batch", "150", "--location", str(tmp_path)]
    result = triangle_covariance.run(argv)
    rows = {row["case"]: row for row in result["results"]}
    assert list(rows) == list(triangle_covariance.CASES)
    assert not [row for row in rows.values() if "wrong" in row]
    assert {row["triangles"] for row in rows.values()} == {rows["factorized"]["triangles"]}
    assert rows["factorized"]["triangles"] > 0
    assert len(rows["recursive"]["views"]) > len(rows["first-order"]["views"])
    assert triangle_covariance.table(result).renderables


def test_a_piece_that_fails_loses_no_other_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(argv: list[str], tell: object) -> dict[str, Any]:
        asked.append(argv[0])
        if argv[0] == "retailer":
            raise HeadraceError("They disagree.", way_out="Report it.")
        part = {"share": 1.0, "rows_per_s": 5.0, "state_mb": 2.0}
        row = {"system": "headrace", "rows": 5, "seconds": 1.0, "rows_per_s": 5.0, "finished": True, "views": 7}
        return {"results": [{**row, "case": case, "progress": [part]} for case in ("factorized", "first-order")]}

    asked: list[str] = []
    for module in ("covariance.strategies", "mixed.strategies"):
        monkeypatch.setattr(f"headrace.bench.{module}.run", run)
    result = figures.run(["--figure", "20..21", "--plots", str(tmp_path)])
    assert len(asked) == 6  # and not twelve: both figures are of the same runs
    wrong = [row for row in result["results"] if "wrong" in row]
    assert [(row["piece"], row["figures"]) for row in wrong] == [("Retailer CONT", [20, 21])]
    assert "They disagree." in wrong[0]["wrong"]
    assert result["figures"][0]["errors"].keys() == {"Retailer CONT"}
    assert result["ratios"]["figure 20, Housing CONT: throughput, factorized (F-IVM) / first-order (1-IVM)"] == 1.0
    assert len(list(tmp_path.iterdir())) == len(throughput.DATA) - 1


def test_a_figure_that_fails_in_any_way_loses_no_other_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(argv: list[str], tell: object) -> dict[str, Any]:
        if argv[0] == "retailer":
            raise ZeroDivisionError("planted")
        row = {"system": "headrace", "rows": 5, "seconds": 1.0, "rows_per_s": 5.0, "finished": True, "views": 7}
        return {"results": [{**row, "case": case} for case in ("factorized", "first-order")]}  # without their progress

    for module in ("covariance.strategies", "mixed.strategies"):
        monkeypatch.setattr(f"headrace.bench.{module}.run", run)
    done = CliRunner().invoke(app, ["bench", "paper", "--figure", "20..21", "--plots", str(tmp_path), "--json"])
    assert done.exit_code == 1
    result = json.loads(done.stdout)
    first, second = result["figures"]
    assert first["errors"] == {"Retailer CONT": "ZeroDivisionError: planted"}
    assert not first["failure"]
    assert Path(first["picture"]).exists()
    assert "progress" in second["failure"]
    assert len([row for row in result["results"] if "wrong" in row]) == 2
    console = Console(file=io.StringIO(), width=200)
    console.print(figures.table(result))
    assert "WRONG: ZeroDivisionError: planted" in console.file.getvalue()  # type: ignore[attr-defined]


def test_wrong_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["--figure", "31"], ["--figure", "20", "--scale", "0"], ["--figure", "20", "--batch", "0"], []):
        with pytest.raises(SystemExit):
            figures.run(argv)
    assert "there is no figure 31; use 20 to 30" in capsys.readouterr().err


def test_one_place_a_zip() -> None:
    tables = dataset("retailer").generate(1.0 / 50)
    doubled = tables["location"].slice(0, 3)
    zips = doubled.column("zip").combine_chunks()
    location = tables["location"].set_column(1, "zip", [zips.take([0] * tables["location"].num_rows)])
    kept = one_place_a_zip(tables | {"location": location})
    assert kept["location"].num_rows == 1
    (place,) = kept["location"].column("locn").to_pylist()
    assert set(kept["inventory"].column("locn").to_pylist()) <= {place}
    assert kept["census"] is tables["census"]

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from headrace.bench import BENCHMARKS
from headrace.bench.covariance import chow_liu, scikit
from headrace.bench.covariance.baselines import Pieces
from headrace.bench.covariance.batch_files import Batches
from headrace.datasets import dataset, stream
from headrace.errors import HeadraceError


@pytest.mark.parametrize(("data", "features", "columns"), [("retailer", "all", 39), ("favorita", "categorical", 12)])
def test_the_tree_is_compared_with_a_recomputation(
    spark: SparkSession, tmp_path: Path, data: str, features: str, columns: int
) -> None:
    told: list[str] = []
    argv = [
        "--data",
        data,
        "--features",
        features,
        "--scale",
        "0.003",
        "--batch",
        "1500",
        "--bins",
        "8",
        "--location",
        str(tmp_path),
    ]
    result = chow_liu.run([*argv, "--deletes", "0.2", "--batches", "3", "--keep-rows"], told.append)
    assert json.loads(json.dumps(result)) == result
    rows = {row["case"]: row for row in result["results"]}
    both = "counts, mutual information and tree"
    baselines = {f"counts of pairs, {case}" for case in chow_liu.BASELINES}
    assert set(rows) == {"counts of pairs", both, "mixed covariance", "recompute", scikit.INFORMATION, *baselines}
    assert rows[scikit.INFORMATION]["pairs_done"] == columns * (columns - 1) // 2
    assert rows[scikit.INFORMATION]["difference"] <= 1e-9
    assert "scikit-learn after 3 batches / a batch with its tree" in result["ratios"]
    assert result["config"]["columns"] == columns
    assert rows["recompute"]["difference"] <= 1e-9
    alone, both = rows["counts of pairs"], rows[both]
    assert both["seconds"] > alone["seconds"]
    share = result["ratios"]["throughput with the tree after each batch / of the counts alone"]
    assert share == pytest.approx(both["rows_per_s"] / alone["rows_per_s"])
    assert "the target is for scale 5" in result["targets"][0]["not_measured"]
    console = Console(file=io.StringIO(), width=160)
    console.print(chow_liu.table(result))
    assert "recompute" in console.file.getvalue()  # type: ignore[attr-defined]
    assert any("batch 3 of 3" in stage for stage in told)
    assert not list(tmp_path.iterdir())


def test_bins_are_of_equal_width() -> None:
    data = dataset("retailer")
    tables = data.generate(0.002)
    cut = chow_liu.in_bins(data, tables, 10)
    for spec in data.tables:
        for name in spec.features:
            levels = np.unique(cut[spec.name].column(name))
            assert len(levels) <= 10
        assert cut[spec.name].schema.names == tables[spec.name].schema.names
    prize, binned = (made["item"].column("prize").to_numpy() for made in (tables, cut))
    edges = np.linspace(prize.min(), prize.max(), 11)
    assert (np.searchsorted(edges[1:-1], prize, side="right") == binned).mean() > 0.99


def test_a_wrong_matrix_is_noticed() -> None:
    run = chow_liu._Run(chow_liu.TREE, Pieces(Batches(Path(), (1,), False)), matrix=np.zeros((2, 2)))
    with pytest.raises(HeadraceError, match="disagree"):
        chow_liu._compared(run, np.ones((2, 2)))


def test_a_baseline_that_is_too_slow_says_how_far_it_came(spark: SparkSession, tmp_path: Path) -> None:
    argv = ["--scale", "0.003", "--batch", "1500", "--baseline-limit", "0.001", "--location", str(tmp_path)]
    result = chow_liu.run([*argv, "--cases", "tree", "first-order"])
    rows = {row["case"]: row for row in result["results"]}
    assert rows["counts of pairs"]["finished"]
    assert not rows["counts of pairs, first-order"]["finished"]
    assert "of the rows" in rows["counts of pairs, first-order"]["stopped"]
    assert "with 1 of 15 pairs" in rows[scikit.INFORMATION]["stopped"]
    assert any(name.endswith("(at least)") for name in result["ratios"])


def test_without_scikit_learn_a_row_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scikit.importlib.util, "find_spec", lambda name: None)  # type: ignore[attr-defined]
    row = scikit.mutual_information(dataset("retailer"), ("rain", "snow"), np.zeros((2, 2)), {}, 1.0)
    assert row["not_run"] == scikit.regression("a", dataset("retailer"), None, {})["not_run"]
    assert "pip install scikit-learn" in row["not_run"]


def test_pieces_of_a_batch_are_its_rows(tmp_path: Path) -> None:
    tables = dataset("housing").generate(0.002)
    batches = Batches.write(tmp_path, stream(tables, 100), deletes=False)
    pieces = Pieces(batches, 30)
    assert pieces.rows[:4] == (25, 25, 25, 25)
    assert [pieces.whole(count) for count in (3, 4, 5, 8)] == [0, 1, 0, 2]
    for name in tables:
        read = [piece[name] for number in range(4) if name in (piece := pieces.read(number))]
        assert pa.concat_tables(read).equals(batches.read(0)[name])
    assert [sum(t.num_rows for t in pieces.read(n).values()) for n in range(len(pieces))] == list(pieces.rows)
    assert Pieces(batches).rows == batches.rows


def test_it_is_registered() -> None:
    assert BENCHMARKS["chow-liu"].module == "covariance.chow_liu"


def test_other_strategies_count_the_same_pairs(spark: SparkSession, tmp_path: Path) -> None:
    argv = ["--data", "housing", "--scale", "0.002", "--batch", "200", "--bins", "5", "--location", str(tmp_path)]
    argv += ["--features", "all", "--cases", "tree", *chow_liu.BASELINES, "--no-scikit-learn"]
    result = chow_liu.run([*argv, "--progress", "2", "--sorted"])
    rows = {row["case"]: row for row in result["results"]}
    tree = "counts, mutual information and tree"
    assert set(rows) == {"counts of pairs", tree, "recompute", *(f"counts of pairs, {s}" for s in chow_liu.BASELINES)}
    assert rows["recompute"]["difference"] <= 1e-9
    assert [part["share"] for part in rows[tree]["progress"]][-1] == 1.0
    ratio = result["ratios"]["throughput of the counts / of the counts, recursive"]
    counts = rows["counts of pairs"]["rows_per_s"]
    assert ratio == pytest.approx(counts / rows["counts of pairs, recursive"]["rows_per_s"])

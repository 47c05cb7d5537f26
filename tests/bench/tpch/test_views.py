from __future__ import annotations

import json
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from headrace.bench.tpch.data import load_data
from headrace.bench.tpch.ratios import ratios, targets
from headrace.bench.tpch.spark_peer import difference
from headrace.bench.tpch.views import _parser, run, table
from headrace.cli.main import app
from headrace.cli.screen import out
from headrace.datasets.tpch_queries import TPCH_QUERIES, tpch_query
from headrace.engine.engine import Engine
from headrace.engine.handles import View
from headrace.errors import SchemaError, UnsupportedSQLError

ROOT = Path(__file__).parents[3]
SMALL = ["--scale", "0.001", "--steps", "2", "--share", "0.01"]


def by_case(result: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["system"], row["case"]): row for row in result["results"]}


def test_results_ratios_and_targets(spark: SparkSession, tmp_path: Path) -> None:
    told: list[str] = []
    result = run([*SMALL, "--queries", "3,q6", "--together", "--location", str(tmp_path)], told.append)
    rows = by_case(result)
    assert list(rows) == [
        ("headrace", "tables only"),
        *((system, query) for query in ("q3", "q6") for system in ("headrace", "spark")),
        ("headrace", "together"),
        ("headrace", "together, sharing off"),
        ("all", "memory"),
    ]
    for query in ("q3", "q6"):
        ours, theirs = rows["headrace", query], rows["spark", query]
        assert not {"refused", "failed", "wrong"} & ours.keys()
        assert 0 < ours["seconds"] <= ours["max_seconds"]
        assert ours["answer_rows"] == theirs["answer_rows"] > 0
        assert result["ratios"][f"{query}: recompute / (step + read)"] == theirs["seconds"] / (
            ours["seconds"] + ours["read_seconds"]
        )
        assert result["ratios"][f"{query}: load / run by Spark"] == ours["load_seconds"] / theirs["load_seconds"]
    together = rows["headrace", "together"]
    assert together["views"] == ["q3", "q6"]
    alone = rows["headrace", "q3"]["state_mb"] + rows["headrace", "q6"]["state_mb"]
    assert together["state_mb"] == pytest.approx(alone, rel=1e-9)  # a sum of decimals in binary
    assert result["ratios"]["together: bytes of the tables / with no view"] == 1
    assert rows["all", "memory"]["peak_mb"] > rows["all", "memory"]["java_mb"] > 0
    off = rows["headrace", "together, sharing off"]
    assert result["ratios"]["together: step / with sharing off"] == together["seconds"] / off["seconds"]
    assert off["state_mb"] == pytest.approx(alone, rel=1e-9)
    assert [target["queries"] for target in result["targets"]] == [*["2 of 2"] * 4, "2 of 22"]
    assert result["targets"][-1]["met"] is None
    assert "q6 (2 of 2): filling q6" in told
    assert json.loads(json.dumps(result)) == result
    out().print(table(result))
    assert list(tmp_path.iterdir()) == []


def test_what_goes_wrong_is_a_row_that_says_so(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    view, to_arrow, explain = Engine.view, View.to_arrow, View.explain

    def refusing(self: Engine, name: str, *arguments: Any, **options: Any) -> View:
        if name == "q6":
            raise UnsupportedSQLError("planted refusal", way_out="none")
        return view(self, name, *arguments, **options)

    def failing(self: View) -> Any:
        if self.name == "q14":
            raise RuntimeError("planted failure")
        return explain(self)

    monkeypatch.setattr(Engine, "view", refusing)
    monkeypatch.setattr(View, "to_arrow", lambda self: to_arrow(self).slice(0, 3))
    monkeypatch.setattr(View, "explain", failing)
    done = CliRunner().invoke(app, ["bench", "tpch", *SMALL, "--queries", "1,6,14", "--json"])
    assert done.exit_code == 1  # because of the wrong answer
    result = json.loads(done.stdout)
    rows = by_case(result)
    assert rows["headrace", "q1"]["wrong"].startswith("no rows instead of 1 rows such as (")
    assert rows["headrace", "q6"]["refused"] == "planted refusal"
    assert rows["headrace", "q14"]["failed"] == "RuntimeError: planted failure"
    assert rows["spark", "q6"]["seconds"] > 0
    assert set(result["ratios"]) == {"memory, GB"}
    assert {target["queries"] for target in result["targets"]} == {"0 of 3", "0 of 22"}
    assert not any(target["met"] for target in result["targets"])
    out().print(table(result))


def test_engines_do_not_see_what_others_did(spark: SparkSession, tmp_path: Path) -> None:
    data = load_data(spark, tmp_path, 0.001, 2, 0.01, "auto", lambda stage: None)
    orders = []
    for _ in range(2):
        with data.opened() as engine:
            before = engine.tables["orders"].to_arrow()["o_orderkey"].to_pylist()
            for changes in data.steps:
                engine.apply(changes)
            orders.append((sorted(before), sorted(engine.tables["orders"].to_arrow()["o_orderkey"].to_pylist())))
            assert engine.verify() == []
    assert orders[0] == orders[1]
    for peer, expected in zip((data.before, data.after), orders[0], strict=True):
        assert sorted(peer.answer("SELECT o_orderkey FROM orders")["o_orderkey"].to_pylist()) == expected


def test_answers_are_compared_as_far_as_the_query_promises() -> None:
    sql = "SELECT name, n\nFROM t\nORDER BY n DESC\nLIMIT 2\n"
    all_rows = pa.table({"name": ["a", "b", "c"], "n": [2, 1, 1]})
    assert difference(sql, all_rows.slice(0, 2), all_rows) is None
    assert difference(sql, all_rows.take([0, 2]), all_rows) is None  # either of the rows that tie
    assert difference(sql, all_rows.slice(1), all_rows) == "row 0 has (1,) where (2,) belongs"
    assert difference(sql, all_rows.take([1, 0]), all_rows) == "row 0 has (1,) where (2,) belongs"
    assert difference(sql, all_rows.slice(0, 1), all_rows) == "1 rows instead of 2"
    assert (
        difference(sql, all_rows.take([0, 0]), all_rows) == "1 rows such as ('a', 2) instead of 2 rows such as ('b', 1)"
    )
    whole = sql.partition("\nORDER")[0]
    assert difference(whole, all_rows.take([2, 1, 0]), all_rows) is None
    assert difference(whole, all_rows.slice(1), all_rows) == "no rows instead of 1 rows such as ('a', 2)"
    wider = all_rows.set_column(1, "n", pa.array([Decimal(2), Decimal(1), Decimal(1)]))
    assert str(difference(whole, wider, all_rows)).startswith("columns name string, n decimal(1,0) instead of")


def test_ratios_are_of_right_answers_only_and_targets_of_all() -> None:
    def ours(case: str, **more: Any) -> dict[str, Any]:
        numbers = {"seconds": 0.4, "mean_seconds": 0.9, "read_seconds": 0.1, "load_seconds": 3.0, "table_mb": 7.0}
        return {"system": "headrace", "case": case, **numbers, **more}

    theirs = [{"system": "spark", "case": f"q{i}", "seconds": s, "load_seconds": 2.0} for i, s in ((1, 5.0), (2, 80.0))]
    views = ["q1", "q2"]
    memory = {"system": "all", "case": "memory", "peak_mb": 5_000.0}
    rows = [ours("tables only"), ours("q1"), ours("q2"), *theirs, memory, ours("together", views=views, seconds=1.9)]
    found = ratios(rows)
    assert found["recompute / (step + read), geometric mean"] == pytest.approx(40)  # of 10 and 160
    assert found["recompute / (step + read) (mean step), geometric mean"] == pytest.approx(20)
    assert found["recompute / (step + read), least"] == 10
    assert found["load / run by Spark, most"] == 1.5
    assert found["together: recompute / (step + read)"] == 42.5
    assert found["together: step / sum of the steps of each view alone"] == pytest.approx(1.9 / 0.8)
    assert [target["met"] for target in targets(found, rows)] == [*[True] * 4, None]
    assert found["memory, GB"] == 5
    rows[1] = {"system": "headrace", "case": "q1", "refused": "for now"}
    rows[-1] = ours("together", views=["q2"], seconds=1.9, refused="q1: for now")
    found = ratios(rows)
    assert found["recompute / (step + read), geometric mean"] == pytest.approx(160)
    assert found["together: recompute / (step + read)"] == 40
    assert [target["met"] for target in targets(found, rows)] == [*[False] * 4, None]


def test_all_queries_together_are_compared_with_those_that_share_nothing() -> None:
    views = [f"q{number}" for number in range(1, 23)]
    numbers = {"system": "headrace", "mean_seconds": 0.9, "read_seconds": 0.1, "load_seconds": 3.0, "table_mb": 7.0}
    rows: list[dict[str, Any]] = [{**numbers, "case": "tables only", "seconds": 0.1}]
    rows += [{**numbers, "case": name, "seconds": 0.4, "state_mb": 1.0} for name in views]
    rows += [{"system": "spark", "case": name, "seconds": 8.0, "load_seconds": 2.0} for name in views]
    rows.append({**numbers, "case": "together", "views": views, "seconds": 0.6, "state_mb": 3.0})
    rows.append({**numbers, "case": "together, sharing off", "views": views, "seconds": 1.0, "state_mb": 4.0})
    found = ratios(rows)
    assert found["together: step / with sharing off"] == 0.6
    assert found["together: state / with sharing off"] == 0.75
    assert targets(found, rows)[-1] == {
        "target": "together: step / with sharing off <= 0.7",
        "value": 0.6,
        "met": True,
        "queries": "22 of 22",
    }


def test_options_name_queries() -> None:
    assert len(_parser().parse_args([]).queries) == len(_parser().parse_args(["--queries", "all"]).queries) == 22
    assert _parser().parse_args(["--queries", "q_a, 13,q13"]).queries == ["q_a", "q13"]
    for wrong in (["--queries", "23"], ["--queries", ""], ["--steps", "0"], ["--strategy", "magic"]):
        with pytest.raises(SystemExit):
            _parser().parse_args(wrong)


def test_texts_of_queries() -> None:
    assert all(tpch_query(name).startswith(("SELECT", "WITH")) for name in TPCH_QUERIES)
    assert {path.stem for path in (ROOT / "tests" / "fixtures" / "tpch").iterdir()} == set(TPCH_QUERIES)
    with pytest.raises(SchemaError, match="no query 'q23'"):
        tpch_query("q23")


def test_a_built_package_has_the_queries(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    # As little as setup.py needs, so that any version of setuptools will do, and nothing is written into the checkout.
    source, built = tmp_path / "source", tmp_path / "built"
    package = Path("src", "headrace")
    (source / package / "datasets").mkdir(parents=True)
    for name in ("__init__.py", "datasets/__init__.py"):
        (source / package / name).touch()
    for name in ("setup.py", package / "errors.py", package / "datasets" / "tpch_queries.py"):
        shutil.copy(ROOT / name, source / name)
    shutil.copytree(ROOT / "tests" / "fixtures" / "tpch", source / "tests" / "fixtures" / "tpch")
    execute([sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(built)], source)
    shutil.rmtree(source)
    read = "from headrace.datasets.tpch_queries import *; print([tpch_query(name) for name in TPCH_QUERIES])"
    assert execute([sys.executable, "-c", read], built).strip() == str([tpch_query(name) for name in TPCH_QUERIES])


def execute(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout

"""Paces by wrong statistics, in bursts and with deletes: what is played, right answers, figures and pictures."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.bench.pace import final_work
from headrace.bench.pace.arrival import BURSTS, CALM, EVEN, Arrival
from headrace.bench.pace.bias import biased
from headrace.bench.pace.deletes import deletable, with_deletes
from headrace.bench.pace.options import parser
from headrace.bench.pace.plots import save_plots
from headrace.bench.pace.summary import is_goal
from headrace.bench.pace.variants import label, variant_ratios
from headrace.cli.screen import out
from headrace.datasets.batches import DIFF
from headrace.datasets.tpch import TPCH_SCHEMAS
from headrace.thrifty import cardinalities as c
from headrace.thrifty.simulate import FlatPlan, simulated
from headrace.thrifty.unit_costs import UnitCosts

SMALL = ["--scale", "0.002", "--parts", "10", "--shares", "0.5,0.1"]
BESIDE = {"met", "latency_ratio", "additional_rows", "additional_cpu_seconds"}
SVG = "{http://www.w3.org/2000/svg}"


# -- what is played -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [EVEN, BURSTS, CALM])
@pytest.mark.parametrize("parts", [1, 2, 3, 10, 100])
def test_shares_of_an_arrival_add_up(kind: str, parts: int) -> None:
    ends = Arrival(kind, parts).ends()
    assert len(ends) == parts
    assert ends[-1] == 1
    assert all(first < end for first, end in pairwise([Fraction(0), *ends]))


def test_bursts_are_few_and_large() -> None:
    for kind, last in ((BURSTS, True), (CALM, False)):
        sizes = [end - first for first, end in pairwise([Fraction(0), *Arrival(kind, 100).ends()])]
        assert [size > Fraction(1, 10) for size in sizes].count(True) == 5
        assert [size == Fraction(1, 1000) for size in sizes].count(True) == 95
        assert (sizes[-1] > Fraction(1, 10)) == last


def test_a_stream_has_all_rows_in_order() -> None:
    tables = {"region": pa.table({"x": range(7)}), "orders": pa.table({"y": range(100)})}
    stream = Arrival(BURSTS, 10).stream(tables)
    assert stream.changed == 107
    assert stream.left == tables
    for name, table in tables.items():
        assert pa.concat_tables([step[name] for step in stream.steps if name in step]).equals(table)


def test_rows_are_deleted_once_and_after_they_came() -> None:
    ends = [30, 31, 60, 100]
    steps, left = with_deletes(pa.table({"x": range(100)}), ends, 0.2)
    there: set[int] = set()
    deleted = 0
    for first, end, step in zip([0, *ends], ends, steps, strict=False):
        new, gone = ([row["x"] for row in step.to_pylist() if row[DIFF] == diff] for diff in (1, -1))
        assert new == list(range(first, end))
        assert there.issuperset(gone)
        there = (there - set(gone)) | set(new)
        deleted += len(gone)
    assert deleted == 14  # a fifth of the 70 rows that came after the first part
    assert sorted(there) == left["x"].to_pylist()


def test_only_rows_to_which_none_refers_are_deleted() -> None:
    assert deletable(TPCH_SCHEMAS) == {"lineitem"}
    assert deletable(["supplier", "partsupp", "lineitem"]) == {"lineitem"}
    assert deletable(["part", "partsupp", "supplier"]) == {"partsupp"}
    tables = {"customer": pa.table({"x": range(50)}), "orders": pa.table({"y": range(100)})}
    stream = Arrival(EVEN, 10, deletes=0.5).stream(tables)
    assert stream.left["customer"] is tables["customer"]
    assert stream.left["orders"].num_rows == 55
    assert stream.changed == 150 + 45


# -- wrong statistics -----------------------------------------------------------------------------------------------


def orders_by_customer(kind: int = c.INNER) -> FlatPlan:
    """A join of 1000 orders with 100 customers, which gives 500 rows, and their 50 groups."""
    parameters = np.zeros((2, c.PARAMETERS))
    join = {c.LEFT_ROWS: 1000, c.RIGHT_ROWS: 100, c.PAIRS: 500, c.MATCHED: 0.5, c.PARTNERS: 1, c.SCALE: 1}
    for at, value in {**join, c.LEFT_CHURN: 0.5, c.RIGHT_CHURN: 5}.items():
        parameters[0, at] = value
    parameters[1, [c.GROUPS, c.ROWS, c.NEW, c.SHOWN, c.KAPPA]] = 50, 500, 50, 1, 0.5
    arriving = np.zeros((2, 2, 3))
    arriving[0, 0, 0], arriving[0, 1, 0] = 1000, 100
    kinds, path_of = np.array([kind, c.GROUP]), np.array([[0, 1], [2, -1]])
    feeds, passing = np.array([[0, 1, 0]]), np.eye(3)[None]
    return FlatPlan(kinds, parameters, path_of, arriving, feeds, passing, ("0.left", "0.right", "1"), ((0, 2), (1, 2)))


def test_errors_of_operators_come_on_top_of_each_other() -> None:
    plan = orders_by_customer()
    for factor in (0.5, 2.0):
        wrong = biased(plan, factor)
        join, group = wrong.parameters
        assert join[[c.LEFT_ROWS, c.RIGHT_ROWS, c.PAIRS]].tolist() == [1000 * factor, 100 * factor, 500 * factor**2]
        assert join[[c.LEFT_CHURN, c.RIGHT_CHURN]].tolist() == [0.5 * factor, 5 * factor]
        assert group[[c.ROWS, c.GROUPS, c.NEW]] == pytest.approx([500 * factor**2, 50 * factor**3, 50 * factor**3])
        work = simulated(wrong, (1, 1, 1), UnitCosts.alike(2, 0.0, 1.0, 0.0), 10)
        assert work.rows[0] == pytest.approx(1100 * factor)
    right = biased(plan, 1.0)
    assert np.array_equal(right.parameters, plan.parameters)
    assert np.array_equal(right.arriving, plan.arriving)


@pytest.mark.parametrize("kind", [c.INNER, c.LEFT, c.SEMI, c.ANTI, c.FLAG, c.FULL])
@pytest.mark.parametrize("factor", [1e-3, 0.5, 2.0, 1e3])
def test_a_wrong_plan_could_be_one(kind: int, factor: float) -> None:
    wrong = biased(orders_by_customer(kind), factor)
    join, group = wrong.parameters
    assert np.isfinite(wrong.parameters).all()
    assert 0 <= join[c.MATCHED] <= 1
    assert join[c.PARTNERS] >= 1
    assert group[c.NEW] <= group[c.GROUPS] <= max(1.0, group[c.ROWS])
    for paces in ((1, 1, 1), (10, 5, 2)):
        work = simulated(wrong, paces, UnitCosts.alike(2, 1.0, 1.0, 1.0), 10)
        assert np.isfinite([work.total, work.final]).all()


def test_a_total_stays_one_group() -> None:
    plan = orders_by_customer()
    parameters = plan.parameters.copy()
    parameters[1, [c.GROUPS, c.NEW]] = 1
    wrong = biased(replace(plan, parameters=parameters), 2.0)
    assert wrong.parameters[1, [c.GROUPS, c.NEW]].tolist() == [1, 1]


# -- runs -----------------------------------------------------------------------------------------------------------


def test_bias_and_bursts_are_rows_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    more = ["--queries", "17", "--bias", "0.5,2", "--bursts", "--plots", str(tmp_path / "plots")]
    result = final_work.run([*SMALL, *more, "--approaches", "ours,uniform,batch"])
    rows = [row for row in result["results"] if "approach" in row]
    assert not any({"wrong", "failed"} & row.keys() for row in result["results"])
    counts = {what: sum(label(row) == what for row in rows) for what in map(label, rows)}
    assert counts == {"": 6, "bias 0.5": 4, "bias 2": 4, BURSTS: 6, CALM: 6}
    plain = {(row["share"], row["approach"]): row for row in rows if is_goal(row)}
    for row in rows:
        assert row["met"] == (row["latency_ratio"] <= row["share"])
        usual = plain[row["share"], row["approach"]]
        if "bias" in row:
            assert {key: row[f"unbiased_{key}"] for key in BESIDE} == {key: usual[key] for key in BESIDE}
        if "arrival" in row:
            assert row["paces"] == usual["paces"]
            assert row["flushes"] <= usual["flushes"], "a burst flushes a path once, however many flushes are due"
            assert {key: row[f"even_{key}"] for key in BESIDE} == {key: usual[key] for key in BESIDE}
    assert {"bias", "bursts", "deletes"} < result["config"].keys()
    assert json.loads(json.dumps(result)) == result
    assert [path.name for path in (tmp_path / "plots").iterdir()] == ["pace-q17.svg"]
    out().print(final_work.table(result))


def test_answers_with_deletes_are_those_of_the_rows_that_are_left(spark: SparkSession) -> None:
    more = ["--queries", "13,21", "--deletes", "0.3", "--bursts", "--approaches", "ours,eager,batch"]
    result = final_work.run([*SMALL, *more])
    assert not any({"wrong", "failed"} & row.keys() for row in result["results"])
    about = {row["query"]: row for row in result["results"] if "batch_rows" in row}
    assert all(0 < row["deleted_rows"] < 0.3 * row["inserted_rows"] for row in about.values())
    assert set(about) == {"q13", "q21"}
    out().print(final_work.table(result))


# -- figures and pictures -------------------------------------------------------------------------------------------


def goal(approach: str, share: float, cpu: float, ratio: float, **more: Any) -> dict[str, Any]:
    row = {"query": "q1", "approach": approach, "share": share, "feasible": True, "met": ratio <= share}
    return {**row, "additional_cpu_seconds": cpu, "additional_rows": 100 * cpu, "latency_ratio": ratio, **more}


def test_figures_of_variants_are_over_the_usual_goals() -> None:
    rows = [
        goal("ours", 0.5, 1.0, 0.4),
        goal("ours", 0.1, 3.0, 0.1),
        goal("ours", 0.02, 9.0, 0.2, feasible=False),
        goal("ours", 0.5, 1.0, 0.6, bias=2.0),
        goal("ours", 0.1, 7.0, 0.1, bias=2.0, feasible=False),
        goal("ours", 0.02, 90.0, 0.01, bias=2.0),
        goal("ours", 0.5, 0.0, 0.4, arrival=BURSTS),
        goal("ours", 0.1, 2.0, 0.3, arrival=BURSTS),
        goal("batch", 0.5, 0.0, 0.9, arrival=BURSTS),
        {"query": "q1", "batch_rows": 1000.0, "batch_cpu_seconds": 10.0},
    ]
    found = variant_ratios(rows)
    assert found["goals met by ours, bias 2"] == 0.5
    assert found["additional CPU, ours, bias 2 / without, worst"] == 2
    assert found["additional rows, ours, bias 2 / without, geometric mean"] == pytest.approx(2)
    assert found[f"goals met by ours, {BURSTS}"] == 0.5
    assert found[f"goals met by batch, {BURSTS}"] == 0
    assert found[f"additional CPU, ours, {BURSTS} / without, worst"] == 0.5
    assert not variant_ratios([*rows, {"query": "q1", "wrong": "planted"}])


def test_a_picture_per_query_marks_goals_that_were_met(tmp_path: Path) -> None:
    rows = [goal("ours", 0.5, 0.1, 0.4), goal("ours", 0.1, 0.3, 0.2), goal("batch", 0.5, -0.01, 1.2)]
    rows += [goal("uniform", share, 0.2, 0.3) for share in (0.5, 0.1)]  # the same paces for both goals, one met
    rows += [goal("ours", 0.5, 99.0, 0.1, bias=2.0), {**goal("eager", 0.5, 0.0, 0.001), "query": "../<q&2>"}]
    files = save_plots(tmp_path, rows)
    assert [path.parent for path in files] == [tmp_path] * 2
    assert [path.name for path in files] == ["pace-q1.svg", "pace-..%2F%3Cq%262%3E.svg"]
    drawn = [ElementTree.parse(path).getroot() for path in files]
    assert [root.get("width") for root in drawn] == ["640", "640"]
    lines = [path.get("class") for path in drawn[0].iter(f"{SVG}path") if path.get("class")]
    assert lines == ["batch", "uniform", "ours"]  # the first is above the others
    marks = [mark.get("class") for mark in drawn[0].iter(f"{SVG}circle")]
    assert marks == ["missed", "missed", "met", "missed", "met", "missed"]  # the last two are the legend's
    for root in drawn:
        for mark in root.iter(f"{SVG}circle"):
            assert 0 < float(mark.get("cx", 0)) < 640
    assert drawn[1].findtext(f"{SVG}title") == "../<q&2>: fresh or cheap"


def test_options_of_variants() -> None:
    usual = parser().parse_args([])
    assert (usual.bias, usual.bursts, usual.deletes, usual.plots) == ([], False, 0.0, None)
    assert parser().parse_args(["--bias", "2, 0.5,2"]).bias == [0.5, 2.0]
    for wrong in (["--bias", "0"], ["--bias", "inf"], ["--bias", "nan"], ["--deletes", "1"], ["--deletes", "a"]):
        with pytest.raises(SystemExit):
            parser().parse_args(wrong)

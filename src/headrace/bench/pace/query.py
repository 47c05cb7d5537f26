"""One query of the pace benchmark: learning, choosing, measuring, and comparing the answers.

All paces that are to be compared are views of one pass. Paces that were chosen by wrong statistics are among them: what
they do is measured over the same rows. Another arrival of rows is another pass, with the paces that were chosen for the
even one.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.bench.pace.approaches import APPROACHES, BATCH, OURS, UNIFORM, Choice, Model
from headrace.bench.pace.arrival import BURSTS, CALM, EVEN, Arrival, Stream
from headrace.bench.pace.playing import Paces, Pass, Played, middle, play
from headrace.bench.pace.variants import beside
from headrace.bench.tpch.spark_peer import SparkPeer, write_parquet
from headrace.datasets.tpch_queries import tpch_query
from headrace.testing.oracle import assert_same
from headrace.thrifty.schedule import LEARNING

Tell = Callable[[str], None]
Row = dict[str, Any]
SHOWN = 300  # characters of an error

_WARM_PARTS = 4
_AGAIN = "again"  # the batch once more, as the last view: what differs between the two is noise
_BIASED = (OURS, UNIFORM)  # approaches that choose by the model, and are tried with a wrong one
_IN_BURSTS = (OURS, UNIFORM, BATCH)


@dataclass(frozen=True)
class Data:
    """TPC-H at the scale of the run and at a small one, and Spark over the former."""

    spark: SparkSession
    folder: Path
    tables: Mapping[str, pa.Table]
    small: Mapping[str, pa.Table]
    peer: SparkPeer

    def peer_after(self, stream: Stream) -> SparkPeer:
        """Spark over the rows that are left in the end, which are all if none were deleted."""
        if all(rows is self.tables[name] for name, rows in stream.left.items()):
            return self.peer
        folder, files = Path(tempfile.mkdtemp(prefix="left-", dir=self.folder)), self.spark.sparkContext
        left = {
            name: write_parquet(folder / name, rows, files.defaultParallelism) for name, rows in stream.left.items()
        }
        return SparkPeer(self.spark, left)


@dataclass(frozen=True)
class _Goal:
    """Who chose paces for which share, and the factor by which the statistics were wrong, if they were."""

    approach: str
    share: float
    bias: float | None = None


@dataclass(frozen=True)
class _Query:
    """What is known of a query before its paces are measured.

    Parameters
    ----------
    models : by the factor of the bias; that under None is right.
    chosen : for each goal.
    """

    name: str
    sql: str
    models: Mapping[float | None, Model]
    chosen: Mapping[_Goal, Choice]

    @cached_property
    def views(self) -> dict[tuple[int, ...], str]:
        """Names of views by their paces: the same paces are one view."""
        names = {self.models[None].search().batch: BATCH}
        for choice in self.chosen.values():
            names.setdefault(choice.chosen.paces, f"v{len(names)}")
        return names

    def row(self, goal: _Goal, measured: Pass, at_once: float, *what: str) -> Row:
        """What is told of one goal."""
        choice, model = self.chosen[goal], self.models[goal.bias]
        played = measured.views[self.views[choice.chosen.paces]]
        case = " ".join((self.name, goal.approach, f"{goal.share:g}", *what))
        return {
            "system": "headrace",
            "case": case,
            "query": self.name,
            "approach": goal.approach,
            "share": goal.share,
            **_figures(choice, goal.share, played, measured.views[BATCH], model, at_once),
        }


def measure(data: Data, name: str, options: argparse.Namespace, tell: Tell) -> list[Row]:
    """Measure one query; return its rows: those of each goal, and one about the query."""
    sql, arrival = tpch_query(name), Arrival(EVEN, options.parts, options.deletes)

    def playing(tables: Mapping[str, pa.Table], how: Arrival, views: Mapping[str, Paces]) -> Pass:
        return play(data.spark, data.folder, tables, sql, how, views)

    tell("compiling")
    playing(data.small, Arrival(EVEN, _WARM_PARTS, options.deletes), {BATCH: 1, "partial": _WARM_PARTS})
    tell("learning from a batch and from flushes of several sizes")
    seen = playing(data.tables, arrival, {BATCH: 1, "partial": LEARNING}).views
    model = Model.of(seen[BATCH], seen["partial"], options.parts)
    tell("choosing paces")
    query = _chosen(name, sql, model, options)
    planning = model.planning_ms()  # after searches that have compiled all of it
    names = query.views
    views: dict[str, Paces] = {view: dict(zip(model.plan.paths, paces, strict=True)) for paces, view in names.items()}
    passes = []
    for number in range(options.repeat):
        tell(f"measuring {len(names)} different paces" + (f" ({number + 1} of {options.repeat})" if number else ""))
        passes.append(playing(data.tables, arrival, {**views, _AGAIN: 1}))
    measured = middle(passes)
    tell("everything in one step")
    at_once = playing({**data.tables, **measured.stream.left}, Arrival(EVEN, 1), {BATCH: 1}).views[BATCH].cpu
    tell("comparing the answers")
    wrong = _wrong(data, sql, measured)
    rows: dict[_Goal, Row] = {}
    for goal, choice in query.chosen.items():
        row = query.row(goal, measured, at_once, *([] if goal.bias is None else [f"bias {goal.bias:g}"]))
        if goal.bias is not None:  # the right ones have been told before
            row |= {"bias": goal.bias, **beside("unbiased", rows[_Goal(goal.approach, goal.share)])}
        rows[goal] = {**row, **wrong[names[choice.chosen.paces]]}
    told = list(rows.values())
    for kind in (BURSTS, CALM) if options.bursts else ():
        tell(f"measuring {kind}")
        own = {goal: row for goal, row in rows.items() if goal.bias is None and goal.approach in _IN_BURSTS}
        used = {BATCH, *(names[query.chosen[goal].chosen.paces] for goal in own)}
        burst = playing(
            data.tables,
            Arrival(kind, options.parts, options.deletes),
            {view: views[view] for view in views if view in used},
        )
        bad = _wrong(data, sql, burst)
        for goal, even in own.items():
            row = {**query.row(goal, burst, at_once, kind), "arrival": kind, **beside("even", even)}
            told.append({**row, **bad[names[query.chosen[goal].chosen.paces]]})
    return [*told, _about(name, len(names), model, measured, options.shares, at_once, planning)]


def _chosen(name: str, sql: str, model: Model, options: argparse.Namespace) -> _Query:
    """Choose paces for all goals, by the model as learnt and then by wrong ones."""
    models: dict[float | None, Model] = {None: model, **{factor: model.biased(factor) for factor in options.bias}}
    chosen = {
        _Goal(approach, share, bias): by.choice(approach, share)
        for bias, by in models.items()
        for approach in APPROACHES
        if bias is None or approach in _BIASED
        for share in options.shares
    }
    kept = {goal: choice for goal, choice in chosen.items() if goal.approach in options.approaches}
    return _Query(name, sql, models, kept)


def _about(
    name: str, views: int, model: Model, measured: Pass, shares: list[float], at_once: float, planning: float
) -> Row:
    """What is told of the query itself."""
    batch, again, stream = measured.views[BATCH], measured.views[_AGAIN], measured.stream
    left = sum(rows.num_rows for rows in stream.left.values())
    return {
        "system": "all",
        "case": f"{name}: whole pass",
        "query": name,
        "views": views,
        "paths": len(model.plan.paths),
        "inserted_rows": (stream.changed + left) // 2,
        "deleted_rows": (stream.changed - left) // 2,
        "answer_rows": batch.answer.num_rows,
        "seconds": measured.seconds,
        "python_cpu_seconds": measured.python_cpu,
        "jvm_cpu_seconds": measured.java_cpu,
        "held_cpu_seconds": batch.held,
        "batch_cpu_seconds": batch.cpu,
        "batch_final_cpu_seconds": batch.final_cpu,
        "batch_again_cpu_seconds": again.cpu,
        "batch_again_final_cpu_seconds": again.final_cpu,
        "batch_met": [share for share in shares if batch.final_cpu <= share * batch.cpu],
        "batch_rows": batch.rows,
        "at_once_cpu_seconds": at_once,
        "planning_ms": planning,
    }


def _figures(choice: Choice, share: float, view: Played, batch: Played, model: Model, at_once: float) -> Row:
    """What was estimated of paces, and what was measured."""
    work = choice.chosen.work
    latency = view.final_cpu / batch.cpu  # all that the batch does: holding the rows, and one flush
    return {
        "paces": dict(choice.paces),
        "flushes": len(view.flushes),
        "total_rows": view.rows,
        "final_rows": view.final_rows,
        "additional_rows": view.rows - batch.rows,
        "cpu_seconds": view.cpu,
        "final_cpu_seconds": view.final_cpu,
        "held_cpu_seconds": view.held,
        "additional_cpu_seconds": view.cpu - batch.cpu,
        "latency_ratio": latency,
        "met": latency <= share,
        "final_rows_ratio": view.final_rows / batch.final_rows if batch.final_rows else 0.0,
        "final_cpu_ratio": view.final_cpu / batch.final_cpu,
        "at_once_ratio": view.final_cpu / at_once,
        "feasible": bool(choice.chosen.feasible),
        "planning_ms": choice.milliseconds,
        "estimated_rows": work.total_rows,
        "estimated_final_rows": work.final_rows,
        "estimated_cpu_seconds": model.held + work.total / 1e6,
        "estimated_final_cpu_seconds": work.final / 1e6,
        "estimated_latency_ratio": work.final / model.search().everything,
        "row_error": work.total_rows / view.rows - 1 if view.rows else 0.0,
    }


def _wrong(data: Data, sql: str, measured: Pass) -> dict[str, dict[str, str]]:
    """Per view what is wrong with its answer, as part of a row: that of the batch is Spark's, and all are the same."""
    batch = measured.views[BATCH].answer
    found = {name: _difference(played.answer, batch) for name, played in measured.views.items()}
    different = data.peer_after(measured.stream).difference(sql, batch)
    if different is not None:
        found = dict.fromkeys(found, different)
    return {name: {} if text is None else {"wrong": text[:SHOWN]} for name, text in found.items()}


def _difference(answer: pa.Table, batch: pa.Table) -> str | None:
    try:
        assert_same(answer, batch)
    except AssertionError as error:
        return f"not the answer of the batch: {error}"
    return None

"""Goals of final work for the queries of TPC-H: which paces are chosen, whether the goals are met, and at what cost.

Per query, all of TPC-H comes in equal parts, and the trigger is its last row. A first pass has two views, one that does
everything at the trigger and one that is flushed as a new view is, in portions of several sizes; the cost model is
fitted to what their flushes counted. Each approach then chooses paces for each share, and in a second pass all
different paces are views over the same steps: approaches that chose the same paces share one. In the end all of these
views must have the same answer, which is Spark's. Another pass brings all rows in one step: holding many small steps
costs more than that, so the share of final work in it is the larger one. A small TPC-H goes through the query
beforehand, which compiles the kernels.

CPU is that of the driver, where flushes run, and is noisy: the batch is played twice to show by how much. Rows that
operators take are the same in every run of the same paces.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.bench.measuring.peak_memory import release_memory
from headrace.bench.pace.approaches import APPROACHES, BATCH, Choice, Model
from headrace.bench.pace.playing import Pass, Played, play
from headrace.bench.pace.screen import table
from headrace.bench.pace.summary import ratios, targets
from headrace.bench.tpch.spark_peer import SparkPeer, write_parquet
from headrace.datasets.tpch import tpch_tables
from headrace.datasets.tpch_queries import TPCH_22, TPCH_QUERIES, tpch_query
from headrace.runtime.session import local_session
from headrace.testing.oracle import assert_same
from headrace.thrifty.schedule import LEARNING

__all__ = ["run", "table"]

Tell = Callable[[str], None]

_ALL = (*TPCH_22, "q_aggjoin", "q_outer")
_SHARES = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02)
_WARM_SCALE, _WARM_PARTS = 0.01, 4
_AGAIN = "again"  # the batch once more, as the last view: what differs between the two is noise
_SHOWN = 300  # characters of an error


def run(argv: list[str], tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Run the benchmark; see `--help` for its options."""
    options = _parser().parse_args(argv)
    spark = local_session()
    root = Path(tempfile.mkdtemp(prefix="headrace-bench-", dir=options.location))
    try:
        return _run(spark, root, options, tell)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="headrace bench pace", description=__doc__)
    add = made.add_argument
    add("--scale", type=float, default=0.1, help="TPC-H's scale factor (default 0.1)")
    add(
        "--queries",
        type=lambda text: _queries(made, text),
        default=list(_ALL),
        help="with commas, as in 3,17,q_outer; all (the default) are 1 to 22, q_aggjoin and q_outer",
    )
    add(
        "--shares",
        type=lambda text: _shares(made, text),
        default=list(_SHARES),
        help="final work as shares of doing everything at the trigger (default 1.0,0.5,0.2,0.1,0.05,0.02)",
    )
    add("--parts", type=lambda text: _parts(made, text), default=100, help="steps in which rows come (default 100)")
    add(
        "--approaches",
        type=lambda text: _approaches(made, text),
        default=list(APPROACHES),
        help=f"with commas (default {','.join(APPROACHES)})",
    )
    add("--location", type=Path, default=None, help="folder for files and state (default: a temporary one)")
    return made


def _split(text: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _queries(parser: argparse.ArgumentParser, text: str) -> list[str]:
    if text == "all":
        return list(_ALL)
    chosen = list(dict.fromkeys(f"q{part}" if part.isdecimal() else part for part in _split(text)))
    if not chosen or any(name not in TPCH_QUERIES for name in chosen):
        parser.error(f"--queries {text}: use all, or some of {', '.join(TPCH_QUERIES)}")
    return chosen


def _shares(parser: argparse.ArgumentParser, text: str) -> list[float]:
    try:
        chosen = [float(part) for part in _split(text)]
    except ValueError:
        chosen = []
    if not chosen or any(not 0 < share <= 1 for share in chosen):
        parser.error(f"--shares {text}: give numbers above 0 and at most 1, with commas")
    return sorted(set(chosen), reverse=True)


def _parts(parser: argparse.ArgumentParser, text: str) -> int:
    if not text.isdecimal() or int(text) < 2:
        parser.error(f"--parts {text}: give a number from 2")
    return int(text)


def _approaches(parser: argparse.ArgumentParser, text: str) -> list[str]:
    chosen = _split(text)
    if not chosen or any(name not in APPROACHES for name in chosen):
        parser.error(f"--approaches {text}: use some of {', '.join(APPROACHES)}")
    return chosen


@dataclass(frozen=True)
class _Data:
    """TPC-H at the scale of the run and at a small one, and Spark over the former."""

    spark: SparkSession
    folder: Path
    tables: Mapping[str, pa.Table]
    small: Mapping[str, pa.Table]
    peer: SparkPeer


def _run(spark: SparkSession, root: Path, options: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    tell(f"making TPC-H at scale {options.scale:g}")
    tables = tpch_tables(options.scale)
    small = tables if options.scale <= _WARM_SCALE else tpch_tables(_WARM_SCALE)
    files = spark.sparkContext.defaultParallelism
    peer = SparkPeer(
        spark, {name: write_parquet(root / "parquet" / name, rows, files) for name, rows in tables.items()}
    )
    data = _Data(spark, root, tables, small, peer)
    results: list[dict[str, Any]] = []
    for number, name in enumerate(options.queries, 1):
        about = f"{name} ({number} of {len(options.queries)})"
        try:
            results += _query(data, name, options, lambda stage, about=about: tell(f"{about}: {stage}"))  # type: ignore[misc]
        except Exception as error:
            if os.environ.get("HEADRACE_DEBUG") == "1":
                raise
            failed = " ".join(f"{type(error).__name__}: {error}".split())[:_SHOWN]
            results.append({"system": "headrace", "case": name, "query": name, "failed": failed})
        release_memory()
    config = {
        **{key: value for key, value in vars(options).items() if key != "location"},
        "cores": files,
        "rows": sum(rows.num_rows for rows in tables.values()),
    }
    found = ratios(results)
    return {
        "bench": "pace",
        "config": config,
        "results": results,
        "ratios": found,
        "targets": targets(found, config, results),
    }


def _query(data: _Data, name: str, options: argparse.Namespace, tell: Tell) -> list[dict[str, Any]]:
    """Measure one query; return its rows: one per approach and share, and one about the query."""
    sql, most = tpch_query(name), options.parts

    def playing(tables: Mapping[str, pa.Table], parts: int, views: Mapping[str, Mapping[str, int] | int]) -> Pass:
        return play(data.spark, data.folder, tables, sql, parts, views)

    tell("compiling")
    playing(data.small, _WARM_PARTS, {BATCH: 1, "partial": _WARM_PARTS})
    tell("learning from a batch and from flushes of several sizes")
    seen = playing(data.tables, most, {BATCH: 1, "partial": LEARNING}).views
    model = Model.of(seen[BATCH], seen["partial"], most)
    tell("choosing paces")
    chosen = {(approach, share): model.choice(approach, share) for approach in APPROACHES for share in options.shares}
    planning = model.planning_ms()  # after searches that have compiled all of it
    chosen = {key: choice for key, choice in chosen.items() if key[0] in options.approaches}
    names: dict[tuple[int, ...], str] = {model.search().batch: BATCH}  # of the views, by their paces
    for choice in chosen.values():
        names.setdefault(choice.chosen.paces, f"v{len(names)}")
    tell(f"measuring {len(names)} different paces")
    paths = model.plan.paths
    views: dict[str, Mapping[str, int] | int] = {
        view: dict(zip(paths, paces, strict=True)) for paces, view in names.items()
    }
    measured = playing(data.tables, most, {**views, _AGAIN: 1})
    tell("everything in one step")
    at_once = playing(data.tables, 1, {BATCH: 1}).views[BATCH].cpu
    tell("comparing the answers")
    wrong = _wrong(data.peer, sql, measured)
    batch = measured.views[BATCH]
    rows = []
    for (approach, share), choice in chosen.items():
        view = names[choice.chosen.paces]
        row = {"system": "headrace", "case": f"{name} {approach} {share:g}", "query": name, "approach": approach}
        rows.append(
            {**row, "share": share, **_row(choice, share, measured.views[view], batch, model, at_once), **wrong[view]}
        )
    about = {
        "system": "all",
        "case": f"{name}: whole pass",
        "query": name,
        "views": len(names),
        "paths": len(paths),
        "answer_rows": batch.answer.num_rows,
        "seconds": measured.seconds,
        "python_cpu_seconds": measured.python_cpu,
        "jvm_cpu_seconds": measured.java_cpu,
        "held_cpu_seconds": batch.held,
        "batch_cpu_seconds": batch.cpu,
        "batch_final_cpu_seconds": batch.final_cpu,
        "batch_again_cpu_seconds": measured.views[_AGAIN].cpu,
        "batch_again_final_cpu_seconds": measured.views[_AGAIN].final_cpu,
        "batch_met": [share for share in options.shares if batch.final_cpu <= share * batch.cpu],
        "batch_rows": batch.rows,
        "at_once_cpu_seconds": at_once,
        "planning_ms": planning,
    }
    return [*rows, about]


def _row(choice: Choice, share: float, view: Played, batch: Played, model: Model, at_once: float) -> dict[str, Any]:
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


def _wrong(peer: SparkPeer, sql: str, measured: Pass) -> dict[str, dict[str, str]]:
    """Per view what is wrong with its answer, as part of a row: that of the batch is Spark's, and all are the same."""
    batch = measured.views[BATCH].answer
    found = {name: _difference(played.answer, batch) for name, played in measured.views.items()}
    different = peer.difference(sql, batch)
    if different is not None:
        found = dict.fromkeys(found, different)
    return {name: {} if text is None else {"wrong": text[:_SHOWN]} for name, text in found.items()}


def _difference(answer: pa.Table, batch: pa.Table) -> str | None:
    try:
        assert_same(answer, batch)
    except AssertionError as error:
        return f"not the answer of the batch: {error}"
    return None

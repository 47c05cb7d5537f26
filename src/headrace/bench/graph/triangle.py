"""Triangles of a skewed graph that gains and loses edges: their count, kept by each strategy, and recomputed by Spark.

`factorized` is what Headrace chooses: changes are joined with the two other copies of the edges at once, by the smaller
side of each row. `indicators` keeps the view of two-paths, with the projection that leaves only those which an edge
closes; `no indicators` is the same without that projection. `first-order` and `recursive` are the baselines of the
paper. What keeps all pairs that a two-path connects is left out where there are too many; how many there are is counted
all the same. Spark is cancelled after the time limit, and ratios to it then are lower bounds.

All views are filled from the loaded graph, the one of first-order deltas by the smaller side of each row: its own joins
would list all two-paths of the graph, half a billion. Its batches are its own. With `--load pieces` the view is there
before the graph; a strategy that does not load the graph in its time then takes the batches over the part that it has
loaded, and ratios to it are lower bounds too.

`--query chord` counts 4-cycles with a chord instead. There the baselines load the graph in pieces, always.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.markup import escape
from rich.table import Table

from headrace.bench.covariance.recomputation import within
from headrace.bench.graph.plans import filled_by_the_smaller_side, without_indicators
from headrace.bench.graph.playing import Played, Tell, Workload, disagreement, play, play_over_loaded
from headrace.bench.graph.two_paths import pairs_of_two_paths
from headrace.bench.measuring.screen import named_numbers
from headrace.bench.measuring.targets import Verdict, judged, other_options, target_lines, verdict
from headrace.datasets.graphs import power_law_edges
from headrace.runtime.session import local_session

SQL = "SELECT COUNT(*) AS n FROM e e1 JOIN e e2 ON e1.b = e2.a JOIN e e3 ON e2.b = e3.a AND e3.b = e1.a"
CHORD = (
    "SELECT COUNT(*) AS n FROM e r JOIN e s ON r.b = s.a JOIN e t ON s.b = t.a JOIN e u ON t.b = u.a AND u.b = r.a "
    "JOIN e w ON w.a = r.a AND w.b = s.b"
)
QUERIES = {"triangle": SQL, "chord": CHORD}
WITHOUT = "no indicators"
CASES = ("factorized", "indicators", WITHOUT, "first-order", "recursive", "recompute")
_BASELINES = ("first-order", "recursive")
_TARGET = 5.0  # times as long as a batch by first-order
_SIZES = {"query": "triangle", "nodes": 100_000, "edges": 1_000_000, "skew": 0.8, "batch": 1_000, "cores": 2}
_AT_LEAST = " (at least)"


def run(argv: list[str], tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Run the benchmark; see `--help` for its options."""
    parser = argparse.ArgumentParser(prog="headrace bench triangle", description=__doc__)
    parser.add_argument("--query", choices=list(QUERIES), default="triangle", help="what is counted (default triangle)")
    parser.add_argument(
        "--load", choices=["first", "pieces"], default="first", help="whether before the view or under it"
    )
    parser.add_argument("--nodes", type=int, default=100_000, help="nodes of the graph (default 100,000)")
    parser.add_argument("--edges", type=int, default=1_000_000, help="edges of the graph (default 1,000,000)")
    parser.add_argument("--skew", type=float, default=0.8, help="skew of the degrees (default 0.8)")
    parser.add_argument("--batch", type=int, default=1_000, help="changed edges per batch (default 1,000)")
    parser.add_argument("--batches", type=int, default=20, help="batches that are timed (default 20)")
    parser.add_argument("--pieces", type=int, default=20_000, help="edges loaded per step (default 20,000)")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), help="what is run (default: all)")
    parser.add_argument(
        "--time-limit",
        type=float,
        default=300.0,
        help="seconds per case to load the graph, and as many for batches (default 300)",
    )
    parser.add_argument("--most-pairs", type=float, default=2e7, help="pairs that a view may keep (default 2e7)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the graph")
    parser.add_argument("--location", type=Path, default=None, help="folder for the state (default: a temporary one)")
    options = parser.parse_args(argv)
    spark = local_session()
    with TemporaryDirectory(prefix="headrace-bench-", dir=options.location, ignore_cleanup_errors=True) as folder:
        return _run(spark, Path(folder), options, tell)


def _run(spark: SparkSession, root: Path, options: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    tell("making the graph")
    graph = power_law_edges(options.nodes, options.edges, options.skew, options.seed)
    work = Workload.of(graph, options.batch, options.batches)
    shape = _shape(graph, options.nodes)
    done: dict[str, Played] = {}
    for case in (case for case in options.cases if case != "recompute"):
        if case in ("recursive", WITHOUT) and shape["pairs_of_two_paths"] > options.most_pairs:
            stopped = f"a view would keep {shape['pairs_of_two_paths']:,} pairs"
            done[case] = Played(case, stopped=stopped)
            continue
        with without_indicators() if case == WITHOUT else nullcontext():
            done[case] = _played(spark, root, case, work, options, tell)
    results = [played.row(options.batch) for played in done.values()]
    # What saw a part of the graph only has other answers.
    answers = {played.case: played.answers for played in done.values() if played.loaded == 1}
    first = next(iter(answers), "")
    if "recompute" in options.cases:
        tell("recompute: Spark")
        row, answer = _recompute(spark, QUERIES[options.query], graph, work, options.time_limit)
        results.append(row)
        # It recomputes what is there after all batches.
        if answer is not None and first and len(answers[first]) == len(work.batches):
            answers["recompute"] = [*answers[first][:-1], answer]
    for row in results:
        ours, theirs = answers.get(first, []), answers.get(row["case"], [])
        if wrong := disagreement(Played(first, answers=ours), row["case"], theirs):
            row["wrong"] = wrong
    config = {**{key: value for key, value in vars(options).items() if key != "location"}, **shape}
    config["cores"] = spark.sparkContext.defaultParallelism
    ratios = _ratios(results)
    found = judged([_target(config, results, ratios)], results)
    return {"bench": "triangle", "config": config, "results": results, "ratios": ratios, "targets": found}


def _played(
    spark: SparkSession, root: Path, case: str, work: Workload, options: argparse.Namespace, tell: Tell
) -> Played:
    sql, limit = QUERIES[options.query], options.time_limit
    given = (spark, root / case, case, sql, work, options.pieces, tell, _limit(limit))
    asked: dict[str, Any] = {"strategy": case if case in _BASELINES else "factorized"}
    if case in ("indicators", WITHOUT):
        asked["order"] = _order(spark, root / f"order of {case}", sql)
    if options.load == "pieces" or (options.query == "chord" and case in _BASELINES):
        return play(*given, load_limit=limit, **asked)
    filling = filled_by_the_smaller_side() if case == "first-order" else None
    return play_over_loaded(*given, filling=filling, **asked)


def _limit(seconds: float) -> Callable[[Played], str]:
    def stop(done: Played) -> str:
        return f"{seconds:g} s are over" if sum(done.seconds) > seconds else ""

    return stop


def _order(spark: SparkSession, root: Path, sql: str) -> str:
    """The order that is chosen, without the marks that have all edges joined at once."""
    empty = pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.int64())})
    planned = play(spark, root, "order", sql, Workload(empty, (_one_edge(),)), 1, lambda stage: None)
    return planned.order.replace(" !stop", "")


def _one_edge() -> pa.Table:
    return pa.table({"a": [0], "b": [1], "__diff": [1]})


def _shape(graph: pa.Table, nodes: int) -> dict[str, Any]:
    a, b = graph["a"].to_numpy(), graph["b"].to_numpy()
    out, into = np.bincount(a, minlength=nodes), np.bincount(b, minlength=nodes)
    return {
        "largest_degree": int(max(out.max(), into.max())),
        "two_paths": int(into @ out),
        "pairs_of_two_paths": pairs_of_two_paths(a, b, nodes),
        "matches_of_an_edge": float(out[b].mean()),
        "matches_on_the_smaller_side": float(np.minimum(out[b], into[a]).mean()),
    }


def _recompute(
    spark: SparkSession, sql: str, graph: pa.Table, work: Workload, limit: float
) -> tuple[dict[str, Any], int | None]:
    deleted = sum(int((batch["__diff"].to_numpy() < 0).sum()) for batch in work.batches)
    # Deletions are the first edges of the graph, so what is left is the rest of it.
    spark.createDataFrame(graph.slice(deleted).to_pandas()).createOrReplaceTempView("e")
    spark.sql("SELECT COUNT(*) FROM e").collect()
    start = time.perf_counter()
    counted = within(spark, limit, lambda: int(spark.sql(sql).collect()[0][0]))
    seconds = time.perf_counter() - start if counted is not None else limit
    spark.catalog.dropTempView("e")
    row = {"system": "spark", "case": "recompute", "rows": graph.num_rows, "batches": 1, "seconds": seconds}
    return row | ({"stopped": f"{limit:g} s are over"} if counted is None else {}), counted


def _target(config: dict[str, Any], results: list[dict[str, Any]], ratios: dict[str, float]) -> Verdict:
    name = "first-order, a batch / factorized, a batch"
    first = next((row for row in results if row["case"] == "first-order"), {})
    part = f"first-order had loaded {first.get('loaded', 1):.0%} of the graph when its time was over"
    least = part if f"{name}{_AT_LEAST}" in ratios else ""
    value = ratios.get(f"{name}{_AT_LEAST}" if least else name)
    why = other_options(config, _SIZES)
    if first and value is None:
        why = why or "factorized or first-order ran out of time before a batch over the graph"
    return verdict(name, ">=", _TARGET, value, why_not=why, at_least=least)


def _ratios(results: list[dict[str, Any]]) -> dict[str, float]:
    by_case = {row["case"]: row for row in results}
    factorized = by_case.get("factorized", {})
    ours = factorized.get("batch_seconds") if factorized.get("loaded") == 1 else None
    ratios = {}
    for case, row in by_case.items():
        if ours and case != "factorized" and (seconds := row.get("batch_seconds", row.get("seconds"))):
            what = "one recomputation" if case == "recompute" else f"{case}, a batch"
            part = row.get("loaded", 1) < 1 or (case == "recompute" and "stopped" in row)
            ratios[f"{what} / factorized, a batch{_AT_LEAST if part else ''}"] = seconds / ours
    for case in CASES[1:-1]:
        row = by_case.get(case, {})
        if ours and row.get("state_mb") and row["loaded"] == 1:
            ratios[f"{case} / factorized, state"] = row["state_mb"] / factorized["state_mb"]
    with_them, without = (_largest(by_case.get(case, {})) for case in ("indicators", WITHOUT))
    if with_them and without:
        ratios[f"{WITHOUT} / indicators, entries of the largest view over a join"] = without / with_them
    return ratios


def _largest(row: dict[str, Any]) -> int:
    """Entries of the largest view that is over a join, and not over a table."""
    return max((entries for name, entries in row.get("views", {}).items() if name.startswith("V_@")), default=0)


def table(result: dict[str, Any]) -> Group:
    """Return the tables that show a result to people."""
    config = result["config"]
    shown = Table(
        title=f"{config['query']}: {config['edges']:,} edges, {config['nodes']:,} nodes, skew {config['skew']:g}; "
        f"batches of {config['batch']:,} changed edges",
        box=SIMPLE_HEAD,
    )
    for column in ("case", ">batches", ">ms a batch", ">edges/s", ">load s", ">fill s", ">state MB", "note"):
        shown.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    for row in result["results"]:
        seconds = row.get("batch_seconds", row["seconds"])
        shown.add_row(
            row["case"],
            str(row["batches"]),
            f"{1000 * seconds:,.1f}" if seconds else "",
            f"{row['rows_per_s']:,.0f}" if "rows_per_s" in row else "",
            *(f"{row[key]:,.1f}" if row.get(key) else "" for key in ("load_seconds", "fill_seconds")),
            f"{row['state_mb']:,.1f}" if row.get("state_mb") else "",
            row.get("wrong", row.get("stopped", "")),
        )
    sizes = [
        named_numbers(f"entries of views, {row['case']}", {escape(name): n for name, n in row["views"].items()})
        for row in result["results"]
        if row.get("views")
    ]
    return Group(shown, named_numbers("ratio", result["ratios"]), target_lines(result["targets"]), *sizes)

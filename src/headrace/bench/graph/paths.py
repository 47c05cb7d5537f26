"""Counts of k-paths, a join of k copies of one edge table: how many rounds each strategy manages in the same time.

The graph starts empty and grows by one batch of edges per round, as in the paper (Section 9.5). A first-order delta
lists the paths that a batch makes; a round in which these would be too many for the memory ends its run, and the row
says so. `rounds_in_time` then adds the rounds for which the time would have sufficed, at the rate of the last one: what
is compared is equal time, and not memory. NumPy recomputes the counts, as sums over the edges, path length by path
length, in the same time; it has no state to keep and nothing to commit, and checks the answers. Counts are modulo
2**64, as those of BIGINT are.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import SparkSession
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table

from headrace.bench.graph.playing import Played, Tell, Workload, disagreement, play
from headrace.bench.measuring.screen import named_numbers
from headrace.bench.measuring.targets import Verdict, judged, other_options, target_lines, verdict
from headrace.datasets.graphs import power_law_edges
from headrace.runtime.session import local_session

CASES = ("factorized", "first-order", "recursive")
_TARGET, _JOINS = 10.0, 20  # times the rounds of first-order, for paths of so many edges
_SIZES = {"nodes": 20_000, "skew": 0.4, "batch": 1_000, "cores": 2}


def sql(joins: int) -> str:
    """The query that counts the paths of so many edges."""
    joined = " ".join(f"JOIN e e{i} ON e{i - 1}.b = e{i}.a" for i in range(2, joins + 1))
    return f"SELECT COUNT(*) AS n FROM e e1 {joined}"


def run(argv: list[str], tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Run the benchmark; see `--help` for its options."""
    parser = argparse.ArgumentParser(prog="headrace bench paths", description=__doc__)
    parser.add_argument("--joins", type=int, nargs="+", default=[10, 20], help="edges of a path (default 10 20)")
    parser.add_argument("--nodes", type=int, default=20_000, help="nodes of the graph (default 20,000)")
    parser.add_argument("--skew", type=float, default=0.4, help="skew of the degrees (default 0.4)")
    parser.add_argument("--batch", type=int, default=1_000, help="new edges per round (default 1,000)")
    parser.add_argument("--rounds", type=int, default=2_000, help="rounds at most (default 2,000)")
    parser.add_argument("--seconds", type=float, default=90.0, help="time per strategy and length (default 90)")
    parser.add_argument("--most-paths", type=float, default=3e7, help="paths that a round may list (default 3e7)")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), help="what is run (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the graph")
    parser.add_argument("--location", type=Path, default=None, help="folder for the state (default: a temporary one)")
    options = parser.parse_args(argv)
    spark = local_session()
    with TemporaryDirectory(prefix="headrace-bench-", dir=options.location, ignore_cleanup_errors=True) as folder:
        return _run(spark, Path(folder), options, tell)


def _run(spark: SparkSession, root: Path, options: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    graph = power_law_edges(options.nodes, options.batch * options.rounds, options.skew, options.seed)
    work = Workload.of(graph, options.batch, options.rounds, deletes=False)
    results: list[dict[str, Any]] = []
    ratios: dict[str, float] = {}
    for joins in options.joins:
        tell(f"{joins}-path: NumPy")
        counted = _Counted(graph, options.nodes, options.batch, joins)
        counted.play(options.rounds, options.seconds)
        rows: dict[str, dict[str, Any]] = {}
        for case in options.cases:
            place = root / f"{joins} {case}"
            lister = case == "first-order"

            def stop(done: Played, lists: bool = lister, counted: _Counted = counted) -> str:
                if sum(done.seconds) > options.seconds:
                    return f"{options.seconds:g} s are over"
                if lists and (paths := counted.listed(len(done.seconds))) > options.most_paths:
                    return f"the next round would list {paths:,.3g} paths"
                return ""

            done = play(spark, place, f"{joins}-path, {case}", sql(joins), work, 1, tell, stop, strategy=case)
            rows[case] = done.row(options.batch) | {"joins": joins, "rounds": len(done.seconds)}
            rows[case]["rounds_in_time"] = len(done.seconds)
            if lister and sum(done.seconds) <= options.seconds:
                rows[case]["rounds_in_time"] += _more_rounds(counted, done.seconds, options.seconds, options.rounds)
            if wrong := disagreement(done, "NumPy", counted.answers) or _last_disagreement(done, counted):
                rows[case]["wrong"] = wrong
        results += [*rows.values(), counted.row()]
        for case in sorted(rows.keys() - {"factorized"}):
            if "factorized" in rows:
                name = f"{joins}-path: rounds of factorized / {case}"
                ratios[name] = rows["factorized"]["rounds"] / max(1, rows[case]["rounds_in_time"])
    config = {key: value for key, value in vars(options).items() if key != "location"}
    config["cores"] = spark.sparkContext.defaultParallelism
    found = judged([_target(config, results, ratios)], results)
    return {"bench": "paths", "config": config, "results": results, "ratios": ratios, "targets": found}


def _last_disagreement(done: Played, counted: _Counted) -> str:
    """Compare the last round, which NumPy may not have reached in its time."""
    rounds = len(done.seconds)
    if rounds and done.answers[-1] != (expected := counted.answer(rounds)):
        return f"after batch {rounds}: {done.answers[-1]:,} by {done.case}, {expected:,} by NumPy"
    return ""


def _more_rounds(counted: _Counted, seconds: list[float], limit: float, rounds: int) -> int:
    """For how many rounds after the last one the time would suffice, at its rate of listing paths."""
    if not seconds or not counted.listed(len(seconds) - 1):
        return 0
    number, spent = len(seconds), sum(seconds)
    rate = counted.listed(number - 1) / seconds[-1]
    # As in a run: the time may be over in the middle of the last round.
    while number < rounds and spent <= limit:
        spent += counted.listed(number) / rate
        number += 1
    return number - len(seconds)


def _target(config: dict[str, Any], results: list[dict[str, Any]], ratios: dict[str, float]) -> Verdict:
    name = f"{_JOINS}-path: rounds of factorized / first-order"
    rows = {row["case"]: row for row in results}
    done = {case: rows.get(f"{_JOINS}-path, {case}", {}).get("rounds", 0) for case in ("factorized", "first-order")}
    why = other_options(config, _SIZES)
    if done["first-order"] == config["rounds"]:
        why = why or f"first-order did all {config['rounds']:,} rounds"
    every = f"factorized did all {config['rounds']:,} rounds" if done["factorized"] == config["rounds"] else ""
    return verdict(f"{name}, in equal time", ">=", _TARGET, ratios.get(name), why_not=why, at_least=every)


class _Counted:
    """What NumPy counts after each round, and how many paths a round adds, of any length up to the one asked for."""

    def __init__(self, graph: pa.Table, nodes: int, batch: int, joins: int) -> None:
        self.answers: list[int] = []
        self.seconds: list[float] = []
        self._a, self._b = graph["a"].to_numpy(), graph["b"].to_numpy()
        self._nodes, self._batch, self._joins = nodes, batch, joins
        self._listed: list[float] = []
        self._lengths = np.zeros(joins)  # after the last round of which it is known what it lists

    def play(self, rounds: int, limit: float) -> None:
        """Recompute after each round until the time is over."""
        while len(self.seconds) < rounds and sum(self.seconds) <= limit:
            start = time.perf_counter()
            self.answers.append(self.answer(len(self.seconds) + 1))
            self.seconds.append(time.perf_counter() - start)

    def answer(self, rounds: int) -> int:
        """The count after so many rounds."""
        edges = rounds * self._batch
        return int(_paths(self._a[:edges], self._b[:edges], self._nodes, self._joins))

    def listed(self, number: int) -> float:
        """The most paths of one length that a round adds; the first round is 0."""
        while len(self._listed) <= number:
            edges = (len(self._listed) + 1) * self._batch
            now = _lengths(self._a[:edges], self._b[:edges], self._nodes, self._joins)
            self._listed.append(float((now - self._lengths).max()))
            self._lengths = now
        return self._listed[number]

    def row(self) -> dict[str, Any]:
        """Its measurements as a row of results."""
        rounds, seconds = len(self.seconds), sum(self.seconds)
        return {
            "system": "numpy",
            "case": f"{self._joins}-path, recomputed",
            "joins": self._joins,
            "rows": self._batch * rounds,
            "batches": rounds,
            "rounds": rounds,
            "rounds_in_time": rounds,
            "seconds": seconds,
            "rows_per_s": self._batch * rounds / seconds,
            "batch_seconds": float(np.median(self.seconds)),
        }


def _paths(a: NDArray[np.int64], b: NDArray[np.int64], nodes: int, joins: int) -> np.int64:
    """Count paths, modulo 2**64."""
    order = np.argsort(a, kind="stable")
    a, b = a[order], b[order]
    starts = np.flatnonzero(np.diff(a, prepend=-1))
    from_node = np.ones(nodes, np.int64)
    for _ in range(joins):
        sums = np.zeros(nodes, np.int64)
        sums[a[starts]] = np.add.reduceat(from_node[b], starts)
        from_node = sums
    total: np.int64 = from_node.sum()
    return total


def _lengths(a: NDArray[np.int64], b: NDArray[np.int64], nodes: int, joins: int) -> NDArray[np.float64]:
    """About how many paths of each length there are."""
    from_node: NDArray[np.float64] = np.ones(nodes)
    found = []
    for _ in range(joins):
        from_node = np.bincount(a, weights=from_node[b], minlength=nodes).astype(np.float64)
        found.append(from_node.sum())
    return np.array(found)


def table(result: dict[str, Any]) -> Group:
    """Return the tables that show a result to people."""
    config = result["config"]
    shown = Table(
        title=f"k-paths: rounds of {config['batch']:,} edges in {config['seconds']:g} s (at most {config['rounds']})",
        box=SIMPLE_HEAD,
    )
    for column in ("case", ">rounds", ">in time", ">ms a round", ">edges/s", ">state MB", "ended"):
        shown.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    for row in result["results"]:
        shown.add_row(
            row["case"],
            str(row["rounds"]),
            str(row["rounds_in_time"]),
            f"{1000 * row['batch_seconds']:,.1f}" if "batch_seconds" in row else "",
            f"{row['rows_per_s']:,.0f}" if "rows_per_s" in row else "",
            f"{row['state_mb']:,.1f}" if "state_mb" in row else "",
            row.get("wrong", row.get("stopped", "")),
        )
    return Group(shown, named_numbers("ratio", result["ratios"]), target_lines(result["targets"]))

"""Counts of k-paths, a join of k copies of one edge table: how many rounds each strategy manages in the same time.

The graph starts empty and grows by one batch of edges per round, as in the paper (Section 9.5). A first-order delta
lists the paths that a batch makes; a round in which these would be too many for the memory ends its run, and the row
says so. NumPy recomputes the counts, as sums over the edges, path length by path length; it has no state to keep and
nothing to commit, and checks the answers. Counts are modulo 2**64, as those of BIGINT are.
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
from headrace.datasets.graphs import power_law_edges
from headrace.runtime.session import local_session

CASES = ("factorized", "first-order", "recursive")


def sql(joins: int) -> str:
    """The query that counts the paths of so many edges."""
    joined = " ".join(f"JOIN e e{i} ON e{i - 1}.b = e{i}.a" for i in range(2, joins + 1))
    return f"SELECT COUNT(*) AS n FROM e e1 {joined}"


def run(argv: list[str], tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Run the benchmark; see `--help` for its options."""
    parser = argparse.ArgumentParser(prog="headrace bench paths", description=__doc__)
    parser.add_argument("--joins", type=int, nargs="+", default=[5, 10, 20], help="edges of a path (default 5 10 20)")
    parser.add_argument("--nodes", type=int, default=20_000, help="nodes of the graph (default 20,000)")
    parser.add_argument("--skew", type=float, default=0.4, help="skew of the degrees (default 0.4)")
    parser.add_argument("--batch", type=int, default=1_000, help="new edges per round (default 1,000)")
    parser.add_argument("--rounds", type=int, default=200, help="rounds at most (default 200)")
    parser.add_argument("--seconds", type=float, default=60.0, help="time per strategy and length (default 60)")
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
        counted = _Counted.of(graph, options.nodes, options.batch, options.rounds, joins)
        rounds: dict[str, int] = {}
        for case in options.cases:
            place = root / f"{joins} {case}"
            lister = case == "first-order"

            def stop(done: Played, lists: bool = lister, counted: _Counted = counted) -> str:
                if sum(done.seconds) > options.seconds:
                    return f"{options.seconds:g} s are over"
                paths = counted.listed[len(done.seconds)]
                if lists and paths > options.most_paths:
                    return f"the next round would list {paths:,.3g} paths"
                return ""

            done = play(spark, place, f"{joins}-path, {case}", sql(joins), work, 1, tell, stop, strategy=case)
            row = done.row(options.batch) | {"joins": joins, "rounds": len(done.seconds)}
            if found := disagreement(done, "NumPy", counted.answers):
                row["wrong"] = found
            rounds[case] = len(done.seconds)
            results.append(row)
        results.append(counted.row(joins, options.batch))
        for case in rounds.keys() - {"factorized"}:
            if "factorized" in rounds:
                name = f"{joins}-path: rounds of factorized / {case}"
                ratios[name] = rounds["factorized"] / max(1, rounds[case])
    config = {key: value for key, value in vars(options).items() if key != "location"}
    return {"bench": "paths", "config": config, "results": results, "ratios": dict(sorted(ratios.items()))}


class _Counted:
    """What NumPy counts after each round, and how many paths a round adds, of any length up to the one asked for."""

    def __init__(self, answers: list[int], listed: list[float], seconds: list[float]) -> None:
        self.answers = answers
        self.listed = [*listed, 0.0]
        self.seconds = seconds

    @classmethod
    def of(cls, graph: pa.Table, nodes: int, batch: int, rounds: int, joins: int) -> _Counted:
        a, b = graph["a"].to_numpy(), graph["b"].to_numpy()
        answers, listed, seconds = [], [], []
        before = np.zeros(joins)
        for edges in range(batch, batch * rounds + 1, batch):
            start = time.perf_counter()
            answers.append(int(_paths(a[:edges], b[:edges], nodes, joins)))
            seconds.append(time.perf_counter() - start)
            now = _lengths(a[:edges], b[:edges], nodes, joins)
            listed.append(float((now - before).max()))
            before = now
        return cls(answers, listed, seconds)

    def row(self, joins: int, batch: int) -> dict[str, Any]:
        seconds = sum(self.seconds)
        return {
            "system": "numpy",
            "case": f"{joins}-path, recomputed",
            "joins": joins,
            "rows": batch * len(self.seconds),
            "batches": len(self.seconds),
            "rounds": len(self.seconds),
            "seconds": seconds,
            "rows_per_s": batch * len(self.seconds) / seconds,
            "batch_seconds": self.seconds[-1],
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
    for column in ("case", ">rounds", ">ms a round", ">edges/s", ">state MB", "ended"):
        shown.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    for row in result["results"]:
        shown.add_row(
            row["case"],
            str(row["rounds"]),
            f"{1000 * row['batch_seconds']:,.1f}" if "batch_seconds" in row else "",
            f"{row['rows_per_s']:,.0f}" if "rows_per_s" in row else "",
            f"{row['state_mb']:,.1f}" if "state_mb" in row else "",
            row.get("wrong", row.get("stopped", "")),
        )
    return Group(shown, named_numbers("ratio", result["ratios"]))

"""The covariance of the three variables of the triangle query, over three copies of a graph (Figure 23 of F-IVM).

Edges are inserted into r(a, b), s(b, c) and t(c, a) in turn, until each has the whole graph. `factorized` is what
Headrace chooses: changes are joined with both other tables at once, so that no pairs are kept. `indicators` keeps the
join of two tables, with the projection that leaves only what the third one closes. `recursive` keeps all three pairwise
joins, and `first-order` the tables alone; both have compound payloads, as DBT-RING of the paper. `one table` has s and
t loaded before and only r change, as F-IVM-ONE. pandas joins the tables anew and checks the moments.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table

from headrace.bench.measuring.peak_memory import PeakMemory, release_memory
from headrace.bench.measuring.progress import progress
from headrace.bench.measuring.screen import named_numbers
from headrace.datasets import stream
from headrace.datasets.graphs import power_law_edges
from headrace.engine.engine import Engine
from headrace.engine.models import Covariance
from headrace.learn.moments import Moments
from headrace.runtime.session import local_session

Tell = Callable[[str], None]

TABLES = {"r": ("a", "b"), "s": ("b", "c"), "t": ("c", "a")}
FEATURES = ("a", "b", "c")
OVER = "SELECT a, b, c FROM r NATURAL JOIN s NATURAL JOIN t"
INDICATORS, ONE_TABLE = "indicators", "one table"
CASES = ("factorized", INDICATORS, "first-order", "recursive", ONE_TABLE)
_STATIC = ("s", "t")
_WARM_BATCHES, _WARM_ROWS = 4, 60
_RELATIVE = 1e-9

Batch = Mapping[str, pa.Table]


def run(argv: list[str], tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Run the benchmark; see `--help` for its options."""
    parser = argparse.ArgumentParser(prog="headrace bench triangle-covariance", description=__doc__)
    parser.add_argument("--nodes", type=int, default=20_000, help="nodes of the graph (default 20,000)")
    parser.add_argument("--edges", type=int, default=100_000, help="edges of the graph (default 100,000)")
    parser.add_argument("--skew", type=float, default=0.4, help="skew of the degrees (default 0.4)")
    parser.add_argument("--batch", type=int, default=1_000, help="inserted edges per batch (default 1,000)")
    parser.add_argument("--batches", type=int, default=None, help="stop after so many batches (default: all edges)")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), help="what is run (default: all)")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds per case (default 60)")
    parser.add_argument("--progress", type=int, default=20, metavar="PARTS", help="parts of the stream (default 20)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the graph")
    parser.add_argument("--location", type=Path, default=None, help="folder for the state (default: a temporary one)")
    options = parser.parse_args(argv)
    spark = local_session()
    with TemporaryDirectory(prefix="headrace-bench-", dir=options.location, ignore_cleanup_errors=True) as folder:
        return _Bench(spark, Path(folder), options, tell).run()


@dataclass
class _Run:
    """The measurements of one case."""

    case: str
    seconds: list[float] = field(default_factory=list)
    state: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    views: dict[str, int] = field(default_factory=dict)  # entries of each view that is kept
    order: str = ""
    peak: int = 0
    moments: Moments | None = None


class _Bench:
    def __init__(self, spark: SparkSession, root: Path, options: argparse.Namespace, tell: Tell) -> None:
        self.spark, self.root, self.options, self.tell = spark, root, options, tell
        tell("making the graph")
        self.graph = power_law_edges(options.nodes, options.edges, options.skew, options.seed)

    def run(self) -> dict[str, Any]:
        order = ""
        if INDICATORS in self.options.cases:
            # The order that is chosen, without the marks that have all edges joined at once.
            order = self._play("factorized", "", list(self._batches("factorized"))[:1]).order.replace(" !stop", "")
        results, checked = [], {}
        for case in self.options.cases:
            batches = list(self._batches(case))
            self.tell(f"{case}: warming up")
            self._play(case, order, [_slice(batches[0], i) for i in range(_WARM_BATCHES)])
            release_memory()
            with PeakMemory(interval=0.05) as memory:
                done = self._play(case, order, batches)
            done.peak = memory.grown
            row = self._row(done, sum(rows.num_rows for batch in batches for rows in batch.values()))
            at = (case == ONE_TABLE, len(done.seconds))
            if at not in checked:
                self.tell(f"pandas: the triangles after {at[1]} batches")
                checked[at] = recomputed(self._tables(case, batches[: at[1]]))
            if wrong := disagreement(done.moments, checked[at]):
                row["wrong"] = wrong
            results.append(row | {"triangles": int(checked[at][0])})
        config = {key: value for key, value in vars(self.options).items() if key != "location"}
        return {"bench": "triangle-covariance", "config": config, "results": results, "ratios": ratios(results)}

    def _batches(self, case: str) -> Iterator[Batch]:
        copies = {name: self.graph.rename_columns(columns) for name, columns in TABLES.items()}
        tables = {"r": copies["r"]} if case == ONE_TABLE else copies
        for number, batch in enumerate(stream(tables, self.options.batch)):
            if number == self.options.batches:
                return
            yield batch

    def _tables(self, case: str, batches: list[Batch]) -> dict[str, pa.Table]:
        """The rows of all tables after some batches."""
        found = {}
        for name, columns in TABLES.items():
            if case == ONE_TABLE and name in _STATIC:
                found[name] = self.graph.rename_columns(columns)
            else:
                empty = self.graph.rename_columns(columns).slice(0, 0)
                rows = [batch[name].select(columns) for batch in batches if name in batch]
                found[name] = pa.concat_tables([empty, *rows])
        return found

    def _play(self, case: str, order: str, batches: list[Batch]) -> _Run:
        done = _Run(case)
        with (
            TemporaryDirectory(prefix="state-", dir=self.root, ignore_cleanup_errors=True) as place,
            Engine(self.spark, place) as engine,
        ):
            view = self._view(engine, case, order)
            for number, batch in enumerate(batches):
                start = time.perf_counter()
                step = engine.apply(batch)
                done.seconds.append(time.perf_counter() - start)
                done.rows.append(sum(rows.num_rows for rows in batch.values()))
                done.state.append(step.state_bytes)
                self.tell(f"{case}: batch {number + 1} of {len(batches)} in {done.seconds[-1]:.3f} s")
                if sum(done.seconds) > self.options.time_limit:
                    break
            done.moments = view.moments()
            explained = view.explain()
            done.views = {part.name: part.entries for part in explained["views"] if part.kept}
            done.order = explained.values.get("order") or ""
        return done

    def _view(self, engine: Engine, case: str, order: str) -> Covariance:
        static = _STATIC if case == ONE_TABLE else ()
        for name, columns in TABLES.items():
            ddl = ", ".join(f"{column} BIGINT" for column in columns)
            engine.table(name, ddl, static=name in static, keep_rows=name in static)
        if static:
            engine.apply({name: self.graph.rename_columns(TABLES[name]) for name in static})
        strategy = case if case in ("first-order", "recursive") else "factorized"
        return engine.covariance(
            "moments", OVER, FEATURES, strategy=strategy, order=order if case == INDICATORS else None
        )

    def _row(self, done: _Run, total: int) -> dict[str, Any]:
        rows, seconds = sum(done.rows), sum(done.seconds)
        return {
            "system": "headrace",
            "case": done.case,
            "rows": rows,
            "seconds": seconds,
            "rows_per_s": rows / seconds,
            "batch_seconds": statistics.median(done.seconds),
            "batches": len(done.seconds),
            "finished": rows == total,
            "peak_mb": done.peak / 1e6,
            "state_mb": done.state[-1] / 1e6,
            "views": done.views,
            "progress": progress(done.rows, done.seconds, total, self.options.progress, done.state),
        }


def _slice(batch: Batch, number: int) -> Batch:
    return {name: rows.slice(number * _WARM_ROWS, _WARM_ROWS) for name, rows in batch.items()}


def recomputed(tables: Mapping[str, pa.Table]) -> tuple[int, np.ndarray, np.ndarray]:
    """The count, the sums and the sums of products of all triangles, from the rows."""
    frames = {name: table.to_pandas() for name, table in tables.items()}
    joined = frames["r"].merge(frames["s"], on="b").merge(frames["t"], on=["c", "a"])
    values = joined[list(FEATURES)].to_numpy(np.float64)
    return len(values), values.sum(axis=0), values.T @ values


def disagreement(ours: Moments | None, theirs: tuple[int, np.ndarray, np.ndarray]) -> str:
    """Where the moments differ, if anywhere: counts must be the same, sums to 1e-9 of the largest."""
    assert ours is not None
    count, sums, products = theirs
    if round(ours.count) != count:
        return f"{round(ours.count):,} triangles; pandas counts {count:,}"
    for name, mine, yours in (("sums", ours.sums, sums), ("products", ours.cofactor, products)):
        worst = float(np.abs(mine - yours).max(initial=0.0))
        if not worst <= _RELATIVE * float(np.abs(yours).max(initial=1.0)):
            return f"{name} differ by up to {worst:.3g} from those by pandas"
    return ""


def ratios(results: list[dict[str, Any]]) -> dict[str, float]:
    """Throughput of the factorized strategy over that of the others, and their state over its own."""
    ours = next((row for row in results if row["case"] == "factorized"), None)
    found = {}
    for row in results:
        if ours is not None and row is not ours:
            found[f"factorized / {row['case']}, throughput"] = ours["rows_per_s"] / row["rows_per_s"]
            found[f"{row['case']} / factorized, state"] = row["state_mb"] / ours["state_mb"]
    return found


def table(result: dict[str, Any]) -> Group:
    """Return the tables that show a result to people."""
    config = result["config"]
    shown = Table(
        title=f"covariance over triangles: {config['edges']:,} edges, {config['nodes']:,} nodes, skew "
        f"{config['skew']:g}; batches of {config['batch']:,}",
        box=SIMPLE_HEAD,
    )
    for column in ("case", ">batches", ">ms a batch", ">edges/s", ">peak MB", ">state MB", "note"):
        shown.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    for row in result["results"]:
        shown.add_row(
            row["case"],
            str(row["batches"]),
            f"{1000 * row['batch_seconds']:,.1f}",
            f"{row['rows_per_s']:,.0f}",
            f"{row['peak_mb']:,.1f}",
            f"{row['state_mb']:,.1f}",
            row.get("wrong", "" if row["finished"] else "the time is over"),
        )
    return Group(shown, named_numbers("ratio", result["ratios"]))

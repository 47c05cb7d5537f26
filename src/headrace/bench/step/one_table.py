"""What one step costs: a table of millions of rows, a view over it, and steps of growing size.

Beside every step stand two peers in the same run: Spark's full recomputation of the view over the same rows (Parquet,
warm), and an empty one-shuffle Spark job, which is the least that any job costs here.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from rich.table import Table

from headrace.bench.measuring.peak_memory import PeakMemory
from headrace.engine.engine import Engine
from headrace.runtime.session import local_session
from headrace.testing.oracle import assert_same

Tell = Callable[[str], None]

SCHEMA = (
    "id BIGINT NOT NULL, grp INT NOT NULL, quantity INT NOT NULL, amount DOUBLE NOT NULL, price DECIMAL(12,2) NOT NULL"
)
SQL = (
    "SELECT grp, COUNT(*) AS n, SUM(quantity) AS quantity, SUM(amount) AS amount, SUM(price) AS revenue "
    "FROM t GROUP BY grp"
)


def run(argv: list[str], tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Run the benchmark; see `--help` for its options. `tell` is called with each new stage."""
    parser = argparse.ArgumentParser(prog="headrace bench step", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows in the table (default 10 million)")
    parser.add_argument("--groups", type=int, default=100_000, help="groups of the view (default 100,000)")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[1, 1_000, 10_000, 100_000, 1_000_000], help="rows per step"
    )
    parser.add_argument(
        "--buckets", type=int, nargs="*", default=[64], help="measure again with so many buckets (default 64)"
    )
    parser.add_argument("--repeat", type=int, default=9, help="steps of each size (default 9; the median is reported)")
    parser.add_argument("--deletes", type=float, default=0.25, help="share of changes that delete (default 0.25)")
    parser.add_argument("--location", type=Path, default=None, help="folder for the state (default: a temporary one)")
    options = parser.parse_args(argv)
    spark = local_session()
    root = options.location or Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    try:
        return _run(spark, root, options, tell)
    finally:
        if options.location is None:
            shutil.rmtree(root, ignore_errors=True)


def _run(spark: SparkSession, root: Path, options: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    results: list[dict[str, Any]] = []
    small_rows = max(options.rows // 10, 1)
    small = _measure(spark, root / "small", small_rows, options, [10_000], None, tell)
    large = _measure(spark, root / "large", options.rows, options, options.sizes, None, tell)
    results += [{**row, "case": f"{row['case']} into {small_rows:,}"} for row in small["results"]]
    results += large["results"]
    empty = _median_seconds(lambda: _empty_job(spark), 15)
    results.append({"system": "spark", "case": "empty one-shuffle job", "rows": 0, "seconds": empty})
    results.append(
        {
            "system": "spark",
            "case": "full recomputation",
            "rows": large["table_rows"],
            "seconds": large["recompute"],
            "rows_per_s": large["table_rows"] / large["recompute"],
        }
    )
    by_size = {row["rows"]: row for row in large["results"] if row["case"].startswith("step")}
    ratios: dict[str, float] = {
        f"recomputation / step of {size:,}": large["recompute"] / row["seconds"] for size, row in by_size.items()
    }
    if 1_000 in by_size:
        ratios["step of 1,000 / empty job"] = by_size[1_000]["seconds"] / empty
    if 10_000 in by_size:
        ratios["step of 10,000: this table / a tenth of it"] = (
            by_size[10_000]["seconds"] / small["results"][1]["seconds"]
        )
    for buckets in options.buckets:
        other = _measure(spark, root / f"{buckets}", options.rows, options, options.sizes, buckets, tell)
        steps = [row for row in other["results"] if row["case"].startswith("step")]
        results += [{**row, "case": f"{row['case']}, {buckets} buckets"} for row in steps]
        for row in steps:
            ratio = row["seconds"] / by_size[row["rows"]]["seconds"]
            ratios[f"step of {row['rows']:,}: {buckets} buckets / {large['buckets']}"] = ratio
    for size, row in by_size.items():
        ratios[f"longest / median step of {size:,}"] = row["max_seconds"] / row["seconds"]
    for size, peak in large["peaks"].items():
        ratios[f"peak bytes of a step of {size:,} / group"] = peak / options.groups
    ratios["bytes of the view's state / group"] = large["view_bytes"] / options.groups
    return {
        "bench": "step",
        "config": {
            "rows": options.rows,
            "groups": options.groups,
            "cores": spark.sparkContext.defaultParallelism,
            "repeat": options.repeat,
            "deletes": options.deletes,
            "sql": SQL,
        },
        "results": results,
        "ratios": ratios,
    }


def _measure(
    spark: SparkSession,
    root: Path,
    rows: int,
    options: argparse.Namespace,
    sizes: list[int],
    buckets: int | None,
    tell: Tell,
) -> dict[str, Any]:
    """Load a table, run steps of each size, check the view, and time Spark's recomputation of it."""
    source = _Source(options.groups, options.deletes)
    results: list[dict[str, Any]] = []
    with Engine(spark, root, buckets=buckets) as engine:
        buckets = engine.buckets
        engine.table("t", SCHEMA, key="id")
        view = engine.view("v", SQL)
        start = time.perf_counter()
        loaded = 0
        while loaded < rows:
            count = min(1_000_000, rows - loaded)
            engine.apply({"t": source.inserts(count)})
            loaded += count
            tell(f"loaded {loaded:,} of {rows:,} rows")
        seconds = time.perf_counter() - start
        results.append(
            {"system": "headrace", "case": "load", "rows": rows, "seconds": seconds, "rows_per_s": rows / seconds}
        )
        os.sync()  # the files of the load are on disk by now, so that no step waits for them
        peaks: dict[int, int] = {}
        for size in sizes:
            tell(f"{options.repeat} steps of {size:,} rows into {rows:,}")
            for _ in range(3):  # as warm as the peers, which run twice before they are timed
                engine.apply({"t": source.changes(size)})
            batches = [source.changes(size) for _ in range(options.repeat)]  # made before memory is watched
            engine.compact()  # what steps of another size owe
            start = time.perf_counter()
            with PeakMemory() as memory:
                steps = [engine.apply({"t": batch}) for batch in batches]
                engine.compact()
            seconds = time.perf_counter() - start
            peaks[size] = memory.grown
            times = [step.seconds for step in steps]
            median = statistics.median(times)
            results.append(
                {
                    "system": "headrace",
                    "case": f"step of {size:,}",
                    "rows": size,
                    "seconds": median,
                    "rows_per_s": size / median,
                    "mean_seconds": statistics.fmean(times),
                    "max_seconds": max(times),
                    # All steps, one after the other, and the merges that they owe: what the median does not show.
                    "sustained_rows_per_s": size * options.repeat / seconds,
                    "peak_mb": memory.grown / 1e6,
                    "state_mb": steps[-1].state_bytes / 1e6,
                    "ran": steps[-1].ran,
                }
            )
        rows_now = engine.tables["t"].to_arrow()
        answer = view.to_arrow()
        view_bytes = view.explain().state_bytes
    tell(f"recomputing over {rows_now.num_rows:,} rows")
    seconds, expected = recompute(spark, root / "recompute", rows_now, SQL)
    # Random doubles are summed in another order by Spark, so they agree to rounding only.
    assert_same(answer, expected, relative=1e-9)
    return {
        "results": results,
        "recompute": seconds,
        "peaks": peaks,
        "table_rows": rows_now.num_rows,
        "view_bytes": view_bytes,
        "buckets": buckets,
    }


class _Source:
    """Makes random rows with growing keys, and changes that insert new rows and delete earlier ones."""

    def __init__(self, groups: int, deletes: float) -> None:
        self.rng = np.random.default_rng(7)
        self.groups = groups
        self.deletes = deletes
        self.next = 0
        self.kept: list[pa.Table] = []

    def inserts(self, count: int) -> pa.Table:
        """Return new rows, and remember them to be deleted later."""
        rng = self.rng
        cents = rng.integers(100, 1_000_000, count)
        halves = np.zeros(2 * count, np.int64)
        halves[0::2] = cents
        table = pa.table(
            {
                "id": np.arange(self.next, self.next + count),
                "grp": rng.integers(0, self.groups, count, dtype=np.int32),
                "quantity": rng.integers(1, 51, count, dtype=np.int32),
                "amount": rng.normal(100.0, 20.0, count),
                "price": pa.Array.from_buffers(pa.decimal128(12, 2), count, [None, pa.py_buffer(halves)]),
            }
        )
        self.next += count
        self.kept.append(table.take(pa.array(rng.permutation(count))))
        return table

    def changes(self, count: int) -> pa.Table:
        """Return a change batch: mostly insertions, and deletions of random earlier rows."""
        wanted = int(count * self.deletes)
        removed = []
        while wanted and self.kept:
            oldest = self.kept[0]
            part = oldest.slice(0, wanted)
            self.kept[0] = oldest.slice(part.num_rows)
            if not self.kept[0].num_rows:
                self.kept.pop(0)
            elif self.rng.random() < 0.5:
                self.kept.append(self.kept.pop(0))
            removed.append(part)
            wanted -= part.num_rows
        gone = pa.concat_tables(removed) if removed else None
        new = self.inserts(count - (gone.num_rows if gone else 0))
        signed = new.append_column("__diff", pa.array(np.ones(new.num_rows, np.int64)))
        if gone is None:
            return signed
        return pa.concat_tables([signed, gone.append_column("__diff", pa.array(-np.ones(gone.num_rows, np.int64)))])


def recompute(spark: SparkSession, folder: Path, rows: pa.Table, sql: str) -> tuple[float, pa.Table]:
    """How long Spark takes for a query over the rows of a table `t` (Parquet, warm), and its answer."""
    folder.mkdir(parents=True)
    parts = spark.sparkContext.defaultParallelism
    size = -(-rows.num_rows // parts)
    for i in range(parts):
        pq.write_table(rows.slice(i * size, size), folder / f"part-{i}.parquet")
    session = spark.newSession()
    session.read.parquet(str(folder)).createOrReplaceTempView("t")
    expected = session.sql(sql).toArrow()
    return _median_seconds(lambda: session.sql(sql).write.format("noop").mode("overwrite").save(), 5), expected


def _empty_job(spark: SparkSession) -> None:
    spark.range(0, 2, 1, 2).groupBy((F.col("id") % 2).alias("k")).count().collect()


def _median_seconds(work: Callable[[], object], repeat: int) -> float:
    for _ in range(2):
        work()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def table(result: dict[str, Any]) -> Table:
    """Return the tables that show a result to people."""
    config = result["config"]
    shown = Table(title=f"step: {config['rows']:,} rows, {config['groups']:,} groups, {config['cores']} cores")
    for column in ("system", "case", ">ms (median)", ">rows/s", ">with merges", ">peak MB", "where"):
        shown.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    for row in result["results"]:
        rate, kept_up = (f"{row[name]:,.0f}" if name in row else "" for name in ("rows_per_s", "sustained_rows_per_s"))
        peak = f"{row['peak_mb']:,.0f}" if "peak_mb" in row else ""
        times = f"{row['seconds'] * 1e3:,.1f}"
        shown.add_row(row["system"], row["case"], times, rate, kept_up, peak, row.get("ran", ""))
    shown.add_section()
    for name, value in result["ratios"].items():
        shown.add_row("ratio", name, f"{value:,.2f}")
    return shown

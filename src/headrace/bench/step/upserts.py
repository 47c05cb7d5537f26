"""Upserts: what it costs to replace rows of a large table by their keys, and to insert those whose keys are new.

Steps of one size are applied as Arrow tables and as Spark DataFrames that read Parquet files, to a table alone and to
one with a view over it. Beside them stand, in the same run, two ways to do the same without Headrace: a MERGE by Spark
(an anti-join with the new rows, and the whole table written anew as Parquet), and `INSERT OR REPLACE` of DuckDB. All
tables are compared with the rows that must be there in the end. The median is a usual step; the mean includes those
that wait for merges of runs. CPU is that of the driver's Python, which does a small step, on all cores together; a
machine that does other things besides changes it less than the time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql import SparkSession
from rich.console import Group
from rich.table import Table

from headrace.bench.measuring.screen import named_numbers
from headrace.engine.engine import Engine
from headrace.runtime.session import local_session

Tell = Callable[[str], None]

SCHEMA = "id BIGINT, customer BIGINT, amount DOUBLE, status STRING, day DATE"
VIEW = "SELECT customer % 1000 AS g, COUNT(*) AS n, SUM(amount) AS amount FROM t GROUP BY customer % 1000"
_LOAD = 1_000_000
_STATUS = np.array(["open", "paid", "sent", "returned"])


def run(argv: list[str], tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Run the benchmark; see `--help` for its options."""
    parser = argparse.ArgumentParser(prog="headrace bench upserts", description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the table (default 10 million)")
    parser.add_argument("--size", type=int, default=100_000, help="rows of a step (default 100,000)")
    parser.add_argument("--new", type=float, default=0.1, help="share of them whose keys are new (default 0.1)")
    parser.add_argument("--repeat", type=int, default=30, help="steps that are timed (default 30)")
    parser.add_argument("--warm", type=int, default=3, help="steps before them, not timed (default 3)")
    parser.add_argument("--peer-repeat", type=int, default=3, help="steps of each peer (default 3)")
    parser.add_argument("--location", type=Path, default=None, help="folder for the state (default: a temporary one)")
    options = parser.parse_args(argv)
    spark = local_session()
    with TemporaryDirectory(prefix="headrace-bench-", dir=options.location, ignore_cleanup_errors=True) as folder:
        return _run(spark, Path(folder), options, tell)


@dataclass
class _Source:
    """The rows that must be there, and batches of upserts that follow each other."""

    rows: int
    size: int
    new: float
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(11))

    def __post_init__(self) -> None:
        self.there = _rows(np.arange(self.rows), self.rng)

    def batches(self, count: int) -> Iterator[pa.Table]:
        """So many batches; each has a key once."""
        for _ in range(count):
            fresh = int(self.size * self.new)
            old = self.rng.choice(self.there.num_rows, self.size - fresh, replace=False)
            keys = np.concatenate([old, self.there.num_rows + np.arange(fresh)])
            batch = _rows(self.rng.permutation(keys), self.rng)
            self._put(batch, len(keys) - fresh)
            yield batch

    def _put(self, batch: pa.Table, known: int) -> None:
        everything = pa.concat_tables([self.there, batch.sort_by("id").slice(known)])
        at = batch.column("id").to_numpy()
        columns = []
        for name in everything.column_names:
            column = everything.column(name).combine_chunks()
            positions = np.arange(everything.num_rows)
            both = pa.concat_arrays([column, batch.column(name).combine_chunks()])
            positions[at] = everything.num_rows + np.arange(batch.num_rows)
            columns.append(both.take(pa.array(positions)))
        self.there = pa.table(columns, names=everything.column_names)


def _rows(ids: NDArray[np.int64], rng: np.random.Generator) -> pa.Table:
    count = len(ids)
    return pa.table(
        {
            "id": ids,
            "customer": rng.integers(0, 1_000_000, count),
            "amount": rng.integers(0, 1_000_000, count) / 100,
            "status": pa.array(_STATUS).take(pa.array(rng.integers(0, len(_STATUS), count))),
            "day": pa.array(rng.integers(19_000, 20_000, count).astype(np.int32)).cast(pa.date32()),
        }
    )


def _run(spark: SparkSession, root: Path, options: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    results: list[dict[str, Any]] = []
    for case, with_view, as_frame in (
        ("Arrow tables", False, False),
        ("Spark DataFrames", False, True),
        ("Arrow tables, with a view", True, False),
        ("Spark DataFrames, with a view", True, True),
    ):
        tell(f"{case}: loading {options.rows:,} rows")
        results.append(_headrace(spark, root, options, case, with_view, as_frame, tell))
    tell("Spark: an anti-join, and the table written anew")
    results.append(_spark(spark, root / "spark", options))
    if find_spec("duckdb") is not None:
        tell("DuckDB: INSERT OR REPLACE")
        results.append(_duckdb(root, options))
    ratios = {
        f"{peer['system']} / headrace, {own['case']}": peer["seconds"] / own["seconds"]
        for own in results
        for peer in results
        if own["system"] == "headrace" and peer["system"] != "headrace"
    }
    config = {key: value for key, value in vars(options).items() if key != "location"}
    config |= {"cores": spark.sparkContext.defaultParallelism, "view": VIEW}
    return {"bench": "upserts", "config": config, "results": results, "ratios": ratios}


def _headrace(
    spark: SparkSession,
    root: Path,
    options: argparse.Namespace,
    case: str,
    with_view: bool,
    as_frame: bool,
    tell: Tell,
) -> dict[str, Any]:
    source = _Source(options.rows, options.size, options.new)
    seconds: list[float] = []
    spent: list[float] = []
    with TemporaryDirectory(dir=root) as folder, Engine(spark, f"{folder}/state") as engine:
        table = engine.table("t", SCHEMA, key="id")
        view = engine.view("v", VIEW) if with_view else None
        order = source.rng.permutation(options.rows)
        for start in range(0, options.rows, _LOAD):
            engine.apply({"t": source.there.take(pa.array(order[start : start + _LOAD]))})
        engine.compact()
        tell(f"{case}: {options.warm + options.repeat} steps of {options.size:,} rows")
        for number, batch in enumerate(source.batches(options.warm + options.repeat)):
            given: Any = batch
            if as_frame:
                pq.write_table(batch, f"{folder}/{number}.parquet")
                given = spark.read.parquet(f"{folder}/{number}.parquet")
            began, cpu = time.perf_counter(), time.process_time()
            engine.apply({"t": given}, mode="upsert")
            seconds.append(time.perf_counter() - began)
            spent.append(time.process_time() - cpu)
        row = _row("headrace", case, options, seconds[options.warm :])
        row["cpu_seconds"] = statistics.median(spent[options.warm :])
        row["wrong"] = _difference(table.to_arrow(), source.there)
        if view is not None and not row["wrong"]:
            row["wrong"] = _view_difference(view.to_arrow(), source.there)
        return {key: value for key, value in row.items() if key != "wrong" or value}


def _spark(spark: SparkSession, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Spark has no MERGE for Parquet: what stays and what comes is written as a new table, as tools for it do."""
    source = _Source(options.rows, options.size, options.new)
    folder.mkdir()
    pq.write_table(source.there, folder / "table-0.parquet", row_group_size=_LOAD)
    seconds = []
    for number, batch in enumerate(source.batches(options.peer_repeat)):
        pq.write_table(batch, folder / "batch.parquet")
        start = time.perf_counter()
        before = spark.read.parquet(str(folder / f"table-{number}.parquet"))
        new = spark.read.parquet(str(folder / "batch.parquet"))
        after = before.join(new.select("id"), "id", "left_anti").unionByName(new)
        after.write.parquet(str(folder / f"table-{number + 1}.parquet"))
        seconds.append(time.perf_counter() - start)
    row = _row("spark", "anti-join and rewrite", options, seconds)
    found = pq.read_table(folder / f"table-{options.peer_repeat}.parquet")
    wrong = _difference(found, source.there)
    return row | ({"wrong": wrong} if wrong else {})


def _duckdb(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    import duckdb

    source = _Source(options.rows, options.size, options.new)
    seconds = []
    with duckdb.connect(str(folder / "duck.db")) as database:
        database.execute(
            "CREATE TABLE t (id BIGINT PRIMARY KEY, customer BIGINT, amount DOUBLE, status VARCHAR, day DATE)"
        )
        loaded = source.there  # noqa: F841 (read by name)
        database.execute("INSERT INTO t SELECT * FROM loaded")
        for batch in source.batches(options.peer_repeat):  # noqa: B007 (read by name)
            start = time.perf_counter()
            database.execute("INSERT OR REPLACE INTO t SELECT * FROM batch")
            seconds.append(time.perf_counter() - start)
        found = database.sql("SELECT * FROM t").to_arrow_table()
    wrong = _difference(found, source.there)
    return _row("duckdb", "INSERT OR REPLACE", options, seconds) | ({"wrong": wrong} if wrong else {})


def _row(system: str, case: str, options: argparse.Namespace, seconds: list[float]) -> dict[str, Any]:
    median, mean = statistics.median(seconds), statistics.fmean(seconds)
    return {
        "system": system,
        "case": case,
        "table_rows": options.rows,
        "rows": options.size,
        "seconds": median,
        "mean_seconds": mean,
        "max_seconds": max(seconds),
        "rows_per_s": options.size / median,
        "mean_rows_per_s": options.size / mean,
    }


def _difference(found: pa.Table, expected: pa.Table) -> str:
    """What is wrong with a table; nothing if it has the rows that must be there."""
    if found.num_rows != expected.num_rows:
        return f"{found.num_rows:,} rows, and not {expected.num_rows:,}"
    order = pc.sort_indices(found.column("id"))
    for name in expected.column_names:
        own = found.column(name).combine_chunks().cast(expected.column(name).type).take(order)
        if not own.equals(expected.column(name).combine_chunks()):
            return f"other values of {name}"
    return ""


def _view_difference(found: pa.Table, expected: pa.Table) -> str:
    groups = expected.column("customer").to_numpy() % 1000
    counts = np.bincount(groups, minlength=1000)
    sums = np.bincount(groups, expected.column("amount").to_numpy(), minlength=1000)
    at = found.column("g").to_numpy()
    is_right = np.array_equal(found.column("n").to_numpy(), counts[at])
    is_right = is_right and len(at) == np.count_nonzero(counts)
    return "" if is_right and np.allclose(found.column("amount").to_numpy(), sums[at]) else "other sums in the view"


def table(result: dict[str, Any]) -> Group:
    """Return the tables that show a result to people."""
    config = result["config"]
    title = f"upserts: steps of {config['size']:,} rows, a table of {config['rows']:,}, {config['cores']} cores"
    shown = Table(title=title)
    for column in ("system", "case", "ms (median)", "mean", "slowest", "CPU", "rows/s (median)", "rows/s (mean)"):
        shown.add_column(column, justify="left" if column in ("system", "case") else "right")
    for row in result["results"]:
        keys = ("seconds", "mean_seconds", "max_seconds", "cpu_seconds")
        times = [f"{row[key] * 1e3:,.1f}" if key in row else "" for key in keys]
        rates = [f"{row[key]:,.0f}" for key in ("rows_per_s", "mean_rows_per_s")]
        shown.add_row(row["system"], row["case"], *times, *rates)
    return Group(shown, named_numbers("ratio", result["ratios"]))

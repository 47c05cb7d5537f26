"""TPC-H queries over foreign-key joins, kept up to date while a window slides over orders and lineitems.

Every system gets the same sequence of updates (`datasets.windows`): first the dimensions, then orders with their
lineitems, and, once the window is full, one deletion per insertion. Timed are the steps, from the rows in memory to
the commit, and the merges that are owed after the last one; the sequence is made beforehand, and a small one into a
throw-away location compiles the kernels. Tables keep their rows, so keys and deletions are checked. Beside Headrace
stand Spark, which recomputes the query over the rows that are there at the end, and Flink SQL and Pathway where `make
peers` has built them. All answers are compared.
"""

from __future__ import annotations

import argparse
import math
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.console import Group
from rich.table import Table

from headrace.bench.foreign.queries import QUERIES, Query
from headrace.bench.measuring.peak_memory import PeakMemory, release_memory
from headrace.bench.measuring.screen import named_numbers
from headrace.bench.peers import run_peer
from headrace.datasets.tpch import TPCH_SCHEMAS, tpch_columns
from headrace.datasets.windows import Updates, fifo_updates
from headrace.engine.engine import Engine
from headrace.relation.types import sql_type
from headrace.runtime.session import local_session
from headrace.testing.oracle import assert_same
from headrace.thrifty.strategy import FOREIGN_KEY as FOREIGN

Tell = Callable[[str], None]

_WARM_SCALE, _WARM_BATCH = 0.01, 5_000
_PEER_BATCH = 100_000
_AS_PEERS = "start of the sequence"
_DIMENSIONS_FIRST = ("region", "nation", "supplier", "customer", "part", "partsupp")


@dataclass
class _Run:
    """The measurements of one strategy over one sequence of updates."""

    updates: int = 0
    steps: list[float] = field(default_factory=list)
    merging: float = 0.0  # seconds for the merges that are still owed after the last step
    state: int = 0  # bytes of all state
    view: int = 0  # bytes of the view's part of it
    tuples: int = 0  # rows that the view keeps, of all tables
    peak: int = 0
    ran: str = ""
    answer: pa.Table = field(default_factory=lambda: pa.table({}))

    @property
    def seconds(self) -> float:
        return sum(self.steps) + self.merging


def run(argv: list[str], tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Run the benchmark; see `--help` for its options."""
    options = _parser().parse_args(argv)
    query = QUERIES[options.query]
    spark = local_session(cores=options.cores)
    root = Path(tempfile.mkdtemp(prefix="headrace-bench-", dir=options.location))
    results: list[dict[str, Any]] = []
    ratios: dict[str, float] = {}
    answers: list[pa.Table] = []
    try:
        _warm_up(spark, query, options, root)
        tell(f"making TPC-H at scale {options.scale:g}")
        updates = _updates(query, options.scale, options.window, options.updates)
        for strategy in options.strategies:
            for batch in options.batch:
                tell(f"{options.query} by {strategy}: {updates.total:,} updates in steps of {batch:,}")
                done = _maintain(spark, query, strategy, updates, batch, root, options)
                results.append(_row(strategy, f"steps of {batch:,}", done))
                answers.append(done.answer)
                ratios |= _memory(done) if strategy == FOREIGN else {}
        tell("Spark recomputes")
        rows = updates.rows_left()
        seconds, expected = _recompute(spark, query, rows, root / "recompute")
        for answer in answers:
            assert_same(answer, expected)
        results.append({"system": "spark", "case": "recompute once", "rows": _count(rows), "seconds": seconds})
        for row in results:
            if "median_step" in row:
                ratios[f"recompute / {row['case']} ({row['system']})"] = seconds / row["median_step"]
        if options.peers:
            results += _peers(spark, query, updates, root, options, tell)
        if options.scales:
            ratios["slope of time over updates (log-log)"] = _slope(spark, query, options, root, results, tell)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    ratios |= _against_peers(results)
    config = {"query": options.query, "scale": options.scale, "window": options.window, "updates": updates.total}
    config |= {"cores": spark.sparkContext.defaultParallelism, "sql": query.sql}
    return {"bench": "foreign-key", "config": config, "results": results, "ratios": ratios}


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="headrace bench foreign-key", description=__doc__)
    add = made.add_argument
    add("--query", choices=sorted(QUERIES), default="q3", help="the TPC-H query (default q3)")
    add("--scale", type=float, default=1.0, help="TPC-H's scale factor (default 1)")
    add("--window", type=int, default=1_000_000, help="lineitems that stay; 0 keeps all (default 1 million)")
    add("--batch", type=_numbers, default=[1_000_000, 100_000], help="updates per step, with commas")
    add("--updates", type=int, default=None, help="stop after so many updates (default: when all rows have come)")
    add("--strategies", type=_names, default=[FOREIGN], help="with commas: foreign-key, factorized, ... ")
    add("--executor", choices=["auto", "inline", "spark"], default="auto", help="where steps run (default auto)")
    add("--peers", type=_names, default=["flink", "pathway"], help="which peers, if built (default flink,pathway)")
    add("--peer-updates", type=int, default=1_000_000, help="how many updates peers get (default 1 million)")
    add("--time-limit", type=float, default=120.0, help="seconds a peer (default 120)")
    add("--scales", type=_scales, default=[], help="also measure time at these scales, to see that it is linear")
    add("--grow", action="store_true", help="let the window grow with --scales (default: it stays)")
    add("--cores", type=int, default=None, help="cores to use (default: all)")
    add("--location", type=Path, default=None, help="folder for files and state (default: a temporary one)")
    return made


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _scales(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def _names(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _updates(query: Query, scale: float, window: int, most: int | None) -> Updates:
    made = fifo_updates(tpch_columns(scale, query.columns), window or None)
    return made if most is None else made.first(most)


def _maintain(
    spark: SparkSession,
    query: Query,
    strategy: str,
    updates: Updates,
    batch: int,
    root: Path,
    options: argparse.Namespace,
) -> _Run:
    done = _Run()
    release_memory()
    location = Path(tempfile.mkdtemp(prefix="state-", dir=root))
    with Engine(spark, location, executor=options.executor) as engine, PeakMemory() as memory:
        _register(engine, query, updates, options.window)
        view = engine.view("answer", query.sql, strategy=strategy)
        for changes in updates.batches(batch):
            start = time.perf_counter()
            step = engine.apply(changes)
            done.steps.append(time.perf_counter() - start)
            done.updates += sum(table.num_rows for table in changes.values())
            done.state = max(done.state, step.state_bytes)
            done.ran = step.ran
        start = time.perf_counter()
        engine.compact()
        done.merging = time.perf_counter() - start
        done.answer = view.to_arrow()
        done.view = view.explain().state_bytes
        done.tuples = sum(table.rows for table in engine.tables.values())
    done.peak = memory.grown
    shutil.rmtree(location)
    return done


def _register(engine: Engine, query: Query, updates: Updates, window: int) -> None:
    for name, columns in query.columns.items():
        spec, schema = TPCH_SCHEMAS[name], updates.tables[name].schema
        ddl = ", ".join(f"{column} {sql_type(schema.field(column).type)} NOT NULL" for column in schema.names)
        references = {
            key: table
            for key, table in dict(spec.references).items()
            if table in query.columns and set([key] if isinstance(key, str) else key) <= set(columns)
        }
        rows = updates.tables[name].num_rows
        share = min(1.0, window / updates.tables["lineitem"].num_rows) if window else 1.0
        expected = rows if name in _DIMENSIONS_FIRST else int(rows * share)
        engine.table(name, ddl, key=spec.key, references=references, expected_rows=expected)


def _warm_up(spark: SparkSession, query: Query, options: argparse.Namespace, root: Path) -> None:
    small = _updates(query, _WARM_SCALE, 10_000, None)
    for strategy in options.strategies:
        _maintain(spark, query, strategy, small, _WARM_BATCH, root, options)


def _recompute(spark: SparkSession, query: Query, rows: dict[str, pa.Table], folder: Path) -> tuple[float, pa.Table]:
    """Time Spark running the query over Parquet files of the remaining rows; the best of three runs counts."""
    session = spark.newSession()
    session.conf.set("spark.sql.adaptive.enabled", "true")
    for name, table in rows.items():
        (folder / name).mkdir(parents=True)
        half = -(-table.num_rows // 2)
        for i in range(2):
            pq.write_table(table.slice(i * half, half), folder / name / f"{i}.parquet")
        session.read.parquet(str(folder / name)).createOrReplaceTempView(name)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        answer = session.sql(query.sql).toArrow()
        seconds.append(time.perf_counter() - start)
    return min(seconds), answer


def _slope(
    spark: SparkSession,
    query: Query,
    options: argparse.Namespace,
    root: Path,
    results: list[dict[str, Any]],
    tell: Tell,
) -> float:
    """Fit log(seconds) over log(updates) at several scales, with the same steps; 1 means linear."""
    points = []
    batch = options.batch[-1]
    for scale in options.scales:
        window = round(options.window * scale / options.scale) if options.grow else options.window
        updates = _updates(query, scale, window, None)
        tell(f"scale {scale:g}: {updates.total:,} updates in steps of {batch:,}")
        scaled = argparse.Namespace(**{**vars(options), "window": window})
        done = _maintain(spark, query, FOREIGN, updates, batch, root, scaled)
        results.append(_row(FOREIGN, f"scale {scale:g}, steps of {batch:,}", done))
        points.append((math.log(done.updates), math.log(done.seconds)))
    return statistics.linear_regression(*zip(*points, strict=True)).slope if len(points) > 1 else math.nan


def _peers(
    spark: SparkSession, query: Query, updates: Updates, root: Path, options: argparse.Namespace, tell: Tell
) -> list[dict[str, Any]]:
    """Run the peers, and Headrace, on the start of the sequence, and check that all have the same answer."""
    start = updates.first(options.peer_updates)
    expected = _recompute(spark, query, start.rows_left(), root / "peers")[1]
    batch = options.batch[-1]
    done = _maintain(spark, query, FOREIGN, start, batch, root, options)
    assert_same(done.answer, expected)
    out = [_row(FOREIGN, _AS_PEERS, done)]
    for name in options.peers:
        made = start.batches(_PEER_BATCH, positions=True)
        result = run_peer(name, options.query, made, time_limit=options.time_limit, tell=tell)
        answer = result.pop("answer", None)
        if answer is not None and not _agree(answer, expected):
            result = {"system": name, "case": options.query, "failed": "its answer is not Spark's"}
        out.append({"rows": start.total} | result | {"case": _AS_PEERS})
    return out


def _agree(answer: list[dict[str, Any]], expected: pa.Table) -> bool:
    """Whether a peer and Spark have the same rows; the peer's amounts are doubles, and are compared up to rounding."""

    def sorted_rows(rows: list[dict[str, Any]]) -> list[list[Any]]:
        made = [[row[name] for name in expected.column_names] for row in rows]
        return sorted(
            ([_plain(value) for value in row] for row in made),
            key=lambda row: [str(v) for v in row if not isinstance(v, float)],
        )

    ours, theirs = sorted_rows(expected.to_pylist()), sorted_rows(answer)
    return len(ours) == len(theirs) and all(
        math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-6) if isinstance(a, float) and isinstance(b, float) else a == b
        for one, other in zip(ours, theirs, strict=True)
        for a, b in zip(one, other, strict=True)
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal | float):
        return float(value)
    return value if isinstance(value, int | str) else str(value)


def _against_peers(results: list[dict[str, Any]]) -> dict[str, float]:
    rates = {row["system"]: row["rows_per_s"] for row in results if row["case"] == _AS_PEERS and "rows_per_s" in row}
    ours = rates.pop("headrace", 0.0)
    return {f"headrace / {name}": ours / rate for name, rate in rates.items()}


def _memory(done: _Run) -> dict[str, float]:
    return {"bytes of the view's state / tuple kept": done.view / done.tuples} if done.tuples else {}


def _row(strategy: str, case: str, done: _Run) -> dict[str, Any]:
    return {
        "system": "headrace" if strategy == FOREIGN else f"headrace {strategy}",
        "case": case,
        "rows": done.updates,
        "seconds": done.seconds,
        "rows_per_s": done.updates / done.seconds,
        "median_step": statistics.median(done.steps),
        "peak_mb": done.peak / 1e6,
        "state_mb": done.state / 1e6,
        "ran": done.ran,
    }


def _count(rows: dict[str, pa.Table]) -> int:
    return sum(table.num_rows for table in rows.values())


def table(result: dict[str, Any]) -> Group:
    """Return the tables that show a result to people."""
    config = result["config"]
    title = f"{config['query']} at scale {config['scale']:g}, window {config['window']:,}, {config['cores']} cores"
    shown = Table(title=title)
    for column in ("system", "case", ">rows", ">seconds", ">rows/s", ">state MB", ">peak MB"):
        shown.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    for row in result["results"]:
        rate = f"{row['rows_per_s']:,.0f}" if row.get("rows_per_s") else row.get("failed", "")
        sizes = [f"{row[name]:,.0f}" if row.get(name) else "" for name in ("state_mb", "peak_mb")]
        seconds = f"{row['seconds']:,.2f}" if row.get("seconds") else ""
        shown.add_row(row["system"], row["case"], f"{row['rows']:,}", seconds, rate, *sizes)
    return Group(shown, named_numbers("ratio", result["ratios"]))

"""Window functions kept fresh: the latest row of each key, the best three, running sums and averages of seven days.

Rows come and older ones leave, in steps of several sizes, over tables of several sizes; each row of the answer follows.
Beside each view stands Spark's recomputation of its query over the same rows (Parquet, warm) in the same run, and the
answers are compared row by row. Keys are checked and all rows are kept, as they are by default. Steps are timed in turn
over the tables of all sizes.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from rich.console import Group
from rich.table import Table

from headrace.bench.measuring.screen import named_numbers
from headrace.bench.measuring.targets import verdict
from headrace.bench.step.one_table import recompute
from headrace.engine.engine import Engine
from headrace.engine.handles import View
from headrace.runtime.session import local_session

Tell = Callable[[str], None]

_LOAD = 1_000_000
_ROWS_A_KEY = 10
_DAYS = 60
_LEAVING = 5  # one row in so many that change is one that leaves
SCHEMA = "seq BIGINT NOT NULL, k BIGINT NOT NULL, day DATE NOT NULL, score INT NOT NULL, x BIGINT NOT NULL"
QUERIES = {
    "latest": "SELECT seq, k, score FROM t QUALIFY row_number() OVER (PARTITION BY k ORDER BY seq DESC) = 1",
    "best-three": "SELECT seq, k, score FROM t "
    "QUALIFY row_number() OVER (PARTITION BY k ORDER BY score DESC, seq) <= 3",
    "running": "SELECT seq, k, sum(x) OVER (PARTITION BY k ORDER BY seq) AS total FROM t",
    "seven-days": "SELECT seq, k, avg(x) OVER (PARTITION BY k ORDER BY day "
    "RANGE BETWEEN INTERVAL 6 DAYS PRECEDING AND CURRENT ROW) AS mean FROM t",
}


def run(argv: list[str], tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Run the benchmark; see `--help` for its options."""
    parser = argparse.ArgumentParser(prog="headrace bench windows", description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000], help="sizes of the table")
    parser.add_argument("--steps", type=int, nargs="+", default=[1_000, 100_000], help="changed rows of a step")
    parser.add_argument("--queries", nargs="+", choices=list(QUERIES), default=list(QUERIES), help="which views")
    parser.add_argument("--repeat", type=int, default=20, help="steps of each size that are timed (default 20)")
    parser.add_argument("--warm", type=int, default=4, help="steps before them, not timed (default 4)")
    parser.add_argument("--location", type=Path, default=None, help="folder for the state (default: a temporary one)")
    options = parser.parse_args(argv)
    spark = local_session()
    with TemporaryDirectory(prefix="headrace-bench-", dir=options.location, ignore_cleanup_errors=True) as folder:
        return _run(spark, Path(folder), options, tell)


@dataclass
class _Events:
    """A table of events with one view over it, in an engine of its own."""

    engine: Engine
    view: View
    size: int
    rows: pa.Table  # those from `gone` to `at` are there
    at: int
    gone: int = 0
    seconds: dict[int, list[float]] = field(default_factory=dict)

    def step(self, count: int) -> float:
        """New rows come, and some of the oldest leave; returns the seconds of the step."""
        leaving = count // _LEAVING
        came = self.rows.slice(self.at, count - leaving)
        left = self.rows.slice(self.gone, leaving)
        self.at += count - leaving
        self.gone += leaving
        diff = np.ones(count, np.int64)
        diff[:leaving] = -1
        changes = pa.concat_tables([left, came]).append_column("__diff", pa.array(diff))
        return self.engine.apply({"t": changes}).seconds

    @property
    def now(self) -> pa.Table:
        """The rows that are there."""
        return self.rows.slice(self.gone, self.at - self.gone)


def _run(spark: SparkSession, root: Path, options: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    results: list[dict[str, Any]] = []
    ratios: dict[str, float] = {}
    rounds = options.warm + options.repeat
    more = rounds * sum(options.steps)
    for name in options.queries:
        with ExitStack() as stack:
            tables = [_loaded(spark, root / f"{name}-{size}", name, size, more, stack, tell) for size in options.rows]
            for count in options.steps:
                tell(f"{name}: {rounds} steps of {count:,} rows")
                for number in range(rounds):
                    for events in tables:
                        seconds = events.step(count)
                        if number >= options.warm:
                            events.seconds.setdefault(count, []).append(seconds)
            for events in tables:
                tell(f"{name}: recomputing over {events.size:,} rows")
                anew, expected = recompute(spark, root / f"{name}-{events.size}-anew", events.now, QUERIES[name])
                wrong = _difference(events.view.to_arrow(), expected)
                results.append({"case": name, "system": "spark", "table_rows": events.size, "seconds": anew})
                for count, times in events.seconds.items():
                    row = _row(name, events.size, count, times)
                    results.append(row | ({"wrong": wrong} if wrong else {}))
                    ratios[f"{name}: recomputing {events.size:,} rows / step of {count:,}"] = anew / row["seconds"]
        for count in options.steps:
            small, large = (_median(tables, size, count) for size in (min(options.rows), max(options.rows)))
            ratios[f"{name}: step of {count:,}, {max(options.rows):,} rows / {min(options.rows):,}"] = large / small
    config = {key: value for key, value in vars(options).items() if key != "location"}
    config |= {"cores": spark.sparkContext.defaultParallelism, "sql": QUERIES}
    return {
        "bench": "windows",
        "config": config,
        "results": results,
        "ratios": ratios,
        "targets": _targets(results, ratios),
    }


def _loaded(
    spark: SparkSession, location: Path, name: str, size: int, more: int, stack: ExitStack, tell: Tell
) -> _Events:
    engine = stack.enter_context(Engine(spark, location))
    engine.table("t", SCHEMA, key="seq")
    rng = np.random.default_rng(7)
    rows = _rows(size + more, size // _ROWS_A_KEY, rng)
    for start in range(0, size, _LOAD):
        engine.apply({"t": rows.slice(start, min(_LOAD, size - start))})
        tell(f"{name}: loaded {min(start + _LOAD, size):,} of {size:,} rows")
    view = engine.view("kept", QUERIES[name])
    engine.compact()
    return _Events(engine, view, size, rows, size)


def _rows(count: int, keys: int, rng: np.random.Generator) -> pa.Table:
    number = np.arange(count)
    return pa.table(
        {
            "seq": number,
            "k": rng.integers(0, max(1, keys), count),
            "day": pa.array((19_000 + number * _DAYS // count).astype(np.int32)).cast(pa.date32()),
            "score": rng.integers(0, 1_000_000, count, dtype=np.int32),
            "x": rng.integers(-1000, 1000, count),
        }
    )


def _difference(found: pa.Table, expected: pa.Table) -> str:
    """How an answer differs from what is expected; empty if it does not."""
    if found.num_rows != expected.num_rows:
        return f"{found.num_rows:,} rows, and Spark has {expected.num_rows:,}"
    one, other = (table.sort_by("seq") for table in (found, expected))
    for column in expected.column_names:
        a, b = (table[column].to_numpy() for table in (one, other))
        same = np.isclose(a, b, rtol=1e-12, atol=1e-12) if a.dtype.kind == "f" else a == b
        if not same.all():
            at = int(np.flatnonzero(~same)[0])
            return f"{column} of seq {one['seq'][at]} is {a[at]}, and Spark has {b[at]}"
    return ""


def _median(tables: list[_Events], size: int, count: int) -> float:
    return statistics.median(next(one.seconds[count] for one in tables if one.size == size))


def _row(case: str, size: int, count: int, times: list[float]) -> dict[str, Any]:
    return {
        "case": case,
        "system": "headrace",
        "table_rows": size,
        "rows": count,
        "seconds": statistics.median(times),
        "mean_seconds": statistics.fmean(times),
        "max_seconds": max(times),
        "rows_per_s": count / statistics.fmean(times),
    }


def _targets(results: list[dict[str, Any]], ratios: dict[str, float]) -> list[dict[str, Any]]:
    large = 10_000_000
    rate = next(
        (
            row["rows_per_s"]
            for row in results
            if (row["case"], row.get("rows"), row["table_rows"]) == ("latest", 100_000, large)
        ),
        None,
    )
    found = [verdict("rows/s of the latest row of each key, merges included", ">=", 1_000_000, rate)]
    for name in QUERIES:
        ratio = ratios.get(f"{name}: recomputing {large:,} rows / step of 100,000")
        found.append(verdict(f"{name}: recomputing / a step of 1%", ">=", 10, ratio))
    return found


def table(result: dict[str, Any]) -> Group:
    """Return the tables that show a result to people."""
    shown = Table(title=f"windows: functions over windows of rows, {result['config']['cores']} cores")
    for column in ("view", "table rows", "system", "changed rows", "ms (median)", "mean", "slowest", "rows/s"):
        shown.add_column(column, justify="left" if column in ("view", "system") else "right")
    for row in result["results"]:
        times = [f"{row[key] * 1e3:,.1f}" if key in row else "" for key in ("seconds", "mean_seconds", "max_seconds")]
        changed, rate = (f"{row[key]:,.0f}" if key in row else "" for key in ("rows", "rows_per_s"))
        shown.add_row(row["case"], f"{row['table_rows']:,}", row["system"], changed, *times, rate)
    verdicts = Table("target", "measured", "met")
    for one in result["targets"]:
        value = "" if one["value"] is None else f"{one['value']:,.3g}"
        verdicts.add_row(one["target"], value, {True: "yes", False: "no"}.get(one["met"], one.get("not_measured", "")))
    return Group(shown, named_numbers("ratio", result["ratios"]), verdicts)

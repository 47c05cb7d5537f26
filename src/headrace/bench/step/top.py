"""The first rows of an order, when some of them leave: the cost of a step must not follow the size of the table.

A view sums the best rows of a leaderboard. In one step some of the best leave, and in the next as many others come at
the end, as in a queue. Beside both stands Spark's recomputation of the view over the same rows (Parquet, warm) in the
same run. Steps are timed in turn over tables of all sizes, so that whatever else the machine does meets all of them.
The median is a usual step; the mean includes those that fill the front up, and merges of runs.
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
from headrace.bench.step.one_table import recompute
from headrace.engine.engine import Engine
from headrace.engine.handles import View
from headrace.runtime.session import local_session
from headrace.testing.oracle import assert_same

Tell = Callable[[str], None]

_LOAD = 1_000_000
SCHEMA = "id BIGINT NOT NULL, score BIGINT NOT NULL, player STRING NOT NULL, points INT NOT NULL"
SQL = (
    "SELECT count(*) AS n, sum(points) AS points, min(score) AS least, max(score) AS most "
    "FROM (SELECT score, points FROM t ORDER BY score DESC, id LIMIT {limit})"
)


def run(argv: list[str], tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Run the benchmark; see `--help` for its options."""
    parser = argparse.ArgumentParser(prog="headrace bench top", description=__doc__)
    parser.add_argument(
        "--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000, 10_000_000], help="sizes of the table"
    )
    parser.add_argument("--limit", type=int, default=100, help="rows of the top (default 100)")
    parser.add_argument("--leave", type=int, default=10, help="of these, how many leave in a step (default 10)")
    parser.add_argument("--repeat", type=int, default=200, help="steps that are timed (default 200)")
    parser.add_argument("--warm", type=int, default=30, help="steps before them, not timed (default 30)")
    parser.add_argument("--location", type=Path, default=None, help="folder for the state (default: a temporary one)")
    options = parser.parse_args(argv)
    spark = local_session()
    with TemporaryDirectory(prefix="headrace-bench-", dir=options.location, ignore_cleanup_errors=True) as folder:
        return _run(spark, Path(folder), options, tell)


@dataclass
class _Board:
    """A leaderboard of which the best leave, in an engine of its own."""

    engine: Engine
    view: View
    rows: pa.Table  # of which the first `at` have left, and which end with those that are yet to come
    at: int
    end: int
    best: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)

    def leave(self, count: int) -> None:
        """Let the best rows leave."""
        self.best.append(self._step(self.at, count, -1))
        self.at += count

    def come(self, count: int) -> None:
        """Let rows come that are the worst of all."""
        self.others.append(self._step(self.end, count, 1))
        self.end += count

    def _step(self, start: int, count: int, sign: int) -> float:
        diff = pa.array(np.full(count, sign, np.int64))
        return self.engine.apply({"t": self.rows.slice(start, count).append_column("__diff", diff)}).seconds

    @property
    def there(self) -> pa.Table:
        return self.rows.slice(self.at, self.end - self.at)


def _run(spark: SparkSession, root: Path, options: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    steps = options.warm + options.repeat
    sql = SQL.format(limit=options.limit)
    results: list[dict[str, Any]] = []
    ratios: dict[str, float] = {}
    with ExitStack() as stack:
        boards = {}
        for size in options.rows:
            engine = stack.enter_context(Engine(spark, root / str(size)))
            engine.table("t", SCHEMA, key="id")
            view = engine.view("best", sql)
            rows = _rows(size + steps * options.leave)
            loaded = np.random.default_rng(3).permutation(size)
            for start in range(0, size, _LOAD):
                engine.apply({"t": rows.take(pa.array(loaded[start : start + _LOAD]))})
                tell(f"loaded {min(start + _LOAD, size):,} of {size:,} rows")
            engine.compact()
            boards[size] = _Board(engine, view, rows, 0, size)
        tell(f"{steps} steps in which {options.leave} of the first {options.limit} rows leave")
        for number in range(steps):
            for board in boards.values():
                if number == options.warm:
                    board.best, board.others = [], []
                board.leave(options.leave)
                board.come(options.leave)
        for size, board in boards.items():
            tell(f"recomputing over {size:,} rows")
            seconds, expected = recompute(spark, root / f"recompute-{size}", board.there, sql)
            assert_same(board.view.to_arrow(), expected)
            results.append(_row("best rows leave", size, options.leave, board.best))
            results.append(_row("other rows come", size, options.leave, board.others))
            results.append({"system": "spark", "case": "recomputation", "table_rows": size, "seconds": seconds})
            best = statistics.median(board.best)
            ratios[f"recomputation / step in which best rows leave, {size:,} rows"] = seconds / best
            ratios[f"step in which best rows leave / other rows come, {size:,} rows"] = best / statistics.median(
                board.others
            )
    small, large = (boards[size] for size in (min(options.rows), max(options.rows)))
    for what, of in (("median", statistics.median), ("mean", statistics.fmean)):
        name = f"best rows leave: {max(options.rows):,} rows / {min(options.rows):,} ({what})"
        ratios[name] = of(large.best) / of(small.best)
    config = {key: value for key, value in vars(options).items() if key != "location"}
    config |= {"cores": spark.sparkContext.defaultParallelism, "sql": sql}
    return {"bench": "top", "config": config, "results": results, "ratios": ratios}


def _rows(count: int) -> pa.Table:
    """Rows from the best to the worst."""
    number = np.arange(count)
    rng = np.random.default_rng(5)
    players = pa.array([f"player {i}" for i in range(1000)])
    return pa.table(
        {
            "id": number,
            "score": count - number // 3,  # some tie
            "player": players.take(pa.array(rng.integers(0, len(players), count))),
            "points": rng.integers(0, 100, count, dtype=np.int32),
        }
    )


def _row(case: str, table_rows: int, leave: int, times: list[float]) -> dict[str, Any]:
    return {
        "system": "headrace",
        "case": case,
        "table_rows": table_rows,
        "rows": leave,
        "seconds": statistics.median(times),
        "mean_seconds": statistics.fmean(times),
        "max_seconds": max(times),
    }


def table(result: dict[str, Any]) -> Group:
    """Return the tables that show a result to people."""
    config = result["config"]
    title = f"top: the first {config['limit']} rows, {config['leave']} leave in a step, {config['cores']} cores"
    shown = Table(title=title)
    for column in ("table rows", "system", "case", "ms (median)", "mean", "slowest"):
        shown.add_column(column, justify="left" if column in ("system", "case") else "right")
    for row in result["results"]:
        times = [f"{row[key] * 1e3:,.1f}" if key in row else "" for key in ("seconds", "mean_seconds", "max_seconds")]
        shown.add_row(f"{row['table_rows']:,}", row["system"], row["case"], *times)
    return Group(shown, named_numbers("ratio", result["ratios"]))

"""Changes that come through Spark: micro-batches of a stream, and DataFrames, into a keyed table with one aggregate.

A stream of Parquet files has one file per micro-batch. The time of a micro-batch is Spark's own `triggerExecution`:
from the moment it looks for new files to the moment its offsets are committed, and the step with them. Two peers read
the same files in the same run: `foreachBatch` with a function that does nothing, which is the least that any
micro-batch costs, and Spark's own stateful aggregate. DataFrames of the same files are applied as they are, beside
`toArrow()` on them, which is the least that it costs to bring rows to Python. The answers of all that compute one are
compared.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from rich.console import Group
from rich.table import Table

from headrace.bench.measuring.screen import named_numbers
from headrace.engine.engine import Engine
from headrace.runtime.session import local_session
from headrace.testing.oracle import assert_same

Tell = Callable[[str], None]

_SCHEMA = "id BIGINT NOT NULL, grp BIGINT NOT NULL, amount DOUBLE NOT NULL"
_SQL = "SELECT grp, COUNT(*) AS n, SUM(amount) AS amount FROM t GROUP BY grp"
_WARM = 4  # micro-batches before those that are timed
_EMPTY, _AGGREGATE, _STREAM, _ARROW, _FRAME = (
    "empty foreachBatch",
    "Spark's stateful aggregate",
    "stream",
    "toArrow()",
    "DataFrame",
)


def run(argv: list[str], tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Run the benchmark; see `--help` for its options."""
    parser = argparse.ArgumentParser(prog="headrace bench stream", description=__doc__)
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[1, 100, 10_000, 1_000_000], help="rows per micro-batch"
    )
    parser.add_argument("--repeat", type=int, default=15, help="micro-batches that are timed (default 15)")
    parser.add_argument("--groups", type=int, default=100_000, help="groups of the view (default 100,000)")
    parser.add_argument("--master", default=None, help='Spark master, as in "local-cluster[2,1,2048]" (default: local)')
    parser.add_argument("--location", type=Path, default=None, help="folder for the state (default: a temporary one)")
    options = parser.parse_args(argv)
    spark = local_session(**({} if options.master is None else {"spark.master": options.master}))
    with TemporaryDirectory(prefix="headrace-bench-", dir=options.location, ignore_cleanup_errors=True) as folder:
        return _run(spark, Path(folder), options, tell)


def _run(spark: SparkSession, root: Path, options: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    results: list[dict[str, Any]] = []
    ratios: dict[str, float] = {}
    for size in options.sizes:
        case = _Case(spark, root / str(size), size, options.groups, options.repeat)
        found = case.run(tell)
        results += found
        seconds = {row["case"]: row["seconds"] for row in found}
        ratios |= {
            f"{size:,} rows: stream - {_EMPTY} (ms)": 1e3 * (seconds[_STREAM] - seconds[_EMPTY]),
            f"{size:,} rows: {_AGGREGATE} / stream": seconds[_AGGREGATE] / seconds[_STREAM],
            f"{size:,} rows: DataFrame - {_ARROW} (ms)": 1e3 * (seconds[_FRAME] - seconds[_ARROW]),
        }
    config = {
        **{key: value for key, value in vars(options).items() if key != "location"},
        "master": str(spark.sparkContext.master),
        "cores": spark.sparkContext.defaultParallelism,
        "sql": _SQL,
    }
    return {"bench": "stream", "config": config, "results": results, "ratios": ratios}


class _Case:
    """Micro-batches of one size."""

    def __init__(self, spark: SparkSession, root: Path, size: int, groups: int, repeat: int) -> None:
        self.spark = spark
        self.root = root
        self.size = size
        self.files = root / "files"
        self.files.mkdir(parents=True)
        rng = np.random.default_rng(size)
        for i in range(_WARM + repeat):
            ids = np.arange(i * size, (i + 1) * size)
            amounts = rng.integers(0, 1 << 20, size) / 16  # sums of these are exact in any order
            pq.write_table(
                pa.table({"id": ids, "grp": rng.integers(0, groups, size), "amount": amounts}),
                self.files / f"{i:04d}.parquet",
            )

    def run(self, told: Tell) -> list[dict[str, Any]]:
        def tell(stage: str) -> None:
            told(f"{self.size:,} rows: {stage}")

        out = []
        tell(_EMPTY)
        out.append(self._row("spark", _EMPTY, self._query(_EMPTY, lambda frame: frame, lambda frame, number: None)))
        tell(_AGGREGATE)
        totals: dict[str, Any] = {}

        def keep(frame: DataFrame, number: int) -> None:
            frame.write.format("noop").mode("overwrite").save()

        aggregated = self._query(_AGGREGATE, self._aggregate, keep, mode="update")
        out.append(self._row("spark", _AGGREGATE, aggregated))
        tell("headrace: a stream")
        times, totals["stream"], ran = self._streamed()
        out.append(self._row("headrace", _STREAM, times) | {"ran": ran})
        tell("headrace: DataFrames")
        frames = [self.spark.read.schema(_SCHEMA).parquet(str(path)) for path in sorted(self.files.iterdir())]
        out.append(self._row("spark", _ARROW, [_timed(frame.toArrow) for frame in frames][_WARM:]))
        times, totals["frames"], ran = self._applied(frames)
        out.append(self._row("headrace", _FRAME, times) | {"ran": ran})
        tell("comparing the answers")
        session = self.spark.newSession()
        session.read.schema(_SCHEMA).parquet(str(self.files)).createOrReplaceTempView("t")
        expected = session.sql(_SQL).toArrow()
        for answer in totals.values():
            assert_same(answer, expected)
        return out

    def _aggregate(self, frame: DataFrame) -> DataFrame:
        return frame.groupBy("grp").agg({"*": "count", "amount": "sum"})

    def _source(self) -> DataFrame:
        reader = self.spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.files))

    def _query(
        self,
        name: str,
        transform: Callable[[DataFrame], DataFrame],
        each: Callable[[DataFrame, int], None],
        mode: str = "append",
    ) -> list[float]:
        checkpoint = self.root / name.replace(" ", "-").replace("'", "")
        writer = transform(self._source()).writeStream.foreachBatch(each).outputMode(mode)
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
        return _seconds(query)

    def _streamed(self) -> tuple[list[float], pa.Table, str]:
        ran: set[str] = set()
        with Engine(self.spark, self.root / "streamed") as engine:
            engine.table("t", _SCHEMA, key="id")
            view = engine.view("v", _SQL)

            def step(frame: DataFrame, number: int) -> None:
                # As `engine.stream` does it; here so that Spark's times of the query can be read.
                ran.add(engine.apply({"t": frame}, source=("files", number)).ran)

            return self._query(_STREAM, lambda frame: frame, step), view.to_arrow(), " and ".join(sorted(ran))

    def _applied(self, frames: Sequence[DataFrame]) -> tuple[list[float], pa.Table, str]:
        ran: set[str] = set()
        with Engine(self.spark, self.root / "applied") as engine:
            engine.table("t", _SCHEMA, key="id")
            view = engine.view("v", _SQL)
            times = []
            for frame in frames:
                start = time.perf_counter()
                ran.add(engine.apply({"t": frame}).ran)
                times.append(time.perf_counter() - start)
            return times[_WARM:], view.to_arrow(), " and ".join(sorted(ran))

    def _row(self, system: str, case: str, times: list[float]) -> dict[str, Any]:
        median = statistics.median(times)
        return {
            "system": system,
            "case": case,
            "rows": self.size,
            "seconds": median,
            "max_seconds": max(times),
            "rows_per_s": self.size / median,
        }


def _seconds(query: StreamingQuery) -> list[float]:
    """How long each micro-batch of a query took that had rows, without the first ones."""
    progress = [one for one in query.recentProgress if one["durationMs"].get("addBatch")]
    return [one["durationMs"]["triggerExecution"] / 1e3 for one in progress][_WARM:]


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def table(result: dict[str, Any]) -> Group:
    """Return the tables that show a result to people."""
    config = result["config"]
    shown = Table(title=f"stream: {config['groups']:,} groups, {config['master']}")
    for column in (">rows", "system", "case", ">ms (median)", ">slowest", ">rows/s", "where"):
        shown.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    for row in result["results"]:
        milliseconds = [f"{row[key] * 1e3:,.1f}" for key in ("seconds", "max_seconds")]
        cells = [f"{row['rows']:,}", row["system"], row["case"], *milliseconds, f"{row['rows_per_s']:,.0f}"]
        shown.add_row(*cells, row.get("ran", ""))
    return Group(shown, named_numbers("difference or ratio", result["ratios"]))

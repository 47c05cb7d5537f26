"""A window join through Structured Streaming: tuples per second on one core and on two, beside Spark's own join.

Two streams are read from Parquet files, one file of each per micro-batch. Headrace answers each window when it ends,
before all of its rows are there, by an estimate; Spark joins the two streams by key and window, with watermarks, and
counts pairs when windows are complete. Each number of cores is a process of its own, and all answers are compared with
NumPy's. Times are those that Spark reports per micro-batch, from the trigger to the commit.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Group
from rich.table import Table

from headrace.bench.disorder.stream_progress import Progress
from headrace.bench.disorder.workload import LENGTH, QUERIES, Sides, Workload
from headrace.bench.measuring.cores import check_cores, run_bound
from headrace.bench.measuring.screen import named_numbers
from headrace.bench.measuring.targets import target_lines
from headrace.engine.window_streams import window_join
from headrace.runtime.session import local_session
from headrace.window.estimators import ESTIMATORS

Tell = Callable[[str], None]

HEADRACE, SPARK = "headrace", "spark"
_QUERY = QUERIES["q1"]
_OMEGA = LENGTH  # answers are wanted when a window ends
_COLUMNS = "key BIGINT, event TIMESTAMP, arrived TIMESTAMP"
_MICROS = 1_000_000
_TARGET = 500_000  # tuples per second


def run(argv: list[str], tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Run the benchmark; see `--help` for its options."""
    options = _checked(_parser(), argv)
    check_cores(max(options.cores))
    results: list[dict[str, Any]] = []
    if len(options.cores) == 1:
        results = _measured(options, tell)
    else:
        for cores in options.cores:
            tell(f"on {cores} core{'' if cores == 1 else 's'}")
            results += run_bound("window-stream", cores, _again(options, cores))["results"]
    ratios, targets = _ratios(results)
    config = {name: value for name, value in vars(options).items() if name != "location"}
    return {
        "bench": "window-stream",
        "config": config | {"window_ms": LENGTH / 1e3, "answered_ms": _OMEGA / 1e3, "latest_ms": _QUERY.latest / 1e3},
        "results": results,
        "ratios": ratios,
        "targets": targets,
    }


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="headrace bench window-stream", description=__doc__)
    add = made.add_argument
    add(
        "--batch",
        type=int,
        default=1_000_000,
        help="tuples per micro-batch, of both sides together (default 1 million)",
    )
    add("--batches", type=int, default=12, help="micro-batches (default 12)")
    add("--warm", type=int, default=4, help="micro-batches before those that are measured (default 4)")
    add("--rate", type=float, default=250_000.0, help="tuples per second of each side's events (default 250,000)")
    add("--keys", type=int, default=1_000, help="keys (default 1,000)")
    add("--estimator", choices=ESTIMATORS, default="auto", help="Headrace's estimator (default auto)")
    add("--systems", default=f"{HEADRACE},{SPARK}", help=f"with commas (default {HEADRACE},{SPARK})")
    add("--cores", type=int, nargs="+", default=[1, 2], help="cores to measure with (default 1 2)")
    add("--location", type=Path, default=None, help="folder for files and state (default: a temporary one)")
    return made


def _checked(parser: argparse.ArgumentParser, argv: list[str]) -> argparse.Namespace:
    options = parser.parse_args(argv)
    options.systems = [name.strip() for name in options.systems.split(",") if name.strip()]
    if not options.systems or not set(options.systems) <= {HEADRACE, SPARK}:
        parser.error(f"--systems {','.join(options.systems)}: use {HEADRACE}, {SPARK} or both")
    for name, least in (("batch", 1_000), ("batches", 1), ("warm", 0), ("keys", 1)):
        if getattr(options, name) < least:
            parser.error(f"--{name} {getattr(options, name)}: give {least:,} or more")
    if options.warm >= options.batches:
        parser.error(f"--warm {options.warm}: give fewer than --batches {options.batches}, so that some are measured")
    if not 1e3 <= options.rate <= 1e7:
        parser.error(f"--rate {options.rate:g}: give tuples per second, from 1,000 to 10 million")
    if min(options.cores) < 1:
        parser.error("--cores: give numbers from 1")
    options.cores = sorted(set(options.cores))
    return options


def _again(options: argparse.Namespace, cores: int) -> list[str]:
    """Return the arguments that run the same benchmark on some cores."""
    named = ("batch", "batches", "warm", "rate", "keys", "estimator")
    asked = [text for name in named for text in (f"--{name}", str(getattr(options, name)))]
    asked += ["--systems", ",".join(options.systems), "--cores", str(cores)]
    return asked if options.location is None else [*asked, "--location", str(options.location)]


def _measured(options: argparse.Namespace, tell: Tell) -> list[dict[str, Any]]:
    (cores,) = options.cores
    spark = local_session(cores=cores)
    root = Path(tempfile.mkdtemp(prefix="headrace-bench-", dir=options.location))
    try:
        tell("making the streams")
        seconds = options.batch * options.batches / (2 * options.rate)
        windows = int(seconds * _MICROS / LENGTH)
        made = Workload(_QUERY, None, windows=windows, warm=0, longest=_OMEGA, rate=options.rate, keys=options.keys)
        sides = made.sides(0)
        _write(root, sides, options.batches)
        systems = {HEADRACE: _headrace, SPARK: _spark}
        results = []
        for name in options.systems:
            tell(f"{name}: {options.batches} micro-batches of {options.batch:,} tuples")
            progress = Progress()
            spark.streams.addListener(progress)
            try:
                measured = systems[name](spark, root, sides, options)
            finally:
                spark.streams.removeListener(progress)
            taken = progress.seconds(options.batches)[options.warm :]
            results.append(
                {
                    "system": name,
                    "case": f"{name}, {cores} core{'' if cores == 1 else 's'}",
                    "cores": cores,
                    "rows": options.batch * len(taken),
                    "seconds": sum(taken),
                    "rows_per_s": options.batch * len(taken) / sum(taken),
                    "median_batch_s": statistics.median(taken),
                    **measured,
                }
            )
        return results
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _write(root: Path, sides: Sides, batches: int) -> None:
    """Write one file per side and micro-batch, with the rows that arrive in it."""
    last = max(int(side.arrival.max()) for side in (sides.left, sides.right)) + 1
    first = min(int(side.arrival.min()) for side in (sides.left, sides.right))
    for name, side in (("left", sides.left), ("right", sides.right)):
        (root / name).mkdir()
        number = (side.arrival - first) * batches // (last - first)
        for batch in range(batches):
            mine = np.flatnonzero(number == batch)
            times = [pa.array(column[mine]).cast(pa.timestamp("us", "UTC")) for column in (side.event, side.arrival)]
            path = root / name / f"{batch:06}.parquet"
            pq.write_table(pa.table([pa.array(side.key[mine]), *times], ["key", "event", "arrived"]), path)
            os.utime(path, (batch, batch))  # files are read in the order of their times


def _stream(spark: SparkSession, root: Path, name: str) -> DataFrame:
    return spark.readStream.schema(_COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(root / name))


def _headrace(spark: SparkSession, root: Path, sides: Sides, options: argparse.Namespace) -> dict[str, Any]:
    join = window_join(
        _stream(spark, root, "left"),
        _stream(spark, root, "right"),
        on="key",
        time="event",
        arrival="arrived",
        window=f"{LENGTH} us",
        emit_after=f"{_OMEGA} us",
        horizon=f"{_QUERY.latest} us",
        estimator=options.estimator,
        location=root / "headrace",
    )
    with join:
        join.process_available()
        answers = join.to_arrow()
    window = answers["window_start"].cast(pa.int64()).to_numpy() // LENGTH - sides.first
    mine = (window >= 0) & (window < sides.count)
    value, low, high, observed = (answers[c].to_numpy()[mine] for c in ("value", "low", "high", "observed"))
    moments = (sides.first + np.arange(sides.count)) * LENGTH + _OMEGA
    arrived, final = sides.arrived(moments)[window[mine]], sides.truth[window[mine]]
    learned = slice(len(final) // 4, None)  # the first windows are what it learns from
    measured: dict[str, Any] = {
        "windows": int(mine.sum()),
        "mean_error": float((np.abs(value - final) / final)[learned].mean()),
        "coverage": float(((low <= final) & (final <= high))[learned].mean()),
    }
    if not np.array_equal(observed, arrived):
        measured["wrong"] = f"{int((observed != arrived).sum())} of {len(arrived)} windows"
    return measured


def _spark(spark: SparkSession, root: Path, sides: Sides, options: argparse.Namespace) -> dict[str, Any]:
    found: dict[int, int] = {}

    def keep(frame: DataFrame, _: int) -> None:
        found.update({int(row["start"]): int(row["pairs"]) for row in frame.collect()})

    def windowed(name: str) -> DataFrame:
        late = f"{_QUERY.latest} microseconds"
        frame = _stream(spark, root, name).withWatermark("event", late)
        return frame.select("key", F.window("event", f"{LENGTH} microseconds").alias("w"))

    pairs = windowed("left").join(windowed("right"), ["key", "w"]).groupBy("w").agg(F.count("*").alias("pairs"))
    named = pairs.select(F.unix_micros("w.start").alias("start"), "pairs")
    writer = named.writeStream.foreachBatch(keep).option("checkpointLocation", str(root / "spark"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    final = {start // LENGTH - sides.first: pairs for start, pairs in found.items()}
    known = [window for window in final if 0 <= window < sides.count]
    wrong = sum(final[window] != sides.truth[window] for window in known)
    measured: dict[str, Any] = {"windows": len(known)}
    return measured | ({"wrong": f"{wrong} of {len(known)} windows"} if wrong or not known else {})


def _ratios(results: list[dict[str, Any]]) -> tuple[dict[str, float], list[dict[str, Any]]]:
    rate = {(row["system"], row["cores"]): row["rows_per_s"] for row in results}
    most, least = max(cores for _, cores in rate), min(cores for _, cores in rate)
    ratios, targets = {}, []
    for system in (HEADRACE, SPARK):
        if most > least and (system, most) in rate:
            ratios[f"{system}: {most} cores / {least}"] = rate[system, most] / rate[system, least]
    if (HEADRACE, most) in rate:
        if (SPARK, most) in rate:
            ratios[f"rows/s of {HEADRACE} / {SPARK}"] = rate[HEADRACE, most] / rate[SPARK, most]
        name = f"rows/s of {HEADRACE} on {most} core{'' if most == 1 else 's'} >= {_TARGET:,}"
        value = rate[HEADRACE, most]
        targets.append({"target": name, "value": value, "met": value >= _TARGET})
    return ratios, targets


def table(result: dict[str, Any]) -> Group:
    """Return the tables that show a result to people."""
    config = result["config"]
    title = (
        f"window join of streams: micro-batches of {config['batch']:,} tuples, windows of {config['window_ms']:g} ms"
    )
    shown = Table(title=title)
    for column in ("case", ">rows", ">rows/s", ">a batch", ">windows", ">error", ">coverage"):
        shown.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    for row in result["results"]:
        early = [f"{row[name]:.2%}" if name in row else "" for name in ("mean_error", "coverage")]
        batch = f"{row['median_batch_s']:.2f} s"
        windows = f"wrong: {row['wrong']}" if "wrong" in row else f"{row['windows']:,}"
        shown.add_row(row["case"], f"{row['rows']:,}", f"{row['rows_per_s']:,.0f}", batch, windows, *early)
    return Group(shown, named_numbers("ratio", result["ratios"]), target_lines(result["targets"]))

"""The queries of TPC-H as views: what it takes to fill each, and to keep it while orders and lineitems change.

Tables are loaded once. Then every query has an engine to itself with these tables: its view is made and filled, steps
change a share of orders and lineitem (TPC-H's refresh functions, insertions and deletions in each step), the answer is
read after each of them, and the last one is compared with Spark's over the same rows. A step's time is all of it,
storing the changed rows included; what that part takes alone is measured by the same steps in an engine without views.
Spark runs the query over Parquet files before the first step, beside the filling, and after the last, beside a step. A
small TPC-H goes through the same beforehand, which compiles the kernels. A query that is refused, fails or has a wrong
answer is a row that says so.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.bench.measuring.peak_memory import PeakMemory, release_memory
from headrace.bench.tpch.data import Data, Tell, load_data
from headrace.bench.tpch.ratios import PEAK, SHARING_OFF, TABLES_ONLY, TOGETHER, ratios, targets
from headrace.bench.tpch.screen import table
from headrace.datasets.tpch_queries import TPCH_22, TPCH_QUERIES, tpch_query
from headrace.engine.engine import Engine
from headrace.engine.handles import View
from headrace.engine.opening import AUTO, OFF
from headrace.errors import HeadraceError
from headrace.factorized.planner import STRATEGIES
from headrace.runtime.jvm import java_peak
from headrace.runtime.session import local_session
from headrace.thrifty.strategy import FOREIGN_KEY, OPERATORS, RECOMPUTE

__all__ = ["run", "table"]

_WARM_SCALE, _WARM_STEPS = 0.01, 2
_SAMPLE = 0.1  # seconds between two looks at the memory; more of them would slow the steps down
_PAUSE = 1.0  # seconds between two reports about steps
_SHOWN = 300  # characters of an error


@dataclass
class _Kept:
    """The measurements of one engine: per view the seconds to fill it, its answer and its size; and all steps."""

    filled: dict[str, float] = field(default_factory=dict)
    problems: dict[str, dict[str, str]] = field(default_factory=dict)
    steps: list[float] = field(default_factory=list)
    reads: dict[str, list[float]] = field(default_factory=dict)
    answers: dict[str, pa.Table] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    strategies: dict[str, str] = field(default_factory=dict)
    table_bytes: int = 0
    shared_bytes: int = 0
    merged: float = 0.0
    ran: str = ""
    grown: int = 0
    peak: int = 0

    def read(self, view: str) -> float:
        """The median of the seconds that reading the answer of a view took."""
        return statistics.median(self.reads[view])


def run(argv: list[str], tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Run the benchmark; see `--help` for its options."""
    options = _parser().parse_args(argv)
    spark = local_session(cores=options.cores)
    with TemporaryDirectory(prefix="headrace-bench-", dir=options.location, ignore_cleanup_errors=True) as folder:
        return _run(spark, Path(folder), options, tell)


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="headrace bench tpch", description=__doc__)
    strategies = ["auto", OPERATORS, FOREIGN_KEY, *STRATEGIES, RECOMPUTE]
    add = made.add_argument
    add("--scale", type=float, default=0.1, help="TPC-H's scale factor (default 0.1)")
    add(
        "--queries",
        type=lambda text: _queries(made, text),
        default=list(TPCH_22),
        help=f"with commas, as in 1,13,q_a; all (the default) are 1 to 22, further ones {', '.join(TPCH_QUERIES[22:])}",
    )
    add("--steps", type=lambda text: _at_least_one(made, text), default=20, help="steps a query (default 20)")
    add("--share", type=float, default=0.001, help="share of orders that a step inserts, and deletes (default 0.001)")
    add("--strategy", choices=strategies, default="auto", help="how the views are kept (default auto)")
    add(
        "--together",
        action="store_true",
        help="also keep all of these views in one engine, sharing and not",
    )
    add("--executor", choices=["auto", "inline", "spark"], default="auto", help="where steps run (default auto)")
    add("--cores", type=int, default=None, help="cores to use (default: all)")
    add("--location", type=Path, default=None, help="folder for files and state (default: a temporary one)")
    return made


def _queries(parser: argparse.ArgumentParser, text: str) -> list[str]:
    if text == "all":
        return list(TPCH_22)
    parts = [part.strip() for part in text.split(",") if part.strip()]
    chosen = [f"q{part}" if part.isdecimal() else part for part in parts]
    if not chosen or any(name not in TPCH_QUERIES for name in chosen):
        parser.error(f"--queries {text}: use all, or some of {', '.join(TPCH_QUERIES)}")
    return list(dict.fromkeys(chosen))


def _at_least_one(parser: argparse.ArgumentParser, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        parser.error(f"--steps {text}: give a number from 1")
    return int(text)


def _run(spark: SparkSession, root: Path, options: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    def load(place: str, scale: float, steps: int, tell: Tell) -> Data:
        return load_data(spark, root / place, scale, steps, options.share, options.executor, tell)

    is_small = options.scale <= _WARM_SCALE
    warm = None if is_small else load("warm", _WARM_SCALE, _WARM_STEPS, lambda stage: None)
    with PeakMemory(_SAMPLE) as loading:
        data = load("data", options.scale, options.steps, tell)
    warm = warm or data
    tell(f"{TABLES_ONLY}: {options.steps} steps")
    _keep(warm, {}, options.strategy)
    tables = _keep(data, {}, options.strategy)
    results = [{"system": "headrace", "case": TABLES_ONLY, "load_seconds": data.load_seconds, **_row(data, tables)}]
    peaks = [loading.peak, tables.peak]
    for number, name in enumerate(options.queries, 1):
        progress = _Progress(tell, f"{name} ({number} of {len(options.queries)})")
        progress("Spark before the steps")
        sql = tpch_query(name)
        before, _ = data.before.timed(sql)
        ours, peak = _alone(warm, data, name, sql, options.strategy, progress)
        progress("Spark after the steps")
        after, answer = data.after.timed(sql)
        theirs = {"rows": data.rows_after, "seconds": after, "load_seconds": before, "answer_rows": answer.num_rows}
        results += [{"system": "headrace", "case": name, **ours}, {"system": "spark", "case": name, **theirs}]
        peaks.append(peak)
    if options.together:
        for case, sharing in ((TOGETHER, AUTO), (SHARING_OFF, OFF)):
            row, peak = _together(data, options, case, sharing, _Progress(tell, case))
            results.append(row)
            peaks.append(peak)
    # The JVM is Spark's, which runs the peer too: its peak is that of both.
    python, java = max(peaks) / 1e6, java_peak(spark) / 1e6
    results.append({"system": "all", "case": PEAK, "peak_mb": python + java, "python_mb": python, "java_mb": java})
    config = {
        **{key: value for key, value in vars(options).items() if key != "location"},
        "cores": spark.sparkContext.defaultParallelism,
        "rows": data.rows,
        "rows_a_step": data.rows_a_step,
    }
    found = ratios(results)
    return {"bench": "tpch", "config": config, "results": results, "ratios": found, "targets": targets(found, results)}


class _Progress:
    """Reports stages of one part of the benchmark; stages that follow closely are reported only now and then."""

    def __init__(self, tell: Tell, about: str) -> None:
        self._tell = tell
        self._about = about
        self._last = 0.0

    def __call__(self, stage: str) -> None:
        self._last = time.perf_counter()
        self._tell(f"{self._about}: {stage}")

    def now_and_then(self, stage: str) -> None:
        if time.perf_counter() - self._last > _PAUSE:
            self(stage)


def _alone(
    warm: Data, data: Data, name: str, sql: str, strategy: str, progress: _Progress
) -> tuple[dict[str, Any], int]:
    """Keep one view, and check its answer; return its row, and the peak memory."""
    try:
        progress("warming up")
        _keep(warm, {name: sql}, strategy)
        kept = _keep(data, {name: sql}, strategy, progress)
    except Exception as error:
        return _failed(error), 0
    if name in kept.problems:
        return kept.problems[name], kept.peak
    row = _row(data, kept)
    row |= {"load_seconds": kept.filled[name], "read_seconds": kept.read(name), "strategy": kept.strategies[name]}
    row |= {"answer_rows": kept.answers[name].num_rows, "state_mb": kept.bytes[name] / 1e6}
    progress("comparing the answer with Spark's")
    wrong = data.after.difference(sql, kept.answers[name])
    return row if wrong is None else row | {"wrong": wrong[:_SHOWN]}, kept.peak


def _together(
    data: Data, options: argparse.Namespace, case: str, sharing: str, progress: _Progress
) -> tuple[dict[str, Any], int]:
    """Keep all views in one engine, and check all answers."""
    views = {name: tpch_query(name) for name in options.queries}
    row: dict[str, Any] = {"system": "headrace", "case": case}
    try:
        kept = _keep(data, views, options.strategy, progress, sharing)
    except Exception as error:
        return row | _failed(error), 0
    row |= _row(data, kept) if kept.steps else {}
    row |= {"views": list(kept.answers), "load_seconds": sum(kept.filled.values())}
    row["merge_seconds"] = kept.merged
    state = sum(kept.bytes.values()) + kept.shared_bytes
    row |= {"read_seconds": sum(map(kept.read, kept.reads)), "state_mb": state / 1e6}
    progress("comparing the answers with Spark's")
    wrong = {name: data.after.difference(views[name], answer) for name, answer in kept.answers.items()}
    for kind, texts in {
        "wrong": {name: text for name, text in wrong.items() if text is not None},
        **{kind: {n: p[kind] for n, p in kept.problems.items() if kind in p} for kind in ("refused", "failed")},
    }.items():
        if texts:
            row[kind] = "; ".join(f"{name}: {text}" for name, text in texts.items())[:_SHOWN]
    return row, kept.peak


def _keep(
    data: Data,
    views: Mapping[str, str],
    strategy: str,
    progress: _Progress | None = None,
    sharing: str = AUTO,
) -> _Kept:
    """Make views over the loaded tables, take all steps and read the answers; skip views that cannot be made."""
    kept = _Kept()
    release_memory()
    with data.opened(sharing) as engine, PeakMemory(_SAMPLE) as memory:
        made = {}
        for name, sql in views.items():
            if progress is not None:
                progress(f"filling {name}")
            view = _fill(engine, name, sql, strategy, kept)
            if view is not None:
                made[name] = view
        start = time.perf_counter()
        engine.settle()  # else views would be merged beside the steps that are timed
        kept.merged = time.perf_counter() - start
        if made or not views:
            _step(engine, made, data, kept, progress)
        for name, view in made.items():
            explained = view.explain()
            kept.bytes[name], kept.strategies[name] = explained.state_bytes, explained.strategy
        kept.shared_bytes = sum(one["bytes"] for one in engine.status()["shared"])
        kept.table_bytes -= sum(kept.bytes.values()) + kept.shared_bytes
    kept.grown, kept.peak = memory.grown, memory.peak
    return kept


def _fill(engine: Engine, name: str, sql: str, strategy: str, kept: _Kept) -> View | None:
    start = time.perf_counter()
    try:
        view = (
            engine.view(name, sql, refresh="full")
            if strategy == RECOMPUTE
            else engine.view(name, sql, strategy=strategy)
        )
    except HeadraceError as error:
        kept.problems[name] = {"refused": " ".join(error.what.split())[:_SHOWN]}
        return None
    except Exception as error:
        kept.problems[name] = _failed(error)
        return None
    kept.filled[name] = time.perf_counter() - start
    return view


def _step(engine: Engine, views: Mapping[str, View], data: Data, kept: _Kept, progress: _Progress | None) -> None:
    """Take all steps, and read all answers after each."""
    for number, changes in enumerate(data.steps, 1):
        if progress is not None:
            progress.now_and_then(f"step {number} of {len(data.steps)}")
        start = time.perf_counter()
        step = engine.apply(changes)
        kept.steps.append(time.perf_counter() - start)
        kept.table_bytes, kept.ran = step.state_bytes, step.ran
        for name, view in views.items():
            start = time.perf_counter()
            kept.answers[name] = view.to_arrow()
            kept.reads.setdefault(name, []).append(time.perf_counter() - start)


def _failed(error: Exception) -> dict[str, str]:
    """Return an error as part of a row; raise it if HEADRACE_DEBUG is 1."""
    if os.environ.get("HEADRACE_DEBUG") == "1":
        raise error
    return {"failed": " ".join(f"{type(error).__name__}: {error}".split())[:_SHOWN]}


def _row(data: Data, kept: _Kept) -> dict[str, Any]:
    median = statistics.median(kept.steps)
    return {
        "rows": data.rows_a_step,
        "seconds": median,
        "rows_per_s": data.rows_a_step / median,
        "mean_seconds": statistics.fmean(kept.steps),
        "max_seconds": max(kept.steps),
        "step_seconds": kept.steps,
        "table_mb": kept.table_bytes / 1e6,
        "peak_mb": kept.grown / 1e6,
        "ran": kept.ran,
    }

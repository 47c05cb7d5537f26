"""Covariance over the join of a whole data set, kept up to date by each strategy, from Parquet files to the commit.

Every strategy reads the same files, batch by batch, into a fresh location. Timed are reading a batch and applying it
until it is committed; not timed are making the data, writing the files, and a few small batches into a throw-away
location, which compile the kernels. Tables keep their rows and check their keys, unless asked not to
(`--no-keep-rows`): as in a stream, rows then only go into the views. Beside the strategies stands Spark, which
recomputes the same moments over the files of all batches so far; and with `--fit` scikit-learn, which fits the same
regression to the joined rows, after the last batch whose join fits in memory. All answers are compared: counts exactly,
sums of products to 1e-9 of the features' norms, predictions to 1e-6 of the label's standard deviation.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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

from headrace.bench.covariance import scikit
from headrace.bench.covariance.batch_files import Batches
from headrace.bench.covariance.options import DATA, PEERS, parser
from headrace.bench.covariance.paper import inputs_of, on_paper
from headrace.bench.covariance.recomputation import Query, by_numpy, by_sql, recompute
from headrace.bench.covariance.refit import CLOSED, Refits
from headrace.bench.covariance.sorted_rows import sorted_rows
from headrace.bench.measuring.peak_memory import PeakMemory, release_memory
from headrace.bench.measuring.progress import progress
from headrace.bench.measuring.screen import named_numbers
from headrace.datasets import Dataset, dataset, stream
from headrace.engine.engine import Engine
from headrace.engine.models import Covariance
from headrace.engine.step_runner import LOCAL_DRIVER_ROWS
from headrace.errors import HeadraceError
from headrace.explain.report import Report
from headrace.factorized.fsql import over_rows, rewrite
from headrace.factorized.join_view import JoinView
from headrace.factorized.planner import STRATEGIES
from headrace.learn.moments import Moments
from headrace.runtime.session import local_session

Tell = Callable[[str], None]

_WARM_BATCHES, _WARM_ROWS = 10, 1_000  # enough batches for runs to be merged
_REMEMBERED = 200  # of how many batches the moments are remembered, to be compared
_LAST = 5  # of how many batches the median is compared with a recomputation
_RELATIVE = 1e-9


@dataclass
class _Run:
    """The measurements of one strategy."""

    strategy: str
    seconds: list[float] = field(default_factory=list)  # of each batch, with reading its files
    reading: float = 0.0
    state: list[int] = field(default_factory=list)  # bytes after each batch
    ran: str = ""
    peak: int = 0
    moments: dict[int, Moments] = field(default_factory=dict)  # after so many batches
    explained: Report | None = None
    paper: dict[str, Any] | None = None


def run(argv: list[str], tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Run the benchmark that the first argument names; see `--help` for the options."""
    name, *rest = argv
    options = parser(name, __doc__ or "").parse_args(rest)
    if options.cores is not None:
        pa.set_cpu_count(options.cores)
    spark = local_session(cores=options.cores)
    with TemporaryDirectory(prefix="headrace-bench-", dir=options.location, ignore_cleanup_errors=True) as folder:
        return _Bench(spark, Path(folder), name, options, tell).run()


class _Bench:
    """One invocation: a data set as files, and the strategies over them."""

    def __init__(self, spark: SparkSession, root: Path, name: str, options: argparse.Namespace, tell: Tell) -> None:
        self.spark = spark
        self.root = root
        self.name = name
        self.options = options
        self.tell = tell
        self.data: Dataset = dataset(DATA[name][0])
        self.tables: dict[str, int] = {}
        self.batches = self._write()
        every = -(-len(self.batches) // _REMEMBERED)
        # Moments are compared after these batches: the ones that a strategy may end with, if there are not too many.
        self.compared = {*range(every, len(self.batches), every), self._recomputed_after, len(self.batches)}

    @property
    def _recomputed_after(self) -> int:
        return min(self.options.recompute_after, len(self.batches))

    def _write(self) -> Batches:
        options = self.options
        self.tell(f"making {self.name} at scale {options.scale:g}")
        tables = self.data.generate(options.scale, options.seed)
        tables = sorted_rows(self.data, tables) if options.sorted else tables
        self.tables = {name: table.num_rows for name, table in tables.items()}
        self.tell("writing the change batches as Parquet files")
        batches = stream(tables, options.batch, options.deletes, options.seed)
        some = (changes for _, changes in zip(range(options.batches or 1 << 62), batches, strict=False))
        return Batches.write(self.root / "batches", some, deletes=options.deletes > 0)

    def run(self) -> dict[str, Any]:
        chosen = self.options.strategies
        runs: dict[str, _Run] = {}
        results: list[dict[str, Any]] = []
        refits = Refits(self.data.label) if self.options.fit else None
        for strategy in (s for s in chosen if s in STRATEGIES):
            self.tell(f"{strategy}: warming up")
            self._warm_up(strategy, with_fit=refits is not None)
            runs[strategy] = self._maintain(strategy, refits if strategy == "factorized" else None)
            results.append(self._row(runs[strategy]))
            if refits is not None and strategy == "factorized":
                results += refits.results(self.batches.rows, sum(self.batches.rows), self.options.progress)
                results += [self._regression(runs[strategy])] if self.options.scikit_learn else []
        reference = next(iter(runs.values()), None)
        for other in [r for r in runs.values() if r is not reference]:
            assert reference is not None
            _compare(results, reference, other.strategy, other.moments)
        for peer in (s for s in chosen if s in PEERS):
            results.append(self._recompute(peer))
            moments = results[-1].pop("moments")
            if reference is not None and moments is not None:
                _compare(results, reference, peer, {self._recomputed_after: moments})
        factorized = runs.get("factorized")
        result = {
            "bench": self.name,
            "config": self._config(),
            "results": results,
            "ratios": {} if factorized is None else self._ratios(factorized, runs, results),
        }
        if factorized is not None and factorized.paper is not None:
            result["paper"] = factorized.paper
        return result

    def _config(self) -> dict[str, Any]:
        asked = {k: v for k, v in vars(self.options).items() if k not in ("cores", "location", "batches")}
        return {
            **asked,
            "cores": self.spark.sparkContext.defaultParallelism,
            "batches": len(self.batches),
            "rows": sum(self.batches.rows),
            "tables": self.tables,
            "features": len(self.data.features),
        }

    # -- strategies of Headrace -----------------------------------------------------------------------------------

    @contextmanager
    def _engine(self, strategy: str, place: str, executor: str) -> Iterator[tuple[Engine, Covariance]]:
        keep = self.options.keep_rows
        location = self.root / place
        try:
            with Engine(self.spark, location, executor=executor) as engine:
                for spec in self.data.tables:
                    engine.table(spec.name, spec.ddl, key=(spec.key or None) if keep else None, keep_rows=keep)
                ordered = strategy == "factorized" and self.options.order == "paper"
                yield (
                    engine,
                    engine.covariance(
                        "moments",
                        self.data.join,
                        self.data.features,
                        strategy=strategy,
                        order=self.data.order if ordered else None,
                        partition=self.options.partition,
                    ),
                )
        finally:
            shutil.rmtree(location, ignore_errors=True)

    def _warm_up(self, strategy: str, *, with_fit: bool) -> None:
        """Compile what will run, where it will run."""
        executor = self.options.executor
        if executor == "auto" and self.options.batch > LOCAL_DRIVER_ROWS:
            executor = "spark"
        refits = Refits(self.data.label)
        with self._engine(strategy, "warm", executor) as (engine, handle):
            changes = self.batches.read(0)  # which deletes nothing
            for start in range(0, _WARM_BATCHES * _WARM_ROWS, _WARM_ROWS):
                some = {name: rows.slice(start, _WARM_ROWS) for name, rows in changes.items()}
                engine.apply({name: rows for name, rows in some.items() if rows.num_rows})
                handle.moments()
                if with_fit:
                    refits.after(handle, 1.0)

    def _maintain(self, strategy: str, refits: Refits | None) -> _Run:
        done, limit = _Run(strategy), self.options.time_limit
        release_memory()
        watch = PeakMemory(interval=0.05)  # a look at all processes takes a millisecond or two of the cores measured
        with watch as memory, self._engine(strategy, strategy, self.options.executor) as (engine, handle):
            for number in range(len(self.batches)):
                start = time.perf_counter()
                changes = self.batches.read(number)
                read = time.perf_counter()
                step = engine.apply(changes)
                end = time.perf_counter()
                done.reading += read - start
                done.seconds.append(end - start)
                done.state.append(step.state_bytes)
                done.ran = step.ran
                if refits is not None:
                    refits.after(handle, end - start)
                if number + 1 in self.compared:
                    done.moments[number + 1] = handle.moments()
                self.tell(f"{strategy}: batch {number + 1} of {len(self.batches)} in {end - start:.2f} s")
                if sum(done.seconds) + (refits.spent if refits is not None else 0.0) > limit:
                    break
            explained = handle.explain()
            done.explained = explained
            if strategy == "factorized" and self.options.on_paper:
                done.paper = self._on_paper(handle, explained)
        done.peak = memory.grown
        return done

    def _on_paper(self, handle: Covariance, explained: Report) -> dict[str, Any]:
        """Estimate the last full batch on more cores."""
        kernel = handle.planned.kernel
        assert isinstance(kernel, JoinView)
        plan = kernel.plan
        numbers = sorted(range(len(plan.views)), key=lambda i: i != plan.root)  # as the explanation has them
        entries = {i: view.entries for i, view in zip(numbers, explained["views"], strict=True)}
        degrees = [kernel.algebra.degree(i) for i in range(len(plan.views))]
        inputs = inputs_of(plan, degrees, entries, self.batches.read(self.batches.full - 1))
        return on_paper(inputs, degrees[plan.root], self.options.on_paper)

    def _row(self, done: _Run) -> dict[str, Any]:
        batches, seconds = len(done.seconds), sum(done.seconds)
        rows = sum(self.batches.rows[:batches])
        full = done.seconds[1 : min(batches, self.batches.full)] or done.seconds[:1]  # the first opens files and pools
        median = statistics.median(full)
        assert done.explained is not None
        views = done.explained["views"]
        row = {
            "system": "headrace",
            "case": done.strategy,
            "rows": rows,
            "seconds": seconds,
            "rows_per_s": rows / seconds,
            "steady_rows_per_s": self.batches.rows[0] / median,
            "batch_seconds": median,
            "max_batch_seconds": max(done.seconds),
            "reading_seconds": done.reading,
            "peak_mb": done.peak / 1e6,
            "state_mb": done.state[-1] / 1e6,
            "views": len(views),
            "views_kept": sum(view.kept for view in views),
            "partition": done.explained["partition"],
            "batches": batches,
            "finished": batches == len(self.batches),
            "ran": done.ran,
        }
        if parts := self.options.progress:
            every = self.batches.rows
            row["progress"] = progress(every[:batches], done.seconds, sum(every), parts, done.state)
        return row

    # -- Spark ----------------------------------------------------------------------------------------------------

    def _recompute(self, peer: str) -> dict[str, Any]:
        count = self._recomputed_after
        self.tell(f"{peer}: Spark over {count} batches")
        release_memory()
        query, limit = self._query(peer), self.options.time_limit
        done = recompute(self.spark, self.data, query, self.batches, count, self.root / "rows", limit)
        rows, finished = sum(self.batches.rows[:count]), done.moments is not None
        row = {
            "system": "spark",
            "case": peer,
            "rows": rows,
            "seconds": done.seconds,
            "batches": count,
            "finished": finished,
            "moments": done.moments,
        }
        return row | ({"rows_per_s": rows / done.seconds} if finished else {})

    def _regression(self, done: _Run) -> dict[str, Any]:
        some = [scikit.Seen(batches, moments) for batches, moments in sorted(done.moments.items())]
        seen = next((one for one in reversed(some) if one.fits_in_memory), None)
        count = 0 if seen is None else seen.batches
        self.tell(f"{scikit.REGRESSION}: after {count} batches")
        release_memory()
        paths = {spec.name: self._paths(spec.name, count) for spec in self.data.tables}
        return scikit.regression(scikit.REGRESSION, self.data, seen, paths)

    def _paths(self, table: str, count: int) -> list[str]:
        paths = self.batches.paths(table, count)
        if paths and self.batches.deletes:
            return [self.batches.write_rows(self.root / "rows", table, count)]
        return paths

    def _query(self, peer: str) -> Query:
        features = self.data.features
        if peer == "recompute":
            return by_sql(over_rows(self.data.join, features, (), [0.0] * len(features)))
        if peer == "recompute-numpy":
            return by_numpy(self.data)
        with self._engine("factorized", "plan", "inline") as (_, handle):
            kernel, analysed = handle.planned.kernel, handle.planned.analysed
            assert isinstance(kernel, JoinView)
            assert analysed is not None
            variable = {o.name: key for o, key in zip(analysed.plan.outputs, kernel.join.keys, strict=True)}
            return by_sql(rewrite(kernel.plan, kernel.join, [variable[name] for name in features], (), {}))

    # -- ratios ---------------------------------------------------------------------------------------------------

    def _ratios(self, factorized: _Run, runs: dict[str, _Run], results: list[dict[str, Any]]) -> dict[str, float]:
        ratios: dict[str, float] = {}
        for name, other in runs.items():
            if other is factorized:
                continue
            same = min(len(other.seconds), len(factorized.seconds))
            ratios[f"{name} / factorized, seconds of {same} batches"] = sum(other.seconds[:same]) / sum(
                factorized.seconds[:same]
            )
            ratios[f"{name} / factorized, state"] = other.state[same - 1] / max(factorized.state[same - 1], 1)
            if len(other.seconds) == len(factorized.seconds):
                ratios[f"{name} / factorized, peak memory"] = other.peak / max(factorized.peak, 1)
        count = min(self._recomputed_after, len(factorized.seconds))
        last = factorized.seconds[max(0, count - _LAST) : max(1, min(count, self.batches.full))]
        for row in results:
            if row["case"] in PEERS:
                bound = "" if row["finished"] else " (at least)"
                name = f"{row['case']} after {row['batches']} batches / a factorized batch{bound}"
                ratios[name] = row["seconds"] / statistics.median(last)
            if row["case"] == scikit.REGRESSION and "not_run" not in row:
                closed = next(one for one in results if one["case"] == f"refit, {CLOSED}")
                name = f"{row['case']} after {row['batches']} batches: joining and fitting / refit, {CLOSED}"
                ratios[name] = row["seconds"] / closed["seconds"]
            if row["case"].startswith("refit"):
                ratios[f"{row['case']} / a factorized batch"] = row["share_of_batch"]
        return ratios


def _compare(results: list[dict[str, Any]], reference: _Run, other: str, moments: dict[int, Moments]) -> None:
    """Compare moments after the last batch that both strategies have seen; a wrong answer stops the benchmark."""
    common = sorted(reference.moments.keys() & moments.keys())
    if not common:
        return
    after = common[-1]
    ours, theirs = reference.moments[after], moments[after]
    norms = np.sqrt(np.diagonal(ours.cofactor))
    scale = np.outer(norms, norms)
    difference = np.abs(ours.cofactor - theirs.cofactor) / np.where(scale > 0, scale, 1.0)
    worst = float(difference.max(initial=0.0))
    if round(ours.count) != round(theirs.count) or not worst <= _RELATIVE:
        raise HeadraceError(
            f"{reference.strategy} and {other} disagree after {after} batches: counts {ours.count:,.0f} and "
            f"{theirs.count:,.0f}, products by up to {worst:.1e}.",
            way_out="Report this with the command that you ran: one of them is wrong.",
        )
    row = next(row for row in results if row["case"] == other)
    row |= {"agrees_after": after, "count": round(theirs.count), "difference": worst}


def table(result: dict[str, Any]) -> Group:
    """Return the tables that show a result to people."""
    config = result["config"]
    shown = Table(
        title=f"{result['bench']}: scale {config['scale']:g}, {config['rows']:,} rows in {config['batches']} batches, "
        f"{config['features']} features, {config['cores']} cores",
        box=SIMPLE_HEAD,
        padding=0,
    )
    for column in (
        "case",
        ">batches",
        ">seconds",
        ">rows/s",
        ">steady",
        ">peak MB",
        ">state MB",
        "views",
        "by",
        "note",
    ):
        shown.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    for row in result["results"]:
        at_least = ">= " if row["system"] == "spark" and not row["finished"] else ""
        shown.add_row(
            row["case"],
            str(row["batches"]),
            f"{at_least}{row['seconds']:,.4g}",
            *(f"{row[key] / 1e6:,.3g}M" if key in row else "" for key in ("rows_per_s", "steady_rows_per_s")),
            *(f"{row[key]:,.1f}" if key in row else "" for key in ("peak_mb", "state_mb")),
            f"{row['views_kept']} of {row['views']}" if "views" in row else "",
            row.get("partition") or "",
            row.get("not_run", ""),
        )
    return Group(shown, named_numbers("ratio", result["ratios"]), *_paper(result.get("paper")))


def _paper(paper: dict[str, float] | None) -> list[Table]:
    if paper is None:
        return []
    return [named_numbers("a batch on paper", {name.replace("_", " "): value for name, value in paper.items()})]

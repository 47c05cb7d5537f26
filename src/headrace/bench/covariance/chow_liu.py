"""Mutual information and a Chow-Liu tree after every batch, beside the counts that they are made from (Section 9.3).

The features are the categories of a data set, or all of its columns: those that are no categories are then put into
bins of equal width before anything is written. Every batch is read from Parquet files, applied until it is committed,
and then the model is read: the matrix of mutual information and its spanning tree. What the counts alone take is the
first part of the same batches, so that both are measured in one run. The same batches also go into a covariance of
numbers and categories, without any model, and into the counts as the strategies keep them that exist for comparison:
these get smaller pieces and less time, because they list rows of the join. And the same matrix is computed anew from
the rows of all batches so far, joined by pandas: once with each pair of columns counted by NumPy, and once by
scikit-learn. Both answers are compared with Headrace's.
"""

from __future__ import annotations

import argparse
import math
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import SparkSession
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table

from headrace.bench.covariance import scikit
from headrace.bench.covariance.baselines import LIMIT, PIECE, Pieces, how_far
from headrace.bench.covariance.batch_files import Batches
from headrace.bench.covariance.sorted_rows import sorted_rows
from headrace.bench.measuring.peak_memory import PeakMemory, release_memory
from headrace.bench.measuring.progress import progress
from headrace.bench.measuring.screen import named_numbers
from headrace.bench.measuring.targets import Verdict, judged, other_options, target_lines, verdict
from headrace.datasets import Dataset, dataset, stream
from headrace.engine.engine import Engine
from headrace.engine.model_handle import Model
from headrace.engine.models import Covariance
from headrace.errors import HeadraceError, NotEnoughDataError
from headrace.learn.chow_liu import ChowLiuTree
from headrace.runtime.session import local_session

Tell = Callable[[str], None]
Numbers = NDArray[np.float64]

# By the name of the data set, its usual scale; the join of Housing grows with its cube.
DATA = {"retailer": 5.0, "favorita": 5.0, "housing": 3.0}
TREE, MIXED, *BASELINES = CASES = ("tree", "mixed", "first-order", "recursive")
_TREES, _MIXED = ("counts of pairs", "counts, mutual information and tree"), "mixed covariance"
_WARM_BATCHES, _WARM_ROWS = 4, 1_000
_TARGET = 0.5  # of the throughput of the mixed covariance
_OF_MIXED = "throughput with the tree after each batch / of the mixed covariance"
_SIZES = {"scale": 5.0, "batch": 1_000_000, "features": "categorical", "sorted": False, "deletes": 0.0, "cores": 2}


@dataclass
class _Run:
    """The measurements of what is maintained."""

    case: str
    stream: Pieces
    batches: list[float] = field(default_factory=list)  # seconds of each, with reading its files
    reads: list[float] = field(default_factory=list)  # seconds until the tree is there, after each batch
    changes: int = 0  # edges that came or went
    state: list[int] = field(default_factory=list)  # bytes after each batch
    views: int = 0
    peak: int = 0
    matrix: Numbers = field(default_factory=lambda: np.zeros((0, 0)))  # empty while nothing joins

    @property
    def together(self) -> list[float]:
        """Seconds of each batch with reading the tree."""
        return [batch + read for batch, read in zip(self.batches, self.reads, strict=True)]

    @property
    def whole(self) -> int:
        """How many batches were taken; 0 if the run ended within one."""
        return self.stream.whole(len(self.batches))

    def rate(self, seconds: list[float]) -> float:
        """Rows per second."""
        return sum(self.stream.rows[: len(seconds)]) / sum(seconds)


def run(argv: list[str], tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Run the benchmark; see `--help` for the options."""
    options = _parser().parse_args(argv)
    spark = local_session()
    with TemporaryDirectory(prefix="headrace-bench-", dir=options.location, ignore_cleanup_errors=True) as folder:
        return _Bench(spark, Path(folder), options, tell).run()


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="headrace bench chow-liu", description=__doc__)
    add = made.add_argument
    add("--data", choices=list(DATA), default="retailer", help="the data set (default retailer)")
    add("--scale", type=float, default=None, help="its scale (default: 5; of Housing 3)")
    add("--features", choices=["categorical", "all"], default="categorical", help="which columns the tree is over")
    add("--bins", type=int, default=100, help="bins of a feature with more values than that (default 100)")
    add("--batch", type=int, default=1_000_000, help="rows per batch, over all tables (default 1 million)")
    add("--batches", type=int, default=None, help="stop after so many batches (default: when all rows are in)")
    add("--sorted", action="store_true", help="rows come in the order of F-IVM's variable orders, not in random order")
    add("--deletes", type=float, default=0.0, help="share of each batch that deletes earlier rows (default 0)")
    add("--keep-rows", action=argparse.BooleanOptionalAction, default=False, help="keep the rows of the tables too")
    add("--cases", nargs="+", choices=CASES, default=list(CASES), help="what is kept (default: all)")
    add("--scikit-learn", action=argparse.BooleanOptionalAction, default=True, help="also ask scikit-learn (default)")
    add("--progress", type=int, default=0, metavar="PARTS", help="also report throughput in parts of the stream")
    add("--time-limit", type=float, default=300.0, help="seconds; a case ends after the batch in which they pass")
    add(
        "--baseline-limit",
        type=float,
        default=LIMIT,
        help=f"seconds for each of first-order, recursive and scikit-learn, if fewer (default {LIMIT:g})",
    )
    add("--seed", type=int, default=0, help="seed of the data (default 0)")
    add("--location", type=Path, default=None, help="folder for files and state (default: a temporary one)")
    return made


class _Bench:
    """One invocation: a data set of categories as files, the tree over them, and its recomputation."""

    def __init__(self, spark: SparkSession, root: Path, options: argparse.Namespace, tell: Tell) -> None:
        self.spark, self.root, self.options, self.tell = spark, root, options, tell
        self.data: Dataset = dataset(options.data)
        self.scale = DATA[options.data] if options.scale is None else options.scale
        tell(f"making {options.data} at scale {self.scale:g}")
        tables = self.data.generate(self.scale, options.seed)
        tables = sorted_rows(self.data, tables) if options.sorted else tables
        self.features = self.data.categorical
        if options.features == "all":
            tables, self.features = in_bins(self.data, tables, options.bins), self.data.features
        self.over = self.data.join.replace(", ".join(self.data.features), ", ".join(self.features))
        self.schemas = {name: table.schema for name, table in tables.items()}
        tell("writing the change batches as Parquet files")
        some = (
            changes
            for _, changes in zip(
                range(options.batches or 1 << 62),
                stream(tables, options.batch, options.deletes, options.seed),
                strict=False,
            )
        )
        self.batches = Batches.write(root / "batches", some, deletes=options.deletes > 0)

    def run(self) -> dict[str, Any]:
        self.tell("warming up")
        first = self.batches.read(0)
        warm = [_sliced(first, i * _WARM_ROWS, _WARM_ROWS) for i in range(_WARM_BATCHES)]
        runs = []
        for case in self.options.cases:
            self._maintain(case, warm)
            release_memory()
            with PeakMemory(interval=0.05) as memory:
                runs.append(self._maintain(case, None))
            runs[-1].peak = memory.grown
        results = [row for done in runs for row in self._rows(done)]
        recomputations: dict[int, dict[str, Any]] = {}  # by how many batches; runs that took too long have fewer
        # A baseline that ended within a batch has seen rows that no file holds, and is not compared.
        for done in (done for done in runs if done.matrix.size and done.whole):
            count = done.whole
            if count not in recomputations:
                recomputations[count] = self._recomputed(count)
            recomputations[count] |= _compared(done, recomputations[count]["matrix"])
        results += [{key: value for key, value in row.items() if key != "matrix"} for row in recomputations.values()]
        whole = [done for done in runs if done.matrix.size and done.whole]
        if self.options.scikit_learn and whole:
            results.append(self._by_scikit_learn(whole[0]))
        config, ratios = self._config(), self._ratios({done.case: done for done in runs}, recomputations)
        ratios |= _of_scikit_learn(runs, results)
        found = judged([_target(config, results, ratios)], results)
        return {"bench": "chow-liu", "config": config, "results": results, "ratios": ratios, "targets": found}

    def _limit(self, case: str) -> float:
        limit: float = self.options.time_limit
        return limit if case in (TREE, MIXED) else min(limit, self.options.baseline_limit)

    def _by_scikit_learn(self, done: _Run) -> dict[str, Any]:
        count = done.whole
        self.tell(f"scikit-learn over the rows of {count} batches")
        paths = {spec.name: self._rows_after(spec.name, count) for spec in self.data.tables}
        row = scikit.mutual_information(self.data, self.features, done.matrix, paths, self._limit(scikit.INFORMATION))
        if "not_run" in row:
            return row
        rows = sum(self.batches.rows[:count])
        return row | {"batches": count, "rows": rows, "rows_per_s": rows / row["seconds"]}

    def _recomputed(self, count: int) -> dict[str, Any]:
        self.tell(f"recomputing from the rows of {count} batches")
        paths = {spec.name: self._rows_after(spec.name, count) for spec in self.data.tables}
        start = time.perf_counter()
        matrix = recomputed(self.data, self.features, paths)
        seconds = time.perf_counter() - start
        rows = sum(self.batches.rows[:count])
        row = {"system": "pandas", "case": "recompute", "rows": rows, "seconds": seconds, "batches": count}
        return row | {"rows_per_s": rows / seconds, "matrix": matrix}

    def _rows_after(self, table: str, count: int) -> list[str]:
        if not self.batches.deletes:
            return self.batches.paths(table, count)
        return [self.batches.write_rows(self.root / "rows", table, count)]

    def _config(self) -> dict[str, Any]:
        asked = {k: v for k, v in vars(self.options).items() if k != "location"}
        return asked | {
            "scale": self.scale,
            "cores": self.spark.sparkContext.defaultParallelism,
            "batches": len(self.batches),
            "rows": sum(self.batches.rows),
            "columns": len(self.features),
        }

    def _maintain(self, case: str, given: list[dict[str, pa.Table]] | None) -> _Run:
        stream = Pieces(self.batches, PIECE if case in BASELINES else math.inf)
        done, location, kept = _Run(case, stream), self.root / "state", self.options.keep_rows
        try:
            with Engine(self.spark, location) as engine:
                for spec in self.data.tables:
                    key = (spec.key or None) if kept else None
                    engine.table(spec.name, self.schemas[spec.name], key=key, keep_rows=kept)
                made = self._made(case, engine)
                for number in range(len(stream) if given is None else len(given)):
                    start = time.perf_counter()
                    step = engine.apply(stream.read(number) if given is None else given[number])
                    committed = time.perf_counter()
                    with suppress(NotEnoughDataError):  # nothing joins yet
                        if isinstance(made, Model) and case == TREE:
                            _read(made, done)
                    done.batches.append(committed - start)
                    done.reads.append(time.perf_counter() - committed)
                    done.state.append(step.state_bytes)
                    if given is None:
                        taken = time.perf_counter() - start
                        self.tell(f"{case}: batch {number + 1} of {len(stream)} in {taken:.2f} s")
                    if sum(done.together) > self._limit(case):
                        break
                with suppress(NotEnoughDataError):
                    if isinstance(made, Model):
                        done.matrix = made.matrix_
                done.views = len(made.explain()["views"])
        finally:
            shutil.rmtree(location, ignore_errors=True)
        return done

    def _made(self, case: str, engine: Engine) -> Model | Covariance:
        if case == MIXED:
            return engine.covariance("mixed", self.data.join, self.data.features, categorical=self.data.categorical)
        strategy = case if case in BASELINES else "auto"
        return engine.model("tree", ChowLiuTree(self.features), self.over, strategy=strategy)

    def _rows(self, done: _Run) -> list[dict[str, Any]]:
        alone, read = sum(done.batches), sum(done.reads)
        every = done.stream.rows[: len(done.batches)]
        rows, total, parts = sum(every), sum(self.batches.rows), self.options.progress
        shared = {"system": "headrace", "rows": rows, "batches": len(every), "finished": rows == total}
        shared |= how_far(alone + read, rows, total)
        case = {TREE: _TREES[0], MIXED: _MIXED}.get(done.case, f"{_TREES[0]}, {done.case}")
        counts: dict[str, Any] = {"case": case, "seconds": alone, "rows_per_s": rows / alone, "views": done.views}
        counts |= {"peak_mb": done.peak / 1e6, "state_mb": done.state[-1] / 1e6}
        if parts:
            counts["progress"] = progress(every, done.batches, total, parts, done.state)
        if done.case != TREE:
            return [shared | counts]
        tree: dict[str, Any] = {
            "case": _TREES[1],
            "seconds": alone + read,
            "rows_per_s": rows / (alone + read),
            "read_seconds": statistics.median(done.reads),
            "edges_changed": done.changes,
        }
        if parts:
            tree["progress"] = progress(every, done.together, total, parts)
        return [shared | counts, shared | tree]

    def _ratios(self, runs: Mapping[str, _Run], recomputations: Mapping[int, dict[str, Any]]) -> dict[str, float]:
        ratios: dict[str, float] = {}
        if (done := runs.get(TREE)) is None:
            return ratios
        rate, counts, count = done.rate(done.together), done.rate(done.batches), len(done.batches)
        ratios["throughput with the tree after each batch / of the counts alone"] = rate / counts
        if MIXED in runs:
            ratios[_OF_MIXED] = rate / runs[MIXED].rate(runs[MIXED].batches)
        for case in (case for case in BASELINES if case in runs):
            ratios[f"throughput of the counts / of the counts, {case}"] = counts / runs[case].rate(runs[case].batches)
        batch = statistics.median(done.together[1:] or done.together)
        if count in recomputations:
            name = f"recomputing after {count} batches / a batch with its tree"
            ratios[name] = recomputations[count]["seconds"] / batch
        return ratios


def _target(config: dict[str, Any], results: list[dict[str, Any]], ratios: dict[str, float]) -> Verdict:
    why = other_options(config, _SIZES)
    ours = [row for row in results if row["case"] in (*_TREES, _MIXED)]
    if not all(row["finished"] for row in ours):
        why = why or "the time limit ended a case"
    return verdict(f"{config['data']}: {_OF_MIXED}", ">=", _TARGET, ratios.get(_OF_MIXED), why_not=why)


def _read(tree: Model, done: _Run) -> None:
    done.matrix = tree.matrix_
    done.changes += len(tree.changes_.added) + len(tree.changes_.removed)


def _of_scikit_learn(runs: Sequence[_Run], results: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """What scikit-learn takes for the matrix, with joining the rows, beside a batch with its tree."""
    tree = next((done for done in runs if done.case == TREE), None)
    row = next((row for row in results if row["case"] == scikit.INFORMATION and "not_run" not in row), None)
    if tree is None or row is None:
        return {}
    batch = statistics.median(tree.together[1:] or tree.together)
    bound = "" if row["finished"] else " (at least)"
    return {f"scikit-learn after {row['batches']} batches / a batch with its tree{bound}": row["seconds"] / batch}


def in_bins(data: Dataset, tables: Mapping[str, pa.Table], bins: int) -> dict[str, pa.Table]:
    """The tables with all features as categories: those with more values than bins are cut into bins of equal width."""
    made = {}
    for spec in data.tables:
        table = tables[spec.name]
        for name in spec.features:
            values = table.column(name).to_numpy()
            if len(np.unique(values)) > bins:
                low, high = float(values.min()), float(values.max())
                values = np.minimum((values - low) * (bins / (high - low)), bins - 1)
            at = table.schema.get_field_index(name)
            table = table.set_column(at, pa.field(name, pa.int32(), nullable=False), pa.array(values.astype(np.int32)))
        made[spec.name] = table
    return made


def recomputed(data: Dataset, features: Sequence[str], paths: Mapping[str, list[str]]) -> Numbers:
    """The matrix of mutual information, from the rows of files: joined by pandas, counted and summed by NumPy."""
    joined = scikit.joined_rows(data, paths)
    rows = len(joined)
    codes = {name: np.unique(joined[name].to_numpy(), return_inverse=True)[1] for name in features}
    shares = {name: np.bincount(code) / rows for name, code in codes.items()}
    matrix = np.diag([-float((p * np.log(p)).sum()) for p in shares.values()])
    for (i, a), (j, b) in combinations(enumerate(features), 2):
        pairs = np.bincount(codes[a] * len(shares[b]) + codes[b], minlength=len(shares[a]) * len(shares[b]))
        p = (pairs / rows).reshape(len(shares[a]), len(shares[b]))
        at = p > 0
        expected = np.outer(shares[a], shares[b])[at]
        matrix[i, j] = matrix[j, i] = float((p[at] * np.log(p[at] / expected)).sum())
    return matrix


def _sliced(tables: Mapping[str, pa.Table], start: int, rows: int) -> dict[str, pa.Table]:
    some = {name: table.slice(start, rows) for name, table in tables.items()}
    return {name: table for name, table in some.items() if table.num_rows}


def _compared(done: _Run, matrix: Numbers) -> dict[str, Any]:
    """How far the answers are apart; a wrong one stops the benchmark."""
    worst = float(np.abs(done.matrix - matrix).max())
    if not worst <= 1e-9:
        raise HeadraceError(
            f"Headrace and the recomputation disagree by up to {worst:.1e} nats of mutual information",
            way_out="Report this with the command that you ran: one of them is wrong.",
        )
    return {"difference": worst}


def table(result: dict[str, Any]) -> Group:
    """Return the tables that show a result to people."""
    config = result["config"]
    shown = Table(
        title=f"chow-liu, {config['data']}: scale {config['scale']:g}, {config['rows']:,} rows in "
        f"{config['batches']} batches, {config['columns']} categories, {config['cores']} cores",
        box=SIMPLE_HEAD,
        padding=0,
    )
    for column in ("system", "case", ">batches", ">seconds", ">rows/s", ">peak MB", ">state MB", "note"):
        shown.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    for row in result["results"]:
        shown.add_row(
            row["system"],
            row["case"],
            str(row["batches"]),
            f"{row['seconds']:,.4g}",
            f"{row['rows_per_s'] / 1e6:,.3g}M" if "rows_per_s" in row else "",
            *(f"{row[key]:,.1f}" if key in row else "" for key in ("peak_mb", "state_mb")),
            row.get("not_run", row.get("stopped", "")),
        )
    return Group(shown, named_numbers("ratio", result["ratios"]), target_lines(result["targets"]))

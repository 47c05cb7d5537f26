"""Covariance with categorical features over the joins of the papers, from Parquet files to the commit.

Retailer has 33 continuous and 6 categorical features, Favorita 3 and 12, Housing 14 and 12. The same batches go into
tables that keep no rows, as in the papers; into tables that do, and check their keys; with all features as numbers, to
see what categories cost; and by the strategies that exist for comparison, in smaller pieces and with less time, because
they list rows of the join. Beside them Spark and DuckDB recompute sums by level and counts by pair (without products of
continuous features) over the files of all batches, and scikit-learn fits a regression to the joined rows, one-hot
encoded, after the last batch whose join fits in memory. Timed are reading a batch and applying it until the commit;
not timed are making the data, and a few small batches that compile the kernels. All answers are compared: counts
exactly, sums to 1e-9 of the largest, predictions to 1e-6 of the label's standard deviation.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table

from headrace.bench.covariance import scikit
from headrace.bench.covariance.baselines import LIMIT, PIECE, Pieces, how_far
from headrace.bench.covariance.batch_files import Batches
from headrace.bench.covariance.recomputation import within
from headrace.bench.covariance.sorted_rows import sorted_rows
from headrace.bench.measuring.peak_memory import PeakMemory, release_memory
from headrace.bench.measuring.progress import progress
from headrace.bench.measuring.screen import named_numbers
from headrace.bench.measuring.targets import Verdict, judged, other_options, target_lines, verdict
from headrace.bench.mixed.answers import Answer, difference, grouping_sets
from headrace.datasets import Dataset, dataset, stream
from headrace.engine.engine import Engine
from headrace.engine.models import Covariance
from headrace.engine.step_runner import LOCAL_DRIVER_ROWS
from headrace.runtime.session import local_session

Tell = Callable[[str], None]

CASES = ("not kept", "kept", "as numbers", "first-order", "recursive")
BASELINES = CASES[3:]
RECOMPUTING = ("spark", "duckdb")
PEERS = (*RECOMPUTING, "scikit-learn")
_LOOKS = 20  # after how many batches, at most, it is seen whether scikit-learn could be given the join
_WARM_BATCHES, _WARM_ROWS = 6, 1_000
_TARGETS = {"retailer": 700_000, "favorita": 300_000}  # rows per second, where rows are not kept
_SIZES = {"scale": 5.0, "batch": 1_000_000, "batches": None, "sorted": False, "deletes": 0.0, "cores": 2}


def run(argv: list[str], tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Run the benchmark; see `--help` for its options."""
    options = _parser().parse_args(argv)
    if options.cores is not None:
        pa.set_cpu_count(options.cores)
    spark = local_session(cores=options.cores)
    results: list[dict[str, Any]] = []
    ratios: dict[str, float] = {}
    for name in options.data:
        with TemporaryDirectory(prefix="headrace-bench-", dir=options.location, ignore_cleanup_errors=True) as folder:
            rows, found = _Bench(spark, Path(folder), dataset(name), options, tell).run()
        results += rows
        ratios |= found
    asked = {key: value for key, value in vars(options).items() if key not in ("cores", "location")}
    config = {**asked, "cores": spark.sparkContext.defaultParallelism}
    targets = judged(_targets(config, results), results)
    return {"bench": "mixed", "config": config, "results": results, "ratios": ratios, "targets": targets}


def _targets(config: dict[str, Any], results: list[dict[str, Any]]) -> list[Verdict]:
    """The throughput of each data set without keeping rows, as in the papers."""
    rows = {row["case"]: row for row in results}
    found = []
    for name, bound in _TARGETS.items():
        row, why = rows.get(f"{name}, {CASES[0]}", {}), other_options(config, _SIZES)
        if row and not row["finished"]:
            why = why or "the time limit ended it"
        found.append(verdict(f"{name}, {CASES[0]}: rows per second", ">=", bound, row.get("rows_per_s"), why_not=why))
    return found


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="headrace bench mixed", description=__doc__)
    add = made.add_argument
    add("--data", nargs="+", choices=["retailer", "favorita", "housing"], default=["retailer", "favorita"])
    add("--scale", type=float, default=5.0, help="scale of the data sets (default 5: 5 million rows of each)")
    add("--batch", type=int, default=1_000_000, help="rows per batch, over all tables (default 1 million)")
    add("--batches", type=int, default=None, help="stop after so many batches (default: when all rows are in)")
    add("--sorted", action="store_true", help="rows come in the order of F-IVM's variable orders, not in random order")
    add("--deletes", type=float, default=0.0, help="share of each batch that deletes earlier rows (default 0)")
    add("--cases", nargs="+", choices=CASES, default=list(CASES), help="which to run (default: all)")
    add("--peers", nargs="*", choices=PEERS, default=list(PEERS), help="who else (default: all)")
    add("--time-limit", type=float, default=120.0, help="seconds per case and peer (default 120)")
    add(
        "--baseline-limit", type=float, default=LIMIT, help=f"of first-order and recursive, if less (default {LIMIT:g})"
    )
    add("--executor", choices=["auto", "inline", "spark"], default="auto", help="where steps run (default auto)")
    add("--cores", type=int, default=None, help="cores to use (default: all)")
    add("--progress", type=int, default=0, metavar="PARTS", help="also report throughput in parts of the stream")
    add("--seed", type=int, default=0, help="seed of the data (default 0)")
    add("--location", type=Path, default=None, help="folder for files and state (default: a temporary one)")
    return made


class _Bench:
    """One data set: its batches as files, the cases and the peers."""

    def __init__(self, spark: SparkSession, root: Path, data: Dataset, options: argparse.Namespace, tell: Tell) -> None:
        self.spark, self.root, self.data, self.options, self.tell = spark, root, data, options, tell
        tell(f"{data.name}: making it at scale {options.scale:g}")
        tables = data.generate(options.scale, options.seed)
        tables = sorted_rows(data, tables) if options.sorted else tables
        batches = stream(tables, options.batch, options.deletes, options.seed)
        some = (changes for _, changes in zip(range(options.batches or 1 << 62), batches, strict=False))
        self.batches = Batches.write(root / "batches", some, deletes=options.deletes > 0)
        self.continuous = [name for name in data.features if name not in data.categorical]
        self.seen: scikit.Seen | None = None  # the last moments whose join fits in memory

    def run(self) -> tuple[list[dict[str, Any]], dict[str, float]]:
        rows = [self._case(case) for case in self.options.cases]
        rows += [self._peer(peer) for peer in self.options.peers if peer in RECOMPUTING and self._there(peer)]
        answers = {row["case"]: row.pop("answer") for row in rows}
        # A case that the time limit ended has seen fewer batches; the others have seen them all.
        compared = {row["case"]: answers[row["case"]] for row in rows if row["finished"] and answers[row["case"]]}
        reference = next(iter(compared), None)
        for row in rows:
            if reference is not None and row["case"] in compared and row["case"] != reference:
                row["difference"] = difference(reference, compared[reference], row["case"], compared[row["case"]])
        if "scikit-learn" in self.options.peers:
            rows.append(self._regression())
        return rows, self._ratios(rows)

    def _there(self, peer: str) -> bool:
        return peer != "duckdb" or importlib.util.find_spec("duckdb") is not None

    def _name(self, case: str) -> str:
        return f"{self.data.name}, {case}"

    # -- Headrace -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _engine(self, case: str, place: str, executor: str) -> Iterator[tuple[Engine, Covariance]]:
        keep, location = case == "kept", self.root / place
        try:
            with Engine(self.spark, location, executor=executor) as engine:
                for spec in self.data.tables:
                    engine.table(spec.name, spec.ddl, key=(spec.key or None) if keep else None, keep_rows=keep)
                categorical = () if case == "as numbers" else self.data.categorical
                strategy = case if case in BASELINES else "auto"
                yield (
                    engine,
                    engine.covariance(
                        "moments", self.data.join, self.data.features, categorical=categorical, strategy=strategy
                    ),
                )
        finally:
            shutil.rmtree(location, ignore_errors=True)

    def _case(self, case: str) -> dict[str, Any]:
        self.tell(f"{self._name(case)}: warming up")
        executor = self.options.executor
        warm = "spark" if executor == "auto" and self.options.batch > LOCAL_DRIVER_ROWS else executor
        with self._engine(case, "warm", warm) as (engine, handle):
            changes = self.batches.read(0)  # which deletes nothing
            for start in range(0, _WARM_BATCHES * _WARM_ROWS, _WARM_ROWS):
                some = {name: rows.slice(start, _WARM_ROWS) for name, rows in changes.items()}
                engine.apply({name: rows for name, rows in some.items() if rows.num_rows})
            handle.mixed_moments()
        release_memory()
        seconds: list[float] = []
        state: list[int] = []
        stream = Pieces(self.batches, PIECE if case in BASELINES else math.inf)
        limit = min(self.options.time_limit, self.options.baseline_limit if case in BASELINES else math.inf)
        with PeakMemory(interval=0.05) as memory, self._engine(case, "state", executor) as (engine, handle):
            for number in range(len(stream)):
                start_of_batch = time.perf_counter()
                step = engine.apply(stream.read(number))
                seconds.append(time.perf_counter() - start_of_batch)
                state.append(step.state_bytes)
                self.tell(f"{self._name(case)}: batch {number + 1} of {len(stream)} in {seconds[-1]:.2f} s")
                if case == self.options.cases[0]:
                    self._look(handle, number + 1)
                if sum(seconds) > limit:
                    break
            answer = None if case == "as numbers" else Answer.of(handle.mixed_moments())
            views = handle.explain()["views"]
        rows, total = sum(stream.rows[: len(seconds)]), sum(stream.rows)
        full = seconds[1 : min(len(seconds), stream.full)] or seconds[:1]  # the first opens files and pools
        row = {
            "system": "headrace",
            "case": self._name(case),
            "rows": rows,
            "seconds": sum(seconds),
            "rows_per_s": rows / sum(seconds),
            "steady_rows_per_s": stream.rows[0] / statistics.median(full),
            "batch_seconds": statistics.median(full),
            "peak_mb": memory.grown / 1e6,
            "state_mb": step.state_bytes / 1e6,
            "views": len(views),
            "views_kept": sum(view.kept for view in views),
            "batches": len(seconds),
            "finished": rows == total,
            "ran": step.ran,
            "answer": answer,
        } | how_far(sum(seconds), rows, total)
        if parts := self.options.progress:
            row["progress"] = progress(stream.rows[: len(seconds)], seconds, total, parts, state)
        return row

    # -- peers --------------------------------------------------------------------------------------------------------

    def _peer(self, peer: str) -> dict[str, Any]:
        self.tell(f"{self._name(peer)}: recomputing over {len(self.batches)} batches")
        release_memory()
        statement = grouping_sets(self.data.join, self.data.categorical, self.continuous)
        answered = {"spark": self._by_spark, "duckdb": self._by_duckdb}[peer]
        start = time.perf_counter()
        rows = answered(statement)
        seconds, count = time.perf_counter() - start, sum(self.batches.rows)
        row = {
            "system": peer,
            "case": self._name(peer),
            "rows": count,
            "seconds": seconds,
            "finished": rows is not None,
        }
        answer = None if rows is None else Answer.of_rows(rows, self.data.categorical)
        return row | ({} if rows is None else {"rows_per_s": count / seconds}) | {"answer": answer}

    def _look(self, handle: Covariance, batches: int) -> None:
        """Remember what is kept after a batch, if scikit-learn could learn from the rows that join."""
        every = -(-len(self.batches) // _LOOKS)
        if "scikit-learn" not in self.options.peers or (batches % every and batches < len(self.batches)):
            return
        start = time.perf_counter()
        seen = scikit.Seen(batches, handle.mixed_moments(), time.perf_counter() - start)
        # Moments of the case "as numbers" have no levels.
        if seen.fits_in_memory:
            self.seen = seen

    def _regression(self) -> dict[str, Any]:
        case = self._name(scikit.REGRESSION)
        count = self.seen.batches if self.seen is not None else 0
        self.tell(f"{case}: after {count} batches")
        release_memory()
        return scikit.regression(
            case, self.data, self.seen, {t.name: self._paths(t.name, count) for t in self.data.tables}
        )

    def _paths(self, table: str, count: int) -> list[str]:
        paths = self.batches.paths(table, count)
        if paths and self.batches.deletes:
            return [self.batches.write_rows(self.root / "rows", table, count)]
        return paths

    def _by_spark(self, statement: str) -> list[Any] | None:
        session = self.spark.newSession()
        session.conf.set("spark.sql.adaptive.enabled", "true")
        for table in self.data.tables:
            paths = self._paths(table.name, len(self.batches))
            rows = session.read.schema(table.ddl).parquet(*paths) if paths else session.createDataFrame([], table.ddl)
            rows.createOrReplaceTempView(table.name)
        return within(session, self.options.time_limit, lambda: session.sql(statement).collect())

    def _by_duckdb(self, statement: str) -> list[Any] | None:
        import duckdb

        with duckdb.connect(config={"threads": self.spark.sparkContext.defaultParallelism}) as database:
            database.execute("SET enable_progress_bar = false")  # it goes where the JSON goes
            for table in self.data.tables:
                files = ", ".join(f"'{path}'" for path in self._paths(table.name, len(self.batches)))
                database.execute(f"CREATE VIEW {table.name} AS SELECT * FROM read_parquet([{files}])")
            timer = threading.Timer(self.options.time_limit, database.interrupt)
            timer.start()
            try:
                return database.execute(statement).fetchall()
            except duckdb.InterruptException:
                return None
            finally:
                timer.cancel()

    def _ratios(self, rows: list[dict[str, Any]]) -> dict[str, float]:
        """What others take for all batches, and as numbers what we take, beside the first case."""
        first = rows[0]
        out = {}
        for row in rows[1:]:
            if row["system"] == "headrace":
                out[f"{row['case']} / {first['case']}, rows per second"] = row["rows_per_s"] / first["rows_per_s"]
            elif row["system"] == "scikit-learn":
                if "not_run" not in row:
                    name = f"{row['case']} after {row['batches']} batches: joining and fitting / reading and fitting"
                    out[name] = row["seconds"] / row["headrace_seconds"]
            elif first["system"] == "headrace":
                bound = "" if row["finished"] else " (at least)"
                out[f"{row['case']}, recomputing / a batch, {first['case']}{bound}"] = (
                    row["seconds"] / first["batch_seconds"]
                )
        return out


def table(result: dict[str, Any]) -> Group:
    """Return the tables that show a result to people."""
    config = result["config"]
    shown = Table(
        title=f"mixed: scale {config['scale']:g}, batches of {config['batch']:,}, {config['cores']} cores",
        box=SIMPLE_HEAD,
        padding=0,
    )
    for column in ("case", ">rows", ">seconds", ">rows/s", ">steady", ">peak MB", ">state MB", "note"):
        shown.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    for row in result["results"]:
        shown.add_row(
            row["case"],
            f"{row['rows']:,}",
            f"{'' if row['finished'] else '>= '}{row['seconds']:,.4g}",
            *(f"{row[key]:,.0f}" if key in row else "" for key in ("rows_per_s", "steady_rows_per_s")),
            *(f"{row[key]:,.1f}" if key in row else "" for key in ("peak_mb", "state_mb")),
            row.get("not_run", row.get("stopped", "")),
        )
    return Group(shown, named_numbers("ratio", result["ratios"]), target_lines(result["targets"]))

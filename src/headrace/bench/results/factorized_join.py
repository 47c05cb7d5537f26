"""The join of a data set at growing scale: its rows factorized, listed, and computed anew (F-IVM, Section 9.8).

The join of Housing has about s * s * 2s/3 rows a postcode, and its factorization about s + s + 2s/3. So listing soon
takes more room than there is: it runs while the join has at most `--most-rows` rows, and beyond that what it would take
is extrapolated from the largest join that it did list, in proportion to the rows. Results say which figures are. The
join of Retailer has as many rows as its largest table, and all others are in it many times.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.console import Group
from rich.table import Table

from headrace.bench.measuring.peak_memory import PeakMemory, release_memory
from headrace.bench.measuring.screen import named_numbers
from headrace.bench.measuring.targets import Verdict, judged, other_options, target_lines, verdict
from headrace.datasets import dataset
from headrace.datasets.batches import stream
from headrace.datasets.dataset import Dataset
from headrace.engine.engine import Engine
from headrace.engine.handles import View
from headrace.runtime.session import local_session

Tell = Callable[[str], None]

DATA = ("housing", "retailer")
SYSTEMS = ("factorized", "factorized, lazy", "listing", "listing, lazy", "recursive", "first-order", "recompute")
_STRATEGIES = ("recursive", "first-order")  # listings that are kept by views for each relation, or by the relations
_LISTED = 1_000_000  # rows that are listed of a factorized result to see how fast that is
_RELATIVE = 1e-9
_TARGET, _TARGET_SCALE = 100.0, 20.0  # times the time and the room of the factorized result, at this scale of Housing
_SIZES = {"data": "housing", "changes": "all", "deletes": 0.0, "cores": 2}


def run(argv: list[str], tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Run the benchmark; see `--help` for its options."""
    parser = argparse.ArgumentParser(prog="headrace bench factorized", description=__doc__)
    parser.add_argument("--scales", type=float, nargs="+", default=[1, 2, 4, 20], help="(default 1 2 4 20)")
    parser.add_argument("--data", choices=DATA, default="housing", help="the data set (default housing)")
    parser.add_argument(
        "--changes", choices=["all", "largest"], default="all", help="which tables change while time is taken"
    )
    parser.add_argument("--batch", type=int, default=100_000, help="changed rows a step (default 100,000)")
    parser.add_argument("--deletes", type=float, default=0.0, help="share of a batch that deletes (default 0)")
    parser.add_argument("--most-rows", type=int, default=2_000_000, help="rows that are listed (default 2,000,000)")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--keep-rows", action="store_true", help="keep the rows of the tables, too")
    parser.add_argument("--executor", choices=["auto", "inline", "spark"], default="auto", help="where steps run")
    parser.add_argument("--location", type=Path, default=None, help="folder for the state (default: a temporary one)")
    options = parser.parse_args(argv)
    spark = local_session()
    with TemporaryDirectory(prefix="headrace-bench-", dir=options.location, ignore_cleanup_errors=True) as folder:
        return _Bench(spark, Path(folder), options, tell).run()


@dataclass
class _Scale:
    """The tables of one scale, what is joined, and how many rows that has."""

    scale: float
    tables: dict[str, pa.Table]
    before: dict[str, pa.Table]  # what is there before time is taken
    batches: list[dict[str, pa.Table]]
    rows: int  # of the tables, as far as they are not deleted again
    changes: int


class _Bench:
    def __init__(self, spark: SparkSession, root: Path, options: argparse.Namespace, tell: Tell) -> None:
        self.spark = spark
        self.root = root
        self.options = options
        self.tell = tell
        self.data: Dataset = dataset(options.data)
        self.sql = f"SELECT * {self.data.join[self.data.join.index('FROM') :]}"

    def run(self) -> dict[str, Any]:
        results: list[dict[str, Any]] = []
        self._warm_up()
        for scale in sorted(self.options.scales):
            results += self._scale(scale, results)
        config = {key: value for key, value in vars(self.options).items() if key != "location"}
        config["cores"] = self.spark.sparkContext.defaultParallelism
        found = judged(targets(config, results), results)
        return {
            "bench": "factorized",
            "config": config,
            "results": results,
            "ratios": ratios(results),
            "targets": found,
        }

    def _warm_up(self) -> None:
        self.tell("warming up")
        made = self._made(0.004)
        for system in self.options.systems:
            if system != "recompute":
                self._kept(system, made, "warm")

    def _made(self, scale: float) -> _Scale:
        tables = self.data.generate(scale)
        changing = tables
        if self.options.changes == "largest":
            largest = max(tables, key=lambda name: tables[name].num_rows)
            changing = {largest: tables[largest]}
        batches = list(stream(changing, self.options.batch, self.options.deletes))
        changes = sum(rows.num_rows for batch in batches for rows in batch.values())
        before = {name: rows for name, rows in tables.items() if name not in changing}
        return _Scale(scale, tables, before, batches, sum(table.num_rows for table in tables.values()), changes)

    def _scale(self, scale: float, before: list[dict[str, Any]]) -> list[dict[str, Any]]:
        self.tell(f"making {self.data.name} at scale {scale:g}")
        made = self._made(scale)
        rows: list[dict[str, Any]] = []
        joined: int | None = None
        for system in self.options.systems:
            self.tell(f"scale {scale:g}: {system}")
            lists = not system.startswith("factorized")
            if lists and joined is not None and joined > self.options.most_rows:
                if (known := _largest(before, system)) is not None:
                    rows.append(_extrapolated(known, scale, made, joined))
                continue
            row = self._recomputed(made) if system == "recompute" else self._kept(system, made, "state")
            joined = row["joined_rows"]
            rows.append(row)
        _compare(rows)
        return rows

    def _kept(self, system: str, made: _Scale, place: str) -> dict[str, Any]:
        representation, _, when = system.partition(", ")
        strategy, representation = (system, "listing") if system in _STRATEGIES else ("auto", representation)
        location = self.root / place
        try:
            with Engine(self.spark, location, executor=self.options.executor, calibrate=False) as engine:
                for spec in self.data.tables:
                    engine.table(spec.name, spec.ddl, keep_rows=self.options.keep_rows)
                refresh = "lazy" if when else "eager"
                view = engine.view(
                    "joined", self.sql, strategy=strategy, representation=representation, refresh=refresh
                )
                if made.before:
                    engine.apply(made.before)
                release_memory()
                with PeakMemory(interval=0.05) as memory:
                    start = time.perf_counter()
                    for batch in made.batches:
                        engine.apply(batch)
                    if when:
                        view.refresh()
                    seconds = time.perf_counter() - start
                said = view.explain()
                row: dict[str, Any] = {"system": "headrace", "case": system, "scale": made.scale, "rows": made.changes}
                row |= {"seconds": seconds, "rows_per_s": made.changes / seconds, "state_mb": said.state_bytes / 1e6}
                row |= {"peak_mb": memory.grown / 1e6} | self._read(view)
                kept = said.values.get("result", {}).get("kept_values")
                return row | {"values": row["joined_rows"] * len(view.schema) if kept is None else kept}
        finally:
            shutil.rmtree(location, ignore_errors=True)

    def _read(self, view: View) -> dict[str, Any]:
        start = time.perf_counter()
        count = view.count()
        counted = time.perf_counter() - start
        if count == 0:
            return {"joined_rows": 0, "count_seconds": counted}
        start, listed, total = time.perf_counter(), 0, 0.0
        first = 0.0
        for batch in view.batches():
            first = first or time.perf_counter() - start
            listed += batch.num_rows
            total += float(pc.sum(batch.column(self.data.label)).as_py() or 0.0)
            if listed >= _LISTED and count > self.options.most_rows:
                break
        spent = time.perf_counter() - start
        found = {"joined_rows": count, "count_seconds": counted, "first_rows_seconds": first}
        found |= {"listed_rows": listed, "listed_rows_per_s": listed / spent}
        return found | ({"sum_of_label": total} if listed == count else {})

    def _recomputed(self, made: _Scale) -> dict[str, Any]:
        """Spark joins all tables once, as it would have to after every step."""
        folder = self.root / "tables"
        for spec in self.data.tables:
            path = folder / spec.name
            path.mkdir(parents=True, exist_ok=True)
            if (rows := made.before.get(spec.name)) is None:
                rows = _net(pa.concat_tables([batch[spec.name] for batch in made.batches if spec.name in batch]))
            pq.write_table(rows, path / "rows.parquet")
            self.spark.read.parquet(str(path)).createOrReplaceTempView(spec.name)
        start = time.perf_counter()
        self.spark.sql(self.sql).write.format("noop").mode("overwrite").save()
        seconds = time.perf_counter() - start
        ((count, total),) = self.spark.sql(f"SELECT COUNT(*), SUM({self.data.label}) FROM ({self.sql})").collect()
        for spec in self.data.tables:
            self.spark.catalog.dropTempView(spec.name)
        shutil.rmtree(folder, ignore_errors=True)
        row = {"system": "spark", "case": "recompute", "scale": made.scale, "rows": made.changes, "seconds": seconds}
        return row | {"joined_rows": count, "sum_of_label": float(total or 0.0)}


def _net(changes: pa.Table) -> pa.Table:
    """The rows that a stream of changes leaves; deletions are of rows that it has inserted."""
    names = [name for name in changes.column_names if name != "__diff"]
    if pc.all(pc.greater(changes.column("__diff"), 0)).as_py():
        return changes.select(names)
    left = changes.group_by(names).aggregate([("__diff", "sum")])
    counts = left.column("__diff_sum").to_numpy()
    return left.select(names).take(pa.array([i for i, count in enumerate(counts) for _ in range(count)], pa.int64()))


def _largest(results: list[dict[str, Any]], system: str) -> dict[str, Any] | None:
    measured = [row for row in results if row["case"] == system and not row.get("extrapolated")]
    return max(measured, key=lambda row: row["joined_rows"], default=None)


def _extrapolated(known: dict[str, Any], scale: float, made: _Scale, joined: int) -> dict[str, Any]:
    times = joined / max(1, known["joined_rows"])
    row = {"system": known["system"], "case": known["case"], "scale": scale, "rows": made.changes}
    row |= {"seconds": known["seconds"] * times, "joined_rows": joined, "extrapolated": True}
    row |= {key: known[key] * times for key in ("state_mb", "values") if key in known}
    return row | {"from_scale": known["scale"]}


def _compare(rows: list[dict[str, Any]]) -> None:
    """Mark answers that differ from the first one."""
    for what in ("joined_rows", "sum_of_label"):
        having = [row for row in rows if what in row and not row.get("extrapolated")]
        for row in having[1:]:
            if abs(row[what] - having[0][what]) > _RELATIVE * abs(having[0][what]):
                row["wrong"] = f"{what}: {row[what]} is not {having[0][what]}"


def ratios(results: list[dict[str, Any]]) -> dict[str, float]:
    """How many times the time and the room of the factorized result the others take, scale by scale."""
    out = {}
    for row in results:
        ours = next((r for r in results if r["case"] == "factorized" and r["scale"] == row["scale"]), None)
        if ours is None or row["case"] == "factorized":
            continue
        said = f"{row['case']} / factorized at scale {row['scale']:g}"
        guess = " (extrapolated)" if row.get("extrapolated") else ""
        out[f"{said}, seconds{guess}"] = row["seconds"] / ours["seconds"]
        for key, name in (("state_mb", "bytes"), ("peak_mb", "peak memory"), ("values", "values")):
            if key in row and ours[key]:
                out[f"{said}, {name}{guess}"] = row[key] / ours[key]
    return out


def targets(config: dict[str, Any], results: list[dict[str, Any]]) -> list[Verdict]:
    """Compare listing with the factorized result at the scale of the targets.

    The values of a listing are its rows times its columns, and so known without listing. The rest of what is
    extrapolated is no measurement: the largest listing that was made is a lower bound.
    """
    rows = {row["case"]: row for row in results if row["scale"] == _TARGET_SCALE}
    ours, theirs, found = rows.get("factorized", {}), rows.get("listing", {}), []
    for key, what in (("values", "values"), ("state_mb", "bytes"), ("seconds", "seconds")):
        value = theirs[key] / ours[key] if key in theirs and ours.get(key) else None
        why, least = other_options(config, _SIZES), ""
        if value is not None and theirs.get("extrapolated") and key != "values":
            scale, guess = theirs["from_scale"], value
            listed = next(row for row in results if row["case"] == "listing" and row["scale"] == scale)
            value = listed[key] / ours[key]
            least = f"listing was measured up to scale {scale:g}; in proportion to the rows, it would be {guess:,.0f}"
        name = f"listing / factorized at scale {_TARGET_SCALE:g}, {what}"
        found.append(verdict(name, ">=", _TARGET, value, why_not=why, at_least=least))
    return found


def table(result: dict[str, Any]) -> Group:
    """Return the tables that show a result to people."""
    config = result["config"]
    shown = Table(
        title=f"factorized: the {config['data']} join, batches of {config['batch']:,} rows, {config['cores']} cores"
    )
    for column in ("scale", "case", ">joined rows", ">seconds", ">rows/s", ">state MB", ">count ms", ">listed rows/s"):
        shown.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    for row in result["results"]:
        about = "~" if row.get("extrapolated") else ""
        shown.add_row(
            f"{row['scale']:g}",
            row["case"],
            f"{row['joined_rows']:,}",
            f"{about}{row['seconds']:,.3g}",
            f"{row['rows_per_s']:,.0f}" if "rows_per_s" in row else "",
            f"{about}{row['state_mb']:,.1f}" if "state_mb" in row else "",
            f"{row['count_seconds'] * 1e3:,.2f}" if "count_seconds" in row else "",
            f"{row['listed_rows_per_s']:,.0f}" if "listed_rows_per_s" in row else "",
        )
    return Group(shown, named_numbers("ratio", result["ratios"]), target_lines(result["targets"]))

"""Rows of q-hierarchical joins, listed after every so many batches (Figure 26 of F-IVM).

A result is brought up to date by every batch (eager) or when it is listed (lazy), and is kept as rows (list) or
factorized (fact). As in the paper, `eager-list` is the recursive strategy, which keeps every row of the join, and
`lazy-list` the first-order one. Throughput is that of all batches with all listings: the rows of the tables over the
time for applying batches and for reading every row of the join. pandas joins the tables anew and checks
the number of rows and the sum of the label.

For Favorita, the tables of stores and items never change; for Retailer, that of items, and a zip determines its place:
places that share one are left out. Then updates take constant time, as rows of the factorized result say (`update`).
The paper names only the stores of Favorita, but with items that change its join is not q-hierarchical either.
"""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table

from headrace.bench.covariance.sorted_rows import sorted_rows
from headrace.bench.measuring.screen import named_numbers
from headrace.datasets import Dataset, dataset, stream
from headrace.engine.engine import Engine
from headrace.engine.handles import View
from headrace.runtime.session import local_session

Tell = Callable[[str], None]

VARIANTS: dict[str, dict[str, str]] = {
    "eager-fact": {"representation": "factorized", "refresh": "eager"},
    "eager-list": {"strategy": "recursive", "refresh": "eager"},
    "lazy-fact": {"representation": "factorized", "refresh": "lazy"},
    "lazy-list": {"strategy": "first-order", "refresh": "lazy"},
}
STATIC = {"housing": (), "retailer": ("item",), "favorita": ("stores", "items")}
FDS: dict[str, dict[str, Any]] = {"retailer": {"location": {"zip": ["locn"]}}}
_RELATIVE = 1e-9


def run(argv: list[str], tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Run the benchmark; see `--help` for its options."""
    parser = argparse.ArgumentParser(prog="headrace bench enumeration", description=__doc__)
    add = parser.add_argument
    add("--data", choices=list(STATIC), default="housing", help="the data set (default housing)")
    add("--scale", type=float, default=1.0, help="its scale (default 1)")
    add("--batch", type=int, default=1_000, help="rows per batch (default 1,000)")
    add("--batches", type=int, default=None, help="stop after so many batches (default: when all rows are in)")
    add("--intervals", type=int, nargs="+", default=[1, 10, 100, 1000], help="batches between two listings")
    add("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS), help="what is run (default: all)")
    add("--time-limit", type=float, default=60.0, help="seconds per variant and interval (default 60)")
    add("--seed", type=int, default=0, help="seed of the data (default 0)")
    add("--location", type=Path, default=None, help="folder for the state (default: a temporary one)")
    options = parser.parse_args(argv)
    spark = local_session()
    with TemporaryDirectory(prefix="headrace-bench-", dir=options.location, ignore_cleanup_errors=True) as folder:
        return _Bench(spark, Path(folder), options, tell).run()


@dataclass
class _Run:
    """One variant with one interval."""

    rows: int = 0
    applying: float = 0.0
    listing: float = 0.0
    listed: list[int] = field(default_factory=list)  # rows of each listing
    counts: dict[int, int] = field(default_factory=dict)  # rows of the join, by how many batches are in
    batches: int = 0
    state: int = 0
    total: float = 0.0  # of the label, at the end
    update: str = ""

    @property
    def seconds(self) -> float:
        return self.applying + self.listing


class _Bench:
    def __init__(self, spark: SparkSession, root: Path, options: argparse.Namespace, tell: Tell) -> None:
        self.spark, self.root, self.options, self.tell = spark, root, options, tell
        self.data: Dataset = dataset(options.data)
        self.static, self.fds = STATIC[options.data], FDS.get(options.data, {})
        tell(f"making {options.data} at scale {options.scale:g}")
        tables = sorted_rows(self.data, self.data.generate(options.scale, options.seed))
        self.tables = one_place_a_zip(tables) if self.fds else tables
        self.sql = f"SELECT * {self.data.join[self.data.join.index('FROM') :]}"
        moving = {name: rows for name, rows in self.tables.items() if name not in self.static}
        self.batches = list(stream(moving, options.batch))[: options.batches]

    def run(self) -> dict[str, Any]:
        results: list[dict[str, Any]] = []
        counts: dict[int, int] = {}  # by batches: all variants must count the same rows
        checks: dict[int, tuple[int, float]] = {}
        for variant in self.options.variants:
            self.tell(f"{variant}: warming up")
            self._play(variant, 1, [_head(batch) for batch in self.batches[:2]])
            for interval in self.options.intervals:
                self.tell(f"{variant}, a listing every {interval} batches")
                done = self._play(variant, interval, self.batches)
                if done.batches not in checks:
                    checks[done.batches] = self._recomputed(done.batches)
                row = self._row(variant, interval, done)
                if wrong := _wrong(done, checks[done.batches], counts):
                    row["wrong"] = wrong
                counts |= done.counts
                results.append(row)
        asked = {key: value for key, value in vars(self.options).items() if key != "location"}
        config = asked | {
            "batches": len(self.batches),
            "rows": {name: rows.num_rows for name, rows in self.tables.items()},
            "static": list(self.static),
            "cores": self.spark.sparkContext.defaultParallelism,
        }
        return {"bench": "enumeration", "config": config, "results": results, "ratios": ratios(results)}

    def _play(self, variant: str, interval: int, batches: Sequence[Mapping[str, pa.Table]]) -> _Run:
        done, location = _Run(), self.root / "state"
        try:
            with Engine(self.spark, location, calibrate=False) as engine:
                for spec in self.data.tables:
                    static, fds = spec.name in self.static, self.fds.get(spec.name)
                    kept = static or fds is not None  # nothing else would check them
                    engine.table(spec.name, spec.ddl, static=static, keep_rows=kept, fds=fds)
                if self.static:
                    engine.apply({name: self.tables[name] for name in self.static})
                view = engine.view("joined", self.sql, **VARIANTS[variant])  # type: ignore[arg-type]
                for number, batch in enumerate(batches, start=1):
                    start = time.perf_counter()
                    step = engine.apply(batch)
                    applied = time.perf_counter()
                    done.applying += applied - start
                    done.rows += sum(rows.num_rows for rows in batch.values())
                    done.batches, done.state = number, step.state_bytes
                    if number % interval == 0:
                        done.counts[number] = sum(rows.num_rows for rows in view.batches())
                        done.listing += time.perf_counter() - applied
                        done.listed.append(done.counts[number])
                    if done.seconds > self.options.time_limit:
                        break
                done.counts[done.batches], done.total = self._checked(view)
                said = view.explain()
                done.state = said.state_bytes
                done.update = str(said.values.get("result", {}).get("update", ""))
        finally:
            shutil.rmtree(location, ignore_errors=True)
        return done

    def _checked(self, view: View) -> tuple[int, float]:
        count, total = 0, 0.0
        for rows in view.batches():
            count += rows.num_rows
            total += float(pc.sum(rows.column(self.data.label)).as_py() or 0.0)
        return count, total

    def _recomputed(self, batches: int) -> tuple[int, float]:
        """The number of rows of the join and the sum of their labels, by pandas."""
        columns = {name: rows.column_names for name, rows in self.tables.items()}
        needed = {self.data.label} | {
            name for own in columns.values() for name in own if sum(name in other for other in columns.values()) > 1
        }
        joined: pd.DataFrame | None = None
        for name, rows in self.tables.items():
            if name not in self.static:
                parts = [batch[name].drop_columns(["__diff"]) for batch in self.batches[:batches] if name in batch]
                rows = pa.concat_tables([rows.slice(0, 0), *parts])
            frame = rows.select([column for column in columns[name] if column in needed]).to_pandas()
            joined = frame if joined is None else joined.merge(frame)
        assert joined is not None
        return len(joined), float(joined[self.data.label].sum())

    def _row(self, variant: str, interval: int, done: _Run) -> dict[str, Any]:
        return {
            "system": "headrace",
            "case": f"{variant}, every {interval}",
            "variant": variant,
            "interval": interval,
            "rows": done.rows,
            "seconds": done.seconds,
            "rows_per_s": done.rows / done.seconds,
            "applying_seconds": done.applying,
            "listing_seconds": done.listing,
            "enumerations": len(done.listed),
            "listed_rows": sum(done.listed),
            "joined_rows": done.counts[done.batches],
            "state_mb": done.state / 1e6,
            "batches": done.batches,
            "finished": done.batches == len(self.batches),
        } | ({"update": done.update} if done.update else {})


def one_place_a_zip(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Retailer without the places whose zip an earlier place has, so that a zip determines its place."""
    location = tables["location"]
    _, first = np.unique(location.column("zip").to_numpy(), return_index=True)
    places = pa.array(location.column("locn").to_numpy()[first])
    return {
        name: rows.filter(pc.is_in(rows.column("locn"), places)) if "locn" in rows.column_names else rows
        for name, rows in tables.items()
    }


def _head(batch: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    return {name: rows.slice(0, 100) for name, rows in batch.items()}


def _wrong(done: _Run, check: tuple[int, float], counts: Mapping[int, int]) -> str:
    """What differs from the recomputation, or from the counts of other variants, if anything."""
    count, total = check
    if done.counts[done.batches] != count:
        return f"{done.counts[done.batches]:,} rows; pandas joins {count:,}"
    if not abs(done.total - total) <= _RELATIVE * max(1.0, abs(total)):
        return f"the sum of the label is {done.total!r}; by pandas {total!r}"
    for after, own in done.counts.items():
        if counts.get(after, own) != own:
            return f"{own:,} rows after {after} batches; another variant listed {counts[after]:,}"
    return ""


def ratios(results: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Throughput of the factorized results over that of listings, and of eager ones over lazy ones, by interval."""
    by = {(row["variant"], row["interval"]): row["rows_per_s"] for row in results}
    found = {}
    for ours, other in (("eager-fact", "eager-list"), ("lazy-fact", "lazy-list"), ("eager-fact", "lazy-fact")):
        for interval in dict.fromkeys(row["interval"] for row in results):
            if (ours, interval) in by and (other, interval) in by:
                found[f"{ours} / {other}, a listing every {interval}"] = by[ours, interval] / by[other, interval]
    return found


def table(result: dict[str, Any]) -> Group:
    """Return the tables that show a result to people."""
    config = result["config"]
    shown = Table(
        title=f"rows of the {config['data']} join, listed every so many batches of {config['batch']:,} rows",
        box=SIMPLE_HEAD,
    )
    for column in ("variant", ">every", ">listings", ">rows/s", ">applying s", ">listing s", ">state MB", "note"):
        shown.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    for row in result["results"]:
        shown.add_row(
            row["variant"],
            f"{row['interval']:,}",
            f"{row['enumerations']:,}",
            f"{row['rows_per_s']:,.0f}",
            f"{row['applying_seconds']:,.3g}",
            f"{row['listing_seconds']:,.3g}",
            f"{row['state_mb']:,.1f}",
            row.get("wrong", "" if row["finished"] else "the time is over"),
        )
    return Group(shown, named_numbers("ratio", result["ratios"]))

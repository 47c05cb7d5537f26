"""One sum over the join of a data set, kept by each strategy and computed anew after every batch (Figure 28 of F-IVM).

For Retailer the inventory units are summed, for Housing the postcodes, on which all tables are joined. Two peers
compute the sum from the rows of all batches so far: pandas counts each table by what it is joined on before it joins,
as F-RE of the paper does; Spark runs the query as it is written, as DBT-RE. Timed are reading the Parquet files of a
batch and applying it until it is committed; of the peers, reading the files of the batch (pandas) or of all batches
(Spark) and computing the sum. All answers are compared with those by pandas.
"""

from __future__ import annotations

import argparse
import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table

from headrace.bench.covariance.batch_files import Batches
from headrace.bench.covariance.sorted_rows import sorted_rows
from headrace.bench.measuring.screen import named_numbers
from headrace.datasets import Dataset, dataset, stream
from headrace.engine.engine import Engine
from headrace.engine.handles import View
from headrace.runtime.session import local_session

Tell = Callable[[str], None]

SUMMED = {"retailer": "inventoryunits", "housing": "postcode"}
STRATEGIES = ("factorized", "recursive", "first-order")
PUSHED, PLAIN = "recompute, sums first", "recompute"
CASES = (*STRATEGIES, PUSHED, PLAIN)
_WARM_BATCHES, _WARM_ROWS = 6, 200
_RELATIVE = 1e-9


def run(argv: list[str], tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Run the benchmark; see `--help` for its options."""
    parser = argparse.ArgumentParser(prog="headrace bench one-sum", description=__doc__)
    add = parser.add_argument
    add("--data", choices=list(SUMMED), default="retailer", help="the data set (default retailer)")
    add("--scale", type=float, default=1.0, help="its scale (default 1)")
    add("--batch", type=int, default=1_000, help="rows per batch, over all tables (default 1,000)")
    add("--batches", type=int, default=None, help="stop after so many batches (default: when all rows are in)")
    add("--cases", nargs="+", choices=CASES, default=list(CASES), help="what is run (default: all)")
    add("--time-limit", type=float, default=60.0, help="seconds per case; it ends after the batch in which they pass")
    add("--seed", type=int, default=0, help="seed of the data (default 0)")
    add("--location", type=Path, default=None, help="folder for files and state (default: a temporary one)")
    options = parser.parse_args(argv)
    spark = local_session()
    with TemporaryDirectory(prefix="headrace-bench-", dir=options.location, ignore_cleanup_errors=True) as folder:
        return _Bench(spark, Path(folder), options, tell).run()


@dataclass
class _Run:
    """The measurements of one case."""

    seconds: list[float] = field(default_factory=list)  # of each batch
    sums: list[float] = field(default_factory=list)  # after each batch
    state: int | None = None
    views: int | None = None


class _Bench:
    def __init__(self, spark: SparkSession, root: Path, options: argparse.Namespace, tell: Tell) -> None:
        self.spark, self.root, self.options, self.tell = spark, root, options, tell
        self.data: Dataset = dataset(options.data)
        self.summed = SUMMED[options.data]
        joined = self.data.join[self.data.join.index("FROM") :]
        self.sql = f"SELECT SUM({self.summed}) AS total {joined}"
        tell(f"making {options.data} at scale {options.scale:g}")
        tables = sorted_rows(self.data, self.data.generate(options.scale, options.seed))
        tell("writing the change batches as Parquet files")
        batches = stream(tables, options.batch)
        some = (changes for _, changes in zip(range(options.batches or 1 << 62), batches, strict=False))
        self.batches = Batches.write(root / "batches", some, deletes=False)

    def run(self) -> dict[str, Any]:
        results: list[dict[str, Any]] = []
        expected: dict[int, float] = {}  # by batches
        for case in self.options.cases:
            self.tell(f"{case}: warming up")
            done = self._case(case)
            row = self._row(case, done)
            last = len(done.sums)
            if last not in expected:
                expected[last] = _Recomputation(self.data, self.summed, self.batches, last).total()
            if case == PUSHED:  # it has an answer after every batch
                expected |= dict(enumerate(done.sums, start=1))
            for after, total in enumerate(done.sums, start=1):
                if after in expected and not math.isclose(total, expected[after], rel_tol=_RELATIVE, abs_tol=1e-6):
                    row["wrong"] = f"{total!r} after {after} batches; by pandas {expected[after]!r}"
                    break
            results.append(row)
        asked = {key: value for key, value in vars(self.options).items() if key != "location"}
        config = asked | {"batches": len(self.batches), "rows": sum(self.batches.rows), "summed": self.summed}
        return {"bench": "one-sum", "config": config, "results": results, "ratios": ratios(results)}

    def _case(self, case: str) -> _Run:
        if case == PLAIN:
            return self._by_spark()
        if case == PUSHED:
            return self._by_pandas()
        self._keep(case, warm=True)
        return self._keep(case)

    def _keep(self, strategy: str, warm: bool = False) -> _Run:
        done, location = _Run(), self.root / "state"
        try:
            with Engine(self.spark, location, calibrate=False) as engine:
                for spec in self.data.tables:
                    engine.table(spec.name, spec.ddl, keep_rows=False)
                view = engine.view("summed", self.sql, strategy=strategy)
                if warm:
                    first = self.batches.read(0)
                    for number in range(_WARM_BATCHES):
                        engine.apply({name: t.slice(number * _WARM_ROWS, _WARM_ROWS) for name, t in first.items()})
                    return done
                for number in range(len(self.batches)):
                    start = time.perf_counter()
                    step = engine.apply(self.batches.read(number))
                    done.seconds.append(time.perf_counter() - start)
                    done.sums.append(_total(view))
                    done.state = step.state_bytes
                    self.tell(f"{strategy}: batch {number + 1} of {len(self.batches)}")
                    if sum(done.seconds) > self.options.time_limit:
                        break
                done.views = len(view.explain()["views"])
        finally:
            shutil.rmtree(location, ignore_errors=True)
        return done

    def _by_pandas(self) -> _Run:
        done, recomputation = _Run(), _Recomputation(self.data, self.summed, self.batches, 0)
        for number in range(len(self.batches)):
            start = time.perf_counter()
            recomputation.read(number)
            done.sums.append(recomputation.total())
            done.seconds.append(time.perf_counter() - start)
            self.tell(f"{PUSHED}: batch {number + 1} of {len(self.batches)}")
            if sum(done.seconds) > self.options.time_limit:
                break
        return done

    def _by_spark(self) -> _Run:
        done, session = _Run(), self.spark.newSession()
        session.conf.set("spark.sql.adaptive.enabled", "true")
        for warm in (True, False):
            for number in range(1 if warm else len(self.batches)):
                start = time.perf_counter()
                for table in self.data.tables:
                    paths = self.batches.paths(table.name, number + 1)
                    reader = session.read.schema(table.ddl)
                    rows = reader.parquet(*paths) if paths else session.createDataFrame([], table.ddl)
                    rows.createOrReplaceTempView(table.name)
                ((total,),) = session.sql(self.sql).collect()
                if warm:
                    continue
                done.seconds.append(time.perf_counter() - start)
                done.sums.append(float(total or 0.0))
                self.tell(f"{PLAIN}: batch {number + 1} of {len(self.batches)}")
                if sum(done.seconds) > self.options.time_limit:
                    break
        return done

    def _row(self, case: str, done: _Run) -> dict[str, Any]:
        seconds, batches = sum(done.seconds), len(done.seconds)
        rows = sum(self.batches.rows[:batches])
        row: dict[str, Any] = {
            "system": {PUSHED: "pandas", PLAIN: "spark"}.get(case, "headrace"),
            "case": case,
            "rows": rows,
            "seconds": seconds,
            "rows_per_s": rows / seconds,
            "batch_seconds": float(np.median(done.seconds)),
            "batches": batches,
            "finished": batches == len(self.batches),
        }
        if done.state is not None:
            row |= {"state_mb": done.state / 1e6, "views": done.views}
        return row


def _total(view: View) -> float:
    (value,) = view.to_arrow().column("total").to_pylist()
    return float(value or 0.0)


class _Recomputation:
    """The sum anew: each table is counted by what it shares with an earlier one before the two are joined."""

    def __init__(self, data: Dataset, summed: str, batches: Batches, count: int) -> None:
        self.summed, self.batches = summed, batches
        names = {table.name: set(table.schema.names) for table in data.tables}
        # The join columns of each table, and the summed one in the first table, from which the sum is taken.
        self.columns = {
            name: [c for c in data.table(name).schema.names if sum(c in other for other in names.values()) > 1]
            for name in names
        }
        first = data.tables[0].name
        if summed not in self.columns[first]:
            self.columns[first].append(summed)
        self.rows: dict[str, list[pa.Table]] = {
            name: [data.table(name).schema.empty_table().select(columns)] for name, columns in self.columns.items()
        }
        for number in range(count):
            self.read(number)

    def read(self, number: int) -> None:
        """Read one more batch."""
        for name, columns in self.columns.items():
            for path in self.batches.paths_of(name, number):
                self.rows[name].append(pq.ParquetFile(path).read(columns=columns))

    def total(self) -> float:
        frames = {name: pa.concat_tables(rows).to_pandas() for name, rows in self.rows.items()}
        for frame in frames.values():
            frame["times"] = 1
        order = list(self.columns)
        for child in reversed(order[1:]):
            shared = {
                name: [c for c in self.columns[child] if c in self.columns[name]] for name in _before(order, child)
            }
            parent = max(shared, key=lambda name: len(shared[name]))
            on = shared[parent]
            counted = frames[child].groupby(on, as_index=False)["times"].sum()
            merged: pd.DataFrame = frames[parent].merge(counted, on=on, suffixes=("", "_of_child"))
            merged["times"] *= merged.pop("times_of_child")
            frames[parent] = merged
        root = frames[order[0]]
        return float((root[self.summed] * root["times"]).sum())


def _before(order: Sequence[str], name: str) -> Sequence[str]:
    return order[: order.index(name)]


def ratios(results: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Throughput of the factorized strategy over that of the others."""
    rates = {row["case"]: row["rows_per_s"] for row in results}
    ours = rates.get("factorized")
    if ours is None:
        return {}
    return {f"factorized / {case}, throughput": ours / rate for case, rate in rates.items() if case != "factorized"}


def table(result: dict[str, Any]) -> Group:
    """Return the tables that show a result to people."""
    config = result["config"]
    shown = Table(
        title=f"one sum over {config['data']}: scale {config['scale']:g}, {config['rows']:,} rows in batches of "
        f"{config['batch']:,}",
        box=SIMPLE_HEAD,
    )
    for column in ("case", ">batches", ">ms a batch", ">rows/s", ">state MB", ">views", "note"):
        shown.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    for row in result["results"]:
        shown.add_row(
            row["case"],
            str(row["batches"]),
            f"{1000 * row['batch_seconds']:,.1f}",
            f"{row['rows_per_s']:,.0f}",
            f"{row['state_mb']:,.2f}" if "state_mb" in row else "",
            str(row.get("views", "")),
            row.get("wrong", "" if row["finished"] else "the time is over"),
        )
    return Group(shown, named_numbers("ratio", result["ratios"]))

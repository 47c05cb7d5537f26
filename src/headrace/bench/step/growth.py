"""The same small batch into a small and a large table: what a step costs must follow the change, not the data.

Two engines keep Retailer's covariance, with all dimensions loaded and with few or many inventory rows. They then take
the same batches in turn, so that whatever else the machine does meets both. The median is a usual batch; the mean
includes the merges of runs, which are the rarer the larger they are.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from rich.console import Group
from rich.table import Table

from headrace.bench.measuring.screen import named_numbers
from headrace.datasets import dataset
from headrace.datasets.retailer import INVENTORY
from headrace.engine.engine import Engine
from headrace.runtime.session import local_session

Tell = Callable[[str], None]

_LOAD = 1_000_000


def run(argv: list[str], tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Run the benchmark; see `--help` for its options."""
    parser = argparse.ArgumentParser(prog="headrace bench inventory-growth", description=__doc__)
    parser.add_argument(
        "--small", type=float, default=1.0, help="million inventory rows in the small table (default 1)"
    )
    parser.add_argument("--large", type=float, default=10.0, help="million in the large one (default 10)")
    parser.add_argument("--batch", type=int, default=10_000, help="inventory rows per batch (default 10,000)")
    parser.add_argument("--repeat", type=int, default=25, help="batches that are timed (default 25)")
    parser.add_argument("--warm", type=int, default=10, help="batches before them, not timed (default 10)")
    parser.add_argument("--executor", choices=["auto", "inline", "spark"], default="auto", help="where steps run")
    parser.add_argument("--location", type=Path, default=None, help="folder for the state (default: a temporary one)")
    options = parser.parse_args(argv)
    spark = local_session()
    with TemporaryDirectory(prefix="headrace-bench-", dir=options.location, ignore_cleanup_errors=True) as folder:
        return _run(spark, Path(folder), options, tell)


def _run(spark: SparkSession, root: Path, options: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    data = dataset("retailer")
    sizes = {"small": round(options.small * INVENTORY), "large": round(options.large * INVENTORY)}
    changing = (options.warm + options.repeat) * options.batch
    tell("making the tables")
    tables = data.generate((max(sizes.values()) + changing) / INVENTORY)
    inventory = tables.pop("inventory")
    # The rows come in random order, so any of them are as good as any others.
    batches = [inventory.slice(i, options.batch) for i in range(0, changing, options.batch)]
    there = inventory.slice(changing)
    times: dict[str, list[float]] = {name: [] for name in sizes}
    state: dict[str, int] = {}
    with ExitStack() as stack:
        engines = {}
        for name, size in sizes.items():
            engine = stack.enter_context(Engine(spark, root / name, executor=options.executor))
            for spec in data.tables:
                engine.table(spec.name, spec.ddl, keep_rows=False)
            engine.covariance("moments", data.join, data.features, order=data.order)
            engine.apply(tables)
            _load(engine, there.slice(0, size), tell)
            engines[name] = engine
        tell(f"{len(batches)} batches of {options.batch:,} rows into both")
        for number, batch in enumerate(batches):
            for name, engine in engines.items():
                start = time.perf_counter()
                step = engine.apply({"inventory": batch})
                if number >= options.warm:
                    times[name].append(time.perf_counter() - start)
                    state[name] = step.state_bytes
    results = [_row(sizes[name], options.batch, times[name], state[name]) for name in sizes]
    small, large = results
    ratios = {
        f"batch into {sizes['large']:,} rows / into {sizes['small']:,} ({what})": large[key] / small[key]
        for what, key in (("median", "seconds"), ("mean", "mean_seconds"), ("slowest", "max_seconds"))
    }
    config = {
        **{key: value for key, value in vars(options).items() if key != "location"},
        "cores": spark.sparkContext.defaultParallelism,
        "tables": {name: table.num_rows for name, table in tables.items()},
    }
    return {"bench": "inventory-growth", "config": config, "results": results, "ratios": ratios}


def _load(engine: Engine, rows: pa.Table, tell: Tell) -> None:
    for start in range(0, rows.num_rows, _LOAD):
        engine.apply({"inventory": rows.slice(start, _LOAD)})
        tell(f"loaded {min(start + _LOAD, rows.num_rows):,} of {rows.num_rows:,} rows")


def _row(size: int, batch: int, times: list[float], state: int) -> dict[str, Any]:
    median = statistics.median(times)
    return {
        "system": "headrace",
        "case": f"batch into {size:,} rows",
        "rows": batch,
        "seconds": median,
        "rows_per_s": batch / median,
        "mean_seconds": statistics.fmean(times),
        "max_seconds": max(times),
        "state_mb": state / 1e6,
    }


def table(result: dict[str, Any]) -> Group:
    """Return the tables that show a result to people."""
    config = result["config"]
    shown = Table(title=f"inventory-growth: batches of {config['batch']:,} rows, {config['cores']} cores")
    for column in ("case", ">ms (median)", ">mean", ">slowest", ">state MB"):
        shown.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    for row in result["results"]:
        milliseconds = [f"{row[key] * 1e3:,.1f}" for key in ("seconds", "mean_seconds", "max_seconds")]
        shown.add_row(row["case"], *milliseconds, f"{row['state_mb']:,.1f}")
    return Group(shown, named_numbers("ratio", result["ratios"]))

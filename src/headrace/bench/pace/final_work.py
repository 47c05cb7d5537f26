"""Goals of final work for the queries of TPC-H: which paces are chosen, whether the goals are met, and at what cost.

Per query, all of TPC-H comes in equal parts, and the trigger is its last row. A first pass has two views, one that does
everything at the trigger and one that is flushed as a new view is, in portions of several sizes; the cost model is
fitted to what their flushes counted. Each approach then chooses paces for each share, and in a second pass all
different paces are views over the same steps: approaches that chose the same paces share one. In the end all of these
views must have the same answer, which is Spark's. Another pass brings all rows in one step: holding many small steps
costs more than that, so the share of final work in it is the larger one. A small TPC-H goes through the query
beforehand, which compiles the kernels.

If asked for, there are variants of this: paces chosen by wrong statistics are further views of the second pass, further
passes have the same paces while rows come in bursts, and in all passes some rows are deleted again.

CPU is that of the driver, where flushes run, and is noisy: the batch is played twice to show by how much. Rows that
operators take are the same in every run of the same paces.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import SparkSession

from headrace.bench.measuring.peak_memory import release_memory
from headrace.bench.pace.options import parser
from headrace.bench.pace.plots import save_plots
from headrace.bench.pace.query import SHOWN, Data, Tell, measure
from headrace.bench.pace.screen import table
from headrace.bench.pace.summary import ratios, targets
from headrace.bench.pace.variants import variant_ratios
from headrace.bench.tpch.spark_peer import SparkPeer, write_parquet
from headrace.datasets.tpch import tpch_tables
from headrace.runtime.session import local_session

__all__ = ["run", "table"]

_WARM_SCALE = 0.01
_NOT_TOLD = ("location", "plots")  # folders, which say nothing of the figures


def run(argv: list[str], tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Run the benchmark; see `--help` for its options."""
    options = parser(__doc__).parse_args(argv)
    spark = local_session()
    with TemporaryDirectory(prefix="headrace-bench-", dir=options.location, ignore_cleanup_errors=True) as folder:
        return _run(spark, Path(folder), options, tell)


def _run(spark: SparkSession, root: Path, options: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    tell(f"making TPC-H at scale {options.scale:g}")
    tables = tpch_tables(options.scale)
    small = tables if options.scale <= _WARM_SCALE else tpch_tables(_WARM_SCALE)
    files = spark.sparkContext.defaultParallelism
    peer = SparkPeer(
        spark, {name: write_parquet(root / "parquet" / name, rows, files) for name, rows in tables.items()}
    )
    data = Data(spark, root, tables, small, peer)
    results: list[dict[str, Any]] = []
    for number, name in enumerate(options.queries, 1):
        about = f"{name} ({number} of {len(options.queries)})"
        try:
            results += measure(data, name, options, lambda stage, about=about: tell(f"{about}: {stage}"))  # type: ignore[misc]
        except Exception as error:
            if os.environ.get("HEADRACE_DEBUG") == "1":
                raise
            failed = " ".join(f"{type(error).__name__}: {error}".split())[:SHOWN]
            results.append({"system": "headrace", "case": name, "query": name, "failed": failed})
        release_memory()
    config = {
        **{key: value for key, value in vars(options).items() if key not in _NOT_TOLD},
        "cores": files,
        "rows": sum(rows.num_rows for rows in tables.values()),
    }
    found = {**ratios(results), **variant_ratios(results)}
    if options.plots is not None:
        tell("drawing")
        save_plots(options.plots, results)
    return {
        "bench": "pace",
        "config": config,
        "results": results,
        "ratios": found,
        "targets": targets(found, config, results),
    }

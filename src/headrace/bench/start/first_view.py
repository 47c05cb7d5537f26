"""From the start of a process to the first answer of a view, beside a bare SparkSession.

Each process is new, so that nothing is warm but what an installation and the system's cache of files leave behind. The
processes take turns, so that whatever else the machine does meets all of them. The peers are a process that only makes
a SparkSession, and one that also asks the session for a sum per group, as the view does.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from rich.console import Group
from rich.table import Table

from headrace.bench.measuring.screen import named_numbers
from headrace.errors import HeadraceError

Tell = Callable[[str], None]

_SESSION = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[*]").getOrCreate()
"""
_SUMS = f"""{_SESSION}
rows = spark.createDataFrame([(1, "a", 2), (2, "b", 3), (3, "a", 4)], "id BIGINT, g STRING, x INT")
rows.createOrReplaceTempView("t")
assert len(spark.sql("SELECT g, SUM(x) AS s FROM t GROUP BY g").collect()) == 2
"""
_HEADRACE = """
import sys
import pyarrow as pa
import headrace as hr
engine = hr.connect(sys.argv[1])
engine.table("t", "id BIGINT NOT NULL, g STRING, x INT", key="id")
view = engine.view("v", "SELECT g, SUM(x) AS s FROM t GROUP BY g")
engine.apply({"t": pa.table({"id": [1, 2, 3], "g": ["a", "b", "a"], "x": [2, 3, 4]})})
assert view.to_arrow().num_rows == 2
"""
# Until its work is done: how a process ends is the JVM's affair.
_ENDS = "\nimport os; print('done', flush=True); os._exit(0)\n"
CASES = {
    "a bare SparkSession": _SESSION,
    "Spark: session, table and sums": _SUMS,
    "Headrace: session, table, view, step and answer": _HEADRACE,
}


def run(argv: list[str], tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Run the benchmark; see `--help` for its options."""
    parser = argparse.ArgumentParser(prog="headrace bench start", description=__doc__)
    parser.add_argument("--repeat", type=int, default=7, help="processes of each kind (default 7)")
    options = parser.parse_args(argv)
    times: dict[str, list[float]] = {name: [] for name in CASES}
    for turn in range(options.repeat + 1):
        tell("reading everything once" if not turn else f"turn {turn} of {options.repeat}")
        for name, code in CASES.items():
            seconds = _seconds(code)
            if turn:  # the first turn only fills the system's cache of files
                times[name].append(seconds)
    medians = {name: statistics.median(found) for name, found in times.items()}
    bare, sums, headrace = medians.values()
    return {
        "bench": "start",
        "config": {"repeat": options.repeat},
        "results": [
            {"case": name, "seconds": medians[name], "max_seconds": max(found)} for name, found in times.items()
        ],
        "ratios": {"Headrace / a bare SparkSession": headrace / bare, "Headrace / Spark's own sums": headrace / sums},
    }


def _seconds(code: str) -> float:
    """How long a new process takes to do some work of ours."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        start = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", code + _ENDS, f"{folder}/location"], capture_output=True, text=True, check=False
        )
        seconds = time.perf_counter() - start
    if "done" not in done.stdout:
        raise HeadraceError(
            f"a process of the benchmark failed: {done.stderr.strip().splitlines()[-1:]}",
            way_out="run `headrace demo`, which does the same and says what is wrong",
        )
    return seconds


def table(result: dict[str, Any]) -> Group:
    """Return the tables that show a result to people."""
    shown = Table(title=f"start: {result['config']['repeat']} new processes of each kind, in turns")
    for column in ("case", ">seconds (median)", ">slowest"):
        shown.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    for row in result["results"]:
        shown.add_row(row["case"], f"{row['seconds']:.2f}", f"{row['max_seconds']:.2f}")
    return Group(shown, named_numbers("ratio", result["ratios"]))

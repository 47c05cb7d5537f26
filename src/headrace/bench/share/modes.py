"""Views over TPC-H that share subplans, beside the same views that share nothing.

Five sets of views. A *board* has six aggregates over one join of lineitem, orders and customer. The board *with
filters* has a filter of its own in every view. The views of *dimensions* join lineitem with some other tables each, in
an order of their own. Those of *totals* begin with the sums of each order, of which each view wants others. *tpch* is
the 22 queries. For each set there are three engines at once,
one per mode of sharing, and they take the same steps in turn, so that they meet the same moments of the machine. A step
changes a share of orders and lineitem. Views are filled when they answer, and merged when all of them share what they
have in common. Rows are those that went through operators; they do not depend on the machine.
All answers are compared with Spark's at the end.
"""

from __future__ import annotations

import argparse
import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark.sql import SparkSession
from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from headrace.bench.measuring.screen import named_numbers
from headrace.bench.tpch.data import Data, Tell, load_data
from headrace.datasets.tpch_queries import TPCH_22, tpch_query
from headrace.engine.engine import Engine
from headrace.engine.opening import AUTO, EXACT, OFF
from headrace.operators.traffic import cost_of
from headrace.runtime.session import local_session

__all__ = ["run", "table"]

_JOIN = "FROM lineitem JOIN orders ON l_orderkey = o_orderkey JOIN customer ON o_custkey = c_custkey"
_BOARD = {
    "by_segment": "c_mktsegment, SUM(l_extendedprice) AS price, COUNT(*) AS items",
    "by_priority": "o_orderpriority, SUM(l_quantity) AS quantity",
    "by_nation": "c_nationkey, l_shipmode, SUM(l_extendedprice * (1 - l_discount)) AS revenue",
    "by_day": "o_orderdate, COUNT(*) AS items, MAX(l_extendedprice) AS dearest",
    "by_customer": "c_custkey, SUM(l_extendedprice) AS price",
    "returned": "l_returnflag, c_mktsegment, AVG(l_discount) AS discount",
}
_FILTERS = {
    "by_segment": "o_orderdate >= DATE '1993-01-01'",
    "by_priority": "o_orderdate >= DATE '1994-01-01'",
    "by_nation": "o_orderdate < DATE '1998-01-01'",
    "by_day": "l_quantity > 5",
    "by_customer": "l_shipdate >= DATE '1993-06-01'",
    "returned": "l_shipdate < DATE '1998-06-01'",
}
_DIMENSIONS = {
    "by_orders": "SELECT o_orderpriority, SUM(l_quantity) AS q, MAX(l_discount) AS d FROM lineitem "
    "JOIN orders ON l_orderkey = o_orderkey GROUP BY o_orderpriority",
    "by_customers": "SELECT c_mktsegment, SUM(l_quantity) AS q, MAX(o_totalprice) AS p FROM customer "
    "JOIN orders ON c_custkey = o_custkey JOIN lineitem ON l_orderkey = o_orderkey GROUP BY c_mktsegment",
    "by_nations": "SELECT n_name, SUM(l_extendedprice) AS e, MIN(o_orderdate) AS first FROM orders "
    "JOIN customer ON c_custkey = o_custkey JOIN nation ON c_nationkey = n_nationkey "
    "JOIN lineitem ON l_orderkey = o_orderkey GROUP BY n_name",
    "by_suppliers": "SELECT s_nationkey, SUM(l_quantity) AS q, COUNT(DISTINCT o_custkey) AS c FROM supplier "
    "JOIN lineitem ON s_suppkey = l_suppkey JOIN orders ON l_orderkey = o_orderkey GROUP BY s_nationkey",
    "by_parts": "SELECT p_brand, SUM(l_quantity) AS q, MAX(o_orderdate) AS last FROM part "
    "JOIN lineitem ON p_partkey = l_partkey JOIN orders ON l_orderkey = o_orderkey GROUP BY p_brand",
}
_SUMS = "SELECT l_orderkey, {} FROM lineitem GROUP BY l_orderkey"
_TOTALS = {
    "sizes": f"SELECT q, COUNT(*) AS orders FROM ({_SUMS.format('SUM(l_quantity) AS q')}) GROUP BY q",
    "dear": f"SELECT o_orderpriority, MAX(p) AS dearest FROM ({_SUMS.format('SUM(l_extendedprice) AS p')}) "
    "JOIN orders ON l_orderkey = o_orderkey GROUP BY o_orderpriority",
    "large": f"SELECT o_custkey, COUNT(*) AS n FROM ({_SUMS.format('SUM(l_quantity) AS q')}) "
    "JOIN orders ON l_orderkey = o_orderkey WHERE q > 200 GROUP BY o_custkey",
    "segments": "SELECT c_mktsegment, MAX(p) AS dearest, MIN(n) AS fewest FROM "
    f"({_SUMS.format('SUM(l_extendedprice) AS p, COUNT(*) AS n')}) "
    "JOIN orders ON l_orderkey = o_orderkey JOIN customer ON o_custkey = c_custkey GROUP BY c_mktsegment",
    "days": f"SELECT o_orderdate, MAX(n) AS most FROM ({_SUMS.format('COUNT(*) AS n')}) "
    "JOIN orders ON l_orderkey = o_orderkey GROUP BY o_orderdate",
}
_WARM = 4  # steps that are not counted


def _board(name: str, where: str = "") -> str:
    columns = _BOARD[name]
    keys = ", ".join(part for part in columns.split(", ") if " AS " not in part)
    return f"SELECT {columns} {_JOIN}{where} GROUP BY {keys}"


CASES: dict[str, dict[str, str]] = {
    "board": {name: _board(name) for name in _BOARD},
    "board with filters": {name: _board(name, f" WHERE {_FILTERS[name]}") for name in _BOARD},
    "dimensions": _DIMENSIONS,
    "totals": _TOTALS,
    "tpch": {name: tpch_query(name) for name in TPCH_22},
}


def run(argv: list[str], tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Run the benchmark; see `--help` for its options."""
    options = _parser().parse_args(argv)
    spark = local_session()
    with TemporaryDirectory(prefix="headrace-bench-", dir=options.location, ignore_cleanup_errors=True) as folder:
        return _run(spark, Path(folder), options, tell)


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="headrace bench share", description=__doc__)
    made.add_argument("--scale", type=float, default=0.1, help="TPC-H's scale factor (default 0.1)")
    made.add_argument("--steps", type=int, default=24, help=f"steps, of which the first {_WARM} are not counted")
    made.add_argument("--share", type=float, default=0.001, help="share of orders that a step inserts, and deletes")
    made.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES), help="sets of views")
    made.add_argument("--location", type=Path, default=None, help="folder for files and state")
    return made


def _run(spark: SparkSession, root: Path, options: argparse.Namespace, tell: Tell) -> dict[str, Any]:
    data = load_data(spark, root / "data", options.scale, options.steps, options.share, "auto", tell)
    results: list[dict[str, Any]] = []
    ratios: dict[str, float] = {}
    for case in options.cases:
        rows = _case(data, case, tell)
        results += rows
        off = next(row for row in rows if row["sharing"] == OFF)
        for row in rows:
            for what in ("seconds", "cpu_seconds", "operator_rows", "state_mb", "load_seconds", "merged_seconds"):
                if row["sharing"] != OFF and off[what]:
                    ratios[f"{case}: {what}, {row['sharing']} / off"] = row[what] / off[what]
    config = {key: value for key, value in vars(options).items() if key != "location"}
    config |= {"rows": data.rows, "rows_a_step": data.rows_a_step, "cores": spark.sparkContext.defaultParallelism}
    return {"bench": "share", "config": config, "results": results, "ratios": ratios}


def _case(data: Data, case: str, tell: Tell) -> list[dict[str, Any]]:
    views = CASES[case]
    with ExitStack() as stack:
        engines = {mode: stack.enter_context(data.opened(sharing=mode)) for mode in (OFF, EXACT, AUTO)}
        load, merged = {}, {}
        for mode, engine in engines.items():
            tell(f"{case}, sharing {mode}: filling {len(views)} views")
            start = time.perf_counter()
            for name, sql in views.items():
                engine.view(name, sql)
            load[mode] = time.perf_counter() - start
            engine.settle()
            merged[mode] = time.perf_counter() - start
            engine.compact()
        taken: dict[str, list[tuple[float, float, int]]] = {mode: [] for mode in engines}
        for number, changes in enumerate(data.steps):
            tell(f"{case}: step {number + 1} of {len(data.steps)}")
            # Who comes first finds the machine as the last one left it, so they take turns.
            order = list(engines) if number % 2 else list(reversed(engines))
            for mode in order:
                taken[mode].append(_step(engines[mode], changes))
        out = []
        for mode, engine in engines.items():
            tell(f"{case}, sharing {mode}: comparing answers with Spark's")
            counted = taken[mode][min(_WARM, len(taken[mode]) - 1) :]
            row: dict[str, Any] = {
                "system": "headrace",
                "case": case,
                "sharing": mode,
                "rows": data.rows_a_step,
                "seconds": statistics.median(seconds for seconds, _, _ in counted),
                "cpu_seconds": statistics.median(cpu for _, cpu, _ in counted),
                "operator_rows": statistics.median(rows for _, _, rows in counted),
                "load_seconds": load[mode],
                "merged_seconds": merged[mode],
                "state_mb": _state(engine) / 1e6,
                "shared": {one["name"]: list(one["views"]) for one in engine.status()["shared"]},
            }
            wrong = {name: data.after.difference(sql, engine.views[name].to_arrow()) for name, sql in views.items()}
            found = [f"{name}: {text}" for name, text in wrong.items() if text is not None]
            out.append(row | {"rows_per_s": row["rows"] / row["seconds"]} | ({"wrong": found[0]} if found else {}))
        return out


def _step(engine: Engine, changes: Any) -> tuple[float, float, int]:
    """Take a step; returns its seconds, its CPU seconds, and the rows that went through operators."""
    start, cpu = time.perf_counter(), time.process_time()
    engine.apply(changes)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    engine.compact()
    last = engine.status()["last_step"]
    return seconds, cpu, sum(rows for view in last["operators"] for rows, _ in cost_of(last, view).values())


def _state(engine: Engine) -> int:
    """The bytes of all that views and shared subplans keep."""
    views = sum(view.explain().state_bytes for view in engine.views.values())
    return views + sum(one["bytes"] for one in engine.status()["shared"])


def table(result: dict[str, Any]) -> Group:
    """Return the tables that show a result to people."""
    config = result["config"]
    title = f"TPC-H at scale {config['scale']:g}, steps of {config['rows_a_step']:,} rows, {config['cores']} cores"
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    texts = ("views", "sharing", "shared by")
    for name in ("views", "sharing", "step\nms", "CPU\nms", "rows", "fill\ns", "merged\ns", "state\nMB", "shared by"):
        shown.add_column(name, justify="left" if name in texts else "right")
    for row in result["results"]:
        shared = "; ".join(", ".join(views) for views in row["shared"].values())
        numbers = (1e3 * row["seconds"], 1e3 * row["cpu_seconds"])
        shown.add_row(
            row["case"],
            row["sharing"],
            *(f"{number:.1f}" for number in numbers),
            f"{row['operator_rows']:,.0f}",
            f"{row['load_seconds']:.1f}",
            f"{row['merged_seconds']:.1f}",
            f"{row['state_mb']:.1f}",
            f"[red]wrong: {row['wrong']}[/red]" if "wrong" in row else shared or "-",
        )
    return Group(Text(title, style="bold"), shown, named_numbers("beside views that share nothing", result["ratios"]))

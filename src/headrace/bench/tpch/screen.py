"""The tables of the TPC-H benchmark for people: one line per query, then ratios and targets over all queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from headrace.bench.measuring.screen import named_numbers
from headrace.bench.measuring.targets import target_lines
from headrace.bench.tpch.ratios import LOAD, MEAN, RECOMPUTE, TABLES_ONLY, TOGETHER, problem

Row = Mapping[str, Any]
Cell = Callable[[Row, Row, Mapping[str, float]], float | None]

# What a column shows of a row of Headrace, beside that of Spark; of tables alone, the state is that of the tables.
_COLUMNS: dict[str, Cell] = {
    "load\ns": lambda ours, spark, ratios: ours.get("load_seconds"),
    "/\nSpark": lambda ours, spark, ratios: ratios.get(f"{ours['case']}: {LOAD}"),
    "step\nms": lambda ours, spark, ratios: _milliseconds(ours.get("seconds")),
    "mean\nms": lambda ours, spark, ratios: _milliseconds(ours.get("mean_seconds")),
    "read\nms": lambda ours, spark, ratios: _milliseconds(ours.get("read_seconds")),
    "Spark\nms": lambda ours, spark, ratios: _milliseconds(spark.get("seconds")),
    "/ step\n+ read": lambda ours, spark, ratios: ratios.get(f"{ours['case']}: {RECOMPUTE}"),
    "state\nMB": lambda ours, spark, ratios: ours.get("state_mb", ours.get("table_mb")),
    "peak\nMB": lambda ours, spark, ratios: ours.get("peak_mb"),
}


def table(result: dict[str, Any]) -> Group:
    """Return the tables that show a result to people."""
    config, results, ratios = result["config"], result["results"], result["ratios"]
    title = (
        f"TPC-H at scale {config['scale']:g} ({config['rows']:,} rows), strategy {config['strategy']}, "
        f"{config['steps']} steps of {config['rows_a_step']:,} rows, {config['cores']} cores"
    )
    ours = [row for row in results if row["system"] == "headrace"]
    spark = {row["case"]: row for row in results if row["system"] == "spark"}
    alone = tuple(f"{name}: " for name in spark)
    [memory] = [row for row in results if row["case"] == "memory"]
    return Group(
        Text(title, style="bold"),
        _lines(ours, spark, ratios),
        *(Text(f"{row['case']} {message}") for row in ours if (message := problem(row))),
        named_numbers("over all queries", {name: x for name, x in ratios.items() if not name.startswith(alone)}),
        Text(f"Peak memory: {memory['python_mb']:,.0f} MB of Python, {memory['java_mb']:,.0f} MB of Spark's JVM."),
        target_lines(result["targets"]),
    )


def _lines(ours: list[Row], spark: Mapping[str, Row], ratios: Mapping[str, float]) -> Table:
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    shown.add_column("query", no_wrap=True)
    for name in _COLUMNS:
        shown.add_column(name, justify="right", no_wrap=True)
    for row in ours:
        if row["case"] == TOGETHER:
            shown.add_section()
        message = problem(row)
        name = f"{row['case']} {message.partition(':')[0]}" if message else row["case"]
        theirs = spark.get(row["case"], {})
        shown.add_row(name, *(_short(cell(row, theirs, ratios)) for cell in _COLUMNS.values()))
        if row["case"] == TABLES_ONLY:
            shown.add_section()
    shown.add_section()
    means = {"/\nSpark": ratios.get(f"{LOAD}, {MEAN}"), "/ step\n+ read": ratios.get(f"{RECOMPUTE}, {MEAN}")}
    shown.add_row(MEAN, *(_short(means.get(name)) for name in _COLUMNS))
    return shown


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _short(value: float | None) -> str:
    """Show a number with three digits, or all of them before the point."""
    if value is None:
        return ""
    return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f}"

"""The tables of the disorder benchmark for people: one line per omega and method, then ratios and targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from headrace.bench.measuring.screen import named_numbers
from headrace.bench.measuring.targets import target_lines

Row = Mapping[str, Any]

_COLUMNS: dict[str, Callable[[Row], str]] = {
    "mean\nerror": lambda row: _share(row["mean_error"]),
    "95%\nerror": lambda row: _share(row["p95_error"]),
    "within\nbounds": lambda row: _share(row.get("coverage")),
    "width\nof these": lambda row: _share(row.get("median_width")),
    "95%\nlatency": lambda row: _milliseconds(row["latency_ms"]),
    "estimated\nin": lambda row: _milliseconds(row.get("estimation_ms")),
    "million\nrows/s": lambda row: f"{row['rows_per_s'] / 1e6:.2f}",
}
# Of a stream that changes: less of all windows together, and how it went on after the change.
_CHANGED: dict[str, Callable[[Row], str]] = {
    name: _COLUMNS[name] for name in ("mean\nerror", "within\nbounds", "95%\nlatency")
} | {
    "error\nbefore": lambda row: _share(row.get("error_before")),
    "at the\nchange": lambda row: _share(row.get("error_at_change")),
    "windows\nuntil back": lambda row: "never" if row.get("recovered_after") is None else str(row["recovered_after"]),
}


def table(result: dict[str, Any]) -> Group:
    """Return the tables that show a result to people."""
    config = result["config"]
    rows = [row for row in result["results"] if "omega_ms" in row]
    columns = _COLUMNS if config["change"] == "none" else _CHANGED
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    shown.add_column("omega", no_wrap=True, justify="right")
    shown.add_column("method", no_wrap=True)
    for name in columns:
        shown.add_column(name, no_wrap=True, justify="right")
    last = None
    for row in rows:
        if last is not None and row["omega_ms"] != last:
            shown.add_section()
        named = "" if row["omega_ms"] == last else f"{row['omega_ms']:g} ms"
        shown.add_row(named, row["method"], *(cell(row) for cell in columns.values()))
        last = row["omega_ms"]
    return Group(
        Text(_title(config), style="bold"),
        shown,
        *(Text(line) for line in _lines(rows, result["results"])),
        named_numbers("ratios", result["ratios"]),
        target_lines(result["targets"]),
    )


def _title(config: Row) -> str:
    title = (
        f"{config['query']} on {config['data']}: {config['aggregate']} in windows of {config['window_ms']:g} ms, "
        f"delays to {config['latest_ms']:g} ms, {config['rate']:,.0f} tuples/s a side; "
        f"{config['windows']} windows of each of {config['seeds']} streams"
    )
    return title if config["change"] == "none" else f"{title}; half-way: {config['change']}"


def _lines(rows: list[Row], results: list[Row]) -> list[str]:
    lines = []
    empty = max((row["empty_windows"] for row in rows), default=0)
    if empty:
        lines.append(f"{empty:,} of {rows[0]['windows']:,} windows come to nothing and have no relative error.")
    for row in results:
        if "batch" in row:
            lines.append(f"{row['case']}: {row['rows_per_s'] / 1e6:.2f} million tuples/s.")
        if "wrong" in row:
            lines.append(f"{row['case']} is WRONG: {row['wrong']}")
    return lines


def _share(value: float | None) -> str:
    """Return a share as text, in percent with three digits."""
    if value is None:
        return ""
    percent = 100 * value
    if percent >= 1e6:
        return f"{percent:.1e}%"
    return f"{percent:,.{0 if percent >= 100 else 1 if percent >= 10 else 2}f}%"


def _milliseconds(value: float | None) -> str:
    return "" if value is None else f"{value:,.{1 if value >= 100 else 2}f} ms"

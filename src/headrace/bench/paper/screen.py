"""The figures for people: what the paper measured, what differs here, all rows, and ratios beside the paper's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text


def shown(result: Mapping[str, Any]) -> Group:
    """One part per figure."""
    parts = [part for figure in result["figures"] for part in _figure(figure, result["results"])]
    return Group(*_asked(result["config"]), *parts)


def _asked(config: Mapping[str, Any]) -> Iterator[RenderableType]:
    """What was asked for instead of the usual sizes, which are those that figures speak of."""
    said = [] if config["scale"] == 1 else [f"sizes times {config['scale']:g}"]
    said += [] if config["batch"] is None else [f"batches of {config['batch']:,} rows"]
    said += [] if config["time_limit"] is None else [f"{config['time_limit']:g} s per approach"]
    if said:
        yield Text(f"Other than what is said below: {', '.join(said)}.")


def _figure(figure: Mapping[str, Any], rows: list[dict[str, Any]]) -> Iterator[RenderableType]:
    yield Text(f"\nFigure {figure['figure']}: {figure['title']}", style="bold")
    yield Text(f"The paper: {figure['measured']} On {figure['machine']}.")
    yield Text(f"Here: {figure['differs']}")
    yield _rows([row for row in rows if figure["figure"] in row["figures"]])
    yield _comparisons(figure["comparisons"])
    if figure["picture"]:
        yield Text(f"Picture: {figure['picture']}")


def _rows(rows: list[dict[str, Any]]) -> Table:
    made = Table(box=SIMPLE_HEAD, padding=0)
    for column in ("run", "case", ">rows", ">seconds", ">rows/s", ">peak MB", ">state MB", "note"):
        made.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    for row in rows:
        scale = f", scale {row['scale']:g}" if "scale" in row else ""
        made.add_row(
            escape(row["piece"]),
            escape(f"{row['case']}{scale}"),
            f"{row['rows']:,}" if "rows" in row else "",
            f"{row['seconds']:,.4g}" if "seconds" in row else "",
            f"{row['rows_per_s']:,.0f}" if row.get("rows_per_s") else "",
            *(f"{row[key]:,.1f}" if row.get(key) else "" for key in ("peak_mb", "state_mb")),
            escape(_note(row)),
        )
    return made


def _note(row: Mapping[str, Any]) -> str:
    if "wrong" in row:
        return f"WRONG: {row['wrong']}"
    if row.get("extrapolated"):
        return "extrapolated"
    ended = "" if row.get("finished", True) else "the time was over"
    return str(row.get("stopped", ended))


def _comparisons(comparisons: list[dict[str, Any]]) -> Table:
    made = Table(box=SIMPLE_HEAD, padding=0)
    for column in ("what", ">paper", ">here", "note"):
        made.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    for one in comparisons:
        made.add_row(escape(one["what"]), _said(one["paper"]), _said(one["here"]), escape(one["note"]))
    return made


def _said(value: float | str | None) -> str:
    if value is None:
        return "not measured"
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.3g}"

"""A table of numbers with long names, such as ratios, for the screen."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table


def named_numbers(title: str, numbers: Mapping[str, float]) -> Table:
    """Return a table of numbers by name; small numbers have three digits, large ones no decimals."""
    shown = Table(title, "")
    shown.columns[1].justify = "right"
    for name, value in numbers.items():
        shown.add_row(name, f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.3g}")
    return shown

"""How benchmarks show what is no row of results: numbers with long names, such as ratios."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table


def named_numbers(title: str, numbers: Mapping[str, float]) -> Table:
    """Show numbers by name; small ones keep three digits, large ones all before the point."""
    shown = Table(title, "")
    shown.columns[1].justify = "right"
    for name, value in numbers.items():
        shown.add_row(name, f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.3g}")
    return shown

"""The tables of the pace benchmark for people: one line per query and share, then figures and targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from headrace.bench.measuring.screen import named_numbers
from headrace.bench.measuring.targets import target_lines
from headrace.bench.pace.approaches import BATCH, EAGER, HAND, LEAF, OURS, UNIFORM
from headrace.bench.pace.summary import is_goal, problem
from headrace.bench.pace.variants import WITHOUT, label

Row = Mapping[str, Any]

_COMPARED = (OURS, UNIFORM, LEAF, HAND)
_SHORT = {OURS: "ours", UNIFORM: "unif.", LEAF: "leaf", HAND: "hand", EAGER: "eager", BATCH: "batch"}
_CAPTION = (
    "paces, rows as times those of the batch, and the error of their estimate: of ours, or else of the first approach. "
    "+ ms: CPU in addition to the batch's. final: CPU at the trigger, as a share of holding all rows and the batch's "
    "trigger; * meets the goal. Goals in brackets are not feasible by the model's estimate. Rows that operators take "
    "are the same in every run; CPU is noisy, and so are + ms, final and the goals met."
)
_PASSES = (
    "holding, batch: CPU of holding rows as they come, and of the batch's trigger; at once: CPU of everything in one "
    "step; plan: wall clock of our search at pace 100 and share 0.01; then the measuring "
    "pass with all views and the tables: wall clock, and CPU of Python and of the JVM."
)
_VARIANTS = (
    "bias: paces chosen by statistics that are wrong by that factor; bursts: paces chosen for rows that come evenly. "
    "Of all goals of a query: those met, and the mean CPU in addition to the batch's; in brackets without the bias or "
    "the bursts."
)


def table(result: dict[str, Any]) -> Group:
    """Return the tables that show a result to people."""
    config, results, ratios = result["config"], result["results"], result["ratios"]
    title = (
        f"Paces: TPC-H at scale {config['scale']:g} ({config['rows']:,} rows) in {config['parts']} parts, "
        f"{config['cores']} cores"
    )
    title += f"; each part deletes {config['deletes']:.0%} of what it brings" if config["deletes"] else ""
    about = [row for row in results if "batch_rows" in row]
    queries = tuple(f"{name}: " for name in config["queries"])
    shown = {name: x for name, x in ratios.items() if not name.startswith(queries) and WITHOUT not in name}
    return Group(
        Text(title, style="bold"),
        _lines([row for row in results if is_goal(row)], config["approaches"]),
        *_variants([row for row in results if "approach" in row and label(row)]),
        *(Text(f"{row['case']} {message}") for row in results if (message := problem(row))),
        _passes(about),
        named_numbers("over all queries", shown),
        target_lines(result["targets"]),
    )


def _lines(rows: Sequence[Row], approaches: Sequence[str]) -> Table:
    """One line per query and share; the approaches beside each other."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, caption=_CAPTION)
    first = OURS if OURS in approaches else approaches[0]
    compared = [name for name in _COMPARED if name in approaches] or [first]
    shown.add_column("query", no_wrap=True)
    columns = ["goal", "paces", "rows\ntimes", "err", *(f"+ ms\n{_SHORT[name]}" for name in compared[:2])]
    columns += [f"final\n{_SHORT[name]}" for name in compared]
    for name in columns:
        shown.add_column(name, justify="right", no_wrap=True)
    by_goal: dict[tuple[str, float], dict[str, Row]] = {}
    for row in rows:
        by_goal.setdefault((row["query"], row["share"]), {})[row["approach"]] = row
    last = None
    for (query, share), own in by_goal.items():
        if last not in (None, query):
            shown.add_section()
        one = own[first]
        goal = f"{share:g}" if one["feasible"] else f"({share:g})"
        cells = [goal, _paces(one["paces"]), f"{_times(one):.2f}", f"{one['row_error']:+.0%}"]
        cells += [f"{1e3 * own[name]['additional_cpu_seconds']:+,.0f}" for name in compared[:2]]
        cells += [
            f"{own[name]['latency_ratio']:.3f}"[:5].lstrip("0") + ("*" if own[name]["met"] else " ")
            for name in compared
        ]
        shown.add_row("" if query == last else query, *cells)
        last = query
    return shown


def _variants(rows: Sequence[Row]) -> list[Table]:
    """One line per query and variant, with the approaches beside each other; no table without variants."""
    approaches = [name for name in (OURS, UNIFORM, BATCH) if any(row["approach"] == name for row in rows)]
    by_line: dict[tuple[str, str], dict[str, list[Row]]] = {}
    for row in rows:
        by_line.setdefault((row["query"], label(row)), {}).setdefault(row["approach"], []).append(row)
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, caption=_VARIANTS)
    shown.add_column("query", no_wrap=True)
    shown.add_column("variant", no_wrap=True)
    for head in ("goals met", "+ ms"):
        for name in approaches:
            shown.add_column(f"{head}\n{_SHORT[name]}", justify="right", no_wrap=True)
    for (query, what), own in by_line.items():
        prefix = "unbiased" if what.startswith("bias") else "even"
        groups = [own.get(name, []) for name in approaches]
        shown.add_row(
            query, what, *(_met(group, prefix) for group in groups), *(_more(group, prefix) for group in groups)
        )
    return [shown] if rows else []


def _met(rows: Sequence[Row], prefix: str) -> str:
    met, before = (sum(row[key] for row in rows) for key in ("met", f"{prefix}_met"))
    return f"{met} of {len(rows)} ({before})" if rows else ""


def _more(rows: Sequence[Row], prefix: str) -> str:
    if not rows:
        return ""
    keys = ("additional_cpu_seconds", f"{prefix}_additional_cpu_seconds")
    more, before = (1e3 * sum(row[key] for row in rows) / len(rows) for key in keys)
    return f"{more:+,.0f} ({before:+,.0f})"


def _passes(about: Sequence[Row]) -> Table:
    """One line per query: what doing everything at the trigger takes, the time of planning, and the whole pass."""
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, caption=_PASSES)
    shown.add_column("query", no_wrap=True)
    columns = {
        "paths": lambda row: f"{row['paths']}",
        "batch\nrows": lambda row: f"{row['batch_rows']:,.0f}",
        "holding\nms": lambda row: f"{1e3 * row['held_cpu_seconds']:,.0f}",
        "batch\nms": lambda row: f"{1e3 * row['batch_final_cpu_seconds']:,.0f}",
        "at once\nms": lambda row: f"{1e3 * row['at_once_cpu_seconds']:,.0f}",
        "plan\nms": lambda row: f"{row['planning_ms']:,.0f}",
        "pass\ns": lambda row: f"{row['seconds']:,.1f}",
        "Python\ns": lambda row: f"{row['python_cpu_seconds']:,.1f}",
        "JVM\ns": lambda row: f"{row['jvm_cpu_seconds']:,.1f}",
    }
    for name in columns:
        shown.add_column(name, justify="right", no_wrap=True)
    for row in about:
        shown.add_row(row["query"], *(cell(row) for cell in columns.values()))
    return shown


def _times(row: Row) -> float:
    """Rows that operators take, beside those of doing everything at the trigger."""
    batch = row["total_rows"] - row["additional_rows"]
    return float(row["total_rows"] / batch) if batch else 1.0


def _paces(paces: Mapping[str, int]) -> str:
    """The least and the highest pace, if they differ."""
    least, most = min(paces.values()), max(paces.values())
    return f"{least}" if least == most else f"{least}-{most}"

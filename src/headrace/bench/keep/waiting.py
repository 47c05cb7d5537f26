"""Views that wait for their next change under a memory budget, by several approaches in one run.

The scenarios (`scenarios`) are those of chapter 5 of the CrocodileDB thesis: late data, cleaning one table at a time,
wrong predictions, budgets from nothing to everything, deletions, and a join of many tables. Ours is compared with
recomputing by our own filling (rebatch), keeping everything that our operators could, the higher-order views of
DBToaster (recursive), caching by benefit (recycler), and Spark. After the last change, all answers must be Spark's.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from headrace.bench.keep.plots import save_plots
from headrace.bench.keep.scenarios import SCENARIOS, Bench, Row
from headrace.bench.keep.targets import targets
from headrace.bench.keep.workload import tpch
from headrace.bench.measuring.screen import named_numbers
from headrace.bench.measuring.targets import judged, target_lines
from headrace.bench.tpch.data import Tell
from headrace.runtime.session import local_session

__all__ = ["run", "table"]

_FLAT = ("q3", "q5", "q7", "q8", "q9", "q10")


def run(argv: list[str], tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Run the benchmark; see `--help` for its options."""
    options = _parser().parse_args(argv)
    spark = local_session()
    with TemporaryDirectory(prefix="headrace-bench-", dir=options.location, ignore_cleanup_errors=True) as folder:
        tell(f"making TPC-H at scale {options.scale:g}")
        bench = Bench(
            spark, Path(folder), tpch(options.scale), options.queries, options.chain_rows, options.repeats, tell
        )
        bench.warm_up()
        results = [row for name in options.scenarios for row in getattr(bench, name)()]
    if options.plots is not None:
        save_plots(options.plots, results)
    config = {key: value for key, value in vars(options).items() if key not in ("location", "plots")}
    config |= {"cores": spark.sparkContext.defaultParallelism}
    found = judged(targets(results), results)
    return {"bench": "keep", "config": config, "results": results, "ratios": _ratios(results), "targets": found}


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="headrace bench keep", description=__doc__)
    made.add_argument("--scale", type=float, default=0.1, help="TPC-H's scale factor (default 0.1)")
    made.add_argument("--queries", nargs="+", default=list(_FLAT), help="flat joins of TPC-H")
    made.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=list(SCENARIOS), help="what is measured")
    made.add_argument("--chain-rows", type=int, default=200_000, help="rows of the largest table of the chain")
    made.add_argument("--repeats", type=int, default=5, help="changes of which the median is told, per budget")
    made.add_argument("--plots", type=Path, default=None, help="folder for a picture of each query")
    made.add_argument("--location", type=Path, default=None, help="folder for files and state")
    return made


def _ratios(rows: Sequence[Row]) -> dict[str, float]:
    """Geometric means over all cases of a scenario, of another approach's numbers by ours."""
    out = {}
    for scenario in dict.fromkeys(row["scenario"] for row in rows):
        own = {_case(row): row for row in rows if row["scenario"] == scenario and row["system"] == "headrace"}
        for system in dict.fromkeys(row["system"] for row in rows if row["scenario"] == scenario):
            pairs = [
                (row, own[_case(row)])
                for row in rows
                if (row["scenario"], row["system"]) == (scenario, system) and _case(row) in own
            ]
            for what in ("seconds", "cpu_seconds"):
                times = [a[what] / b[what] for a, b in pairs if a[what] is not None and b[what]]
                if system != "headrace" and times:
                    out[f"{scenario}: {what}, {system} / headrace"] = _mean(times)
            sizes = [a["state_mb"] / b["state_mb"] for a, b in pairs if a["state_mb"] and b["state_mb"]]
            if system in ("everything", "recursive") and sizes:
                out[f"{scenario}: state, {system} / headrace"] = _mean(sizes)
    return out


def _case(row: Row) -> tuple[Any, ...]:
    return row["case"], row.get("budget_share"), row.get("deleted_share")


def _mean(ratios: Sequence[float]) -> float:
    product = 1.0
    for ratio in ratios:
        product *= ratio
    return float(product ** (1 / len(ratios)))


def table(result: dict[str, Any]) -> Group:
    """Return the tables that show a result to people."""
    config = result["config"]
    title = f"TPC-H at scale {config['scale']:g}, {config['cores']} cores: a view waits for its next change"
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("scenario", "case", "system", "change\nms", "CPU\nms", "total\ns", "kept\nMB"):
        shown.add_column(name, justify="left" if name in ("scenario", "case", "system") else "right")
    for row in result["results"]:
        about = [f"{row[key]:.0%} {word}" for key, word in _SHARES.items() if key in row]
        total = row.get("total_seconds")
        shown.add_row(
            row["scenario"],
            " ".join([row["case"], *about]),
            f"[red]{row['system']}: wrong: {row['wrong']}[/red]" if "wrong" in row else row["system"],
            f"{1e3 * row['seconds']:.1f}",
            "" if row["cpu_seconds"] is None else f"{1e3 * row['cpu_seconds']:.1f}",
            "" if total is None else f"{total:.2f}",
            f"{row['state_mb']:.2f}",
        )
    ratios = named_numbers("beside headrace (geometric means)", result["ratios"])
    return Group(Text(title, style="bold"), shown, ratios, target_lines(result["targets"]))


_SHARES = {"budget_share": "budget", "deleted_share": "deleted"}

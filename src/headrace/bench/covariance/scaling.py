"""Factorized maintenance on one core and on more: measured as far as this machine goes, and on paper beyond.

Each run is a process of its own (`measuring.cores`). What more cores would do is estimated from the plan and the last
full batch (`paper`).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

from rich.console import Group
from rich.table import Table

from headrace.bench.measuring.cores import check_cores, run_bound
from headrace.bench.measuring.screen import named_numbers

Tell = Callable[[str], None]


def run(argv: list[str], tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Run the benchmark; see `--help` for its options."""
    parser = argparse.ArgumentParser(prog="headrace bench scaling", description=__doc__)
    parser.add_argument("--benches", nargs="+", default=["housing", "retailer"], help="which benchmarks")
    parser.add_argument("--scales", type=float, nargs="+", default=None, help="their scales (default: their own)")
    parser.add_argument("--batch", type=int, default=1_000_000, help="rows per batch (default 1 million)")
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2], help="cores to measure with (default 1 2)")
    parser.add_argument("--on-paper", type=int, default=64, help="cores to estimate for (default 64)")
    parser.add_argument("--time-limit", type=float, default=300.0, help="seconds per run (default 300)")
    options = parser.parse_args(argv)
    if options.scales is not None and len(options.scales) != len(options.benches):
        parser.error("give --scales one number for each of --benches")
    check_cores(max(options.cores), "; what more would do is estimated by --on-paper")
    results: list[dict[str, Any]] = []
    ratios: dict[str, float] = {}
    paper: dict[str, dict[str, float]] = {}
    for number, bench in enumerate(options.benches):
        scale = [] if options.scales is None else ["--scale", str(options.scales[number])]
        measured = {}
        for cores in sorted(options.cores):
            tell(f"{bench} on {cores} core{'' if cores == 1 else 's'}")
            done = _run(bench, cores, scale, options)
            row = next(row for row in done["results"] if row["case"] == "factorized")
            results.append({**row, "case": f"{bench}, {cores} core{'' if cores == 1 else 's'}", "cores": cores})
            measured[cores] = row
            paper[bench] = done["paper"]
        least = min(measured)
        for cores in sorted(measured)[1:]:
            name = f"{bench}: speed-up from {least} to {cores} cores"
            # Rates, not times: a time limit may have ended one run after fewer batches.
            ratios[name] = measured[cores]["rows_per_s"] / measured[least]["rows_per_s"]
            ratios[f"{name} (steady)"] = measured[cores]["steady_rows_per_s"] / measured[least]["steady_rows_per_s"]
        on_paper = f"{bench}: speed-up from 1 to {options.on_paper} cores, at most, on paper"
        ratios[on_paper] = paper[bench]["speed_up_at_most"]
    return {
        "bench": "scaling",
        "config": {**vars(options), "machine_cores": os.cpu_count()},
        "results": results,
        "ratios": ratios,
        "paper": paper,
    }


def _run(bench: str, cores: int, scale: list[str], options: argparse.Namespace) -> dict[str, Any]:
    asked = ["--batch", str(options.batch), "--strategies", "factorized", "--cores", str(cores)]
    asked += ["--on-paper", str(options.on_paper), "--time-limit", str(options.time_limit), *scale]
    return run_bound(bench, cores, asked)


def table(result: dict[str, Any]) -> Group:
    """Return the tables that show a result to people."""
    shown = Table(title=f"scaling: batches of {result['config']['batch']:,} rows")
    for column in ("case", ">rows", ">seconds", ">rows/s", ">steady"):
        shown.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    for row in result["results"]:
        rates = [f"{row[key]:,.0f}" for key in ("rows_per_s", "steady_rows_per_s")]
        shown.add_row(row["case"], f"{row['rows']:,}", f"{row['seconds']:,.4g}", *rates)
    papers = [
        named_numbers(f"a batch of {bench} on paper", {name.replace("_", " "): x for name, x in numbers.items()})
        for bench, numbers in result["paper"].items()
    ]
    return Group(shown, named_numbers("ratio", result["ratios"]), *papers)

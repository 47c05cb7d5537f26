"""The command-line options of the covariance benchmarks: the data, its batches, and the strategies and peers."""

from __future__ import annotations

import argparse
from pathlib import Path

from headrace.factorized.planner import STRATEGIES

# By the name of the benchmark: the data set, and the scale of the papers (or 5 million rows of it).
DATA = {
    "housing": ("housing", 100.0),
    "retailer": ("retailer", 5.0),
    "favorita": ("favorita", 5.0),
    "ssb": ("ssb", 0.77),
    "tpch-covariance": ("tpch", 0.5),
}
PEERS = ("recompute", "recompute-numpy", "f-sql")


def parser(name: str, about: str) -> argparse.ArgumentParser:
    """Return the parser of one of the benchmarks; `about` is its description."""
    made = argparse.ArgumentParser(prog=f"headrace bench {name}", description=about)
    scale = DATA[name][1]
    # The other strategies are for smaller scales: at these, first-order lists more join rows than fit in memory.
    known, usual = [*STRATEGIES, *PEERS], [STRATEGIES[0], *PEERS[:2]]
    add = made.add_argument
    add("--scale", type=float, default=scale, help=f"scale of the data set (default {scale:g})")
    add("--batch", type=int, default=1_000_000, help="rows per batch, over all tables (default 1 million)")
    add("--batches", type=int, default=None, help="stop after so many batches (default: when all rows are in)")
    add("--sorted", action="store_true", help="rows come in the order of F-IVM's variable orders, not in random order")
    add("--deletes", type=float, default=0.0, help="share of each batch that deletes earlier rows (default 0)")
    add(
        "--strategies",
        type=lambda text: _chosen(made, text, known),
        default=usual,
        help=f"which to run, with commas (default {','.join(usual)}; known are {', '.join(known)})",
    )
    add(
        "--time-limit",
        type=float,
        default=60.0,
        help="seconds per strategy; it ends after the batch in which they pass",
    )
    add("--recompute-after", type=int, default=10, help="how many batches are in when Spark recomputes (default 10)")
    add("--order", choices=["chosen", "paper"], default="chosen", help="Headrace's variable order, or the papers'")
    add("--partition", default=None, help="the variable to spread the work by (default: Headrace's choice)")
    add("--keep-rows", action=argparse.BooleanOptionalAction, default=True, help="keep the rows of the tables too")
    add("--executor", choices=["auto", "inline", "spark"], default="auto", help="where steps run (default auto)")
    add("--cores", type=int, default=None, help="cores to use (default: all)")
    add("--fit", action="store_true", help="refit a regression after each batch of the factorized strategy")
    add(
        "--scikit-learn",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="with --fit, also have scikit-learn fit it to the joined rows (default)",
    )
    add("--progress", type=int, default=0, metavar="PARTS", help="also report throughput in parts of the stream")
    add("--on-paper", type=int, default=None, metavar="CORES", help="estimate the factorized plan on so many cores")
    add("--seed", type=int, default=0, help="seed of the data (default 0)")
    add("--location", type=Path, default=None, help="folder for files and state (default: a temporary one)")
    return made


def _chosen(parser: argparse.ArgumentParser, text: str, known: list[str]) -> list[str]:
    chosen = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in chosen if name not in known]
    if unknown or not chosen:
        parser.error(f"--strategies {text}: use one or more of {', '.join(known)}")
    return chosen

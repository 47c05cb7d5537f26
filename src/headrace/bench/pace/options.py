"""The options of the pace benchmark."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from headrace.bench.pace.approaches import APPROACHES
from headrace.datasets.tpch_queries import TPCH_22, TPCH_QUERIES

_ALL = (*TPCH_22, "q_aggjoin", "q_outer")
_SHARES = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02)


def parser(about: str | None = None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="headrace bench pace", description=about)
    add = made.add_argument
    add("--scale", type=float, default=0.1, help="TPC-H's scale factor (default 0.1)")
    add(
        "--queries",
        type=lambda text: _queries(made, text),
        default=list(_ALL),
        help="with commas, as in 3,17,q_outer; all (the default) are 1 to 22, q_aggjoin and q_outer",
    )
    add(
        "--shares",
        type=lambda text: _shares(made, text),
        default=list(_SHARES),
        help="final work as shares of doing everything at the trigger (default 1.0,0.5,0.2,0.1,0.05,0.02)",
    )
    add("--parts", type=lambda text: _parts(made, text), default=100, help="steps in which rows come (default 100)")
    add(
        "--approaches",
        type=lambda text: _approaches(made, text),
        default=list(APPROACHES),
        help=f"with commas (default {','.join(APPROACHES)})",
    )
    add(
        "--bias",
        type=lambda text: _factors(made, text),
        default=[],
        help="also choose paces by statistics that are wrong by these factors, as in 0.5,2",
    )
    add("--bursts", action="store_true", help="also play the paces while rows come in bursts")
    add(
        "--deletes",
        type=lambda text: _deletes(made, text),
        default=0.0,
        help="earlier rows that each part deletes, as a share of those that it inserts (default 0)",
    )
    add("--repeat", type=lambda text: _repeat(made, text), default=1, help="measure so often; CPU times are medians")
    add("--plots", type=Path, default=None, help="folder for a picture of each query")
    add("--location", type=Path, default=None, help="folder for files and state (default: a temporary one)")
    return made


def _split(text: str) -> list[str]:
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _queries(parser: argparse.ArgumentParser, text: str) -> list[str]:
    if text == "all":
        return list(_ALL)
    chosen = list(dict.fromkeys(f"q{part}" if part.isdecimal() else part for part in _split(text)))
    if not chosen or any(name not in TPCH_QUERIES for name in chosen):
        parser.error(f"--queries {text}: use all, or some of {', '.join(TPCH_QUERIES)}")
    return chosen


def _numbers(text: str) -> list[float]:
    """The numbers of a list with commas; none if one of them is no number."""
    try:
        return [float(part) for part in _split(text)]
    except ValueError:
        return []


def _shares(parser: argparse.ArgumentParser, text: str) -> list[float]:
    chosen = _numbers(text)
    if not chosen or any(not 0 < share <= 1 for share in chosen):
        parser.error(f"--shares {text}: give numbers above 0 and at most 1, with commas")
    return sorted(set(chosen), reverse=True)


def _factors(parser: argparse.ArgumentParser, text: str) -> list[float]:
    chosen = _numbers(text)
    if not chosen or any(not 0 < factor < math.inf for factor in chosen):
        parser.error(f"--bias {text}: give numbers above 0, with commas")
    return sorted(set(chosen))


def _deletes(parser: argparse.ArgumentParser, text: str) -> float:
    chosen = _numbers(text)
    if len(chosen) != 1 or not 0 <= chosen[0] < 1:
        parser.error(f"--deletes {text}: give a number from 0 to below 1")
    return chosen[0]


def _repeat(parser: argparse.ArgumentParser, text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        parser.error(f"--repeat {text}: give a number from 1")
    return int(text)


def _parts(parser: argparse.ArgumentParser, text: str) -> int:
    if not text.isdecimal() or int(text) < 2:
        parser.error(f"--parts {text}: give a number from 2")
    return int(text)


def _approaches(parser: argparse.ArgumentParser, text: str) -> list[str]:
    chosen = _split(text)
    if not chosen or any(name not in APPROACHES for name in chosen):
        parser.error(f"--approaches {text}: use some of {', '.join(APPROACHES)}")
    return chosen

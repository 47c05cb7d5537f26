"""The options of `headrace bench paper`: which figures, and how large."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from headrace.bench.paper.registry import FIGURES

_RANGE = re.compile(r"(\d+)(?:\.\.(\d+))?")


def parser(about: str) -> argparse.ArgumentParser:
    """Return the parser; `about` is its description."""
    made = argparse.ArgumentParser(prog="headrace bench paper", description=about)
    add = made.add_argument
    first, last = min(FIGURES), max(FIGURES)
    add("--figure", nargs="+", required=True, help=f"numbers and ranges, as in 20 22..24 (there are {first}..{last})")
    add("--scale", type=_positive, default=1.0, help="factor of the usual sizes of data (default 1)")
    add(
        "--batch", type=_rows, default=None, help="rows per batch, but in figure 24 (default: mostly the paper's 1,000)"
    )
    add("--time-limit", type=_positive, default=None, help="seconds per approach (default: 5 to 45, by figure)")
    add("--plots", type=Path, default=Path("paper-figures"), help="folder of the pictures (default paper-figures)")
    add("--location", type=Path, default=None, help="folder for files and state (default: a temporary one)")
    return made


def figures(asked: Sequence[str]) -> list[int]:
    """The numbers of figures, in the order in which they were asked for, each once.

    >>> figures(["22", "20..23", "25,24"])
    [22, 20, 21, 23, 25, 24]
    """
    found: dict[int, None] = {}
    for text in (part for words in asked for part in words.split(",") if part):
        match = _RANGE.fullmatch(text)
        if match is None:
            raise ValueError(f"{text} is neither a number nor a range such as 20..30")
        start, end = int(match[1]), int(match[2] or match[1])
        if start > end:
            raise ValueError(f"{text} ends before it starts")
        unknown = [number for number in (start, end) if number not in FIGURES]
        if unknown:
            raise ValueError(f"there is no figure {unknown[0]}; use {min(FIGURES)} to {max(FIGURES)}")
        found |= dict.fromkeys(range(start, end + 1))
    if not found:
        raise ValueError("no figure is named")
    return list(found)


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no number above 0")
    return value


def _rows(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"a batch of {text} rows holds nothing")
    return value

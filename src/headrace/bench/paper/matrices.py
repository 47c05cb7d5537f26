"""Figure 29: the product of three matrices under changes of one row and of rank r."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.bench.paper.chart import FACTORIZED, FIRST_ORDER, Line, Panel
from headrace.bench.paper.figure import AZURE, Comparison, Figure, Piece, Result, Shown, Sizes, quotient, row_of

SIZES, RANKED = (256, 512, 1_024, 4_096), 2_048
RANKS = (1, 8, 32, 96)
READ, ANEW = "factorized, and read all", "NumPy (REEVAL)"
NUMPY = "NumPy (1-IVM)"
CASES = {FACTORIZED: "step", READ: "step and reading all", NUMPY: "first-order", ANEW: "recompute"}
# 1-IVM over F-IVM, by the size of the matrices: with hash maps, and with dense arrays in Octave.
PAPER = {"hash maps": {256: 28, 4_096: 92}, "Octave": {256: 16, 16_384: 236}}
_ROWS, _RANKS = "one row", "rank r"


def pieces(sizes: Sizes) -> list[Piece]:
    """Changes of one row for matrices of several sizes; changes of several ranks for one size."""
    few = ("--repeat", "5", "--recompute", "2")
    by_size = ("--sizes", *(sizes.count(size, 16) for size in SIZES), "--ranks", "1", *few)
    by_rank = ("--sizes", sizes.count(RANKED, 24), "--ranks", *(str(rank) for rank in RANKS), *few)
    return [
        Piece(_ROWS, "matrix-chain", (*by_size, *sizes.arguments)),
        Piece(_RANKS, "matrix-chain", (*by_rank, *sizes.arguments)),
    ]


def shown(results: Mapping[str, Result]) -> Shown:
    """Times by size and by rank, and the gap to first-order deltas beside the paper's."""
    sizes = sorted({row["rows"] for result in results.values() for row in result["results"]})
    taken = {
        (size, name): row["seconds"]
        for name, what in CASES.items()
        for size in sizes
        for result in results.values()
        if (row := row_of(result, f"{size}, one row: {what}")) is not None
    }
    rows = [
        Line(name, tuple((float(size), taken[size, name]) for size in sizes if (size, name) in taken)) for name in CASES
    ]
    gaps = [
        Line(
            name,
            tuple((float(s), taken[s, NUMPY] / taken[s, name]) for s in sizes if (s, name) in taken),
        )
        for name in (FACTORIZED, READ)
    ]
    gaps += [
        Line(f"paper: {where}", tuple((float(n), float(gap)) for n, gap in own.items()), paper=True)
        for where, own in PAPER.items()
    ]
    side, x = "seconds per change", "n of n x n matrices"
    panels = [
        Panel("one row changes", side, x, [line for line in rows if line.points], log_x=True),
        Panel(f"changes of rank r, n = {_side(results)}", side, "rank", _by_rank(results), log_x=True),
        Panel("one row: 1-IVM / ours", "times", x, [line for line in gaps if line.points], log_x=True),
    ]
    comparisons = [
        Comparison(
            f"n = {size:,}: {NUMPY} / {FACTORIZED}, {where} in the paper",
            gap,
            taken[size, NUMPY] / taken[size, FACTORIZED] if (size, FACTORIZED) in taken else None,
            "dense arrays on two cores; a step is committed durably, NumPy's product is in memory",
        )
        for where, own in PAPER.items()
        for size, gap in own.items()
    ]
    what = f"highest rank r at which {FACTORIZED} is faster than {ANEW}"
    note = f"of {', '.join(map(str, RANKS))}; the paper: n = 4,096"
    return Shown(panels, [*comparisons, Comparison(what, 96, _highest(results), note)])


def _side(results: Mapping[str, Result]) -> str:
    return ", ".join(f"{size:,}" for size in results[_RANKS]["config"]["sizes"]) if _RANKS in results else ""


def _by_rank(results: Mapping[str, Result]) -> list[Line]:
    size = next(iter(results[_RANKS]["config"]["sizes"])) if _RANKS in results else 0
    lines = []
    for name, what in CASES.items():
        rows = {rank: row_of(results.get(_RANKS), f"{size}, rank {rank}: {what}") for rank in RANKS}
        lines.append(Line(name, tuple((float(rank), row["seconds"]) for rank, row in rows.items() if row is not None)))
    return [line for line in lines if line.points]


def _highest(results: Mapping[str, Result]) -> float | None:
    if _RANKS not in results:
        return None
    (size,) = results[_RANKS]["config"]["sizes"]
    faster = [0]
    for rank in RANKS:
        step, anew = (row_of(results[_RANKS], f"{size}, rank {rank}: {CASES[name]}") for name in (FACTORIZED, ANEW))
        if (quotient(anew, step, "seconds") or 0) > 1:
            faster.append(rank)
    return max(faster)


FIGURE_29 = Figure(
    29,
    "A product of three matrices",
    "A1 A2 A3 under changes of one row of A2, by the size of the matrices, and of rank r for n = 4,096: time per "
    "change, with DBToaster's hash maps and with Octave.",
    AZURE,
    "n to 4,096 instead of 16,384, ranks for n = 2,048; 1-IVM and REEVAL by NumPy, with both cores and without keeping "
    f"anything. {FIRST_ORDER} of the paper multiplies the change as a full matrix, and so does NumPy here.",
    pieces,
    shown,
)

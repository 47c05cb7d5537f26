"""Figure 22: linear regression kept up to date after every batch, by gradient descent."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.bench.paper.chart import Line, Panel
from headrace.bench.paper.figure import SILVER, Comparison, Figure, Piece, Result, Shown, Sizes, row_of
from headrace.bench.paper.throughput import DATA

SCALES = {"housing": 4.0, "retailer": 0.2, "favorita": 0.2}
_SECONDS, _PARTS = 45.0, 20
NONE, CONT, SCRATCH, CLOSED = "no training", "train: from the last", "train: from scratch", "train: closed form"
_CASES = {NONE: "factorized", CONT: "refit, gradient", SCRATCH: "refit, gradient from scratch"}
_CASES[CLOSED] = "refit, cholesky"

# Percent of throughput that training takes, from the last parameters and from scratch; times as many iterations from
# scratch; percent of the time of the whole stream that one convergence takes.
PAPER = {
    "housing": (41, 95, 30, 0.24),
    "retailer": (18, 99, 1160, 0.2),
    "favorita": (2, 42, 175, 0.001),
}


def pieces(sizes: Sizes) -> list[Piece]:
    """The factorized strategy with refits, one data set after the other."""
    stream = [
        "--strategies",
        "factorized",
        "--no-keep-rows",
        "--order",
        "paper",
        "--fit",
        "--sorted",
        "--no-scikit-learn",
    ]
    stream += ["--batch", sizes.rows(1_000), "--time-limit", sizes.seconds(_SECONDS), "--progress", str(_PARTS)]
    return [
        Piece(data.capitalize(), data, ("--scale", sizes.number(SCALES[data]), *stream, *sizes.arguments))
        for data in DATA
    ]


def shown(results: Mapping[str, Result]) -> Shown:
    """Throughput and cumulative iterations over the stream, and what the paper says of them."""
    rates: list[Panel] = []
    iterations: list[Panel] = []
    comparisons: list[Comparison] = []
    for data, (warm, scratch, times, percent) in PAPER.items():
        name, result = data.capitalize(), results.get(data.capitalize())
        rows = {what: row for what, case in _CASES.items() if (row := row_of(result, case)) is not None}
        lines = [
            Line(what, tuple((part["share"], part["rows_per_s"]) for part in row["progress"]))
            for what, row in rows.items()
        ]
        rates.append(Panel(name, "tuples per second", "share of the stream", lines))
        counted = [
            Line(what, tuple((part["share"], part["iterations"]) for part in rows[what]["iterations_by_share"]))
            for what in (CONT, SCRATCH)
            if what in rows
        ]
        iterations.append(Panel(f"{name}: iterations so far", "iterations", "share of the stream", counted))
        base = rows[NONE]["rows_per_s"] if NONE in rows else None
        for what, paper in ((CONT, warm), (SCRATCH, scratch)):
            here = None
            if base is not None and what in rows:
                here = 100 * (1 - rows[what]["rows_per_s_with_batches"] / base)
            comparisons.append(Comparison(f"{name}: throughput lost, {what}, %", paper, here))
        here = share = None
        if CONT in rows and SCRATCH in rows and NONE in rows:
            here = rows[SCRATCH]["total_iterations"] / max(1, rows[CONT]["total_iterations"])
            share = 100 * rows[SCRATCH]["last_seconds"] / rows[NONE]["seconds"]
        note = "a descent ends after 10,000 iterations"
        comparisons.append(Comparison(f"{name}: iterations, from scratch / from the last", times, here, note))
        note = "the last descent from scratch"
        comparisons.append(Comparison(f"{name}: one convergence, % of the whole stream", percent, share, note))
    return Shown([*rates, *iterations], comparisons)


FIGURE_22 = Figure(
    22,
    "Linear regression: from the last parameters and from scratch",
    "Batch gradient descent after every batch of 1,000 over the continuous covariance: throughput without training, "
    "from the last parameters and from 0, and cumulative iterations.",
    SILVER,
    "Housing at scale 4 (300,000 rows), Retailer and Favorita with 200,000 facts; 45 s per data set, fits included. "
    "The closed form stands beside, which the paper does not have. A descent has steps of Barzilai and Borwein, and "
    "ends when the gradient is 1e-9 of that at 0 or after 10,000 iterations. The paper does not say when its own ends, "
    "which decides how much going on from the last parameters saves. The points of the figure are not in the text.",
    pieces,
    shown,
)

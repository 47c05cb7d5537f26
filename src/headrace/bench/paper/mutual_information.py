"""Figure 25: counts of all pairs of categories, and mutual information and a Chow-Liu tree after every batch."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.bench.paper.chart import FACTORIZED, FIRST_ORDER, RECURSIVE, Line, Panel
from headrace.bench.paper.figure import SILVER, Comparison, Figure, Piece, Result, Shown, Sizes, quotient, row_of

SCALES = {"housing": 2.0, "retailer": 0.1, "favorita": 0.1}
TREE = "factorized, with MI and tree"
CASES = {
    FACTORIZED: "counts of pairs",
    RECURSIVE: "counts of pairs, recursive",
    FIRST_ORDER: "counts of pairs, first-order",
    TREE: "counts, mutual information and tree",
}
_SECONDS, _PARTS = 25.0, 20

# F-IVM over DBT and over 1-IVM, and percent of throughput that the tree takes.
PAPER = {"housing": (1 / 4.6, 2.8, 46), "retailer": (74, 28, 86), "favorita": (9.3, 2.1, 35)}


def pieces(sizes: Sizes) -> list[Piece]:
    """All features as categories, in 100 bins."""
    stream = ["--features", "all", "--bins", "100", "--cases", "tree", "recursive", "first-order", "--sorted"]
    stream += ["--no-scikit-learn"]  # which is no part of the figure
    stream += ["--batch", sizes.rows(1_000), "--time-limit", sizes.seconds(_SECONDS), "--progress", str(_PARTS)]
    return [
        Piece(
            data.capitalize(),
            "chow-liu",
            ("--data", data, "--scale", sizes.number(scale), *stream, *sizes.arguments),
        )
        for data, scale in SCALES.items()
    ]


def shown(results: Mapping[str, Result]) -> Shown:
    """Throughput over the stream, and what the paper says of it."""
    panels: list[Panel] = []
    comparisons: list[Comparison] = []
    for data, (recursive, first, lost) in PAPER.items():
        name = data.capitalize()
        rows = {what: row_of(results.get(name), case) for what, case in CASES.items()}
        lines = [
            Line(what, tuple((part["share"], part["rows_per_s"]) for part in row["progress"]))
            for what, row in rows.items()
            if row is not None
        ]
        panels.append(Panel(name, "tuples per second", "share of the stream", lines))
        ours = rows[FACTORIZED]
        for what, paper in ((RECURSIVE, recursive), (FIRST_ORDER, first)):
            comparisons.append(
                Comparison(f"{name}: throughput, {FACTORIZED} / {what}", paper, quotient(ours, rows[what]))
            )
        with_tree = quotient(rows[TREE], ours)
        here = None if with_tree is None else 100 * (1 - with_tree)
        comparisons.append(Comparison(f"{name}: throughput lost by MI and tree, %", lost, here))
    return Shown(panels, comparisons)


FIGURE_25 = Figure(
    25,
    "Mutual information and Chow-Liu trees",
    "All features as categories, continuous ones in 100 bins, batches of 1,000: the counts of pairs by each strategy, "
    "and with the matrix of mutual information and its tree after every batch.",
    SILVER,
    "Housing at scale 2 (200,000 rows), Retailer and Favorita with 100,000 facts, 25 s per approach. The points of the "
    "figure are not in the text.",
    pieces,
    shown,
)

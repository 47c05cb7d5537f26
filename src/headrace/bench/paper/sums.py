"""Figure 28: a sum over a join, kept and computed anew."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.bench.paper.chart import FACTORIZED, STRATEGIES, Mark, Panel
from headrace.bench.paper.figure import AZURE, Comparison, Figure, Piece, Result, Shown, Sizes, quotient, row_of

SCALES = {"retailer": 0.5, "housing": 8.0}
CASES = {
    **STRATEGIES,
    "recompute, sums first": "pandas, sums first (F-RE)",
    "recompute": "Spark SQL (DBT-RE)",
}
# Tuples per second, in the order of CASES.
_PAPER = {
    "retailer": (2_955_045, 1_250_262, 2_925_828, 3_785, 3_491),
    "housing": (22_857_143, 17_834_395, 2_403_433, 79_226, 364),
}
PAPER = {data: dict(zip(CASES, rates, strict=True)) for data, rates in _PAPER.items()}
TIMED_OUT = {
    ("retailer", "recompute, sums first"),
    ("retailer", "recompute"),
    ("housing", "recompute"),
}
_SECONDS = 15.0


def pieces(sizes: Sizes) -> list[Piece]:
    """One data set after the other."""
    stream = ("--batch", sizes.rows(1_000), "--time-limit", sizes.seconds(_SECONDS))
    return [
        Piece(data.capitalize(), "one-sum", ("--data", data, "--scale", sizes.number(scale), *stream, *sizes.arguments))
        for data, scale in SCALES.items()
    ]


def shown(results: Mapping[str, Result]) -> Shown:
    """A mark per number, and each ratio of the table."""
    marks: list[Mark] = []
    comparisons: list[Comparison] = []
    for data, paper in PAPER.items():
        result = results.get(data.capitalize())
        ours = row_of(result, "factorized")
        for case, name in CASES.items():
            row = row_of(result, case)
            if row is not None:
                marks.append(Mark(data, name, row["rows_per_s"], note="" if row["finished"] else "the time was over"))
            over = "one hour was over" if (data, case) in TIMED_OUT else ""
            marks.append(Mark(data, name, paper[case], paper=True, note=over))
            if case != "factorized":
                what = f"{data.capitalize()}: throughput, {FACTORIZED} / {name}"
                comparisons.append(Comparison(what, paper["factorized"] / paper[case], quotient(ours, row), over))
        for case, views in (("factorized", 9), ("recursive", 13)) if data == "retailer" else ():
            row = row_of(result, case)
            what = f"Retailer: views, {STRATEGIES[case]}"
            comparisons.append(Comparison(what, views, None if row is None else row["views"]))
    return Shown([Panel("one sum over the natural join", "tuples per second", marks=marks)], comparisons)


FIGURE_28 = Figure(
    28,
    "One sum: kept and computed anew",
    "The sum of inventory units over Retailer and of postcodes over Housing, updates of 1,000 to all tables: tuples "
    "per second by each strategy and by computing it anew after every batch.",
    AZURE,
    "Retailer with 500,000 facts, Housing at scale 8 (600,000 rows), 15 s per approach instead of an hour, from "
    "Parquet files to a durable commit. Computed anew by pandas, which sums before it joins, and by Spark SQL.",
    pieces,
    shown,
    columns=1,
)

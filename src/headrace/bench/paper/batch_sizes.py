"""Figure 24: throughput of the covariance over the size of batches."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.bench.paper.chart import STRATEGIES, Line, Panel
from headrace.bench.paper.figure import AZURE, Comparison, Figure, Piece, Result, Shown, Sizes, quotient, row_of
from headrace.bench.paper.triangle import SKEW

BATCHES = (100, 1_000, 10_000, 100_000)
SCALES = {"housing": 4.0, "retailer": 0.3}
"""About 300,000 rows of each."""
TWITTER, WHOLE = "Twitter", "Retailer, all at once"
NODES, EDGES = 40_000, 100_000
_SECONDS = 5.0
_MOST = 300  # batches of one run, so that small ones do not take all of the time to write
_LISTED = 10_000  # rows of a batch, beyond which first-order deltas list more rows than there is memory for


def pieces(sizes: Sizes) -> list[Piece]:
    """Every data set with every size of batches."""
    made = []
    limits = ["--batches", str(_MOST), "--time-limit", sizes.seconds(_SECONDS)]
    for batch in BATCHES:
        few = [strategy for strategy in STRATEGIES if strategy != "first-order" or batch <= _LISTED]
        for data, scale in SCALES.items():
            own = ["--scale", sizes.number(scale), "--strategies", ",".join(few), "--no-keep-rows", "--order", "paper"]
            own += ["--sorted", "--batch", str(batch), *limits]
            made.append(Piece(_name(data, batch), data, (*own, *sizes.arguments)))
        own = ["--nodes", sizes.count(NODES, 10), "--edges", sizes.count(EDGES, 20), "--skew", str(SKEW)]
        own += ["--cases", *few, "--batch", str(batch), *limits]
        made.append(Piece(_name(TWITTER, batch), "triangle-covariance", (*own, *sizes.arguments)))
    own = ["--scale", sizes.number(SCALES["retailer"]), "--strategies", "factorized", "--no-keep-rows"]
    own += ["--order", "paper", "--sorted", "--batch", "1000000000", *limits]
    return [*made, Piece(WHOLE, "retailer", (*own, *sizes.arguments))]


def _name(data: str, batch: int) -> str:
    return f"{data.capitalize()}, batches of {batch:,}"


def shown(results: Mapping[str, Result]) -> Shown:
    """Throughput over the size of batches, and which size is the best."""
    panels: list[Panel] = []
    comparisons: list[Comparison] = []
    for data in (*SCALES, TWITTER):
        lines = []
        for strategy, name in STRATEGIES.items():
            rows = {batch: row_of(results.get(_name(data, batch)), strategy) for batch in BATCHES}
            rates = {batch: row["rows_per_s"] for batch, row in rows.items() if row is not None}
            if rates:
                lines.append(Line(name, tuple(rates.items())))
                best = max(rates, key=lambda batch, rates=rates: rates[batch])  # type: ignore[misc]
                what = f"{data.capitalize()}, {name}: best size of batches"
                comparisons.append(Comparison(what, "1,000 to 10,000", best, "a commit per batch weighs on small ones"))
        panels.append(Panel(data.capitalize(), "tuples per second", "rows per batch", lines, log_x=True))
    medium, whole = (row_of(results.get(name), "factorized") for name in (_name("retailer", 1_000), WHOLE))
    what = "Retailer: batches of 1,000 / all at once"
    comparisons.append(
        Comparison(what, "up to 2.45", quotient(medium, whole), "each batch is read from files and committed")
    )
    return Shown(panels, comparisons)


FIGURE_24 = Figure(
    24,
    "Covariance: the size of batches",
    "Batches of 100 to 100,000 over Retailer, Housing and Twitter, updates to all tables, the best three approaches.",
    AZURE,
    f"300,000 rows per data set, at most {_MOST} batches and 5 s per approach; the triangle over a power-law graph of "
    f"{EDGES:,} edges. First-order deltas only for batches of up to {_LISTED:,} rows, as they list the join in memory. "
    "The points of the figure are not in the text.",
    pieces,
    shown,
)

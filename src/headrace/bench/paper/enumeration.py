"""Figure 26: q-hierarchical joins, listed after every so many batches."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.bench.paper.chart import Line, Panel
from headrace.bench.paper.figure import SILVER, Comparison, Figure, Piece, Result, Shown, Sizes

SCALES = {"housing": 2.0, "retailer": 0.1, "favorita": 0.1}
INTERVALS = (1, 10, 100, 1_000)
VARIANTS = {
    "eager-fact": "eager-fact (F-IVM)",
    "eager-list": "eager-list (DBT)",
    "lazy-fact": "lazy-fact",
    "lazy-list": "lazy-list (1-IVM)",
}
_SECONDS = 10.0


def pieces(sizes: Sizes) -> list[Piece]:
    """One data set after the other."""
    stream = ["--batch", sizes.rows(1_000), "--time-limit", sizes.seconds(_SECONDS)]
    stream += ["--intervals", *(str(interval) for interval in INTERVALS)]
    return [
        Piece(
            data.capitalize(),
            "enumeration",
            ("--data", data, "--scale", sizes.number(scale), *stream, *sizes.arguments),
        )
        for data, scale in SCALES.items()
    ]


def shown(results: Mapping[str, Result]) -> Shown:
    """Throughput over the interval, and the orders that the paper finds."""
    panels: list[Panel] = []
    comparisons: list[Comparison] = []
    for data in SCALES:
        name, result = data.capitalize(), results.get(data.capitalize(), {"results": ()})
        rates = {(row["variant"], row["interval"]): row["rows_per_s"] for row in result["results"]}
        intervals = sorted({interval for _, interval in rates})
        lines = [
            Line(said, tuple((float(i), rates[variant, i]) for i in intervals if (variant, i) in rates))
            for variant, said in VARIANTS.items()
        ]
        panels.append(
            Panel(name, "tuples per second", "batches between listings", [x for x in lines if x.points], log_x=True)
        )
        often, seldom = INTERVALS[0], INTERVALS[-1]
        for above, below, interval, claim in (
            ("eager-fact", "eager-list", often, "> 1"),
            ("eager-fact", "eager-list", seldom, "> 1"),
            ("lazy-fact", "lazy-list", often, "> 1"),
            ("eager-fact", "lazy-fact", often, "> 1"),
            ("lazy-fact", "eager-fact", seldom, "> 1"),
            ("lazy-fact", "lazy-list", seldom, "about 1"),
        ):
            here = None
            if (above, interval) in rates and (below, interval) in rates:
                here = rates[above, interval] / rates[below, interval]
            listings = _listings(result, interval)
            what = f"{name}, every {interval:,}: throughput, {above} / {below}"
            comparisons.append(Comparison(what, claim, here, f"{listings} listings" if listings is not None else ""))
    return Shown(panels, comparisons)


def _listings(result: Result, interval: int) -> int | None:
    return max((row["enumerations"] for row in result["results"] if row["interval"] == interval), default=None)


FIGURE_26 = Figure(
    26,
    "q-hierarchical joins: eager or lazy, listed or factorized",
    "The natural joins of all tables under batches of 1,000, all tuples listed after every INTVAL batches (1 to "
    "10,000); Favorita with Stores not updatable, Retailer with Item not updatable and zip -> location. The text has "
    "no numbers, only which variant is faster: so the paper's column has claims. lazy-list did not end in 50 hours.",
    SILVER,
    "Housing at scale 2 (200,000 rows, 100,000 joined), Retailer and Favorita with 100,000 facts, 10 s per variant and "
    "interval; intervals to 1,000, which is longer than the stream: nothing is listed then. The items of Favorita do "
    "not change either, as its join would not be q-hierarchical if they did.",
    pieces,
    shown,
)

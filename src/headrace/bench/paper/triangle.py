"""Figure 23: the covariance over the triangle query."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.bench.paper.chart import FACTORIZED, FIRST_ORDER, Line, Panel
from headrace.bench.paper.figure import AZURE, Comparison, Figure, Piece, Result, Row, Shown, Sizes, quotient, row_of

TWITTER = "Twitter"
INDICATORS, RECURSIVE, ONE = "factorized, with indicators", "recursive (DBT-RING)", "one table (F-IVM-ONE)"
CASES = {
    "factorized": FACTORIZED,
    "indicators": INDICATORS,
    "recursive": RECURSIVE,
    "first-order": FIRST_ORDER,
    "one table": ONE,
}
NODES, EDGES, SKEW = 20_000, 60_000, 0.4
_SECONDS = 20.0


def graph(sizes: Sizes) -> tuple[str, ...]:
    """A graph whose degrees do not depend on the scale."""
    return "--nodes", sizes.count(NODES, 10), "--edges", sizes.count(EDGES, 20), "--skew", str(SKEW)


def pieces(sizes: Sizes) -> list[Piece]:
    """One graph."""
    limits = ("--batch", sizes.rows(1_000), "--time-limit", sizes.seconds(_SECONDS))
    return [Piece(TWITTER, "triangle-covariance", (*graph(sizes), *limits, *sizes.arguments))]


def shown(results: Mapping[str, Result]) -> Shown:
    """Throughput and state over the stream, and what the paper says of them."""
    rows = {case: row for case in CASES if (row := row_of(results.get(TWITTER), case)) is not None}
    panels = [
        Panel(
            title,
            y,
            "share of the stream",
            [Line(CASES[case], tuple((p["share"], p[key]) for p in row["progress"])) for case, row in rows.items()],
        )
        for title, y, key in (("throughput", "tuples per second", "rows_per_s"), ("state", "MB", "state_mb"))
    ]
    first = rows.get("first-order")
    none = "ours joins all three tables at once and keeps no pairs; the paper's keeps the join of two"
    said = [
        Comparison(f"memory, {RECURSIVE} / {FACTORIZED}", 2.3, _state(rows, "recursive", "factorized"), none),
        Comparison(
            f"memory, {RECURSIVE} / {INDICATORS}",
            2.3,
            _state(rows, "recursive", "indicators"),
            "indicators are Section 7.4's, which the paper did not measure",
        ),
        Comparison(f"{FIRST_ORDER}: throughput lost by the end, %", 42, _lost(first)),
        Comparison(f"throughput, {ONE} / {FIRST_ORDER}", "about 100", quotient(rows.get("one table"), first)),
        Comparison(f"memory, {ONE} / {FIRST_ORDER}", 23, _state(rows, "one table", "first-order")),
        Comparison(
            f"throughput, {FACTORIZED} / {RECURSIVE}",
            "> 1",
            quotient(rows.get("factorized"), rows.get("recursive")),
        ),
    ]
    return Shown(panels, said)


def _state(rows: Mapping[str, Row], case: str, other: str) -> float | None:
    return quotient(rows.get(case), rows.get(other), "state_mb")


def _lost(row: Row | None) -> float | None:
    """By how many percent throughput is lower at the end than at its best."""
    if row is None or len(row["progress"]) < 2:
        return None
    rates = [part["rows_per_s"] for part in row["progress"]]
    return 100 * (1 - rates[-1] / max(rates))


FIGURE_23 = Figure(
    23,
    "Covariance over the triangle query",
    "Twitter (1.7 million edges) in three copies, updates of 1,000 to all: throughput and memory over the stream.",
    AZURE,
    f"A power-law graph of {EDGES:,} edges between {NODES:,} nodes, 20 s per approach. There is no strategy of scalar "
    "payloads (DBT) and no SQL-OPT; the recursive one is DBT-RING. Memory is the state in files. The points of the "
    "figure are not in the text.",
    pieces,
    shown,
    columns=2,
)

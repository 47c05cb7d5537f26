"""Figure 27: rounds of updates of k-path queries in the same time."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.bench.paper.chart import FACTORIZED, FIRST_ORDER, RECURSIVE, STRATEGIES, Line, Panel
from headrace.bench.paper.figure import SILVER, Comparison, Figure, Piece, Result, Shown, Sizes, quotient, row_of

JOINS = (5, 10, 15, 20)
GRAPHS = {"TikTok": 0.6, "Twitter": 0.4}
"""By graph, how skewed its degrees are: TikTok is more so than Twitter."""
NODES, ROUNDS = 20_000, 200
_SECONDS = 8.0


def pieces(sizes: Sizes) -> list[Piece]:
    """Two graphs."""
    own = ["--joins", *(str(joins) for joins in JOINS), "--nodes", sizes.count(NODES), "--batch", sizes.rows(1_000)]
    own += ["--rounds", sizes.count(ROUNDS, 2), "--seconds", sizes.seconds(_SECONDS)]
    return [Piece(name, "paths", (*own, "--skew", str(skew), *sizes.arguments)) for name, skew in GRAPHS.items()]


def shown(results: Mapping[str, Result]) -> Shown:
    """Rounds over the length of paths, throughput beside, and what the paper says of them."""
    rounds: list[Panel] = []
    rates: list[Panel] = []
    comparisons: list[Comparison] = []
    for name in GRAPHS:
        rows = {
            (strategy, joins): row
            for strategy in STRATEGIES
            for joins in JOINS
            if (row := row_of(results.get(name), f"{joins}-path, {strategy}")) is not None
        }
        for panels, key, y in ((rounds, "rounds", "rounds"), (rates, "rows_per_s", "edges per second")):
            lines = [
                Line(said, tuple((float(j), rows[s, j][key]) for j in JOINS if rows.get((s, j), {}).get(key)))
                for s, said in STRATEGIES.items()
            ]
            panels.append(Panel(name, y, "joins of the path", [line for line in lines if line.points]))
        for strategy, said in (("recursive", RECURSIVE), ("first-order", FIRST_ORDER)):
            here = quotient(rows.get(("factorized", 20)), rows.get((strategy, 20)))
            comparisons.append(Comparison(f"{name}, 20-path: throughput, {FACTORIZED} / {said}", ">= 10", here))
        late = rows.get(("first-order", 15))
        what = f"{name}, 15-path: rounds of {FIRST_ORDER}"
        note = "" if late is None else late.get("stopped", "")
        comparisons.append(Comparison(what, 0, None if late is None else late["rounds"], note))
        for strategy, paper in (("factorized", 19), ("recursive", 190)):
            row = rows.get((strategy, 20))
            what = f"{name}, 20-path: views, {STRATEGIES[strategy]}"
            note = "of one table that stands 20 times in the query"
            comparisons.append(Comparison(what, paper, None if row is None else len(row["views"]), note))
    return Shown([*rounds, *rates], comparisons)


FIGURE_27 = Figure(
    27,
    "k-path queries: rounds of updates",
    "Rounds of 1,000 edges into each of k copies of TikTok and Twitter within four hours. The points of the figure are "
    "not in the text; of paths of more than 10 joins, 1-IVM and Flink did not end one round.",
    SILVER,
    f"Power-law graphs of {NODES:,} nodes, at most {ROUNDS} rounds and 8 s per approach and length. All paths are "
    "counted, not grouped by their two ends, and one table stands k times in the query, instead of k copies of it.",
    pieces,
    shown,
    columns=2,
)

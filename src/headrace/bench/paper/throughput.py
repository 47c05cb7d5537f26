"""Figures 20 and 21: the covariance of all features, kept by each strategy; its throughput and what it keeps."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.bench.paper.chart import FACTORIZED, STRATEGIES, Line, Mark, Panel
from headrace.bench.paper.figure import SILVER, Comparison, Figure, Piece, Result, Row, Shown, Sizes, quotient, row_of

DATA = ("housing", "retailer", "favorita")
SCALES = {"housing": 8.0, "retailer": 0.5, "favorita": 0.5}
"""About 600,000 rows of each; the paper has 1.4, 85 and 125 million."""
CONT, MIXED = "CONT", "MIXED"
_SECONDS, _PARTS = 15.0, 20

# Thousand tuples per second and views (Figure 20); the strategies in the order of STRATEGIES.
_PAPER = {
    (CONT, "housing"): ((11_570.2, 7), (953.7, 626), (0.7, 384)),
    (CONT, "retailer"): ((3_818.8, 9), (9.1, 3_186), (28.8, 825)),
    (CONT, "favorita"): ((1_411.3, 9), (33.2, 615), (182.0, 142)),
    (MIXED, "housing"): ((996.4, 7), (682.6, 599), (1.3, 375)),
    (MIXED, "retailer"): ((1_255.8, 9), (7.2, 3_144), (21.7, 819)),
    (MIXED, "favorita"): ((354.0, 9), (18.3, 535), (87.2, 130)),
}
PAPER = {at: dict(zip(STRATEGIES, own, strict=True)) for at, own in _PAPER.items()}
TIMED_OUT = {
    *((kind, data, "recursive") for kind in (CONT, MIXED) for data in ("retailer", "favorita")),
    (MIXED, "retailer", "first-order"),
}
"""What the paper ended after an hour."""

_RING = "ours keeps one payload for all aggregates, DBToaster a view or more for each"


def name_of(kind: str, data: str) -> str:
    """The name of the piece with one data set."""
    return f"{data.capitalize()} {kind}"


def pieces(sizes: Sizes) -> list[Piece]:
    """Numbers first, as the benchmarks of the data sets have them; then with categories."""
    stream = ["--batch", sizes.rows(1_000), "--sorted", "--time-limit", sizes.seconds(_SECONDS)]
    stream += ["--progress", str(_PARTS), *sizes.arguments]
    made = []
    for data in DATA:
        strategies = ",".join([*STRATEGIES, "recompute-numpy"])
        own = ["--scale", sizes.number(SCALES[data]), "--strategies", strategies, "--no-keep-rows", "--order", "paper"]
        made.append(Piece(name_of(CONT, data), data, (*own, *stream)))
    for data in DATA:
        own = ["--data", data, "--scale", sizes.number(SCALES[data])]
        own += ["--cases", "not kept", "recursive", "first-order", "--peers", "duckdb"]
        made.append(Piece(name_of(MIXED, data), "mixed", (*own, *stream)))
    return made


def row(results: Mapping[str, Result], kind: str, data: str, strategy: str) -> Row | None:
    """What was measured of a strategy."""
    mixed = {"factorized": "not kept"}.get(strategy, strategy)
    return row_of(results.get(name_of(kind, data)), strategy if kind == CONT else f"{data}, {mixed}")


def averages(results: Mapping[str, Result]) -> Shown:
    """Figure 20: a mark per number, and each ratio of the table."""
    marks: dict[str, list[Mark]] = {CONT: [], MIXED: []}
    comparisons: list[Comparison] = []
    for (kind, data), paper in PAPER.items():
        ours = row(results, kind, data, "factorized")
        for strategy, (rate, _) in paper.items():
            done = row(results, kind, data, strategy)
            if done is not None:
                ended = "" if done["finished"] else "the time was over"
                marks[kind].append(Mark(data, STRATEGIES[strategy], done["rows_per_s"], note=ended))
            over = "one hour was over" if (kind, data, strategy) in TIMED_OUT else ""
            marks[kind].append(Mark(data, STRATEGIES[strategy], 1e3 * rate, paper=True, note=over))
            if strategy != "factorized":
                what = f"{name_of(kind, data)}: throughput, {FACTORIZED} / {STRATEGIES[strategy]}"
                ratio = paper["factorized"][0] / rate
                comparisons.append(Comparison(what, ratio, quotient(ours, done), _RING))
        for strategy, (_, views) in paper.items():
            done = row(results, kind, data, strategy)
            what = f"{name_of(kind, data)}: views, {STRATEGIES[strategy]}"
            comparisons.append(Comparison(what, views, None if done is None else done["views"]))
    y = "tuples per second"
    panels = [
        Panel("all features continuous (CONT)", y, marks=marks[CONT]),
        Panel("continuous and categorical (MIXED)", y, marks=marks[MIXED]),
    ]
    return Shown(panels, comparisons)


def over_the_stream(results: Mapping[str, Result]) -> Shown:
    """Figure 21: throughput and state over the share of the stream."""
    rates: list[Panel] = []
    states: list[Panel] = []
    comparisons: list[Comparison] = []
    for kind, data in PAPER:
        done = {strategy: row(results, kind, data, strategy) for strategy in STRATEGIES}
        lines = [_line(strategy, own, "rows_per_s") for strategy, own in done.items() if own is not None]
        for strategy, (rate, _) in PAPER[kind, data].items():
            lines.append(Line(STRATEGIES[strategy], ((0.0, 1e3 * rate), (1.0, 1e3 * rate)), paper=True))
        x, name = "share of the stream", name_of(kind, data)
        rates.append(Panel(name, "tuples per second", x, lines))
        kept = [_line(strategy, own, "state_mb") for strategy, own in done.items() if own is not None]
        states.append(Panel(f"{name}: state", "MB", x, kept))
        for strategy, paper in (("recursive", "4 to 16"), ("first-order", "about 1")):
            what = f"{name}: memory, {STRATEGIES[strategy]} / {FACTORIZED}"
            note = "state in files after the same share of the stream, not memory; the paper's range is over all panels"
            comparisons.append(Comparison(what, paper, _state_ratio(done[strategy], done["factorized"]), note))
    return Shown([*rates, *states], comparisons)


def _line(strategy: str, row: Row, key: str) -> Line:
    return Line(STRATEGIES[strategy], tuple((part["share"], part[key]) for part in row["progress"]))


def _state_ratio(row: Row | None, ours: Row | None) -> float | None:
    """The state of a strategy over ours, after the last part of the stream that both have come to."""
    if row is None or ours is None:
        return None
    kept = {part["share"]: part["state_mb"] for part in ours["progress"]}
    common = [part for part in row["progress"] if kept.get(part["share"])]
    return common[-1]["state_mb"] / kept[common[-1]["share"]] if common else None


_DIFFERS = (
    "Look-alikes of the data: Housing at scale 8 (600,000 rows instead of 1.4 million), Retailer and Favorita with "
    "500,000 facts (of 84 and 125 million), in batches of 1,000 in the paper's order, 15 s per approach instead of an "
    "hour, two cores, from Parquet files to a durable commit. Recursive and first-order plans have compound payloads, "
    "as F-IVM has, where DBToaster has scalars."
)

FIGURE_20 = Figure(
    20,
    "Covariance: average throughput and number of views",
    "The covariance of all features of Housing, Retailer and Favorita, all continuous and mixed: thousand tuples per "
    "second over the stream, and views.",
    SILVER,
    _DIFFERS,
    pieces,
    averages,
    columns=2,
)
FIGURE_21 = Figure(
    21,
    "Covariance: throughput and memory over the stream",
    "The same runs over the share of the stream. The points of the figure are not in the text of the paper: dashed are "
    "its averages, of Figure 20.",
    SILVER,
    _DIFFERS,
    pieces,
    over_the_stream,
)

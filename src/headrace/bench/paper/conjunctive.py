"""Figure 30: the rows of joins, factorized and listed."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.bench.paper.chart import Line, Mark, Panel
from headrace.bench.paper.figure import AZURE, Comparison, Figure, Piece, Result, Row, Shown, Sizes, quotient

FACT, LIST, KEPT = "factorized (Fact payloads)", "listing (List keys)", "listing, recursive"
CASES = {FACT: "factorized", LIST: "listing", KEPT: "recursive"}
SCALES = (1.0, 2.0, 4.0, 8.0)
RETAILER, HOUSING = "Retailer", "Housing"
_LARGEST = 20.0  # of the paper
_SYSTEMS = (*CASES.values(), "recompute")


def pieces(sizes: Sizes) -> list[Piece]:
    """Retailer under changes of its largest table, Housing under changes of all, scale by scale."""
    stream = ("--batch", sizes.rows(10_000), "--systems", *_SYSTEMS, *sizes.arguments)
    return [
        Piece(
            RETAILER,
            "factorized",
            ("--data", "retailer", "--changes", "largest", "--scales", sizes.number(0.5), *stream),
        ),
        Piece(HOUSING, "factorized", ("--scales", *(sizes.number(scale) for scale in SCALES), *stream)),
    ]


def shown(results: Mapping[str, Result]) -> Shown:
    """Marks for Retailer, lines over the scale for Housing, and what the paper says of them."""
    retailer = {name: rows[-1] for name, case in CASES.items() if (rows := _rows(results, RETAILER, case))}
    marks = [Mark("memory, MB", name, row["peak_mb"]) for name, row in retailer.items() if row.get("peak_mb", 0) > 0]
    marks += [Mark("state, MB", name, row["state_mb"]) for name, row in retailer.items()]
    marks += [Mark("memory, MB", FACT, 7_800, paper=True), Mark("memory, MB", LIST, 34_000, paper=True)]
    panels = [Panel("Retailer: memory and state", "MB", marks=marks)]
    rates = [Mark("tuples per second", name, row["rows_per_s"]) for name, row in retailer.items()]
    panels.append(Panel("Retailer: throughput", "tuples per second", marks=rates))
    for title, y, key in (("Housing: time for the stream", "seconds", "seconds"), ("Housing: state", "MB", "state_mb")):
        lines = [
            Line(name, tuple((row["scale"], row[key]) for row in _rows(results, HOUSING, case)))
            for name, case in CASES.items()
        ]
        paper = {"seconds": (0.41, 197.0), "state_mb": (195.0, 104_000.0)}[key]
        lines = [line for line in lines if line.points]
        lines += [
            Line(name, ((_LARGEST, value),), paper=True)
            for name, value in zip((FACT, "List payloads"), paper, strict=True)
        ]
        panels.append(Panel(title, y, "scale", lines, log_x=True))
    return Shown(panels, [*_of_retailer(retailer), *_of_housing(results)])


def _of_retailer(rows: Mapping[str, Row]) -> list[Comparison]:
    fact = rows.get(FACT)
    made = [Comparison("Retailer: memory, listing / factorized", 4.4, quotient(rows.get(LIST), fact, "peak_mb"))]
    state = quotient(rows.get(LIST), fact, "state_mb")
    made.append(
        Comparison("Retailer: state, listing / factorized", 4.4, state, "state in files, where the paper has memory")
    )
    for name in (LIST, KEPT):
        made.append(
            Comparison(f"Retailer: throughput, factorized / {name}", "2.8 and 3.7", quotient(fact, rows.get(name)))
        )
    return made


def _of_housing(results: Mapping[str, Result]) -> list[Comparison]:
    """What the paper says of its largest scale, beside ours."""
    fact, listed = (_rows(results, HOUSING, CASES[name]) for name in (FACT, LIST))
    largest = fact[-1] if fact else None
    other = listed[-1] if listed and largest is not None and listed[-1]["scale"] == largest["scale"] else None
    note = ""
    if largest is not None:
        note = f"here scale {largest['scale']:g}, the paper 20"
        note += ", extrapolated" if other is not None and other.get("extrapolated") else ""
    return [
        Comparison("Housing: time, listing / factorized", 481, quotient(other, largest, "seconds"), note),
        Comparison(
            "Housing: memory, listing / factorized", 548, quotient(other, largest, "state_mb"), f"{note}; state"
        ),
    ]


def _rows(results: Mapping[str, Result], piece: str, case: str) -> list[Row]:
    result = results.get(piece, {"results": ()})
    return sorted((row for row in result["results"] if row["case"] == case), key=lambda row: row["scale"])


FIGURE_30 = Figure(
    30,
    "Rows of joins: factorized and listed",
    "The natural join of Retailer under updates of 1,000 to its largest table, and of Housing at scales 1 to 20 under "
    "updates to all: time and memory of results as keys, as listed payloads and as factorized payloads.",
    AZURE,
    "Retailer with 500,000 facts, Housing at scales 1 to 8, in batches of 10,000. A join of more than 2 million rows "
    "is not listed: its time and state are extrapolated from the largest that is. There are no listed payloads; the "
    "recursive strategy stands beside, which lists too. Memory is the peak of the process above its start.",
    pieces,
    shown,
    columns=2,
)

"""All figures of Section 9 that show a measurement, by number; Figure 19 is a table of the data sets."""

from __future__ import annotations

from headrace.bench.paper.batch_sizes import FIGURE_24
from headrace.bench.paper.conjunctive import FIGURE_30
from headrace.bench.paper.enumeration import FIGURE_26
from headrace.bench.paper.figure import Figure
from headrace.bench.paper.matrices import FIGURE_29
from headrace.bench.paper.mutual_information import FIGURE_25
from headrace.bench.paper.paths import FIGURE_27
from headrace.bench.paper.sums import FIGURE_28
from headrace.bench.paper.throughput import FIGURE_20, FIGURE_21
from headrace.bench.paper.training import FIGURE_22
from headrace.bench.paper.triangle import FIGURE_23

FIGURES: dict[int, Figure] = {
    figure.number: figure
    for figure in (
        *(FIGURE_20, FIGURE_21, FIGURE_22, FIGURE_23, FIGURE_24, FIGURE_25),
        *(FIGURE_26, FIGURE_27, FIGURE_28, FIGURE_29, FIGURE_30),
    )
}

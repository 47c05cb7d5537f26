"""Figures of paces that were chosen by wrong statistics, or played while rows came in bursts, beside the usual ones.

The goals that count are those that count without: what our search holds for feasible by right statistics. So the
figures `goals met` of all variants can be compared.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.bench.pace.approaches import BATCH, OURS, UNIFORM
from headrace.bench.pace.summary import COSTS, MEAN, WORST, Row, feasible_goals, goals, mean, right_rows, work_ratios

WITHOUT = " / without"  # in the names of figures: as a ratio to the same without the difference
_BESIDE = ("met", "latency_ratio", "additional_rows", "additional_cpu_seconds")


def label(row: Row) -> str:
    """What is different about a row; empty if nothing is."""
    return f"bias {row['bias']:g}" if "bias" in row else str(row.get("arrival", ""))


def beside(name: str, row: Row) -> dict[str, Any]:
    """What the row of the same goal without a difference says, as a part of the row with one."""
    return {f"{name}_{key}": row[key] for key in _BESIDE}


def variant_ratios(results: Sequence[Row]) -> dict[str, float]:
    """The goals that each approach meets, and its additional work over that without the difference."""
    right, about = right_rows(results)
    plain = goals(right)
    feasible = feasible_goals(plain)
    found: dict[str, float] = {}
    for what in dict.fromkeys(label(row) for row in right if label(row)):
        rows = {(row["query"], row["share"], row["approach"]): row for row in right if label(row) == what}
        for approach in (OURS, UNIFORM, BATCH):
            own = [(*key, approach) for key in feasible if (*key, approach) in rows]
            if own:
                found[f"goals met by {approach}, {what}"] = mean(rows[key]["met"] for key in own)
            if own and approach != BATCH:
                found |= _costs(f"{approach}, {what}{WITHOUT}", [(rows[key], plain[key]) for key in own], about)
    return found


def _costs(name: str, own: Sequence[tuple[Row, Row]], about: Mapping[str, Row]) -> dict[str, float]:
    pairs: dict[str, list[tuple[Row, Row]]] = {}
    for pair in own:
        pairs.setdefault(pair[0]["query"], []).append(pair)
    found = {}
    for work, key, whole in COSTS:
        by_query = work_ratios(pairs, about, key, whole)
        found[f"{work}, {name}, {WORST}"] = max(by_query.values())
        found[f"{work}, {name}, {MEAN}"] = statistics.geometric_mean(by_query.values())
    return found

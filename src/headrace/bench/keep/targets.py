"""The targets of views under a memory budget, beside recomputing, the recycler and higher-order views.

Means are geometric, over queries or over what is cleaned. Higher-order views are compared in two ways: with all tables
changing, at the best budget that leaves ours a tenth of their bytes at most; and while one table is cleaned.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from headrace.bench.keep.approaches import HEADRACE, REBATCH, RECURSIVE, RECYCLER
from headrace.bench.measuring.targets import Verdict, verdict

Row = Mapping[str, Any]

_BATCH, _STATE, _SPEED, _CHOOSING = 1.05, 0.1, 0.5, 0.1


def targets(rows: Sequence[Row]) -> list[Verdict]:
    """Return one entry per target."""
    budgets = [row for row in rows if row["scenario"] == "budgets"]
    ours, recycler = _by_budget(budgets, HEADRACE), _by_budget(budgets, RECYCLER)
    batch = {row["case"]: row["cpu_seconds"] for row in budgets if row["system"] == REBATCH}
    at_zero = _mean(own / batch[case] for case, own in ours.get(0.0, {}).items() if case in batch)
    means = {share: _mean(own.values()) for share, own in sorted(ours.items())}
    steps = [more / less for less, more in pairwise(one for one in means.values() if one)]
    beside = {
        share: [recycler[share][case] / own for case, own in ours[share].items() if case in recycler.get(share, {})]
        for share in ours
    }
    least = min((mean for own in beside.values() if (mean := _mean(own)) is not None), default=None)
    why = "" if budgets else "the run has no --scenarios budgets"
    return [
        verdict("budget 0: CPU, headrace / rebatch", "<=", _BATCH, at_zero, why_not=why),
        verdict("most CPU at a budget / at the next smaller one", "<=", 1.0, max(steps, default=None), why_not=why),
        verdict("budgets: CPU, recycler / headrace, least of all budgets", ">=", 1.0, least, why_not=why),
        verdict(
            "budgets: CPU, recycler / headrace, mean",
            ">=",
            1.0,
            _mean(ratio for own in beside.values() for ratio in own),
            why_not=why,
        ),
        _in_a_tenth(budgets, why),
        *_cleaning(rows),
        _choosing(rows),
    ]


def _by_budget(rows: Sequence[Row], system: str) -> dict[float, dict[str, float]]:
    found: dict[float, dict[str, float]] = {}
    for row in rows:
        if row["system"] == system:
            found.setdefault(row["budget_share"], {})[row["case"]] = row["cpu_seconds"]
    return found


def _in_a_tenth(budgets: Sequence[Row], why: str) -> Verdict:
    """How many times as fast as higher-order views ours is, in a tenth of their bytes at most."""
    speeds = []
    for row in budgets:
        if row["system"] == RECURSIVE:
            own = [one for one in budgets if one["system"] == HEADRACE and one["case"] == row["case"]]
            fits = [one["cpu_seconds"] for one in own if one["state_mb"] <= _STATE * row["state_mb"]]
            speeds += [row["cpu_seconds"] / min(fits)] if fits else []
    value = _mean(speeds)
    name = f"budgets: CPU, {RECURSIVE} / headrace in {_STATE:g} of its bytes, mean"
    return verdict(name, ">=", _SPEED, value, why_not=why)


def _cleaning(rows: Sequence[Row]) -> list[Verdict]:
    by_system = {
        system: {row["case"]: row for row in rows if (row["scenario"], row["system"]) == ("cleaning", system)}
        for system in (HEADRACE, RECURSIVE)
    }
    pairs = [
        (own, by_system[RECURSIVE][case]) for case, own in by_system[HEADRACE].items() if case in by_system[RECURSIVE]
    ]
    why = "" if pairs else "the run has no --scenarios cleaning"
    state = _mean(own["state_mb"] / theirs["state_mb"] for own, theirs in pairs)
    speed = _mean(theirs["cpu_seconds"] / own["cpu_seconds"] for own, theirs in pairs)
    return [
        verdict(f"cleaning: state, headrace / {RECURSIVE}, mean", "<=", _STATE, state, why_not=why),
        verdict(f"cleaning: CPU, {RECURSIVE} / headrace, mean", ">=", _SPEED, speed, why_not=why),
    ]


def _choosing(rows: Sequence[Row]) -> Verdict:
    spent = [row["choosing_seconds"] for row in rows if row["scenario"] == "many ways" and "choosing_seconds" in row]
    why = "" if spent else "the run has no --scenarios many_ways"
    name = "eight tables: seconds to choose what is kept, most"
    return verdict(name, "<=", _CHOOSING, max(spent, default=None), why_not=why)


def _mean(ratios: Iterable[float]) -> float | None:
    """The geometric mean, where there is anything to take it of."""
    found = [ratio for ratio in ratios if ratio > 0]
    return statistics.geometric_mean(found) if found else None

"""The figures of the pace benchmark over all queries, and its targets.

Only goals that our search holds for feasible count as met or missed, for all approaches. Where holding rows is most of
the work, the batch meets goals too, and so does everybody: how many of the others are met stands beside.

What paces cost is compared over the shares that both ours and uniform paces are estimated to reach: a pace that misses
its goal may well be cheap. Queries for which both chose the same paces throughout share their views, and are left out.
Additional work below a hundredth of the batch's counts as a hundredth: so little cannot be told from none.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace.bench.pace.approaches import BATCH, EAGER, HAND, LEAF, OURS, UNIFORM

Row = Mapping[str, Any]
Rows = Mapping[tuple[str, float, str], Row]
"""By query, share and approach."""

GOALS = (0.5, 0.2, 0.1, 0.05, 0.02)
ESTIMATED = ("q2", "q11", "q13", "q15", "q16", "q17", "q18", "q20", "q21", "q22")  # whose estimates have a target
MEAN, WORST = "geometric mean", "worst"
CPU, ROWS = "additional CPU, ours / uniform", "additional rows, ours / uniform"
FEASIBLE, ERROR, PLANNING = "feasible goals", "largest error of estimated rows", "ms of planning"
COMPARED = "queries whose paces differ, ours and uniform"
NOISE, FINAL_NOISE = "CPU of the batch, played twice, worst", "final CPU of the batch, played twice, worst"
LARGEST, USUAL = "largest", "80th percentile"
PROBLEMS = ("failed", "wrong")
VARIANTS = ("bias", "arrival")  # keys of rows whose figures are apart (`variants`)
COSTS = (
    ("additional CPU", "additional_cpu_seconds", "batch_cpu_seconds"),
    ("additional rows", "additional_rows", "batch_rows"),
)
"""What paces cost in addition: its name, its key in a row, and the key of all work of the batch in that of a query."""
_LEAST = 0.01  # of the batch's work
_TARGETS = (
    (f"goals met by {OURS}", ">=", 0.9),
    (f"{CPU}, {WORST}", "<=", 1.05),
    (f"{CPU}, {MEAN}", "<=", 1.05),
    (f"{ROWS}, {WORST}", "<=", 1.05),
    (f"{ROWS}, {MEAN}", "<=", 1.05),
    (f"{ERROR}, {OURS}", "<=", 0.25),
    (f"{ERROR}, {EAGER}", "<=", 0.25),
    (f"{PLANNING}, {LARGEST}", "<=", 640.0),
    (f"{PLANNING}, {USUAL}", "<=", 340.0),
)


def ratios(results: Sequence[Row]) -> dict[str, float]:
    """Compute all figures from the rows of a result; queries with a wrong answer have none."""
    right, about = right_rows(results)
    rows = goals(right)
    found = _costs(rows, about)
    found |= _met(rows, about) | _errors(rows.values())
    if about:
        for name, key in ((NOISE, "cpu_seconds"), (FINAL_NOISE, "final_cpu_seconds")):
            pairs = ((row[f"batch_{key}"], row[f"batch_again_{key}"]) for row in about.values())
            found[name] = max(max(pair) / min(pair) for pair in pairs)
    planning = [row["planning_ms"] for row in about.values()]
    if planning:
        found[f"{PLANNING}, {LARGEST}"] = max(planning)
        found[f"{PLANNING}, {USUAL}"] = float(np.quantile(planning, 0.8))
    return found


def right_rows(results: Sequence[Row]) -> tuple[list[Row], dict[str, Row]]:
    """The rows of queries without a wrong answer, and of these the rows about a query, by its name."""
    bad = {row["query"] for row in results if problem(row)}
    right = [row for row in results if row["query"] not in bad]
    return right, {row["query"]: row for row in right if "batch_rows" in row}


def is_goal(row: Row) -> bool:
    """Whether a row is of a goal whose paces were chosen by right statistics, for rows that came as they were to."""
    return "approach" in row and not any(key in row for key in VARIANTS)


def goals(results: Sequence[Row]) -> dict[tuple[str, float, str], Row]:
    """Those of some rows, by query, share and approach."""
    return {(row["query"], row["share"], row["approach"]): row for row in results if is_goal(row)}


def feasible_goals(rows: Rows) -> list[tuple[str, float]]:
    """Query and share of the goals that count as met or missed."""
    return [key[:2] for key, row in rows.items() if key[2] == OURS and key[1] in GOALS and row["feasible"]]


def work_ratios(
    pairs: Mapping[str, Sequence[tuple[Row, Row]]], about: Mapping[str, Row], key: str, whole: str
) -> dict[str, float]:
    """Per query the additional work of the first rows of pairs, as a ratio to that of the second."""
    found = {}
    for query, own in pairs.items():
        least = len(own) * _LEAST * about[query][whole]
        first, second = (max(least, sum(pair[side][key] for pair in own)) for side in (0, 1))
        found[query] = first / second if second else 1.0
    return found


def _costs(rows: Rows, about: Mapping[str, Row]) -> dict[str, float]:
    """Compare the additional work of our paces with that of uniform ones, per query and over all queries."""
    pairs: dict[str, list[tuple[Row, Row]]] = {}
    for (query, share, approach), ours in rows.items():
        uniform = rows.get((query, share, UNIFORM))
        if approach == OURS and share in GOALS and uniform and ours["feasible"] and uniform["feasible"]:
            pairs.setdefault(query, []).append((ours, uniform))
    compared = [query for query, own in pairs.items() if any(a["paces"] != b["paces"] for a, b in own)]
    found: dict[str, float] = {COMPARED: len(compared)} if pairs else {}
    for name, (_, key, whole) in zip((CPU, ROWS), COSTS, strict=True):
        by_query = work_ratios({query: pairs[query] for query in compared}, about, key, whole)
        found |= {f"{query}: {name}": value for query, value in by_query.items()}
        if by_query:
            found[f"{name}, {WORST}"] = max(by_query.values())
            found[f"{name}, {MEAN}"] = statistics.geometric_mean(by_query.values())
    return found


def _met(rows: Rows, about: Mapping[str, Row]) -> dict[str, float]:
    """The share of feasible goals that each approach meets: of all, of those that are any work, and by one step."""
    ours, feasible = [key for key in rows if key[2] == OURS and key[1] in GOALS], feasible_goals(rows)
    if not feasible:
        return {FEASIBLE: 0.0} if ours else {}
    missed = [(query, share) for query, share in feasible if share not in about[query]["batch_met"]]
    found = {FEASIBLE: len(feasible) / len(ours), f"goals met by {BATCH}": 1 - len(missed) / len(feasible)}
    for approach in (OURS, UNIFORM, LEAF, HAND):
        if all((*key, approach) in rows for key in feasible):
            found[f"goals met by {approach}"] = mean(rows[(*key, approach)]["met"] for key in feasible)
            if missed:
                name = f"goals met by {approach}, of the {len(missed)} that the batch misses"
                found[name] = mean(rows[(*key, approach)]["met"] for key in missed)
            at_once = (rows[(*key, approach)]["at_once_ratio"] <= key[1] for key in feasible)
            found[f"goals met by {approach}, as shares of everything in one step"] = mean(at_once)
    return found


def mean(values: Iterable[bool]) -> float:
    """The share of values that are true."""
    return statistics.fmean(map(float, values))


def _errors(rows: Iterable[Row]) -> dict[str, float]:
    errors: dict[str, list[float]] = {}
    for row in rows:
        if row["query"] in ESTIMATED:
            errors.setdefault(row["approach"], []).append(abs(row["row_error"]))
    return {f"{ERROR}, {approach}": max(errors[approach]) for approach in (OURS, EAGER) if approach in errors}


def targets(found: Mapping[str, float], config: Mapping[str, Any], results: Sequence[Row]) -> list[dict[str, Any]]:
    """Return one entry per target; none is met while a query of the run has no right answer."""
    bad = {row["query"] for row in results if problem(row)}
    verdicts = []
    for name, sign, bound in _TARGETS:
        value = found.get(name)
        holds = value is not None and (value >= bound if sign == ">=" else value <= bound)
        right = f"{len(config['queries']) - len(bad)} of {len(config['queries'])}"
        entry = {"target": f"{name} {sign} {bound:g}", "value": value, "queries": right, "met": holds and not bad}
        verdicts.append(entry)
    return verdicts


def problem(row: Row) -> str | None:
    """Return the kind of problem that a row reports, and its message; None if it reports none."""
    return next((f"{kind}: {row[kind]}" for kind in PROBLEMS if kind in row), None)

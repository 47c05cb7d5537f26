"""The ratios of Headrace to Spark in the TPC-H benchmark, per query and over all queries, and their targets.

A query without a right answer has no ratios. While there is such a query no target is met: a mean over what works would
hide what does not.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.bench.measuring.targets import Verdict, judged, verdict

Results = Sequence[Mapping[str, Any]]

TABLES_ONLY, TOGETHER, SHARING_OFF = "tables only", "together", "together, sharing off"
RECOMPUTE, LOAD = "recompute / (step + read)", "load / run by Spark"
MEAN, LEAST, MOST = "geometric mean", "least", "most"
MEMORY, PEAK = "memory, GB", "memory"
PROBLEMS = ("refused", "failed", "wrong")

_RECOMPUTE_MEAN = f"{RECOMPUTE}, {MEAN}"  # by the median step
_TARGETS = (
    (_RECOMPUTE_MEAN, ">=", 25.0),
    (f"{RECOMPUTE}, {LEAST}", ">=", 10.0),
    (f"{LOAD}, {MOST}", "<=", 3.0),
    (MEMORY, "<=", 20.0),
)
_BESIDE_OFF = f"{TOGETHER}: step / with sharing off"
_SHARED, _SHARED_QUERIES = 0.7, 22


def ratios(results: Results) -> dict[str, float]:
    """Compute all ratios from the rows of a result."""
    ours = {row["case"]: row for row in results if row["system"] == "headrace" and _counts(row)}
    theirs = {row["case"]: row for row in results if row["system"] == "spark"}
    queries = [name for name in theirs if name in ours]
    # Spark's time ends with the answer in the driver, so reading the answer counts on both sides.
    recompute = {name: theirs[name]["seconds"] / _fresh(ours[name], "seconds") for name in queries}
    by_mean = [theirs[name]["seconds"] / _fresh(ours[name], "mean_seconds") for name in queries]
    load = {name: ours[name]["load_seconds"] / theirs[name]["load_seconds"] for name in queries}
    found: dict[str, float] = {}
    for name in queries:
        found |= {f"{name}: {RECOMPUTE}": recompute[name], f"{name}: {LOAD}": load[name]}
    if queries:
        found[_RECOMPUTE_MEAN] = statistics.geometric_mean(recompute.values())
        found[f"{RECOMPUTE} (mean step), {MEAN}"] = statistics.geometric_mean(by_mean)
        found[f"{RECOMPUTE}, {LEAST}"] = min(recompute.values())
        found[f"{LOAD}, {MEAN}"] = statistics.geometric_mean(load.values())
        found[f"{LOAD}, {MOST}"] = max(load.values())
    for row in results:
        if row["case"] == PEAK:
            found[MEMORY] = row["peak_mb"] / 1e3
    return found | _together(ours, theirs)


def _fresh(row: Mapping[str, Any], step: str) -> float:
    """The time from the changes to the answer: a step, and reading the answer."""
    return float(row[step] + row["read_seconds"])


def _together(ours: Mapping[str, Mapping[str, Any]], theirs: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Compare one engine with all views to Spark, and to one engine per view, which stores the tables each time."""
    if TOGETHER not in ours:
        return {}
    row, tables = ours[TOGETHER], ours[TABLES_ONLY]
    found = {
        f"{TOGETHER}: {RECOMPUTE}": sum(theirs[name]["seconds"] for name in row["views"]) / _fresh(row, "seconds"),
        f"{TOGETHER}: bytes of the tables / with no view": row["table_mb"] / tables["table_mb"],
    }
    if SHARING_OFF in ours and ours[SHARING_OFF]["views"] == row["views"]:
        off = ours[SHARING_OFF]
        found[_BESIDE_OFF] = row["seconds"] / off["seconds"]
        found[f"{TOGETHER}: state / with sharing off"] = row["state_mb"] / off["state_mb"]
    if all(name in ours for name in row["views"]):
        alone = sum(ours[name]["seconds"] for name in row["views"])
        found[f"{TOGETHER}: step / sum of the steps of each view alone"] = row["seconds"] / alone
    return found


def _counts(row: Mapping[str, Any]) -> bool:
    """Whether the numbers of a row count; those of all views together do, even if some views could not be made."""
    return not problem(row) or (row["case"] in (TOGETHER, SHARING_OFF) and "seconds" in row and "wrong" not in row)


def targets(found: Mapping[str, float], results: Results) -> list[Verdict]:
    """Return one entry per target, which says whether the queries of the run meet it."""
    theirs = [row["case"] for row in results if row["system"] == "spark"]
    right = sum(f"{name}: {RECOMPUTE}" in found for name in theirs)
    verdicts = []
    for name, sign, bound in _TARGETS:
        entry = verdict(name, sign, bound, found.get(name)) | {"queries": f"{right} of {len(theirs)}"}
        verdicts.append(entry if entry["met"] is None else entry | {"met": entry["met"] and right == len(theirs)})
    return judged([*verdicts, _shared(found, results)], results)


def _shared(found: Mapping[str, float], results: Results) -> Verdict:
    """Compare a step of all queries in one engine to that of the same queries which share nothing."""
    views = next((row.get("views", ()) for row in results if row["case"] == TOGETHER), ())
    why = "" if len(views) >= _SHARED_QUERIES else f"the target is for {_SHARED_QUERIES} queries with --together"
    entry = verdict(_BESIDE_OFF, "<=", _SHARED, found.get(_BESIDE_OFF), why_not=why)
    return entry | {"queries": f"{len(views)} of {_SHARED_QUERIES}"}


def problem(row: Mapping[str, Any]) -> str | None:
    """Return the kind of problem that a row reports, and its message; None if it reports none."""
    return next((f"{kind}: {row[kind]}" for kind in PROBLEMS if kind in row), None)

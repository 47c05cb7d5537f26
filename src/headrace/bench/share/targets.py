"""The targets of views with goals that share subplans: what the CrocodileDB thesis reports for iShare (4.4).

They are for goals that are drawn at random. The sets of views are the 22 queries of TPC-H, and *twenty*: ten queries
and the same with other parameters, which have more in common. Every other set of a run is held against the former.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.bench.measuring.targets import Verdict, verdict

Row = Mapping[str, Any]

OURS = "ours"
_ALL, _TWENTY = "tpch", "twenty"
_CPU = {"noshare-uniform": 0.6, "noshare-nonuniform": 0.8, "share-uniform": 0.34}
_CPU_OF_TWENTY = {"noshare-uniform": 0.52, "noshare-nonuniform": 0.59, "share-uniform": 0.32}
_MISSED, _PLANNING = 0.05, 10.0


def targets(results: Sequence[Row]) -> list[Verdict]:
    """Return one entry per target and set of views; those of the thesis are there even if the run lacks them."""
    cases = dict.fromkeys([*(row["views"] for row in results), _ALL, _TWENTY])
    return [*(found for case in cases for found in _of_case(case, results)), _planning(results)]


def _of_case(case: str, results: Sequence[Row]) -> list[Verdict]:
    rows = [row for row in results if row["views"] == case and row["goals"].startswith("random")]
    why = "" if rows else f"the run has no {case} with random goals"
    found = []
    for approach, bound in (_CPU_OF_TWENTY if case == _TWENTY else _CPU).items():
        value = _cpu(rows, OURS) / _cpu(rows, approach) if rows else None
        name = f"{case}, random goals: CPU, ours / {approach}"
        found.append(verdict(name, "<=", bound, value, why_not=why))
    missed = [row["missed_mean"] for row in rows if row["approach"] == OURS]
    value = statistics.mean(missed) if missed else None
    return [*found, verdict(f"{case}, random goals: mean missed latency", "<=", _MISSED, value, why_not=why)]


def _cpu(rows: Sequence[Row], approach: str) -> float:
    return sum(float(row["cpu_seconds"]) for row in rows if row["approach"] == approach)


def _planning(results: Sequence[Row]) -> Verdict:
    rows = [row for row in results if row["views"] == _ALL and row["approach"] == OURS]
    value = max((row["planning_seconds_at_pace_100"] for row in rows), default=None)
    why = "" if rows else f"the run has no {_ALL}"
    name = f"{_ALL}: seconds to choose paces up to 100"
    return verdict(name, "<=", _PLANNING, value, why_not=why)

"""The targets of views with goals that share subplans: what the CrocodileDB thesis reports for iShare (4.4).

The sets of views are the 22 queries of TPC-H, and *twenty*: ten queries and the same with other parameters, which have
more in common. Every other set of a run is held against the former. The thesis reports goals that are drawn at random
for the 22 queries, and goals that are the same for all for the twenty. Both kinds are judged for both sets, each kind
by itself; goals that are given one by one are not.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from headrace.bench.measuring.targets import Verdict, verdict
from headrace.bench.share.planning import GOAL, HIGHEST
from headrace.bench.share.wanted import LISTED, RANDOM, UNIFORM

Row = Mapping[str, Any]

OURS = "ours"
_ALL, _TWENTY = "tpch", "twenty"
_CPU = {"noshare-uniform": 0.6, "noshare-nonuniform": 0.8, "share-uniform": 0.34}
_CPU_OF_TWENTY = {"noshare-uniform": 0.52, "noshare-nonuniform": 0.59, "share-uniform": 0.32}
_MISSED, _PLANNING = 0.05, 10.0


def targets(results: Sequence[Row], planned: Mapping[str, Row] = MappingProxyType({})) -> list[Verdict]:
    """Return one entry per target, set of views and kind of goals; those of the thesis are there even if the run lacks
    them.

    Parameters
    ----------
    planned : per set of views, how long the choice of paces took (`planning`).
    """
    kinds = [(row["views"], row["kind_of_goals"]) for row in results if row["kind_of_goals"] != LISTED]
    asked = dict.fromkeys([*kinds, (_ALL, RANDOM), (_TWENTY, RANDOM), (_TWENTY, UNIFORM)])
    return [*(found for case, kind in asked for found in _of_case(case, kind, results)), _planning(planned)]


def _of_case(case: str, kind: str, results: Sequence[Row]) -> list[Verdict]:
    rows = [row for row in results if row["views"] == case and row["kind_of_goals"] == kind]
    why = "" if rows else f"the run has no {case} with {kind} goals"
    found = []
    for approach, bound in (_CPU_OF_TWENTY if case == _TWENTY else _CPU).items():
        value = _cpu(rows, OURS) / _cpu(rows, approach) if rows else None
        name = f"{case}, {kind} goals: CPU, ours / {approach}"
        found.append(verdict(name, "<=", bound, value, why_not=why))
    missed = [row["missed_mean"] for row in rows if row["approach"] == OURS]
    value = statistics.mean(missed) if missed else None
    return [*found, verdict(f"{case}, {kind} goals: mean missed latency", "<=", _MISSED, value, why_not=why)]


def _cpu(rows: Sequence[Row], approach: str) -> float:
    return sum(float(row["cpu_seconds"]) for row in rows if row["approach"] == approach)


def _planning(planned: Mapping[str, Row]) -> Verdict:
    value = planned[_ALL]["seconds"] if _ALL in planned else None
    why = "" if _ALL in planned else f"the run has no {_ALL}"
    name = f"{_ALL}: seconds to choose paces up to {HIGHEST} for goals of {GOAL}"
    return verdict(name, "<=", _PLANNING, value, why_not=why)

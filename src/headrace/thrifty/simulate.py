"""What a choice of paces costs: a simulated trigger, from its first row to its last (Algorithm 1 of InQP).

The data of a trigger comes in equal parts. After each part, the paths that are due are flushed, children before their
parents. A flush runs through the operators of the path, whose flows are those of `cardinalities`, and which cost what
`unit_costs` say. The last part is the trigger: all paths are flushed, and the cost of that flush is the final work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numba as nb
import numpy as np
from numpy.typing import NDArray

from headrace.thrifty.cardinalities import (
    GROUP,
    PARAMETERS,
    TOP,
    Numbers,
    group_flow,
    join_flow,
    top_flow,
    touched_groups,
)
from headrace.thrifty.schedule import LEARNING, LEARNING_AT
from headrace.thrifty.unit_costs import UnitCosts

_jit: Any = nb.njit(cache=True, nogil=True)
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class FlatPlan:
    """A tree of operators as arrays, with all that a simulation needs to know of a trigger.

    Parameters
    ----------
    kinds, parameters : of each operator.
    path_of : per operator and side, the path that begins there; -1 if none does.
    arriving : per operator and side, the flow of table rows that comes until the trigger.
    feeds : (producer, operator, side) of each feed from one operator to another.
    passing : per feed, the flow that passes it, for each flow that is given: rows out, columns in.
    children : (child, parent) pairs of paths; the pace of a parent is at most that of its child.
    """

    kinds: Integers
    parameters: Numbers
    path_of: Integers
    arriving: Numbers
    feeds: Integers
    passing: Numbers
    paths: tuple[str, ...]
    children: tuple[tuple[int, int], ...]

    def to_json(self) -> dict[str, Any]:
        """The plan as plain values."""
        arrays = {name: getattr(self, name).tolist() for name in _ARRAYS}
        return {**arrays, "paths": list(self.paths), "children": [list(pair) for pair in self.children]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> FlatPlan:
        arrays: dict[str, Any] = {
            name: np.array(data[name], kind).reshape(shape) for name, (kind, shape) in _ARRAYS.items()
        }
        return cls(**arrays, paths=tuple(data["paths"]), children=tuple((a, b) for a, b in data["children"]))


_ARRAYS: dict[str, tuple[type, tuple[int, ...]]] = {
    "kinds": (np.int64, (-1,)),
    "parameters": (np.float64, (-1, PARAMETERS)),
    "path_of": (np.int64, (-1, 2)),
    "arriving": (np.float64, (-1, 2, 3)),
    "feeds": (np.int64, (-1, 3)),
    "passing": (np.float64, (-1, 3, 3)),
}


@dataclass(frozen=True)
class Work:
    """What a trigger costs, in microseconds, and the rows that operators take; `final` is of the last flush."""

    total: float
    final: float
    total_rows: float
    final_rows: float
    rows: Mapping[int, float]  # per operator
    cpu: Mapping[int, float]  # per operator, and that of the flushes themselves under -1
    given: tuple[tuple[float, float, float], ...] = ()  # per operator, the flow that it gives until the trigger


def simulated(plan: FlatPlan, paces: Sequence[int], units: UnitCosts, parts: int) -> Work:
    """Simulate a trigger with these paces (`LEARNING` among them), its data in so many parts."""
    rows, cpu, gave = np.zeros(len(plan.kinds)), np.zeros(len(plan.kinds) + 1), np.zeros((len(plan.kinds), 3))
    total, final, total_rows, final_rows = _simulate(
        plan.kinds,
        plan.parameters,
        plan.path_of,
        plan.arriving,
        plan.feeds,
        plan.passing,
        np.asarray(paces, np.int64),
        units.table,
        units.limit,
        parts,
        rows,
        cpu,
        gave,
    )
    by_operator = {**dict(enumerate(cpu[:-1].tolist())), -1: float(cpu[-1])}
    given = tuple((one, two, three) for one, two, three in gave.tolist())
    return Work(total, final, total_rows, final_rows, dict(enumerate(rows.tolist())), by_operator, given)


@_jit
def _simulate(kinds, parameters, path_of, arriving, feeds, passing, paces, units, limit, parts, rows, cpu, every_given):  # type: ignore[no-untyped-def]
    operators = len(kinds)
    flushed = np.zeros(len(paces), np.int64)
    last = np.zeros(len(paces))  # how much of the data had come at the last flush of each path
    cumulated = np.zeros((operators, 2))
    waiting = np.zeros((operators, 3))  # before aggregates and tops
    entries = np.zeros(operators)  # the same, after the rows of each flush were added up by group
    taken = np.zeros((operators, 2, 3))
    given = np.zeros(3)
    cost = np.zeros((2, operators + 1))  # of a flush, if it is small and if it is large
    total, final, total_rows, final_rows = 0.0, 0.0, 0.0, 0.0
    for part in range(1, parts + 1):
        progress = part / parts
        is_due = np.zeros(len(paces), np.bool_)
        any_due = False
        for path in range(len(paces)):
            count = part * paces[path] // parts
            if paces[path] == LEARNING:
                for hundredth in LEARNING_AT:
                    count += 100 * part >= hundredth * parts
            if count > flushed[path] or part == parts:
                is_due[path] = True
                any_due = True
                flushed[path] = count
        # Rows of a table that go straight into an aggregate are added up as they come.
        for n in range(operators):
            if kinds[n] >= GROUP:
                for flow in range(3):
                    waiting[n, flow] += arriving[n, 0, flow] / parts
                if kinds[n] == GROUP:
                    entries[n] += touched_groups(parameters[n], arriving[n, 0, 0] / parts)
        if not any_due:
            continue
        taken[:] = 0.0
        cost[:] = 0.0
        flush_rows, priced_rows, ran = 0.0, 0.0, 0
        for n in range(operators):
            given[:] = 0.0
            summed = 0.0
            if kinds[n] >= GROUP:
                waiting[n] += taken[n, 0]
                if kinds[n] == GROUP:
                    fed = taken[n, 0, 0] + 2.0 * taken[n, 0, 1] + taken[n, 0, 2]
                    entries[n] += touched_groups(parameters[n], fed)
                path = path_of[n, 0]
                if not is_due[path]:
                    continue
                came = waiting[n, 0] + 2.0 * waiting[n, 1] + waiting[n, 2]
                waiting[n] = 0.0
                if came <= 0.0:
                    continue
                if kinds[n] == TOP:
                    top_flow(parameters[n], cumulated[n, 0], came, given)
                    took = came
                else:
                    took = group_flow(parameters[n], cumulated[n, 0], came, given)
                    summed = entries[n]  # they are added up once more
                    entries[n] = 0.0
                cumulated[n, 0] += came
            else:
                for side in range(2):
                    path = path_of[n, side]
                    if path >= 0 and is_due[path]:
                        for flow in range(3):
                            taken[n, side, flow] += arriving[n, side, flow] * (progress - last[path])
                        last[path] = progress
                took = 0.0
                for side in range(2):
                    took += taken[n, side, 0] + 2.0 * taken[n, side, 1] + taken[n, side, 2]
                if took <= 0.0:
                    continue
                join_flow(kinds[n], parameters[n], cumulated[n], taken[n], given)
            gave = given[0] + 2.0 * given[1] + given[2]
            every_given[n] += given
            for size in range(2):
                price = units[size, n]
                cost[size, n] = price[0] + price[1] * (took + summed) + price[2] * gave
            flush_rows += took
            priced_rows += took + summed
            ran += 1
            rows[n] += took
            for f in range(len(feeds)):
                if feeds[f, 0] == n:
                    for flow in range(3):
                        more = 0.0
                        for source in range(3):
                            more += passing[f, flow, source] * given[source]
                        taken[feeds[f, 1], feeds[f, 2], flow] += more
        size = 1 if priced_rows > limit else 0
        price = units[size, operators]
        cost[size, operators] = price[0] + price[1] * priced_rows + price[2] * ran
        spent = 0.0
        for n in range(operators + 1):
            cpu[n] += cost[size, n]
            spent += cost[size, n]
        total += spent
        total_rows += flush_rows
        if part == parts:
            final = spent
            final_rows = flush_rows
    return total, final, total_rows, final_rows

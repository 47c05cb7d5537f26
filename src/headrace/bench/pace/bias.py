"""Statistics that are wrong by a factor: what paces would be chosen if operators gave more or fewer rows than they do.

Each filter of a table, each join and each aggregate is taken to give so many times the rows that it gives for what it
takes. Errors of operators below come on top, as they do with any estimate: above five joins, a factor of 2 makes one of
64. The plan stays one that could be: what an operator takes is what those below give, a share stays a share, and there
are no more groups than rows. Unit costs, the CPU of holding rows and the sizes of what is shown are as learnt.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from headrace.thrifty import cardinalities as c
from headrace.thrifty.observed import gross
from headrace.thrifty.simulate import FlatPlan


def biased(plan: FlatPlan, factor: float) -> FlatPlan:
    """The plan as wrong statistics would have it."""
    arriving, parameters = factor * plan.arriving, plan.parameters.copy()
    given, wrong = np.zeros((len(plan.kinds), 3)), np.zeros((len(plan.kinds), 3))
    for n, kind in enumerate(plan.kinds):  # those that feed an operator come before it
        taken, more = _taken(plan, n, plan.arriving, given), _taken(plan, n, arriving, wrong)
        times = [_gross(b) / _gross(a) if _gross(a) > 0 else 1.0 for a, b in zip(taken, more, strict=True)]
        if kind == c.GROUP:
            parameters[n] = _group(plan.parameters[n], factor, times[0])
        elif kind != c.TOP:  # how many rows of an order are wanted, the query says
            parameters[n] = _join(plan.parameters[n], factor, times)
        _give(int(kind), plan.parameters[n], taken, given[n])
        _give(int(kind), parameters[n], more, wrong[n])
    return replace(plan, arriving=arriving, parameters=parameters)


def _taken(plan: FlatPlan, n: int, arriving: c.Numbers, given: c.Numbers) -> c.Numbers:
    """What both sides of an operator take if all rows come at once."""
    taken = arriving[n].copy()
    for (producer, consumer, side), passing in zip(plan.feeds, plan.passing, strict=True):
        if consumer == n:
            taken[side] += passing @ given[producer]
    return taken


def _give(kind: int, p: c.Numbers, taken: c.Numbers, out: c.Numbers) -> None:
    """What an operator gives for that."""
    if kind == c.GROUP:
        c.group_flow(p, 0.0, _gross(taken[0]), out)
    elif kind == c.TOP:
        c.top_flow(p, 0.0, _gross(taken[0]), out)
    else:
        c.join_flow(kind, p, np.zeros(2), taken, out)


def _group(p: c.Numbers, factor: float, rows: float) -> c.Numbers:
    """The parameters of an aggregate that takes so many times its rows."""
    out = p.copy()
    out[c.ROWS] *= rows
    if p[c.GROUPS] > 1:  # a total has one group, whatever comes
        out[c.GROUPS] = max(1.0, min(factor * rows * p[c.GROUPS], out[c.ROWS]))
        out[c.NEW] *= out[c.GROUPS] / p[c.GROUPS]
    return out


def _join(p: c.Numbers, factor: float, rows: list[float]) -> c.Numbers:
    """The parameters of a join that takes so many times the rows of its sides.

    Pairs go with the rows of the larger side, which is the one that refers to the other.
    """
    out = p.copy()
    pairs = factor * (rows[0] if p[c.LEFT_ROWS] >= p[c.RIGHT_ROWS] else rows[1])
    partners = [pairs / times if times else 1.0 for times in rows]  # of a row, as times those that it has
    out[[c.LEFT_ROWS, c.RIGHT_ROWS]] *= rows
    out[c.PAIRS] *= pairs
    out[[c.LEFT_CHURN, c.RIGHT_CHURN]] *= partners
    out[c.MATCHED] = min(1.0, factor * p[c.MATCHED])
    if p[c.MATCHED] > 0:
        out[c.PARTNERS] = max(1.0, partners[0] * p[c.PARTNERS] * p[c.MATCHED] / out[c.MATCHED])
    return out


def _gross(flow: c.Numbers) -> float:
    inserted, updated, deleted = flow.tolist()
    return gross((inserted, updated, deleted))

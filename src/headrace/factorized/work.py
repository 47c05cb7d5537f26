"""What a step costs a view tree: for the changes of a source, the keys that change in each view up to the root.

A view has at most as many keys as the smallest relation has values of each of its variables, so summing before joining
pays where keys are few; where they are as many as the rows, as in groups by a table's key, every row is a sum of its
own, and costs more than a row.
"""

from __future__ import annotations

from math import prod

from headrace.factorized.maintenance import MaintenancePlan, View
from headrace.plan.join import JoinPlan
from headrace.plan.work import Statistics, Work, fan_out

MICROSECONDS = 1.5


def view_tree_work(strategy: str, plan: MaintenancePlan, join: JoinPlan, statistics: Statistics) -> Work:
    """Estimate a step."""
    touched = {}
    for source in (source.name for source in join.sources):
        changed = statistics.changed[source]
        if changed:
            above = [view for view in plan.views if source in view.relations]
            touched[source] = changed + sum(
                min(
                    _keys(view, join, statistics),
                    changed * fan_out(statistics.rows[source], _keys(view, join, statistics)),
                )
                for view in above
            )
    return Work(strategy, touched, MICROSECONDS)


def _keys(view: View, join: JoinPlan, statistics: Statistics) -> float:
    """About how many keys a view has."""
    most = max((statistics.rows[s.name] for s in join.sources if s.name in view.relations), default=1.0)
    values = [
        min((statistics.rows[s.name] for s in join.sources if variable in s.variable_names), default=most)
        for variable in view.keys
    ]
    return max(1.0, min(most, prod(values)))

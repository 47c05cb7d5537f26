"""What a step costs a view tree: for the changes of a source, the keys that change in each view up to the root.

A view has at most as many keys as the smallest relation has values of each of its variables, so summing before joining
pays where keys are few; where they are as many as the rows, as in groups by a table's key, every row is a sum of its
own, and costs more than a row.
"""

from __future__ import annotations

from math import prod

from headrace.factorized.maintenance import MaintenancePlan, View
from headrace.plan.join import JoinPlan
from headrace.thrifty.cost import Cost, fan_out
from headrace.thrifty.statistics import OfSources, Statistics


def view_tree_cost(plan: MaintenancePlan, join: JoinPlan, statistics: Statistics) -> Cost:
    """Estimate a step."""
    known = statistics.of_joined(join.sources)
    touched = {}
    for source, changed in known.changed.items():
        if changed:
            keys = [_keys(view, join, known) for view in plan.views if source in view.relations]
            touched[source] = changed + sum(min(own, changed * fan_out(known.rows[source], own)) for own in keys)
    return Cost(touched, statistics.units.product)


def _keys(view: View, join: JoinPlan, known: OfSources) -> float:
    """About how many keys a view has."""
    most = max((known.rows[s.name] for s in join.sources if s.name in view.relations), default=1.0)
    values = [
        min((known.rows[s.name] for s in join.sources if variable in s.variable_names), default=most)
        for variable in view.keys
    ]
    return max(1.0, min(most, prod(values)))

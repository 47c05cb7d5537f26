"""What a step costs a view tree: per changed source, the keys that change in each view up to the root.

The values of a variable are at most the rows of the smallest relation that has it, and the keys of a view at most the
product over its variables. So summing before joining pays where keys are few. Where there are as many keys as rows, as
in groups by a table's key, every row becomes a sum of its own, which costs more than a row.
"""

from __future__ import annotations

from math import prod

from headrace.factorized.maintenance import MaintenancePlan, View
from headrace.plan.join import JoinPlan
from headrace.thrifty.cost import Cost, fan_out
from headrace.thrifty.statistics import OfSources, Statistics


def view_tree_cost(plan: MaintenancePlan, join: JoinPlan, statistics: Statistics) -> Cost:
    """Estimate the cost of a step of a view tree."""
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

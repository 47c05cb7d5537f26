"""Factorized maintenance: one view tree for all relations, and one trigger per relation, up its path.

A change of a relation passes every view between its leaf and the root (the delta tree of Figure 7). At each view it is
joined with the sibling views, which are kept for this purpose if a relation beside them can change.
"""

from __future__ import annotations

from collections.abc import Collection

from headrace.factorized.maintenance import MaintenancePlan, Statement, Trigger, View, arranged
from headrace.factorized.tree import ViewNode, views_to_keep


def factorized(
    root: ViewNode, features: Collection[str], updatable: Collection[str], strategy: str = "factorized"
) -> MaintenancePlan:
    """Make the plan of a view tree for changes to some of its relations."""
    nodes = list(root.walk())
    number = {id(node): i for i, node in enumerate(nodes)}
    reasons = views_to_keep(root, frozenset(updatable))
    views = [
        View(
            name=node.name,
            keys=node.keys,
            relations=node.relations,
            relation=node.relation,
            lifted=tuple(variable for variable in node.marginalised if variable in features),
            payload=tuple(number[id(child)] for child in node.children),
            kept=node in reasons,
            why=reasons.get(node, "no change is joined with it"),
        )
        for node in nodes
    ]
    parents = {number[id(child)]: number[id(node)] for node in nodes for child in node.children}
    triggers = []
    for i, node in enumerate(nodes):
        if node.relation is not None:
            statements, at = [], i
            while at in parents:
                up = parents[at]
                factors = views[up].payload
                statements.append(Statement(up, factors, factors.index(at)))
                at = up
            triggers.append(Trigger(node.relation, i, tuple(statements)))
    placed, planned = arranged(views, triggers)
    static = frozenset(trigger.relation for trigger in triggers if trigger.relation not in updatable)
    return MaintenancePlan(strategy, placed, planned, 0, static=static)

"""Factorized maintenance: one view tree for all relations, and one trigger per relation, up its path.

A change of a relation passes every view between its leaf and the root (the delta tree of Figure 7). At each view it is
joined with the sibling views, which are kept for this purpose if a relation beside them can change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headrace.factorized.maintenance import MaintenancePlan, Statement, Trigger, View, arranged, indicated
from headrace.factorized.tree import ViewNode, views_to_keep


def factorized(
    root: ViewNode,
    features: Collection[str],
    updatable: Collection[str],
    strategy: str = "factorized",
    read: Mapping[ViewNode, str] | None = None,
    intersect: bool = False,
) -> MaintenancePlan:
    """Make the plan of a view tree for changes to some of its relations.

    Parameters
    ----------
    read : views that are kept because readers need them, each with the reason.
    intersect : a change is joined with several views at once where they bind the same variables (`Probe`).
    """
    nodes = list(root.walk())
    number = {id(node): i for i, node in enumerate(nodes)}
    reasons = {**views_to_keep(root, frozenset(updatable)), **(read or {})}
    views = [
        View(
            name=node.name,
            keys=node.keys,
            relations=node.relations,
            relation=node.relation,
            lifted=tuple(variable for variable in node.marginalised if variable in features),
            payload=tuple(number[id(child)] for child in node.children if not child.indicator),
            kept=node in reasons or (node.indicator and node.relation in updatable),
            why=_counting(node) if node.indicator else reasons.get(node, "no change is joined with it"),
            indicator=node.indicator,
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
                factors = tuple(number[id(child)] for child in nodes[up].children)
                statements.append(Statement(up, factors, factors.index(at)))
                at = up
            triggers.append(Trigger(indicated(i) if node.indicator else node.relation, i, tuple(statements)))
    known = {number[id(node)]: frozenset(node.keys).difference(node.listed) for node in nodes if node.listed}
    placed, planned = arranged(views, triggers, known, intersect)
    static = frozenset(trigger.relation for trigger in triggers if views[trigger.leaf].relation not in updatable)
    return MaintenancePlan(strategy, placed, planned, 0, static=static)


def _counting(indicator: ViewNode) -> str:
    return (
        f"it is part of a cycle: it leaves only keys that {indicator.relation} has; rows are counted, to know when the "
        "first one of a key comes and the last one goes"
    )

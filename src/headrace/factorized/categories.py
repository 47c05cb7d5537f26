"""Categorical variables in a plan: keys up to the answer, where they become sums by level and counts by pair.

In the generalized covariance ring (F-IVM, Definition 37) payloads are relations over categories. A run file has columns
of fixed width, and a relation is what a run is: so below the answer the entries of a relational payload are entries of
the view, with the categories appended to its keys. Nothing about arranging, merging, exchanging or storing changes, no
payload is longer than its continuous features make it, and a view has at most one entry per combination of categories
that rows of one relation have. Categories of two relations would make a view larger than both: such a view is not made,
and its factors are joined one view higher, at last in the answer. There pairs are enough, and only there they are kept.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from headrace.factorized.maintenance import MaintenancePlan, Statement, Trigger, View, arranged
from headrace.factorized.order import Node, VariableOrder, rebuilt
from headrace.plan.hypergraph import Hypergraph


def carried(plan: MaintenancePlan, categorical: Collection[str]) -> tuple[tuple[str, ...], ...]:
    """Per view, the categories of the relations below that its entries carry, in the order of its factors."""
    found: dict[int, tuple[str, ...]] = {}

    def of(view: int) -> tuple[str, ...]:
        if view not in found:
            here = plan.views[view]
            below = [name for child in here.payload for name in of(child)]
            own = [name for name in (*here.categories, *here.lifted) if name in categorical]
            found[view] = tuple(dict.fromkeys([*below, *own]))
        return found[view]

    return tuple(of(view) for view in range(len(plan.views)))


def joined_higher(order: VariableOrder, query: Hypergraph, categorical: Collection[str]) -> VariableOrder:
    """Mark the variables where categories of several relations would meet below the answer: nothing is summed there."""
    local = {
        r.name: [v for v in r.variables if v in categorical and v in query.local_variables] for r in query.relations
    }
    bring: dict[Node, int] = {}

    def marked(node: Node) -> Node:
        sources = sum(bool(local[name]) for name in node.relations) + sum(bring[child] > 0 for child in node.children)
        own = node.variable in categorical and node.variable not in query.local_variables
        made = replace(node, stop_pushdown=node.stop_pushdown or sources > 1)
        bring[made] = sources + own
        return made

    every = rebuilt(order, marked)
    # A root sums into the answer, whatever meets there.
    kept = {root.variable: root.stop_pushdown for root in order.roots}
    return VariableOrder(tuple(replace(root, stop_pushdown=kept[root.variable]) for root in every.roots))


def with_categories(plan: MaintenancePlan, categorical: Collection[str]) -> MaintenancePlan:
    """The plan with categories as keys of all views but the answer, which must be above all leaves."""
    if not categorical:
        return plan
    plan = _with_root_above(plan)
    below = carried(plan, categorical)
    views = []
    for i, view in enumerate(plan.views):
        lifted = tuple(name for name in view.lifted if name not in categorical)
        own = tuple(name for name in view.lifted if name in categorical)
        if i == plan.root:
            views.append(replace(view, lifted=lifted, categories=own))
            continue
        keys = tuple(dict.fromkeys([*view.keys, *below[i]]))
        name = f"{view.name.removesuffix(_brackets(view.keys))}{_brackets(keys)}"
        views.append(replace(view, name=name, keys=keys, lifted=lifted, categories=own))
    placed, triggers = arranged(views, plan.triggers)
    return replace(plan, views=placed, triggers=triggers)


def _with_root_above(plan: MaintenancePlan) -> MaintenancePlan:
    """Put a view above a leaf that is the answer: its rows are summed by combination of categories first."""
    leaf = plan.views[plan.root]
    if leaf.relation is None:
        return plan
    at = len(plan.views)
    root = View(
        name=f"V_@{_brackets(leaf.keys)}",
        keys=leaf.keys,
        relations=leaf.relations,
        payload=(plan.root,),
        kept=True,
        why=leaf.why,
    )
    views = [*plan.views, root]
    views[plan.root] = replace(leaf, kept=False, why="no change is joined with it")
    (trigger,) = plan.triggers
    triggers = (Trigger(trigger.relation, trigger.leaf, (Statement(at, (plan.root,), 0),)),)
    return replace(plan, views=tuple(views), triggers=triggers, root=at)


def _brackets(keys: Collection[str]) -> str:
    return f"[{', '.join(keys)}]"

"""View trees whose views together are the result of a query: its rows, factorized.

At a free variable there are two views: H lists its values under the values above it, and V, the sum of H, is what the
view above joins (the function nu of F-IVM, Figure 9; payloads are multiplicities). The rows of the result are listed
from the top down and never stored. A chain of free variables without a branch is one view: the views in between would
hold what its H holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from headrace.errors import VariableOrderError
from headrace.factorized.factorize import factorized
from headrace.factorized.maintenance import Level, MaintenancePlan, order_with
from headrace.factorized.order import Node, VariableOrder
from headrace.factorized.tree import ViewNode, tau
from headrace.plan.hypergraph import Hypergraph


def result_tree(order: VariableOrder, query: Hypergraph) -> ViewNode:
    """Build the view tree of a free-top order in which every relation stands under its lowest variable.

    Its root has no keys, and counts the rows of the result.

    Raises
    ------
    VariableOrderError : a bound variable stands above a free one.
    """
    for node in order.nodes():
        below = next((c.variable for c in node.children if c.variable in query.free), None)
        if below is not None and node.variable not in query.free:
            raise VariableOrderError(
                f"Variable {node.variable}, which the query does not show, is above {below}, which it shows.",
                way_out=f"Move {below} above {node.variable}: rows are listed from the top of the order down.",
            )
    roots = [view for root in order.roots for view in _views(root, order, query)]
    roots += [ViewNode((), relation=relation.name) for relation in query.relations if not relation.variables]
    return roots[0] if len(roots) == 1 else ViewNode((), tuple(roots))


def _views(node: Node, order: VariableOrder, query: Hypergraph) -> list[ViewNode]:
    if node.variable not in query.free:
        return tau(node, order, query)
    block = [node]
    while not block[-1].relations and len(block[-1].children) == 1 and block[-1].children[0].variable in query.free:
        block.append(block[-1].children[0])
    children = [view for child in block[-1].children for view in _views(child, order, query)]
    children += [ViewNode(query.relation(name).variables, relation=name) for name in block[-1].relations]
    own, above = tuple(n.variable for n in block), order.dep(query, node.variable)
    return [ViewNode(above, (_listed(own, (*above, *own), children),), None, own, own)]


def _listed(own: tuple[str, ...], keys: tuple[str, ...], children: list[ViewNode]) -> ViewNode:
    """The view that lists some variables; over a single child it is composed with that child."""
    available = dict.fromkeys(variable for child in children for variable in child.keys)
    gone = tuple(variable for variable in available if variable not in keys)
    if len(children) > 1:
        return ViewNode(keys, tuple(children), None, own, gone, own)
    (only,) = children
    variables, summed = (*own, *only.variables), (*gone, *only.marginalised)
    return ViewNode(keys, only.children, only.relation, variables, summed, own)


def read_by_readers(root: ViewNode) -> dict[ViewNode, str]:
    """The views that readers need, each with the reason why it is kept."""
    found = {node: f"readers list {', '.join(node.listed)} from it" for node in root.walk() if node.listed}
    for node in root.walk():
        if node.listed or node is root:
            for child in _factors(node):
                found.setdefault(child, "readers multiply by it")
    return found


def _lists(node: ViewNode) -> bool:
    """Whether a view is the sum of one that readers list."""
    return len(node.children) == 1 and bool(node.children[0].listed)


def _factors(node: ViewNode) -> list[ViewNode]:
    """The children of a view that readers multiply by, because others beside them are listed."""
    listed = [_lists(child) for child in node.children]
    return [c for c, is_listed in zip(node.children, listed, strict=True) if not is_listed] if any(listed) else []


@dataclass(frozen=True)
class _Numbered:
    """The views of a tree by their numbers in its plan."""

    plan: MaintenancePlan
    number: dict[int, int]

    def of(self, node: ViewNode) -> int:
        return self.number[id(node)]

    def levels(self, root: ViewNode) -> Iterator[Level]:
        nodes = [node for node in root.walk() if node.listed]
        at = {id(node): i for i, node in enumerate(nodes)}
        for node in nodes:
            view = self.plan.views[self.of(node)]
            known = frozenset(node.keys).difference(node.listed)
            order = order_with(view.orders, known)
            below = tuple(at[id(child.children[0])] for child in node.children if _lists(child))
            factors = tuple(self.of(child) for child in _factors(node))
            bound = view.orders[order][: len(known)]
            yield Level(self.of(node), order, bound, node.listed, not below, factors, below)


def result_plan(root: ViewNode, updatable: list[str]) -> MaintenancePlan:
    """Make the plan of a tree of `result_tree`, with what readers need to list the result."""
    plan = factorized(root, (), updatable, read=read_by_readers(root))
    numbered = _Numbered(plan, {id(node): i for i, node in enumerate(root.walk())})
    top = () if _lists(root) else tuple(numbered.of(child) for child in _factors(root))
    return replace(plan, listing=tuple(numbered.levels(root)), factors=top)

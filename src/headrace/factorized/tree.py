"""View trees: the views that follow from a variable order, and which view joins which.

A view tree has one view per place of the order where relations meet, and one leaf per relation. A view joins its
children and sums away the variables that no view above needs. This is the function tau of F-IVM (Figure 4), with chains
of views composed into one. Its only inputs are the order and the set of free variables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from headrace.factorized.order import Node, VariableOrder
from headrace.plan.hypergraph import Hypergraph


@dataclass(frozen=True)
class ViewNode:
    """One view: the join of its children (or one relation), with some variables summed away."""

    keys: tuple[str, ...]
    children: tuple[ViewNode, ...] = ()
    relation: str | None = None  # the relation of a leaf
    variables: tuple[str, ...] = ()  # the variables of the order that it stands for, the topmost first
    marginalised: tuple[str, ...] = ()  # the variables that it sums away
    listed: tuple[str, ...] = ()  # the variables whose values readers list from it (`result_tree`)
    indicator: bool = False  # a leaf that only says which keys its relation has

    @cached_property
    def relations(self) -> frozenset[str]:
        """The relations below, of which the view is the join."""
        own = frozenset() if self.relation is None or self.indicator else frozenset([self.relation])
        return own.union(*(child.relations for child in self.children))

    @cached_property
    def inputs(self) -> frozenset[str]:
        """The relations with whose changes the view may change: those below, and those of indicator projections."""
        own = frozenset() if self.relation is None else frozenset([self.relation])
        return own.union(*(child.inputs for child in self.children))

    @property
    def name(self) -> str:
        """The name that people see: V (H if readers list it), the variable that the view stands at, and its keys."""
        if self.indicator:
            return f"∃{self.relation}[{', '.join(self.keys)}]"
        at = self.relation if self.relation is not None else "@" + (self.variables[0] if self.variables else "")
        return f"{'H' if self.listed else 'V'}_{at}[{', '.join(self.keys)}]"

    def walk(self) -> Iterator[ViewNode]:
        """This view and all below, a parent before its children."""
        yield self
        for child in self.children:
            yield from child.walk()


def view_tree(order: VariableOrder, query: Hypergraph) -> ViewNode:
    """Build the view tree of an order in which every relation stands under its lowest variable."""
    roots = [_view(root, order, query, query.free) for root in order.roots]
    # A relation that brings no variable is a factor of everything: it stands at the top.
    roots += [ViewNode((), relation=relation.name) for relation in query.relations if not relation.variables]
    if len(roots) == 1:
        return roots[0]
    # Parts that share no variable: their views are multiplied, as with any other join.
    return ViewNode(query.free, tuple(roots))


def tau(node: Node, order: VariableOrder, query: Hypergraph) -> list[ViewNode]:
    """The views that the view above joins: one, or several where summing stops."""
    if node.stop_pushdown:
        # Nothing is summed away here, so a view would only be a join; its children are joined one view higher.
        children = _children(node, order, query)
        if len(children) > 1:
            return children
        return [_composed(node, children[0].keys, children)]
    return [_view(node, order, query, order.dep(query, node.variable))]


def _view(node: Node, order: VariableOrder, query: Hypergraph, needed: Sequence[str]) -> ViewNode:
    children = _children(node, order, query)
    available = [variable for child in children for variable in child.keys]
    keys = tuple(dict.fromkeys([*(v for v in needed if v in available), *(v for v in available if v in query.free)]))
    return _composed(node, keys, children)


def _children(node: Node, order: VariableOrder, query: Hypergraph) -> list[ViewNode]:
    views = [view for child in node.children for view in tau(child, order, query)]
    return views + [ViewNode(query.relation(name).variables, relation=name) for name in node.relations]


def _composed(node: Node, keys: tuple[str, ...], children: list[ViewNode]) -> ViewNode:
    """The view over some children; a view over a single child is composed with that child."""
    available = dict.fromkeys(variable for child in children for variable in child.keys)
    gone = tuple(variable for variable in available if variable not in keys)
    if len(children) == 1:
        (only,) = children
        return ViewNode(
            keys, only.children, only.relation, (node.variable, *only.variables), (*gone, *only.marginalised)
        )
    return ViewNode(keys, tuple(children), None, (node.variable,), gone)


def views_to_keep(root: ViewNode, updatable: frozenset[str]) -> dict[ViewNode, str]:
    """Choose the views to keep for changes to some relations (mu, Figure 8), each with the reason."""
    kept = {root: "it is the answer"}
    for node in root.walk():
        for child in node.children:
            changing = [other for other in node.children if other is not child and other.inputs & updatable]
            if changing:
                kept[child] = f"changes of {', '.join(sorted(_changing(changing, updatable)))} are joined with it"
    return kept


def _changing(views: list[ViewNode], updatable: frozenset[str]) -> set[str]:
    return {name for view in views for name in view.inputs & updatable}

"""Indicator projections: which keys of a relation are there, below views that would be too large without.

In a cyclic join, a view of a part of the relations may have many more keys than the answer needs: the two-paths of a
graph, say, of which only those matter that an edge closes. An *indicator projection* is 1 for every key that a relation
has and 0 elsewhere (F-IVM, Definition 29). Multiplied into such a view it changes no answer, because the relation is
joined further up anyway, and it leaves no more keys than the relation has. Where that is so is found as in Figure 17:
by a variant of the reduction of Graham, Yu and Ozsoyoglu that returns the relations which close a cycle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

from headrace.factorized.order import VariableOrder, rebuilt
from headrace.factorized.tree import ViewNode, view_tree
from headrace.plan.hypergraph import Hypergraph


def with_indicators(node: ViewNode, query: Hypergraph) -> ViewNode:
    """Add to each view the indicator projections that form a cycle with the relations below it (Figure 17).

    >>> from headrace.factorized.order import completed
    >>> from headrace.factorized.order_text import parse
    >>> from headrace.factorized.tree import view_tree
    >>> from headrace.plan.hypergraph import Relation
    >>> triangle = Hypergraph((Relation("R", ("A", "B")), Relation("S", ("B", "C")), Relation("T", ("C", "A"))))
    >>> tree = view_tree(completed(parse("A\\n  B\\n    C"), triangle), triangle)
    >>> [view.name for view in with_indicators(tree, triangle).walk()]
    ['V_@A[]', 'V_@C[A, B]', 'V_S[B, C]', 'V_T[C, A]', '∃R[A, B]', 'V_R[A, B]']
    """
    if not node.children:
        return node
    below = tuple(with_indicators(child, query) for child in node.children)
    # pk = sch(R) within the keys of the view, for the relations R that take no part in it
    projected = {
        relation.name: tuple(variable for variable in node.keys if variable in relation.variables)
        for relation in query.relations
        if relation.name not in node.relations
    }
    schemas = {name: query.relation(name).variables for name in node.relations}
    closing = closing_cycles({name: keys for name, keys in projected.items() if keys}, schemas)
    added = (ViewNode(projected[name], relation=name, indicator=True) for name in closing)
    return replace(node, children=(*below, *added))


def joined_at_once(order: VariableOrder, query: Hypergraph, changing: Collection[str]) -> VariableOrder:
    """Mark variables (`stop_pushdown`) whose views only the relations that close their cycles are joined with.

    Such a view, with its indicator projections, has the keys of the relation beside it, so every new key of the
    relation makes the join anew that the view was to save. Joining all of them at once takes the same intersections
    and keeps less. A view that is joined with something else too, as both triangles of a 4-cycle with a chord are, or
    with a relation that never changes, is worth keeping.
    """
    while True:
        tree = with_indicators(view_tree(order, query), query)
        gone = {variable for node in tree.walk() for child in node.children for variable in _dissolved(node, child)}
        if not gone or not tree.relations <= frozenset(changing):
            return order
        order = _stopped(order, gone)


def _stopped(order: VariableOrder, variables: Collection[str]) -> VariableOrder:
    return rebuilt(order, lambda node: replace(node, stop_pushdown=node.stop_pushdown or node.variable in variables))


def _dissolved(node: ViewNode, view: ViewNode) -> tuple[str, ...]:
    closing = {child.relation: frozenset(child.keys) for child in view.children if child.indicator}
    beside = [child for child in node.children if child is not view]
    closed = all(child.relation in closing and closing[child.relation] == frozenset(child.keys) for child in beside)
    return view.variables if closing and closed else ()


def closing_cycles(projected: Mapping[str, tuple[str, ...]], schemas: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """The projections that are part of a cycle with some relations (GYO* in Figure 17).

    Parameters
    ----------
    projected : the variables of each indicator projection, by the relation that it is of.
    schemas : the variables of the relations below the view.

    >>> closing_cycles({"R": ("A", "B")}, {"S": ("B", "C"), "T": ("C", "A")})
    ('R',)
    >>> closing_cycles({"R": ("A",)}, {"S": ("B", "C"), "T": ("C", "A")})
    ()
    """
    # Relations come first: of equal edges the first stays, so a projection that a relation covers is taken off.
    edges = [("", name, set(variables)) for name, variables in sorted(schemas.items())]
    edges += [("∃", name, set(variables)) for name, variables in projected.items()]
    while True:
        before = [(kind, name, len(variables)) for kind, name, variables in edges]
        shared = {v for v, times in Counter(v for _, _, edge in edges for v in edge).items() if times > 1}
        edges = [(kind, name, edge & shared) for kind, name, edge in edges]
        edges = [
            (kind, name, edge)
            for i, (kind, name, edge) in enumerate(edges)
            if not any(edge < other or (edge == other and j < i) for j, (_, _, other) in enumerate(edges))
        ]
        if [(kind, name, len(variables)) for kind, name, variables in edges] == before:
            return tuple(name for kind, name, variables in edges if kind and variables)

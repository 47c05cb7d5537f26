"""Variable orders: the order in which a join is split by its variables, and which parts are then independent.

A variable order is to factorized maintenance what a join order is to a query plan. It is a forest with one node per
variable in which the variables of each relation lie on one path from a root; each node becomes a view that sums its
variable away (F-IVM, Section 4). Bound variables of a single relation need not be written: their place is known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from headrace.errors import VariableOrderError
from headrace.plan.hypergraph import Hypergraph, Relation


@dataclass(frozen=True)
class Node:
    """One variable of an order, and all that is below it."""

    variable: str
    children: tuple[Node, ...] = ()
    relations: tuple[str, ...] = ()  # the relations whose lowest variable this is
    # Do not aggregate here: the views of this node are joined one node up, and the first node without the mark sums the
    # variables away together.
    stop_pushdown: bool = False
    unsummed: tuple[str, ...] = ()  # relations whose unwritten local variables have the mark `stop_pushdown`

    def subtree(self) -> Iterator[Node]:
        """This node and those below it, parents first."""
        # No recursion: a table may have more columns than Python has stack frames.
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))


@dataclass(frozen=True)
class VariableOrder:
    """A forest of variables.

    >>> from headrace.plan.hypergraph import Relation
    >>> query = Hypergraph((Relation("R", ("A", "B")), Relation("S", ("A", "C", "E")), Relation("T", ("C", "D"))))
    >>> order = VariableOrder((Node("A", (Node("B"), Node("C", (Node("D"), Node("E"))))),))
    >>> order.path("D"), order.dep(query, "D"), order.dep(query, "E")
    (('A', 'C'), ('C',), ('A', 'C'))
    >>> [(node.variable, node.relations) for node in placed(order, query).nodes() if node.relations]
    [('B', ('R',)), ('D', ('T',)), ('E', ('S',))]
    """

    roots: tuple[Node, ...]

    def nodes(self) -> Iterator[Node]:
        """All nodes, parents first."""
        for root in self.roots:
            yield from root.subtree()

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """All variables, parents first."""
        return tuple(node.variable for node in self.nodes())

    @cached_property
    def _node_of(self) -> dict[str, Node]:
        return {node.variable: node for node in self.nodes()}

    @cached_property
    def _parent_of(self) -> dict[str, str]:
        return {child.variable: node.variable for node in self.nodes() for child in node.children}

    def node(self, variable: str) -> Node:
        """The node of this variable.

        Raises
        ------
        VariableOrderError : the order has no such variable.
        """
        if variable not in self._node_of:
            raise VariableOrderError(
                f"The variable order has no variable {variable}.",
                way_out=f"Its variables are: {', '.join(self.variables) or 'none'}.",
            )
        return self._node_of[variable]

    def path(self, variable: str) -> tuple[str, ...]:
        """The ancestors of this variable, from the root down; the variable itself is not among them."""
        self.node(variable)
        upwards = []
        while variable in self._parent_of:
            variable = self._parent_of[variable]
            upwards.append(variable)
        return tuple(reversed(upwards))

    def dep(self, query: Hypergraph, variable: str) -> tuple[str, ...]:
        """The ancestors of this variable on which it, or a variable below it, depends; from the root down."""
        below = [node.variable for node in self.node(variable).subtree()]
        reached = {v for relation in query.touching(below) for v in relation.variables}
        return tuple(ancestor for ancestor in self.path(variable) if ancestor in reached)

    def keys(self, query: Hypergraph, variable: str) -> tuple[str, ...]:
        """The keys of the view at this variable: its `dep`, then what is kept of its subtree.

        Kept are the free variables (F-IVM, Figure 4), and those that `stop_pushdown` has not yet summed away.
        """
        node = self.node(variable)
        kept = set(query.free).union(_not_yet_summed(node))
        return self.dep(query, variable) + tuple(n.variable for n in node.subtree() if n.variable in kept)

    def is_free_top(self, free: Collection[str]) -> bool:
        """Whether no bound variable is above a free one, so that the answer can be listed from the top down."""
        return all(parent in free for child, parent in self._parent_of.items() if child in free)


def placed(order: VariableOrder, query: Hypergraph) -> VariableOrder:
    """The same order with each relation under its lowest variable, wherever it was before.

    A relation without variables has no place in an order, since no variable depends on it: it is a factor of the whole.
    """
    under: dict[str, list[str]] = {}
    for relation in query.relations:
        if lowest := _lowest(order, relation):
            under.setdefault(lowest, []).append(relation.name)
        elif relation.variables:
            raise VariableOrderError(
                f"The variable order has none of the variables of relation {relation.name}.",
                way_out=f"Add {', '.join(relation.variables)}, or call completed() if all of them are bound.",
            )
    return rebuilt(order, lambda node: replace(node, relations=tuple(under.get(node.variable, ()))))


def completed(order: VariableOrder, query: Hypergraph) -> VariableOrder:
    """The same order with the variables it may leave out, and with each relation under its lowest variable.

    Bound variables of a single relation may be left out. They follow as a chain below the lowest variable of their
    relation; a relation with no variable in the order becomes a new root with its chain.

    Raises
    ------
    VariableOrderError : a variable is unknown, occurs twice, or is missing and may not be left out.
    """
    _validate_variables(order, query)
    return chained(order, query)


def chained(order: VariableOrder, query: Hypergraph) -> VariableOrder:
    """The same order with all missing variables of a single relation, free ones too, below their relation's lowest."""
    below: dict[str, list[Node]] = {}
    roots = list(order.roots)
    unsummed = {name for node in order.nodes() for name in node.unsummed}
    for relation in query.relations:
        missing = [v for v in relation.variables if len(query.rels(v)) == 1 and v not in order.variables]
        missing.sort(key=lambda v: v not in query.free)  # free ones first, so that bound ones are summed together
        if missing:
            lowest = _lowest(order, relation)
            added = chain(missing)
            if relation.name in unsummed:
                (added,) = rebuilt(VariableOrder((added,)), lambda node: replace(node, stop_pushdown=True)).roots
            (below.setdefault(lowest, []) if lowest else roots).append(added)
    longer = rebuilt(
        order, lambda node: replace(node, children=(*node.children, *below.get(node.variable, ())), unsummed=())
    )
    return placed(VariableOrder(longer.roots + tuple(roots[len(order.roots) :])), query)


def validate(order: VariableOrder, query: Hypergraph) -> None:
    """Check that the order, once completed, is one for this query, and that relations written in it are in place.

    Raises
    ------
    VariableOrderError : says which variable or relation is wrong, and what to do.
    """
    # Left-out variables get a right place if the written ones have one, so only the written ones are checked.
    _validate_variables(order, query)
    _validate_paths(order, query)
    _validate_places(order, query)


def _validate_variables(order: VariableOrder, query: Hypergraph) -> None:
    seen: set[str] = set()
    for variable in order.variables:
        if variable in seen:
            raise VariableOrderError(
                f"The variable order has variable {variable} twice.",
                way_out="Keep the one that has all relations of this variable on its path; each variable has one node.",
            )
        if not query.rels(variable):
            raise VariableOrderError(
                f"The variable order has variable {variable}, which is in no relation of the query.",
                way_out=f"Take it out, or spell it as one of: {', '.join(query.variables)}.",
            )
        seen.add(variable)
    for variable in query.variables:
        if variable not in seen and variable not in query.local_variables:
            why = "free" if variable in query.free else "shared by " + ", ".join(_named(query, variable))
            raise VariableOrderError(
                f"The variable order lacks variable {variable}, which is {why}.",
                way_out="Add it; only bound variables of a single relation may be left out.",
            )


def _validate_paths(order: VariableOrder, query: Hypergraph) -> None:
    for relation in query.relations:
        if lowest := _lowest(order, relation):
            path = (*order.path(lowest), lowest)
            if stray := next((v for v in relation.variables if v in order.variables and v not in path), None):
                raise VariableOrderError(
                    f"Variables {stray} and {lowest} of relation {relation.name} are on different branches.",
                    way_out=f"Move one below the other: all variables of {relation.name} must be on one path.",
                )


def _validate_places(order: VariableOrder, query: Hypergraph) -> None:
    relations = {relation.name: relation for relation in query.relations}
    seen: set[str] = set()
    for node in order.nodes():
        for name in node.relations:
            if name not in relations:
                raise VariableOrderError(
                    f"Relation {name}, written under variable {node.variable}, is not in the query.",
                    way_out=f"Take it out, or spell it as one of: {', '.join(relations)}.",
                )
            if name in seen:
                raise VariableOrderError(
                    f"Relation {name} is in the variable order twice.",
                    way_out=f"Keep it under {_lowest(order, relations[name])}, its lowest variable.",
                )
            if node.variable != (lowest := _lowest(order, relations[name])):
                raise VariableOrderError(
                    f"Relation {name} is written under variable {node.variable}, but its lowest variable is {lowest}.",
                    way_out=f"Write it under {lowest}, or leave it out: relations find their place themselves.",
                )
            seen.add(name)


def chain(variables: list[str], bottom: tuple[Node, ...] = ()) -> Node:
    """A path of these variables, each below the one before it."""
    children = bottom
    for variable in reversed(variables):
        children = (Node(variable, children),)
    return children[0]


def rebuilt(order: VariableOrder, change: Callable[[Node], Node]) -> VariableOrder:
    """The order with `change` applied to each node, children before their parent."""
    new: dict[int, Node] = {}
    for node in reversed(list(order.nodes())):
        new[id(node)] = change(replace(node, children=tuple(new[id(child)] for child in node.children)))
    return VariableOrder(tuple(new[id(root)] for root in order.roots))


def without(order: VariableOrder, variables: Collection[str]) -> VariableOrder:
    """The order without some variables; the children of a removed one move to its parent. No relations are placed."""
    new: dict[int, tuple[Node, ...]] = {}
    for node in reversed(list(order.nodes())):
        below = tuple(n for child in node.children for n in new[id(child)])
        new[id(node)] = below if node.variable in variables else (replace(node, children=below, relations=()),)
    return VariableOrder(tuple(node for root in order.roots for node in new[id(root)]))


def _lowest(order: VariableOrder, relation: Relation) -> str | None:
    written = [variable for variable in relation.variables if variable in order.variables]
    return max(written, key=lambda variable: len(order.path(variable)), default=None)


def _not_yet_summed(node: Node) -> Iterator[str]:
    stack = [node]
    while stack:
        node = stack.pop()
        if node.stop_pushdown:
            yield node.variable
            stack.extend(node.children)


def _named(query: Hypergraph, variable: str) -> list[str]:
    return [relation.name for relation in query.relations if variable in relation.variables]

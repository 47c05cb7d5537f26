"""Finding a good variable order: the canonical one for hierarchical queries, else the cheapest one found by search.

The cost of an order is the state it needs and the rows it makes Spark move: the keys of all its views, and the rows of
the relations that lack the root variable, since those are copied to every bucket or exchanged once more. Only variables
that relations share give an order its shape; all others end up in chains at the bottom.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from headrace.errors import VariableOrderError
from headrace.factorized.order import Node, VariableOrder, chained, completed, placed
from headrace.plan.assumptions import UNKNOWN_FURTHER_KEY, UNKNOWN_GROWTH, UNKNOWN_ROWS
from headrace.plan.classes import is_hierarchical, is_q_hierarchical
from headrace.plan.hypergraph import Hypergraph

EXACT = 10
"""Up to this many connected variables, all orders are searched."""


@dataclass(frozen=True)
class Chosen:
    """An order, why it was chosen, and its cost (see `cost`)."""

    order: VariableOrder
    why: str
    cost: float


@dataclass(frozen=True)
class Sizes:
    """How many rows and distinct values there are, as far as is known.

    A relation without an entry in `rows` has the size that `plan.assumptions` says. Of a variable without an entry in
    `distinct` a relation says most that has few other keys: a relation with one key is likely a table that is looked up
    by it, and has as many values as rows; with n keys, the n-th root of its rows is assumed.
    """

    query: Hypergraph
    rows: Mapping[str, int]
    distinct: Mapping[str, int]

    def rows_of(self, relation: str) -> int:
        if relation in self.rows:
            return max(1, self.rows[relation])
        growth: int = UNKNOWN_FURTHER_KEY ** (self._keys_of(relation) - 1)
        return UNKNOWN_ROWS * min(growth, UNKNOWN_GROWTH)

    def distinct_of(self, variable: str) -> float:
        if variable in self.distinct:
            return max(1.0, self.distinct[variable])
        keys = {name: self._keys_of(name) for name in self.query.rels(variable)}
        fewest = min(keys.values())
        return min(math.pow(self.rows_of(name), 1 / fewest) for name, count in keys.items() if count == fewest)

    def _keys_of(self, relation: str) -> int:
        """How many variables of a relation are joined on or grouped by."""
        local = self.query.local_variables
        return max(1, sum(variable not in local for variable in self.query.relation(relation).variables))

    def keys(self, variables: Collection[str], relations: Iterable[str]) -> float:
        """An upper bound on the distinct tuples over these variables in the join of these relations.

        The bound is the product of the distinct values per variable, improved greedily: as long as that lowers it, the
        values of a relation's variables are replaced by its number of rows, best improvement first.
        """
        # Sums of logarithms, because products of forty columns leave the range of a double; fsum, because the order of
        # a set must not influence the result.
        logs = {variable: math.log(self.distinct_of(variable)) for variable in variables}
        schemas = [(math.log(self.rows_of(name)), self.query.relation(name).variables) for name in sorted(relations)]
        covered = []
        while logs and schemas:
            gains = [math.fsum(logs.get(v, 0.0) for v in schema) - rows for rows, schema in schemas]
            best = max(range(len(gains)), key=gains.__getitem__)
            if gains[best] <= 0:
                break
            rows, schema = schemas.pop(best)
            covered.append(rows)
            logs = {v: size for v, size in logs.items() if v not in schema}
        # A count: without rounding, orders of equal cost would differ by the last bits of a logarithm.
        return float(round(math.exp(min(700.0, math.fsum([*logs.values(), *covered])))))


def canonical(query: Hypergraph) -> VariableOrder:
    """The order of a hierarchical query in which each path is the schema of a relation (F-IVM, Section 7.2).

    It is free-top when the query is q-hierarchical.

    >>> from headrace.plan.hypergraph import Relation
    >>> from headrace.factorized.order_text import to_text
    >>> schemas = {"R": ("B", "A"), "S": ("A", "C", "E"), "T": ("A", "C", "D")}
    >>> print(to_text(canonical(Hypergraph(tuple(Relation(*item) for item in schemas.items()), free=("A", "B", "C")))))
    A
      B: R
      C
        E: S
        D: T

    Raises
    ------
    VariableOrderError : the query is not hierarchical.
    """
    if not is_hierarchical(query):
        raise VariableOrderError(
            "The query is not hierarchical, so it has no canonical variable order.",
            way_out="Use choose(), which searches for an order.",
        )
    first = {variable: i for i, variable in enumerate(query.variables)}
    children: dict[str | None, dict[str, None]] = {}
    for relation in query.relations:
        parent = None
        # In a relation of a hierarchical query the sets rels(X) are nested, so their sizes order them.
        for variable in sorted(relation.variables, key=lambda v: (-len(query.rels(v)), v not in query.free, first[v])):
            children.setdefault(parent, {})[variable] = None
            parent = variable

    built: dict[str, Node] = {}
    for variable in sorted(first, key=lambda v: (len(query.rels(v)), v in query.free, -first[v])):
        built[variable] = Node(variable, tuple(built[child] for child in children.get(variable, ())))
    return placed(VariableOrder(tuple(built[root] for root in children.get(None, ()))), query)


def cost(order: VariableOrder, query: Hypergraph, rows: Mapping[str, int], distinct: Mapping[str, int]) -> float:
    """The estimated keys of all views of an order, plus the rows of relations that lack the variable of their root.

    A variable has a view of its own if it is a root or if its parent joins it with something: chains are one view.
    Views over a single relation do not count, as every order has them.
    """
    sizes = Sizes(query, rows, distinct)
    order = completed(order, query)
    joined = [
        child for node in order.nodes() if len(node.children) + len(node.relations) > 1 for child in node.children
    ]
    parts = []
    for node in (*order.roots, *joined):
        below = query.touching(n.variable for n in node.subtree())
        if len(below) > 1:
            parts.append(sizes.keys(order.keys(query, node.variable), (relation.name for relation in below)))
    return math.fsum(parts) + sum(sizes.rows_of(name) for name, _ in _lacking(order, query))


def choose(
    query: Hypergraph,
    rows: Mapping[str, int],
    distinct: Mapping[str, int],
    *,
    free_top: bool = False,
    listed: bool = False,
) -> Chosen:
    """A variable order for the query: the canonical one if there is one, else the cheapest that is found.

    Where at most `EXACT` variables are connected, all orders are searched in which no branch consists of two parts that
    share no relation. For a larger part every root is tried. Below the root, the part is split from the top by the
    variable that a greedy elimination (smallest view first) removes last, until the pieces are small enough to be
    searched. The same input gives the same order.

    Parameters
    ----------
    rows, distinct : rows per relation, distinct values per variable; `Sizes` says what is assumed for missing entries.
    free_top : accept only orders that have no bound variable above a free one.
    listed : what counts is the size of a factorized result (`result_tree`), in which free variables are no keys of the
        views above them.
    """
    if is_hierarchical(query):
        order = canonical(query)
        if not free_top or order.is_free_top(query.free):
            kind = "q-hierarchical" if is_q_hierarchical(query) else "hierarchical"
            why = f"the query is {kind}: this is its canonical order, each path is the schema of a relation"
            return Chosen(order, why, cost(order, query, rows, distinct))
    search = _Search(query, Sizes(query, rows, distinct), free_top, listed)
    parts = search.split(search.searched)
    order = chained(VariableOrder(tuple(search.tree(part) for part in parts)), query)
    total = cost(order, query, rows, distinct)
    return Chosen(order, _why(order, query, total, max(map(len, parts)), free_top), total)


def worth_pushing(groups: int, marginalised: int, free: int, rows: int) -> bool:
    """Whether aggregating a stream before it is joined makes its state smaller.

    Compares g (1 + n + n (n + 1) / 2 + f) < r (n + f): a group stores a covariance payload of the n marginalised
    variables and the f variables that stay, a row stores its n + f variables (F-IVM on a parallel engine, Section 4.6,
    for one stream of the join).

    >>> worth_pushing(groups=100, marginalised=3, free=1, rows=1000), worth_pushing(100, 3, 1, 150)
    (True, False)
    """
    return groups * (1 + marginalised + marginalised * (marginalised + 1) // 2 + free) < rows * (marginalised + free)


def _lacking(order: VariableOrder, query: Hypergraph) -> list[tuple[str, str]]:
    """The relations that lack the variable of their root, each with this variable."""
    return [
        (name, root.variable)
        for root in order.roots
        for node in root.subtree()
        for name in node.relations
        if name not in query.rels(root.variable)
    ]


def _why(order: VariableOrder, query: Hypergraph, total: float, largest: int, free_top: bool) -> str:
    searched = "join and free variables" if free_top else "join variables"
    how = f"the cheapest of all orders of {largest} {searched}"
    if largest > EXACT:
        how = f"found greedily, as {largest} {searched} are connected and all orders of {EXACT} at most are searched"
    lacking = ", ".join(f"{name} lacks {root}" for name, root in _lacking(order, query))
    reason = "the canonical order is not free-top" if is_hierarchical(query) else "the query is not hierarchical"
    copies = f" ({lacking})" if lacking else ""
    return f"{reason}; this order is {how}: about {total:,.0f} keys in views and rows to copy{copies}"


class _Search:
    """Searches orders from the top: a root splits the rest into parts that are independent given the variables above.

    Of the variables above a part, only those matter that relations of the part also have, and these follow from the
    part. So the cheapest tree of a part is found once, and the view over a part is the same whatever its root.
    """

    def __init__(self, query: Hypergraph, sizes: Sizes, free_top: bool, listed: bool) -> None:
        self._query, self._sizes, self._free_top, self._listed = query, sizes, free_top, listed
        self._free = frozenset(query.free)
        # A free variable of a single relation is a key of exactly the views over this relation, wherever it stands. So
        # unless it must stand above bound ones, only two places matter: a root, or the bottom.
        self.searched = frozenset(query.join_variables) | (self._free if free_top else frozenset())
        self._first = {variable: i for i, variable in enumerate(query.variables)}
        self._beside = {variable: query.neighbours(variable) & self.searched for variable in self.searched}
        self._best: dict[frozenset[str], _Tree] = {}

    def tree(self, part: frozenset[str]) -> Node:
        """The cheapest tree of a part with nothing above it; of equal ones, one that copies least; then a flat one."""
        relations = self._query.touching(part)

        def total(tree: _Tree) -> tuple[float, int, int]:
            copied = sum(self._sizes.rows_of(r.name) for r in relations if tree.node.variable not in r.variables)
            return tree.cost + copied, copied, tree.depth

        trees = [self._rooted(part, root) for root in self._roots(part)]
        for relation in relations:
            if local := [v for v in relation.variables if v in self._free - self.searched]:
                below = self._cheapest(part)
                trees.append(_Tree(below.cost, Node(local[0], (below.node,)), below.depth + 1))
        return min(trees, key=total).node

    def split(self, variables: frozenset[str]) -> list[frozenset[str]]:
        """The connected parts of these variables, in order of first appearance."""
        parts, seen = [], set[str]()
        for start in sorted(variables, key=self._first.__getitem__):
            if start not in seen:
                part = [start]
                seen.add(start)
                for variable in part:  # the list grows during the loop
                    fresh = (self._beside[variable] & variables) - seen
                    part += fresh
                    seen |= fresh
                parts.append(frozenset(part))
        return parts

    def _cheapest(self, part: frozenset[str]) -> _Tree:
        if part not in self._best:
            roots = self._roots(part)
            if len(part) > EXACT:
                roots = [max(roots, key=self._eliminated.__getitem__)]
            self._best[part] = min(
                (self._rooted(part, root) for root in roots), key=lambda tree: (tree.cost, tree.depth)
            )
        return self._best[part]

    def _roots(self, part: frozenset[str]) -> list[str]:
        """The variables that may stand on top of this part."""
        free = sorted(part & self._free, key=self._first.__getitem__)
        if not self._free_top or not free:
            return sorted(part, key=self._first.__getitem__)
        # Swapping free variables of the same relations changes no view, so only the first of them is tried.
        firsts: dict[frozenset[str], str] = {}
        for variable in free:
            firsts.setdefault(self._query.rels(variable), variable)
        return list(firsts.values())

    def _rooted(self, part: frozenset[str], root: str) -> _Tree:
        pieces = self.split(part - {root})
        ending = sum(1 for r in self._query.touching([root]) if part.isdisjoint(set(r.variables) - {root}))
        children = [self._cheapest(piece) for piece in pieces]
        costs = [child.cost for child in children]
        if len(pieces) + ending > 1:
            costs += [self._view(piece) for piece in pieces]
            if self._listed:  # the values of the root, under those above it
                costs.append(self._view(part, root))
        depth = 1 + max((child.depth for child in children), default=0)
        return _Tree(math.fsum(costs), Node(root, tuple(child.node for child in children)), depth)

    def _view(self, part: frozenset[str], root: str = "") -> float:
        """The keys of the view over a part: the variables it shares with those above, its root, and the free ones."""
        relations = self._query.touching(part)
        if len(relations) == 1:
            return 0.0
        shown = frozenset[str]() if self._listed else self._free
        keys = {v for r in relations for v in r.variables if v == root or v in shown or v in self.searched - part}
        return self._sizes.keys(keys, (relation.name for relation in relations))

    @cached_property
    def _eliminated(self) -> dict[str, int]:
        """The position of each variable in a greedy elimination, smallest view first; bound ones first if free-top."""
        scopes = [(frozenset(r.variables), frozenset([r.name])) for r in self._query.relations]
        left = set(self.searched)
        when: dict[str, int] = {}

        def joined(variable: str) -> tuple[frozenset[str], frozenset[str]]:
            mine = [scope for scope in scopes if variable in scope[0]]
            variables = frozenset[str]().union(*(scope[0] for scope in mine))
            return variables - {variable}, frozenset[str]().union(*(scope[1] for scope in mine))

        def size(variable: str) -> tuple[float, int]:
            variables, relations = joined(variable)
            keys = [v for v in variables if v in left or v in self._free]
            return self._sizes.keys(keys, relations), self._first[variable]

        while left:
            pool = (left - self._free or left) if self._free_top else left
            variable = min(pool, key=size)
            scopes = [scope for scope in scopes if variable not in scope[0]] + [joined(variable)]
            left.remove(variable)
            when[variable] = len(when)
        return when


@dataclass(frozen=True)
class _Tree:
    """A tree over a part, and the keys of the views below the part's own."""

    cost: float
    node: Node
    depth: int = 1  # among trees of equal cost the flatter one is better: changes pass fewer views

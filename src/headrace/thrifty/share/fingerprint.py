"""What an arrangement holds, as a text: arrangements with equal fingerprints have the same entries in the same buckets.

A fingerprint covers the operator and all below it down to the tables: which rows come, what is computed of them, how
they are written, and what decides their bucket. It covers no names of views, and no numbers of operators. So when views
share other subplans than before, state is recognized wherever it is needed next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

from headrace.operators.join import JoinLayout
from headrace.operators.not_in import NotInLayout
from headrace.operators.operator import OperatorLayout
from headrace.operators.tree_view import TreeView
from headrace.plan.tree import Aggregation, Feed, Join, JoinKind, Node, Over, Port, Tree
from headrace.thrifty.share.skeleton import shape_of


def fingerprints(kernel: TreeView) -> dict[str, str]:
    """The fingerprint of each part that a view or a shared subplan keeps; parts that cannot be compared have none."""
    described, found = _Described(kernel.tree, kernel.layouts), {}
    for number in sorted(kernel.own):
        for part in kernel.layouts[number].arrangements:
            where = kernel.whereabouts(part) if part in kernel.arrangements else None
            if where is not None:
                found[part] = _digest(kernel.seed, kernel.buckets, where, described.held(number, part))
    return found


def kept_rows(tree: Tree, number: int) -> str:
    """What an aggregate keeps, be it the answer of a view or not: which groups, or which rows."""
    node = tree.nodes[number]
    assert isinstance(node, Aggregation)
    functions = [(one.function, one.argument, one.type, one.others) for one in node.plan.aggregates]
    # The answer of a view over one table has its keys as expressions over the table, which its port says anyway.
    return _digest(node.plan.shape, node.keys, functions, _Described(tree, ()).port(node.port))


class _Described:
    """What the operators of one view hold and give."""

    def __init__(self, tree: Tree, layouts: Sequence[OperatorLayout]) -> None:
        self._layouts = layouts
        self._nodes = tree.nodes
        self._given: dict[int, str] = {}

    def held(self, number: int, part: str) -> object:
        """What a part of an operator holds."""
        layout, node = self._layouts[number], self._nodes[number]
        settles = isinstance(layout, JoinLayout) and layout.settles
        if isinstance(node, Join) and not isinstance(layout, NotInLayout) and not settles:
            # Just the rows of one side, whatever the join makes of them.
            port = node.ports[layout.side_of(part)]
            nullable = [field.nullable for field in port.fields[node.keys :]]
            return "side", node.keys, node.safe, nullable, self.port(port, _never_null(node))
        nullable = [field.nullable for port in node.ports for field in port.fields]
        if isinstance(node, Aggregation):
            nullable += [one.nullable for one in (*node.plan.keys, *node.plan.arguments)]
        what = part.removeprefix(f"{number}.") if part.startswith(f"{number}.") else f"answer {part}"
        return type(layout).__name__, what, settles, nullable, self._rows(number)

    def _rows(self, number: int) -> str:
        """What an operator gives."""
        if number not in self._given:
            node = self._nodes[number]
            left_out = _never_null(node) if isinstance(node, Join) and node.kind is JoinKind.INNER else frozenset()
            self._given[number] = _digest(_asked(node), [self.port(port, left_out) for port in node.ports])
        return self._given[number]

    def port(self, port: Port, left_out: frozenset[int] = frozenset()) -> object:
        """The rows that enter a port; those with NULL in one of the fields `left_out` take no part anyway."""
        fields = [(field.name, field.type) for field in port.fields]
        return fields, [self._feed(feed, left_out) for feed in port.feeds]

    def _feed(self, feed: Feed, left_out: frozenset[int]) -> object:
        source = feed.table if feed.producer is None else [self._rows(feed.producer)]
        required = sorted({*feed.required} - left_out)
        return source, shape_of(feed.condition), list(map(shape_of, feed.outputs)), shape_of(feed.times), required


def _never_null(node: Join) -> frozenset[int]:
    """The keys of a side that are not NULL in any row that the join keeps."""
    return frozenset(i for i, safe in enumerate(node.safe) if not safe)


def _asked(node: Node) -> object:
    """What an operator is asked to do, without what is written for people."""
    if isinstance(node, Join):
        return node.kind, node.keys, node.safe, shape_of(node.residual), node.outputs
    if isinstance(node, Aggregation):
        plan = node.plan
        functions = [(one.function, one.argument, one.type, one.others, one.options) for one in plan.aggregates]
        return plan.shape, node.single, *(list(map(shape_of, some)) for some in (plan.keys, plan.arguments)), functions
    if isinstance(node, Over):
        return "over", node.keys, node.order, [replace(one, sql="") for one in node.functions], node.first
    return "top", node.order, node.count, node.offset


def _digest(*described: object) -> str:
    return blake2b(repr(described).encode(), digest_size=16).hexdigest()

"""Which operators of a view with a goal a shared subplan may stand for.

The subplan runs when any of its readers needs it, so what it gives to a view with a goal has to wait there until the
trigger of that view. On the way rows are evaluated and added up by group. That must not fail: the error would hit a
step that only others asked for, while without sharing it would hit the trigger of the view itself.
"""

from __future__ import annotations

from headrace.operators.asked import is_sum
from headrace.operators.group import GroupLayout
from headrace.operators.tree_view import TreeView
from headrace.plan.tree import Aggregation, Tree
from headrace.relation.types import SqlType
from headrace.thrifty.share.blocks import is_total

_SUMMED = ("sum", "distinct_sum")  # whoever needs sums of powers or products needs these
_NARROW = 28  # digits of decimals whose sums have room for ten billion rows


def can_wait(kernel: TreeView) -> bool:
    """Whether changes can wait at every inlet of a view, in steps that change all buckets in one pass too."""
    alone = kernel.alone
    return alone.in_one_pass is not None and all(inlet.residence is not None for inlet in alone.inlets.values())


def may_be_given(kernel: TreeView, number: int) -> bool:
    """Whether the rows of an operator can come from elsewhere, and wait before the operators that read them."""
    tree = kernel.tree
    if _may_overflow(tree, number):
        return False
    for n, side, _, feed in tree.feeds():
        if feed.producer != number:
            continue
        if not all(map(is_total, feed.expressions)) or _sums_doubles(kernel, n):
            return False
        if any(other.producer is None for other in tree.nodes[n].ports[side].feeds):
            return False  # rows of a table wait there when they come: in one step, two would add to what waits
    return _is_read(tree, number)


def _may_overflow(tree: Tree, number: int) -> bool:
    """Whether an operator, or one below it, has sums that may overflow, or that refuse NaN and infinity."""
    found = (node for n in tree.from_top(number) if isinstance(node := tree.nodes[n], Aggregation))
    summed = (
        node.plan.arguments[one.argument].type
        for node in found
        for one in node.plan.aggregates
        if is_sum(one.function) and one.argument is not None
    )
    return any(map(_overflows, summed))


def _overflows(kind: SqlType) -> bool:
    # The sum of a narrow decimal has ten more digits than its rows, and the sum of an INT is a BIGINT.
    return kind.is_floating or kind.kind == "bigint" or (kind.kind == "decimal" and kind.precision > _NARROW)


def _sums_doubles(kernel: TreeView, number: int) -> bool:
    """Whether an aggregate sums doubles: NaN and infinity cannot be subtracted again, so it refuses them."""
    node, layout = kernel.tree.nodes[number], kernel.alone.layouts[number]
    if not isinstance(node, Aggregation) or not isinstance(layout, GroupLayout):
        return False
    summed = [part.argument for part in layout.view.components if part.role in _SUMMED and part.argument is not None]
    return any(node.plan.arguments[i].type.is_floating for i in summed)


def _is_read(tree: Tree, number: int) -> bool:
    return any(feed.producer == number for _, _, _, feed in tree.feeds())

"""What a join must keep of its two sides and why, and what the promises of tables allow it to leave out.

A side is kept so that changes of the other side find their partners in it, so it is not kept if the other side never
changes. If rows of the right side are never deleted, as in an append-only table, a row of a semi or anti join that has
a partner will always have one: it is settled, and only rows that still wait for a partner are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from headrace.plan.tree import Aggregation, Feed, Join, JoinKind, Node, Tree

_SETTLING = frozenset({JoinKind.SEMI, JoinKind.ANTI})
_NAMES = ("left", "right")


@dataclass(frozen=True)
class Keeping:
    """What the joins of a tree keep.

    Parameters
    ----------
    static : tables that never change once the view is there.
    growing : tables whose rows are never deleted.
    """

    tree: Tree
    static: Collection[str]
    growing: Collection[str]

    def why_kept(self, number: int, side: int) -> str | None:
        """Why a join keeps the rows of a side; None if it need not."""
        node = self._join(number)
        mine, other = (not self._is_static(number, s) for s in (side, 1 - side))
        if other:
            if side == 0 and self.settles(number):
                return "rows without a partner wait for one; the right side only grows, so all others are settled"
            return f"a change of the {_NAMES[1 - side]} side looks for its partners here"
        if mine and node.kind is not JoinKind.INNER and side == 1:
            return "whether a row has a partner is a matter of how many there are"
        if mine and node.kind is JoinKind.FULL:
            return "rows without a partner are given"
        return None

    def settles(self, number: int) -> bool:
        """Whether a row of the left side that has a partner will always have one."""
        node = self._join(number)
        return node.kind in _SETTLING and self._all_feeds(node, 1, lambda feed: self._only_grows(feed))

    def _join(self, number: int) -> Join:
        node = self.tree.nodes[number]
        assert isinstance(node, Join)
        return node

    def _is_static(self, number: int, side: int) -> bool:
        def static(feed: Feed) -> bool:
            if feed.producer is None:
                return feed.table in self.static
            ports = self.tree.nodes[feed.producer].ports
            return all(self._is_static(feed.producer, s) for s in range(len(ports)))

        return self._all_feeds(self.tree.nodes[number], side, static)

    def _only_grows(self, feed: Feed) -> bool:
        """Whether no row of a feed is ever taken back."""
        if feed.producer is None:
            return feed.table in self.growing and feed.times is None
        node = self.tree.nodes[feed.producer]
        # Pairs and distinct rows only grow if their inputs only grow. Sums change, and so do the rows of a LIMIT.
        monotone = (isinstance(node, Join) and node.kind in (JoinKind.INNER, JoinKind.SEMI)) or (
            isinstance(node, Aggregation) and node.keys > 0 and not node.plan.aggregates
        )
        return (
            monotone
            and feed.times is None
            and all(self._all_feeds(node, side, self._only_grows) for side in range(len(node.ports)))
        )

    @staticmethod
    def _all_feeds(node: Node, side: int, holds: Callable[[Feed], bool]) -> bool:
        return all(holds(feed) for feed in node.ports[side].feeds)

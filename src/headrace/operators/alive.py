"""Which rows of a foreign-key join are alive, and which tables the others wait for.

In a tree that follows foreign keys, a join gives each row of its left side at most once: when the row that it refers to
is alive. All other rows that the join keeps wait for its right side, and their number follows from the sizes of
arrangements. When rows are missing from an answer, these counts say where to look.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.operators.join import JoinLayout
from headrace.operators.layout import GROUPS
from headrace.operators.tree_view import TreeView
from headrace.plan.tree import Aggregation, Feed, Join


@dataclass(frozen=True)
class Alive:
    """Rows of a source at one join: how many have arrived, and how many of them meet a live row of the other side."""

    source: str
    refers_to: str
    rows: int
    alive: int | None  # None if unknown, because a condition on joined rows leaves some out

    @property
    def share(self) -> float | None:
        """The share of the rows that are alive; None if unknown."""
        if self.alive is None:
            return None
        return self.alive / self.rows if self.rows else 0.0

    def __str__(self) -> str:
        if self.alive is None:
            return f"{self.rows:,} rows of {self.source} look for {self.refers_to}"
        waiting = self.rows - self.alive
        return f"{waiting:,} of {self.rows:,} rows of {self.source} wait for {self.refers_to}"


def alive(kernel: TreeView, rows: Mapping[str, int]) -> dict[int, Alive]:
    """Count the rows at each join of a tree along foreign keys.

    Parameters
    ----------
    rows : how many rows each arrangement holds, copies counted.
    """
    out = {}
    for number, (node, layout) in enumerate(zip(kernel.tree.nodes, kernel.layouts, strict=True)):
        if isinstance(node, Join) and isinstance(layout, JoinLayout) and layout.left_part in rows:
            left, right = (_origin(kernel, port.feeds[0]) for port in node.ports)
            out[number] = Alive(left, right, rows[layout.left_part], _given(kernel, number, rows))
    return out


def _origin(kernel: TreeView, feed: Feed) -> str:
    """The source at the left end of a feed's joins: each row of the feed extends one of its rows."""
    while feed.producer is not None:
        feed = kernel.tree.nodes[feed.producer].ports[0].feeds[0]
    return feed.source


def _given(kernel: TreeView, number: int, rows: Mapping[str, int]) -> int | None:
    """How many rows a join has given, counted in the operator that reads and keeps them; None if unknown."""
    for reader, side, _, feed in kernel.tree.feeds():
        if feed.producer != number:
            continue
        layout = kernel.layouts[reader]
        if isinstance(layout, JoinLayout):
            return rows.get(layout.parts[side])
        if isinstance(kernel.tree.nodes[reader], Aggregation) and feed.condition is None:
            return rows.get(GROUPS)
    return None

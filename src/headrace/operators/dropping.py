"""Arrangements that a view can do without for a while: what a step reads of them, and how they are made again.

An arrangement of an operator follows from the rows of tables, so it may be dropped to save memory. A step reads some
arrangements and only adds to others. Those that it reads are made again first, as of before the step: rows flow from
the tables to the operator, or from the nearest arrangements below it that are still kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.operators.group import GroupLayout
from headrace.operators.join import JoinLayout
from headrace.operators.not_in import NotInLayout
from headrace.operators.top import TopLayout
from headrace.plan.tree import JoinKind, Tree

if TYPE_CHECKING:
    from headrace.operators.operator import OperatorLayout
    from headrace.operators.tree_view import TreeView

PortId = tuple[int, int]
"""The number of an operator, and of one of its ports."""


@dataclass(frozen=True)
class Holding:
    """What is dropped or kept as a whole: one side of a join, or all that another operator keeps.

    Parameters
    ----------
    number : the operator.
    side : the port whose rows it follows from; None if from all of them.
    """

    number: int
    side: int | None
    parts: tuple[str, ...]


@dataclass(frozen=True)
class Rebuild:
    """How some dropped parts of a view are made again.

    Parameters
    ----------
    parts : the parts that are written.
    operators : those that run for it.
    ports : the ports that get all of their rows, from tables and from other operators.
    delivered : kept parts whose entries are delivered to their operator, as if they had just come.
    read : kept parts in which an inner join looks for partners; they do not change.
    taken_back : parts of the answer whose entries are delivered negated, so that what is written is the difference.
    """

    parts: frozenset[str]
    operators: frozenset[int]
    ports: frozenset[PortId]
    delivered: tuple[str, ...] = ()
    read: frozenset[str] = frozenset()
    taken_back: tuple[str, ...] = ()


def recomputation(kernel: TreeView) -> Rebuild:
    """How to compute the answer of a view from its tables alone, as a change of the answer that is there."""
    nodes, answer = kernel.tree.nodes, tuple(kernel.layouts[-1].arrangements)
    every = frozenset((number, side) for number, node in enumerate(nodes) for side in range(len(node.ports)))
    return Rebuild(frozenset(answer), frozenset(range(len(nodes))), every, taken_back=answer)


def holdings(kernel: TreeView) -> tuple[Holding, ...]:
    """All that a view may drop, operator by operator; never the answer itself."""
    return tuple(one for number in sorted(kernel.own) for one in _of_operator(kernel.layouts[number], number))


def _of_operator(layout: OperatorLayout, number: int) -> Iterator[Holding]:
    if isinstance(layout, JoinLayout) and not isinstance(layout, NotInLayout):
        for side, part in enumerate(layout.parts):
            if part in layout.arrangements:
                yield Holding(number, side, (part,))
        return
    if not (isinstance(layout, GroupLayout) and not layout.name):  # the answer is read at any time, MIN from its values
        yield Holding(number, None, tuple(layout.arrangements))


def reached(tree: Tree, tables: Collection[str]) -> frozenset[PortId]:
    """The ports that changes of some tables may reach."""
    changed: set[int] = set()
    ports: set[PortId] = set()
    for number, side, _, feed in tree.feeds():
        if (feed.table in tables) if feed.producer is None else (feed.producer in changed):
            ports.add((number, side))
            changed.add(number)
    return frozenset(ports)


def needed(kernel: TreeView, tables: Collection[str]) -> frozenset[str]:
    """The parts that a step reads if it changes some tables, of the operators that run in the view."""
    ports = reached(kernel.tree, tables)
    return frozenset(
        part
        for one in holdings(kernel)
        if _reads(kernel.layouts[one.number], one.side, {side for number, side in ports if number == one.number})
        for part in one.parts
    )


def _reads(layout: OperatorLayout, side: int | None, changed: Collection[int]) -> bool:
    """Whether an operator looks into what it holds of a side when some sides change."""
    if not changed or side is None or not isinstance(layout, JoinLayout):
        return bool(changed)
    return side in sides_read(layout.node.kind, changed)


def sides_read(kind: JoinKind, changed: Collection[int]) -> frozenset[int]:
    """The sides that a join reads when some sides change.

    A change looks for partners on the other side. If partners on the right come or go, a join other than an inner one
    also counts those that a row of the left side had; a full outer join does so for both sides.
    """
    if kind is JoinKind.INNER:
        return frozenset(1 - side for side in changed)
    return frozenset({0, 1} if kind is JoinKind.FULL or 1 in changed else {1} if changed else ())


def stands_for(layout: OperatorLayout, side: int) -> bool:
    """Whether what an operator keeps of a side is all that has come to it, so that it can be given again."""
    if isinstance(layout, NotInLayout):
        return False  # the number of NULLs lies apart from the rows, in every bucket
    if not isinstance(layout, JoinLayout):
        return True
    # Rows whose key is NULL pass through, and settled rows are not kept.
    return layout.parts[side] in layout.arrangements and not (
        layout.passes_absent(side) or (side == 0 and layout.settles)
    )


@dataclass
class _Gathering:
    """Finds what must run to make parts again."""

    tree: Tree
    layouts: Mapping[int, OperatorLayout]
    kept: Collection[str]
    operators: set[int] = field(default_factory=set)
    ports: set[PortId] = field(default_factory=set)
    delivered: list[str] = field(default_factory=list)
    read: set[str] = field(default_factory=set)
    given: set[int] = field(default_factory=set)  # operators that give all of their rows

    def all_of(self, number: int, side: int) -> None:
        """Bring all rows to a port."""
        self.operators.add(number)
        if (number, side) not in self.ports:
            self.ports.add((number, side))
            for feed in self.tree.nodes[number].ports[side].feeds:
                if feed.producer is not None:
                    self.give(feed.producer)

    def give(self, number: int) -> None:
        """Have an operator give all of its rows."""
        if number in self.given:
            return
        self.given.add(number)
        self.operators.add(number)
        layout = self.layouts[number]
        for side in range(len(self.tree.nodes[number].ports)):
            parts = _source_parts(layout, side)
            if not stands_for(layout, side) or not self.kept_all(layout, side):
                self.all_of(number, side)
            elif isinstance(layout, JoinLayout) and layout.node.kind is JoinKind.INNER and not self._reads(layout):
                self.read.update(parts)
            else:
                self.delivered += parts

    def kept_all(self, layout: OperatorLayout, side: int) -> bool:
        parts = [layout.parts[side]] if isinstance(layout, JoinLayout) else layout.arrangements
        return all(part in self.kept for part in parts)

    def _reads(self, layout: JoinLayout) -> bool:
        return any(part in self.read for part in layout.parts)


def _source_parts(layout: OperatorLayout, side: int) -> tuple[str, ...]:
    """The parts that bring an operator all that has come to a side."""
    if isinstance(layout, JoinLayout):
        return (layout.parts[side],)
    if isinstance(layout, TopLayout):
        return (layout.rows_part,)
    return tuple(layout.arrangements)


def rebuild_of(kernel: TreeView, wanted: Collection[str], kept: Collection[str]) -> Rebuild:
    """How to make the wanted parts of a view again, of which others are kept.

    Parameters
    ----------
    kernel : the view without sharing, because a shared subplan gives only changes.
    """
    found = _Gathering(kernel.tree, dict(enumerate(kernel.layouts)), kept)
    for number, layout in enumerate(kernel.layouts):
        for one in _of_operator(layout, number):
            if not set(one.parts).isdisjoint(wanted):
                for side in range(len(kernel.tree.nodes[number].ports)) if one.side is None else [one.side]:
                    found.all_of(number, side)
    return Rebuild(
        frozenset(wanted),
        frozenset(found.operators),
        frozenset(found.ports),
        tuple(found.delivered),
        frozenset(found.read),
    )

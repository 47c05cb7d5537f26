"""A view as the plan of operators and states from which the dynamic program chooses.

Sizes are those that the arrangements have, or had when they were dropped. Where an arrangement has never been
written, rows are estimated as for the choice of a strategy (`tree_cost`). The next change is followed from
the tables to the answer: a join gives, per changed row, as many rows as it gives on average per row of that side.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from headrace.operators.dropping import Holding, holdings, stands_for
from headrace.operators.group import GroupLayout
from headrace.operators.layout import GROUPS
from headrace.operators.tree_view import TreeView
from headrace.plan.tree import Aggregation, Join, Over
from headrace.thrifty.keep.actions import ROW_COSTS, Input, Leaf, Op, Request, RowCosts, State
from headrace.thrifty.keep.change import Change
from headrace.thrifty.keep.selection import cost_of_one
from headrace.thrifty.statistics import Statistics
from headrace.thrifty.tree_cost import sizes_of


@dataclass(frozen=True)
class Measured:
    """How large a part of a view is, or was when it was dropped."""

    entries: int
    bytes: int


@dataclass
class ViewPlan:
    """Makes the plan of a view, or of a shared subplan.

    Parameters
    ----------
    name : of the view.
    measured : the size of each part, as far as it is known.
    expected : the next change of each table.
    recomputable : whether the driver can compute the answer anew.
    """

    name: str
    kernel: TreeView
    measured: Mapping[str, Measured]
    expected: Mapping[str, Change]
    statistics: Statistics
    recomputable: bool = False
    costs: RowCosts = ROW_COSTS
    _made: dict[int, Op] = field(default_factory=dict)

    @cached_property
    def holdings(self) -> tuple[Holding, ...]:
        """What may be dropped; a state's key has the position in it."""
        return holdings(self.kernel)

    @cached_property
    def _estimated(self) -> list[list[float]]:
        return sizes_of(self.kernel.tree, self.statistics)

    def plan(self) -> Op:
        """The plan of the last operator, and of all below it."""
        return replace(self._op(len(self.kernel.tree.nodes) - 1), recomputable=self.recomputable)

    def _op(self, number: int) -> Op:
        if number not in self._made:
            self._made[number] = self._new(number)
        return self._made[number]

    def _new(self, number: int) -> Op:
        node, kernel = self.kernel.tree.nodes[number], self.kernel
        inputs = tuple(self._input(number, side) for side in range(len(node.ports)))
        rows, delta = self._gives(number, inputs)
        states = []
        if number in kernel.own:
            for at, one in enumerate(self.holdings):
                if one.number == number:
                    known = [self.measured[part] for part in one.parts if part in self.measured]
                    entries = max((size.entries for size in known), default=0)
                    stands = stands_for(kernel.layouts[number], one.side or 0)
                    size = sum(size.bytes for size in known)
                    states.append(State((self.name, at), size, float(entries), one.side, stands))
        kind = node.kind if isinstance(node, Join) else None
        has_values = not isinstance(node, Join) and len(kernel.layouts[number].arrangements) > 1
        deleted = self._deleted * sum(one.delta for one in inputs) if has_values else 0.0
        return Op(kind, inputs, tuple(states), rows, delta, deleted)

    @cached_property
    def _deleted(self) -> float:
        """The share of changed rows that are deleted."""
        own = [change for table, change in self.expected.items() if table in self.kernel.tree.tables]
        rows = sum(change.rows for change in own)
        return sum(change.deleted for change in own) / rows if rows else 0.0

    def _input(self, number: int, side: int) -> Input:
        feeds: list[Op | Leaf] = []
        rows = delta = 0.0
        for feed in self.kernel.tree.nodes[number].ports[side].feeds:
            if feed.producer is None:
                size, change = self.statistics.size(feed.table), self.expected.get(feed.table, Change())
                feeds.append(Leaf(self.costs.probe * change.rows, self.costs.scan * size))
                rows, delta = rows + size, delta + change.rows
                continue
            below = self._op(feed.producer)
            first = not self._is_read_before(feed.producer, number, side)
            feeds.append(below if first and feed.producer not in self.kernel.given else self._elsewhere(below))
            rows, delta = rows + below.rows, delta + below.delta
        known = self._known(number, side)
        if known is not None and rows:
            return Input(tuple(feeds), known, delta * min(1.0, known / rows))
        return Input(tuple(feeds), self._estimated[number][side], delta)

    def _elsewhere(self, below: Op) -> Leaf:
        """An operator whose states are decided at another place: for its first reader, or in a shared subplan."""
        return Leaf(0.0, cost_of_one(below, frozenset(), Request.FULL, self.costs))

    def _is_read_before(self, producer: int, number: int, side: int) -> bool:
        """Whether another port reads an operator first: its states are decided there."""
        readers = [(n, s) for n, s, _, feed in self.kernel.tree.feeds() if feed.producer == producer]
        return readers[0] != (number, side)

    def _known(self, number: int, side: int) -> float | None:
        """The rows of an input, if they are kept, or were."""
        node, layout = self.kernel.tree.nodes[number], self.kernel.layouts[number]
        if not isinstance(node, Join) or not stands_for(layout, side):
            return None
        part = f"{number}.{('left', 'right')[side]}"
        return float(self.measured[part].entries) if part in self.measured else None

    def _gives(self, number: int, inputs: tuple[Input, ...]) -> tuple[float, float]:
        """How many rows an operator gives: in all, and at the next change."""
        node = self.kernel.tree.nodes[number]
        if isinstance(node, Join):
            rows = self._given_rows(number, inputs)
            met = sum(one.delta * rows / max(1.0, one.rows) for one in inputs)
            return rows, met
        if isinstance(node, Aggregation):
            layout = self.kernel.layouts[number]
            assert isinstance(layout, GroupLayout)
            groups = self.measured.get(layout.part(GROUPS))
            rows = float(groups.entries) if groups else max(1.0, inputs[0].rows / 4)
            return rows, min(2 * inputs[0].delta, 2 * rows)
        rows = inputs[0].rows if isinstance(node, Over) else float(min(node.count, inputs[0].rows))
        return rows, min(2 * inputs[0].delta, 2 * rows)

    def _given_rows(self, number: int, inputs: tuple[Input, ...]) -> float:
        readers = [(n, s, feed) for n, s, _, feed in self.kernel.tree.feeds() if feed.producer == number]
        if len(readers) == 1 and readers[0][2].condition is None:
            known = self._known(readers[0][0], readers[0][1])
            if known is not None:
                return known
        node = self.kernel.tree.nodes[number]
        assert isinstance(node, Join)
        if not node.kind.pairs:
            return inputs[0].rows
        sizes = [one.rows for one in inputs]
        return max(sizes) if node.keys else sizes[0] * sizes[1]

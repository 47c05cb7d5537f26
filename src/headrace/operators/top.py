"""ORDER BY with LIMIT as an operator: it keeps the first rows, and all others in case some of the first leave.

A new row is compared with the rows at the top. The rows below are read only when a row leaves the top and the top must
be refilled. All rows of the order are in one bucket, because there is one top.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from headrace.operators.changes import Changes, RowLayout, together
from headrace.operators.delivery import Delivery, Destination
from headrace.operators.kernel import State
from headrace.operators.operator import Operator, OperatorLayout, passed
from headrace.operators.order import first_rows
from headrace.plan.tree import Top
from headrace.plan.view import Order
from headrace.relation.arrangement import scan
from headrace.relation.columns import whole
from headrace.relation.run import Run, merge
from headrace.relation.types import SqlType
from headrace.rings import COUNT, Group

_ALL = 1 << 62  # the limit of an OFFSET without a LIMIT


@dataclass(frozen=True)
class TopLayout(OperatorLayout):
    """How the first rows are kept."""

    node: Top
    name: str
    seed: int

    @property
    def rows_part(self) -> str:
        """The arrangement of all rows."""
        return f"{self.name}.rows"

    @property
    def top_part(self) -> str:
        """The arrangement of the first rows: those that OFFSET skips and those that are given."""
        return f"{self.name}.top"

    @cached_property
    def arrangements(self) -> Mapping[str, Group]:
        return {self.rows_part: COUNT, self.top_part: COUNT}

    @property
    def accepts(self) -> Sequence[str]:
        return (self.rows_part,)

    def deliver(self, side: int, changes: Changes, to: Destination) -> Iterator[Delivery]:
        return to.deliver(self.rows, self.rows_part, changes)

    def operator(self, state: State) -> Operator:
        return TopOperator(self, state)

    @cached_property
    def rows(self) -> RowLayout:
        return RowLayout(self.node.port.fields, 0, (), self.seed)

    @cached_property
    def order(self) -> tuple[Order, ...]:
        """The order of all rows: ties are broken by the columns that ORDER BY does not name."""
        names = self.rows.names
        asked = tuple(Order(names[i], descending, first) for i, descending, first in self.node.order)
        named = {item.column for item in asked}
        return (*asked, *(Order(name, False, True) for name in names if name not in named))

    @cached_property
    def wanted(self) -> int:
        """The size of the top: the rows that OFFSET skips and those that are given."""
        return min(self.node.count, _ALL) + self.node.offset

    @cached_property
    def types(self) -> dict[str, SqlType]:
        return {field.name: field.type for field in self.node.port.fields}


class TopOperator(Operator):
    """The first rows of an order, in one step."""

    def __init__(self, layout: TopLayout, state: State) -> None:
        super().__init__(state)
        self.layout = layout

    def flush(self) -> Changes | None:
        layout = self.layout
        change = self.pushed(layout.rows_part)
        self.taken[0] += passed(change, 0)
        if change is None:
            return None
        self.keep(layout.rows_part, change)
        before = scan(COUNT, self.before(layout.top_part))
        after = self._top(self._candidates(before, change))
        old = self._rows_of(before)
        moved = layout.rows.run(_sum([_signed(old, -1), _signed(after, 1)]))
        if moved.rows:
            self.runs[layout.top_part] = moved
            self.live[layout.top_part] = int(moved.payload[0].sum())
        return together([_signed(self._shown(old), -1), _signed(self._shown(after), 1)])

    def _candidates(self, before: Run | None, change: Run) -> Changes:
        """Rows that include the new top: the old top and the new rows, or all rows if the top has to be refilled."""
        wanted = self.layout.wanted
        there = 0 if before is None else int(before.payload[0].sum())
        if before is not None and there >= wanted:
            held = merge(COUNT, [before, change])
            first, last = held.find(np.ascontiguousarray(before.words))
            left = np.flatnonzero(last > first)
            still = np.zeros(before.rows, np.int64)
            still[left] = held.payload[0][first[left]]
            if (still >= before.payload[0]).all():
                came = change.take(np.flatnonzero(change.payload[0] > 0))
                return self._rows_of(merge(COUNT, [before, came]))
        runs = [*self.before(self.layout.rows_part), change]
        return self._rows_of(scan(COUNT, runs))

    def _top(self, rows: Changes) -> Changes:
        return self._first(rows, min(self.layout.wanted, rows.rows))

    def _shown(self, rows: Changes) -> Changes:
        """The rows of the top without those that OFFSET skips."""
        offset = self.layout.node.offset
        return self._first(rows, rows.rows).take(np.arange(min(offset, rows.rows), rows.rows)) if offset else rows

    def _first(self, rows: Changes, count: int) -> Changes:
        """The first rows of the order.

        If no reader needs a column (EXISTS, count(*)), rows have no columns and are all alike. Only their number counts
        then, and an Arrow table without columns would forget it.
        """
        if not rows.columns:
            return rows.take(np.arange(count))
        first = first_rows(pa.table(rows.arrays()), self.layout.order, self.layout.types, count)
        columns = {name: whole(first.column(name)) for name in first.column_names}
        return Changes(columns, np.ones(first.num_rows, np.int64))

    def _rows_of(self, run: Run | None) -> Changes:
        """The rows of a run, each as often as it occurs, but never more often than could be at the top."""
        layout = self.layout.rows
        if run is None:
            return Changes({f.name: pa.array([], f.type.arrow) for f in layout.fields}, np.zeros(0, np.int64))
        changes = layout.changes(run)
        times = np.clip(changes.diff, 0, self.layout.wanted)
        if (times == 1).all():
            return _signed(changes, 1)
        return _signed(changes.take(np.repeat(np.arange(changes.rows), times)), 1)


def _signed(rows: Changes, sign: int) -> Changes:
    return Changes(rows.columns, np.full(rows.rows, sign, np.int64))


def _sum(parts: list[Changes]) -> Changes:
    return together(parts) or parts[0]

"""ORDER BY with LIMIT as an operator: it keeps all rows in their order, and the first of them once more.

The first rows and some behind them are the *front*. A row that comes is compared with the last row of the front. When
rows leave the front and too few are left, it is filled up from where it ends: the runs of the arrangement of all rows
are in the order asked for, so the next rows are read from there on, and neither the rows before nor all rows behind. As
the front has more rows than are wanted, rows that leave and others that take their place mostly need no such reading,
and entries that are dead are passed over once and not in every step. All rows of the order are in one bucket, because
there is one top.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headrace.operators.changes import Changes
from headrace.operators.delivery import Delivery, Destination
from headrace.operators.kernel import State
from headrace.operators.operator import Operator, OperatorLayout, passed
from headrace.operators.ordered_rows import OrderedRows
from headrace.plan.tree import Top
from headrace.relation.arrangement import scan
from headrace.relation.leading import leading, one_group
from headrace.relation.ordered import Ordering, rows_in
from headrace.relation.run import Run, merge
from headrace.relation.runset import as_set
from headrace.rings import COUNT, Group

_ALL = 1 << 62  # the limit of an OFFSET without a LIMIT
_BEHIND = 256  # rows behind those wanted that the front has when it has been filled up, or half as many as are wanted


@dataclass(frozen=True)
class TopLayout(OperatorLayout):
    """How the first rows are kept."""

    node: Top
    name: str
    seed: int

    @property
    def rows_part(self) -> str:
        """The arrangement of all rows, in their order."""
        return f"{self.name}.rows"

    @property
    def top_part(self) -> str:
        """The arrangement of the front: the rows that OFFSET skips, those that are given, and some behind them."""
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
    def rows(self) -> OrderedRows:
        return OrderedRows(self.node.port.fields, self.node.order, self.seed)

    @property
    def gives_rest(self) -> bool:
        """Whether all rows are given but those that OFFSET skips."""
        return self.node.count >= _ALL

    @cached_property
    def wanted(self) -> int:
        """How many of the first rows decide what is given."""
        if self.gives_rest:
            return self.node.offset
        return self.node.count + self.node.offset if self.node.count else 0

    @cached_property
    def filled(self) -> int:
        """How many rows the front has when it has been filled up."""
        return self.wanted + self._behind

    @cached_property
    def most(self) -> int:
        """How many entries the front may have; with more, it is cut."""
        return self.filled + self._behind

    @property
    def _behind(self) -> int:
        return max(_BEHIND, self.wanted // 2)


class TopOperator(Operator):
    """The first rows of an order, in one step.

    The front is the sum of all entries up to the last one that it has: entries that the sum of all rows has there are
    in the front, with all of their copies. A front with fewer rows than are wanted has all rows.
    """

    def __init__(self, layout: TopLayout, state: State) -> None:
        super().__init__(state)
        self.layout = layout

    @property
    def order(self) -> Ordering:
        return self.layout.rows.ordering

    def flush(self) -> Changes | None:
        layout = self.layout
        change = self.pushed(layout.rows_part)
        self.taken[0] += passed(change, 0)
        if change is None:
            return None
        self.keep(layout.rows_part, change)
        given = change if layout.gives_rest else None
        if layout.wanted:
            before = scan(COUNT, self.before(layout.top_part))
            after = self._front(before, change)
            moved = _sum([_negative(before), after])
            if moved is not None:
                self.runs[layout.top_part] = moved
                self.live[layout.top_part] = after.rows - (0 if before is None else before.rows)
            given = _sum([given, _negative(self._shown(before)), self._shown(after)])
        return None if given is None else layout.rows.changes(given)

    def _front(self, before: Run | None, change: Run) -> Run:
        """The front after the step."""
        layout, order = self.layout, self.order
        if before is None or rows_in(before) < layout.wanted:  # all rows are there
            after = change if before is None else merge(COUNT, [before, change])
        else:
            edge = order.last(before)
            after = merge(COUNT, [before, order.up_to(change, edge)])
            if rows_in(after) < layout.wanted:
                after = self._filled_up(after, edge, change)
        return after if after.rows <= layout.most else after.take(order.head(after, layout.filled).positions)

    def _filled_up(self, front: Run, edge: Run, change: Run) -> Run:
        """The front with the rows that come after it, as many as it lacks."""
        layout, order = self.layout, self.order
        runs = as_set(self.before(layout.rows_part)).with_run(change)
        prefix = order.prefix(edge, 0)
        ties = len(prefix) < order.width
        if ties:  # entries that tie with the last one lie on both sides of it
            front = front.slice(0, int(front.find(prefix)[0][0]))
        lacking = layout.filled - rows_in(front)
        first = runs.bounds(prefix, above=not ties)[:, 0]
        more = leading(runs, one_group(first, np.array([run.rows for run in runs])), lacking, texts=True).entries
        head = order.head(more, lacking)
        if head.last is not None:
            # Of entries that tie with the last one, some may not have been read.
            prefix = order.prefix(more, int(head.positions[head.last]))
            if len(prefix) < order.width:
                tied = runs.matching(COUNT, prefix)
                assert tied is not None, "one of them has been read"
                more = merge(COUNT, [more.slice(0, int(more.find(prefix)[0][0])), tied])
                head = order.head(more, lacking)
        return merge(COUNT, [front, more.take(head.positions)]) if more.rows else front

    def _shown(self, front: Run | None) -> Run | None:
        """The rows that are given of a front; those that OFFSET skips, below zero, if all others are given."""
        layout = self.layout
        skipped = _negative(self._first(front, layout.node.offset))
        return skipped if layout.gives_rest else _sum([skipped, self._first(front, layout.wanted)])

    def _first(self, front: Run | None, count: int) -> Run | None:
        """The first rows of a front, and no more copies of the last one than are among them."""
        if front is None or not count:
            return None
        head = self.order.head(front, count)
        found = front.take(head.positions)
        times = np.maximum(found.payload[0], 0)
        if head.last is not None:
            times[head.last] -= head.excess
        return Run(found.words, (times,), found.values)


def _negative(run: Run | None) -> Run | None:
    return None if run is None else Run(run.words, (-run.payload[0],), run.values)


def _sum(runs: Sequence[Run | None]) -> Run | None:
    """The sum of runs; None if it has no entries."""
    found = [run for run in runs if run is not None and run.rows]
    total = merge(COUNT, found) if found else None
    return total if total is not None and total.rows else None

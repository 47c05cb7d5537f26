"""NOT IN where NULLs may occur: a row is given unless it equals a value of the subquery, or might equal one.

The subquery has T values, N of them NULL. If T = 0 every row is given; if N > 0 none is; otherwise those are given that
are not NULL themselves and equal no value. So besides the rows of both sides, each bucket knows T and N over all
buckets. A step costs what an anti join costs, except when T and N move to another of the three cases: only then are all
rows compared again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headrace.operators.changes import Changes, null_in, together
from headrace.operators.delivery import Delivery, Destination
from headrace.operators.join import JoinLayout, distinct
from headrace.operators.kernel import State
from headrace.operators.operator import Operator, passed
from headrace.operators.placement import Places
from headrace.relation.arrangement import lookup, scan
from headrace.relation.run import Run, merge
from headrace.relation.runset import AnyRun, as_set
from headrace.rings import COUNT, Group

_VALUES, _NULLS = 0, 1


class NotInLayout(JoinLayout):
    """How NOT IN keeps its sides, and T and N."""

    @property
    def seen_part(self) -> str:
        """The part that holds T and N, the numbers of values and of NULLs; every bucket has it."""
        return f"{self.name}.seen"

    @cached_property
    def arrangements(self) -> Mapping[str, Group]:
        return {**super().arrangements, self.seen_part: COUNT}

    @property
    def accepts(self) -> Sequence[str]:
        return (*super().accepts, self.seen_part)

    def shared(self, everywhere: Places) -> Collection[str]:
        return [*super().shared(everywhere), self.seen_part]

    def deliver(self, side: int, changes: Changes, to: Destination) -> Iterator[Delivery]:
        if side == 1:
            run = _seen(changes.diff, null_in([changes.columns[self.rows[1].names[0]]]))
            yield from ((bucket, self.seen_part, run) for bucket in range(to.buckets))
        yield from super().deliver(side, changes, to)

    def side_of(self, part: str) -> int:
        return 1 if part == self.seen_part else super().side_of(part)

    def operator(self, state: State) -> Operator:
        return NotInOperator(self, state)


def _seen(values: NDArray[np.int64], nulls: NDArray[np.bool_] | None) -> Run:
    """What some changes of the subquery add to T and N."""
    counts = np.array([values.sum(), 0 if nulls is None else values[nulls].sum()], np.int64)
    return Run(np.array([[_VALUES, _NULLS]], np.uint64), (counts,))


class NotInOperator(Operator):
    """NOT IN in one bucket in one step."""

    def __init__(self, layout: NotInLayout, state: State) -> None:
        super().__init__(state)
        self.layout = layout

    def flush(self) -> Changes | None:
        left, right = (self.pushed(part) for part in self.layout.parts)
        for side, (part, run, rows) in enumerate(zip(self.layout.parts, (left, right), self.layout.rows, strict=True)):
            self.keep(part, run)
            self.taken[side] = passed(run, rows.key_width)
        before = self._seen(self.before(self.layout.seen_part))
        more = self.pushed(self.layout.seen_part)
        self.keep(self.layout.seen_part, more)
        after = before + (self._seen([more]) if more is not None else 0)
        was, now = _mode(before), _mode(after)
        theirs = as_set(self.before(self.layout.right_part))
        later = theirs if right is None else theirs.with_run(right)
        if was != now:
            mine = scan(COUNT, self.before(self.layout.left_part))
            sums = [run for run in (mine, left) if run is not None]
            all_rows = merge(COUNT, sums) if sums else None
            return together([*self._given(mine, was, theirs, -1), *self._given(all_rows, now, later, 1)])
        out = self._given(left, now, later, 1)
        if now == "compare" and right is not None:
            touched = self._touched(right)
            out += [*self._given(touched, was, theirs, -1), *self._given(touched, now, later, 1)]
        return together(out)

    def _seen(self, runs: Sequence[AnyRun]) -> NDArray[np.int64]:
        (counts,) = lookup(COUNT, runs, np.array([[_VALUES, _NULLS]], np.uint64))
        return counts.astype(np.int64)

    def _touched(self, right: Run) -> Run | None:
        probes = distinct(self.layout.rows[1].probes(right))
        return as_set(self.before(self.layout.left_part)).matching(COUNT, probes)

    def _given(self, rows: Run | None, mode: str, values: Sequence[AnyRun], sign: int) -> list[Changes]:
        """Those of the rows that NOT IN gives in this mode, with their multiplicities times `sign`."""
        if rows is None or mode == "none":
            return []
        layout = self.layout.rows[0]
        if mode == "compare":
            (count,) = lookup(COUNT, values, layout.probes(rows))
            null = rows.words[layout.key_width - 1].astype(bool)  # a nullable key's last word says if it is NULL
            rows = rows.take(np.flatnonzero((count == 0) & ~null))
        columns = {name: layout.column(name, rows) for name in self.layout.node.outputs}
        return [Changes(columns, sign * rows.payload[0].astype(np.int64))]


def _mode(counts: NDArray[np.int64]) -> str:
    if counts[_VALUES] == 0:
        return "all"
    return "none" if counts[_NULLS] > 0 else "compare"

"""Functions over windows of rows (`OVER`) as an operator: it keeps all rows by partition, each partition in its order.

What a step changes are the rows of the partitions that it touches. These are read as they were and as they are, the
functions are computed for both, and the difference is given: rows whose values stay the same cancel. Partitions that no
change touches are not read. Where the frames of all functions are bounded, only the rows near the changed ones are read
(`reach`), however large the partition is.

If only the first rows of each partition are wanted, only these are read, from the beginnings of runs
(`relation.leading`): so `ROW_NUMBER() ... = 1` costs what MAX costs, however many rows a partition has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.operators.changes import Changes, RowLayout, together
from headrace.operators.delivery import Delivery, Destination
from headrace.operators.frames import Distances, Places
from headrace.operators.kernel import State
from headrace.operators.operator import Operator, OperatorLayout, passed
from headrace.operators.over_values import Window
from headrace.operators.partitions import PartitionedRows
from headrace.operators.placement import Places as KeyPlaces
from headrace.operators.reach import Reach, near, reach_of
from headrace.plan.over import First
from headrace.plan.tree import Over
from headrace.relation.coded import Column, values
from headrace.relation.kernels import Positions, Words
from headrace.relation.leading import leading, less
from headrace.relation.residence import Lead
from headrace.relation.run import Run, merge
from headrace.relation.runset import RunSet, as_set
from headrace.rings import COUNT, Group

_GROWTH = 4


@dataclass(frozen=True)
class OverLayout(OperatorLayout):
    """How rows are kept by partition."""

    node: Over
    name: str
    seed: int

    @property
    def rows_part(self) -> str:
        """The arrangement of all rows."""
        return f"{self.name}.rows"

    @cached_property
    def arrangements(self) -> Mapping[str, Group]:
        return {self.rows_part: COUNT}

    @property
    def accepts(self) -> Sequence[str]:
        return (self.rows_part,)

    @cached_property
    def rows(self) -> PartitionedRows:
        return PartitionedRows(self.node.port.fields, self.node.keys, self.node.order, self.seed)

    @cached_property
    def reach(self) -> Reach | None:
        """How far a changed row reaches; None if a partition has to be read as a whole."""
        return reach_of(self.node)

    @cached_property
    def given(self) -> RowLayout:
        """The rows that are given, by which equal ones are found."""
        fields = self.node.fields
        return RowLayout(fields, 0, (), self.seed)

    def deliver(self, side: int, changes: Changes, to: Destination) -> Iterator[Delivery]:
        return to.deliver(self.rows, self.rows_part, changes)

    def decides(self, part: str, places: KeyPlaces) -> Lead | None:
        return partial(self.rows.lead, places) if places else None

    def operator(self, state: State) -> Operator:
        return OverOperator(self, state)


class OverOperator(Operator):
    """Functions over windows of rows, in one step."""

    def __init__(self, layout: OverLayout, state: State) -> None:
        super().__init__(state)
        self.layout = layout

    def flush(self) -> Changes | None:
        layout = self.layout
        change = self.pushed(layout.rows_part)
        self.taken[0] += passed(change, layout.rows.depth)
        if change is None:
            return None
        self.keep(layout.rows_part, change)
        runs = as_set(self.before(layout.rows_part))
        reach = layout.reach
        near_by = near(layout.rows, reach, runs, change) if reach is not None and len(runs) else None
        given: list[Changes] = []
        if near_by is not None:
            partitions = layout.rows.partitions(change)[1][:, near_by.partitions]
            hidden = _Hidden(partitions, near_by.hidden)
            given += (*self._given(near_by.before, -1, hidden), *self._given(near_by.after, 1, hidden))
            change = layout.rows.without(change, near_by.partitions)
        if change.rows:
            given += self._anew(runs, change)
        found = together(given)
        if found is None:
            return None
        netted = layout.given.run(found)
        return layout.given.changes(netted) if netted.rows else None

    def _anew(self, runs: RunSet, change: Run) -> Iterator[Changes]:
        """The rows of the partitions that change, or the first of them, as they were and as they are."""
        _, partitions = self.layout.rows.partitions(change)
        first = self.layout.node.first
        after: Run | None
        if first is None:
            before = runs.matching(COUNT, partitions) if len(runs) else None
            after = change if before is None else merge(COUNT, [before, change])
        else:
            before, cut = self._first(runs, partitions, first)
            after = self._first_after(runs, change, partitions, first, before, cut)
        yield from self._given(before, -1)
        yield from self._given(after, 1)

    def absorb(self) -> None:
        change = self.pushed(self.layout.rows_part)
        self.taken[0] += passed(change, self.layout.rows.depth)
        self.keep(self.layout.rows_part, change)

    # -- reading ------------------------------------------------------------------------------------------------------

    def _first(self, runs: RunSet, partitions: Words, first: First) -> tuple[Run | None, NDArray[np.bool_]]:
        """The beginnings of partitions, each as long as the rows wanted of it, or longer, and which are cut."""
        found: list[Run] = []
        wanted, cut = first.count, np.zeros(partitions.shape[1], bool)
        left = np.arange(partitions.shape[1])
        while len(left) and len(runs):
            asked = np.ascontiguousarray(partitions[:, left])
            read = leading(runs, runs.find(asked), wanted, depth=len(asked), texts=True)
            words = np.concatenate([asked[:, read.groups], read.entries.words])
            run = Run(words, read.entries.payload, read.entries.values)
            (rows,) = COUNT.sum_by((np.maximum(run.payload[0], 0),), read.groups, len(left))
            lacking = self._lacking(run, read.groups, rows >= wanted, first)
            cut[left] = rows >= wanted  # one with fewer rows has been read as a whole
            done = ~lacking[read.groups]
            if done.any():
                found.append(run.take(np.flatnonzero(done)))
            left, wanted = left[lacking], wanted * _GROWTH
        return merge(COUNT, found) if found else None, cut

    def _first_after(
        self,
        runs: RunSet,
        change: Run,
        partitions: Words,
        first: First,
        before: Run | None,
        cut: NDArray[np.bool_],
    ) -> Run | None:
        """The beginnings of partitions after a change; they are read again only where too many rows have left them."""
        if before is None:
            return self._first(RunSet([change]), partitions, first)[0]
        layout, sought = self.layout.rows, Run(partitions, ())
        # Of a beginning that is cut, nothing is known behind its last entry.
        starts, words = layout.partitions(before)
        edges, is_cut = np.zeros((change.words.shape[0], len(cut)), np.uint64), np.zeros(len(cut), bool)
        which, _ = sought.find(words)
        edges[:, which] = before.words[:, np.append(starts[1:], before.rows) - 1]
        is_cut[which] = cut[which]
        of_change = np.cumsum(layout.begins(change)) - 1
        beyond = is_cut[of_change] & less(edges[:, of_change], change.words)
        after = merge(COUNT, [before, change.take(np.flatnonzero(~beyond))])
        starts, words = layout.partitions(after)
        of_entry = np.repeat(sought.find(words)[0], np.diff(starts, append=after.rows))
        lacking = self._lacking(after, of_entry, cut, first)
        if not lacking.any():
            return after
        again, _ = self._first(runs.with_run(change), np.ascontiguousarray(partitions[:, lacking]), first)
        kept = after.take(np.flatnonzero(~lacking[of_entry]))
        return kept if again is None else merge(COUNT, [kept, again])

    def _lacking(self, run: Run, partition: Positions, cut: NDArray[np.bool_], first: First) -> NDArray[np.bool_]:
        """The partitions whose beginnings are cut before all rows that may be among the first.

        Parameters
        ----------
        partition : that of each entry.
        cut : the partitions of which there may be more rows.
        """
        if not cut.any():
            return cut
        reached, decided = np.zeros(len(cut), np.int64), np.ones(len(cut), bool)
        if run.rows:
            order = self.layout.rows.in_order(run)
            numbers = Window(self._places(order), {}, (), None).number(first.function)
            of_row = np.repeat(partition, np.maximum(order.payload[0], 0))
            ends = np.flatnonzero(np.diff(of_row, append=-1))
            reached[of_row[ends]] = numbers[ends]
            # Rows that tie with the last one in what their words hold may come before it, though they were not read.
            last = np.flatnonzero(np.diff(partition, append=-1))
            decided[partition[last]] = self.layout.rows.decides_order(run, last)
        enough = reached >= first.count if first.function == "row_number" else reached > first.count
        lacking: NDArray[np.bool_] = cut & ~(enough & decided)
        return lacking

    # -- computing ----------------------------------------------------------------------------------------------------

    def _places(self, run: Run) -> Places:
        """Where the rows of a run stand; an entry is as many rows as its count says."""
        layout = self.layout.rows
        times = np.maximum(run.payload[0], 0)
        begins, ties = layout.begins(run), layout.new_places(run)
        # What is dead begins nothing: the next row of its partition, or of those that tie, does.
        partition, place = np.cumsum(begins), np.cumsum(ties)
        of_row = np.repeat(np.arange(run.rows), times)
        return Places.of(_changes(partition[of_row]), _changes(place[of_row]))

    def _given(self, run: Run | None, times: int, hidden: _Hidden | None = None) -> Iterator[Changes]:
        """The rows of partitions with the values of all functions, each `times` times."""
        if run is None or not run.rows:
            return
        node, layout = self.layout.node, self.layout.rows
        run = layout.in_order(run)
        places = self._places(run)
        if not places.rows:
            return
        of_row = np.repeat(np.arange(run.rows), np.maximum(run.payload[0], 0))
        columns = {name: column.take(of_row) for name, column in layout.columns(run).items()}
        names = [field.name for field in node.port.fields]
        read = {i for f in node.functions for i in (f.argument, f.where, f.default) if i is not None}
        arguments = {i: values(columns[names[i]]) for i in read}
        window = Window(places, arguments, tuple(f.type for f in node.port.fields), self._distances(columns))
        out: dict[str, pa.Array] = {f"w{i}": window.value(f) for i, f in enumerate(node.functions)}
        changes = Changes({**columns, **out}, np.full(places.rows, times, np.int64))
        if node.first is not None:
            changes = changes.take(np.flatnonzero(window.number(node.first.function) <= node.first.count))
        if hidden is not None:
            changes = changes.take(np.flatnonzero(hidden.shows(layout, run, places)))
        yield changes

    def _distances(self, columns: Mapping[str, Column]) -> Distances | None:
        """The values by which rows are ordered, if a frame reaches some distance from them."""
        node = self.layout.node
        frames = [f.frame for f in node.functions if f.frame is not None and f.frame.by_value]
        if not any(bound for frame in frames for bound in (frame.low, frame.high)):
            return None
        place, descending, _ = node.order[0]
        field = node.port.fields[place]
        return Distances.of(values(columns[field.name]), field.type, descending=descending)


@dataclass(frozen=True)
class _Hidden:
    """How many rows of each partition are not shown, at its beginning and at its end."""

    partitions: Words
    rows: NDArray[np.int64]

    def shows(self, layout: PartitionedRows, run: Run, places: Places) -> NDArray[np.bool_]:
        """Which rows are shown."""
        _, words = layout.partitions(run)
        which, _ = Run(self.partitions, ()).find(words)
        times = np.maximum(run.payload[0], 0)
        of_entry = np.cumsum(layout.begins(run)) - 1
        first, last = self.rows[:, np.repeat(which[of_entry], times)]
        at = np.arange(places.rows)
        shown: NDArray[np.bool_] = (at - places.start >= first) & (places.end - at > last)
        return shown


def _changes(numbers: NDArray[Any]) -> NDArray[np.bool_]:
    """Which numbers differ from the one before."""
    out = np.ones(len(numbers), bool)
    out[1:] = numbers[1:] != numbers[:-1]
    return out

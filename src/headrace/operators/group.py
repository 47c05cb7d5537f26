"""Aggregates, DISTINCT and totals as an operator: per changed group, it deletes the old row and inserts the new one.

State and arithmetic are those of every aggregate view (`operators.aggregate`). A group whose values did not change is
not given again, so the reader of an aggregate pays for the changed groups, not for the rows that changed them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.errors import ArithmeticOverflowError
from headrace.operators.aggregate import changed_rows, empty_total, maintain, read_changes
from headrace.operators.changes import Changes
from headrace.operators.delivery import Delivery, Destination
from headrace.operators.delta import deltas, not_summable, split, too_large
from headrace.operators.join import more_than_one
from headrace.operators.kernel import Evaluated, State, ViewChange
from headrace.operators.layout import GROUPS, ViewLayout
from headrace.operators.operator import Operator, OperatorLayout
from headrace.operators.placement import Places, Way
from headrace.plan.tree import Aggregation
from headrace.plan.view import Shape
from headrace.relation.coded import coded, lead_of_words, values
from headrace.relation.columns import whole
from headrace.relation.kernels import Words
from headrace.relation.residence import Lead
from headrace.relation.run import Run
from headrace.rings import Group


@dataclass(frozen=True)
class GroupLayout(OperatorLayout):
    """How an aggregate is kept. The answer's arrangements have plain names; those of others are prefixed by `name`."""

    node: Aggregation
    name: str  # empty for the answer of the view
    seed: int

    @cached_property
    def view(self) -> ViewLayout:
        return ViewLayout(self.node.plan, self.seed)

    def part(self, plain: str) -> str:
        return f"{self.name}.{plain}" if self.name else plain

    @property
    def seed_part(self) -> str:
        """The part that a total receives once, when the view is filled: from then on the total has a row."""
        return self.part("seed")

    @cached_property
    def arrangements(self) -> Mapping[str, Group]:
        return {self.part(plain): ring for plain, ring in self.view.arrangements.items()}

    @property
    def accepts(self) -> Sequence[str]:
        return (*self.arrangements, self.seed_part)

    @cached_property
    def first(self) -> Mapping[str, Run]:
        """Totals have a row even if their tables are empty; the answer's own is made when it is read."""
        if not self.name or self.node.plan.shape is not Shape.TOTAL:
            return {}
        return {self.seed_part: Run(np.zeros((1, 1), np.uint64), (np.ones(1, np.int64),))}

    @cached_property
    def output_keys(self) -> Sequence[str]:
        return [f"k{i}" for i in range(self.node.keys)]

    def refused(self, rows: Evaluated) -> dict[int, str]:
        keys = self.node.keys
        return not_summable(self.view, replace(rows, keys=rows.keys[:keys], arguments=rows.keys[keys:]))

    def deliver(self, side: int, changes: Changes, to: Destination) -> Iterator[Delivery]:
        if to.way is Way.STAY:
            found = {to.here: self.parts(changes)}
        elif to.partition:
            found = self.parts_by_bucket(changes, to.partition, to.buckets, judged=to.judged)
        else:
            found = {to.one: self.parts(changes, judged=to.judged)}
        return ((bucket, part, run) for bucket, parts in found.items() for part, run in parts.items())

    def decides(self, part: str, places: Places) -> Lead:
        return partial(self._lead, partition=places)

    def come_again(self, part: str, run: Run) -> Run:
        # What follows from the values of a group follows when these come.
        if part in {self.part(name) for name in self.view.frequencies}:
            return run.take(np.zeros(0, np.int64))
        if part != self.part(GROUPS) or not self.view.derived:
            return run
        parts = self.view.ring.split(run.payload)
        for i in self.view.derived:
            parts[i] = self.view.components[i].ring.zeros(run.rows)
        return Run(run.words, self.view.ring.join(parts), run.values)

    def operator(self, state: State) -> Operator:
        return GroupOperator(self, state)

    def parts(self, changes: Changes, *, judged: bool = False) -> dict[str, Run]:
        """Sum changed rows into one run per arrangement; `judged` rows hold no value that a sum cannot subtract."""
        return self._parts(changes, self._words(changes), judged)

    def parts_by_bucket(
        self,
        changes: Changes,
        partition: Sequence[int],
        buckets: int,
        *,
        judged: bool = False,
    ) -> dict[int, dict[str, Run]]:
        """Sum changed rows as `parts` does, split by the bucket of their groups.

        Parameters
        ----------
        partition : the keys that decide the bucket.
        """
        words = self._words(changes)
        out: dict[int, dict[str, Run]] = {}
        for part, run in self._parts(changes, words, judged).items():
            for bucket, piece in split(run, buckets, self._lead(run.words, partition)).items():
                out.setdefault(bucket, {})[part] = piece
        return out

    def _words(self, changes: Changes) -> Words:
        """The words of each row's group."""
        keys = self.view.keys
        if not keys.types:
            return keys.encode_empty(changes.rows)
        columns = [coded(changes.columns[f"k{i}"], kind, self.seed) for i, kind in enumerate(keys.types)]
        return keys.pack([(column.words, column.missing) for column in columns], changes.rows)

    def _lead(self, words: Words, partition: Sequence[int]) -> NDArray[np.uint64]:
        """The word that decides the bucket; the keys of all arrangements begin with the words of the group."""
        return lead_of_words(self.view.keys.words_of(words, partition), self.seed)

    def _parts(self, changes: Changes, words: Words, judged: bool) -> dict[str, Run]:
        if not changes.rows:
            return {}
        plan = self.node.plan
        keys = [values(changes.columns[f"k{i}"]) if i in self.view.keys.stored else None for i in range(len(plan.keys))]
        arguments = [values(changes.columns[f"v{i}"]) for i in range(len(plan.arguments))]
        if not judged:
            self._check_sums(arguments)
        rows = Evaluated(keys, arguments, changes.diff, np.arange(len(changes.diff)))
        return {self.part(plain): run for plain, run in deltas(self.view, rows, words).items()}

    def _check_sums(self, arguments: Sequence[pa.Array]) -> None:
        """Refuse a step that adds to a sum a value which cannot be subtracted again."""
        plan = self.node.plan
        for part in self.view.components:
            i = part.argument
            if part.role == "sum" and i is not None and (found := too_large([plan.arguments[i]], [arguments[i]])):
                named = ", ".join(a.sql for a in plan.aggregates if a.argument == i)
                raise ArithmeticOverflowError(
                    f"{named} would sum NaN or infinity (or more than 1e288), from {len(found)} of its rows",
                    way_out="leave such rows out with WHERE, or correct them; nothing of this step was applied",
                )


class GroupOperator(Operator):
    """An aggregate in one bucket in one step."""

    def __init__(self, layout: GroupLayout, state: State) -> None:
        super().__init__(state)
        self.layout = layout

    def flush(self) -> Changes | None:
        layout, view = self.layout, self.layout.view
        incoming = {plain: self._held.get(layout.part(plain), []) for plain in view.arrangements}
        first = bool(self._held.get(layout.seed_part))
        if incoming[GROUPS]:
            state = {plain: self.before(layout.part(plain)) for plain in view.arrangements}
            self.reduced = maintain(view, state, incoming)
            self.runs = {layout.part(plain): run for plain, run in self.reduced.runs.items()}
            self.live = {layout.part(plain): more for plain, more in self.reduced.live.items()}
            touched = sum(run.rows for run in incoming[GROUPS])
            self.taken[0] += ViewChange(inserted=touched)
        if not layout.name:
            return None  # the answer is read from its arrangements
        changes = self.reduced.changes
        if first:
            return self._rows(empty_total(view) if changes is None else read_changes(view, changes)[1], 1)
        return self.changed()

    def changed(self) -> Changes | None:
        """The groups that have changed, old and new; also those of an answer, for views that read it."""
        if self.reduced.changes is None:
            return None
        return self._rows(*changed_rows(self.layout.view, self.reduced.changes))

    def _rows(self, rows: pa.Table, diff: np.ndarray | int) -> Changes:
        layout = self.layout
        if layout.view.plan.shape is Shape.TOTAL and not rows.num_rows:
            rows = empty_total(layout.view)
        if layout.node.single and (rows.column("a1").to_numpy() > 1).any():
            raise more_than_one("")
        columns = {field.name: whole(rows.column(field.name)) for field in layout.node.fields}
        given = np.full(rows.num_rows, diff, np.int64) if isinstance(diff, int) else diff
        return Changes(columns, given)

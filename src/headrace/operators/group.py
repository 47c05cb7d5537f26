"""Aggregates, DISTINCT and totals as an operator: for each changed group, what it was goes and what it is comes.

State and arithmetic are those of every aggregate view (`operators.aggregate`). A group whose values did not change is
not given again, so what reads an aggregate pays for the groups that changed and not for the rows that changed them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from headrace.operators.aggregate import changed_rows, empty_total, maintain, read_changes
from headrace.operators.changes import Changes, by_bucket, lead_of
from headrace.operators.delta import deltas, group_words, split
from headrace.operators.feeds import check_sums
from headrace.operators.finish import group_columns
from headrace.operators.join import more_than_one
from headrace.operators.kernel import Evaluated, Passed, Reduced, State
from headrace.operators.layout import GROUPS, ViewLayout
from headrace.operators.operator import Operator
from headrace.plan.tree import Aggregation
from headrace.plan.view import Shape
from headrace.relation.columns import whole
from headrace.relation.run import Run
from headrace.rings import Group


@dataclass(frozen=True)
class GroupLayout:
    """How an aggregate is kept: that of the answer under the plain names of its parts, others under their own."""

    node: Aggregation
    name: str  # empty: the answer of the view
    seed: int

    @cached_property
    def view(self) -> ViewLayout:
        return ViewLayout(self.node.plan, self.seed)

    def part(self, plain: str) -> str:
        return f"{self.name}.{plain}" if self.name else plain

    @property
    def seed_part(self) -> str:
        """What a total gets once, when the view is filled: it has a row from then on."""
        return self.part("seed")

    @cached_property
    def arrangements(self) -> dict[str, Group]:
        return {self.part(plain): ring for plain, ring in self.view.arrangements.items()}

    def parts(self, changes: Changes) -> dict[str, Run]:
        """Sum changed rows into one run an arrangement."""
        rows = self._evaluated(changes)
        if not len(rows.diff):
            return {}
        found = deltas(self.view, rows, group_words(self.view, rows))
        return {self.part(plain): run for plain, run in found.items()}

    def parts_by_bucket(self, changes: Changes, partition: Sequence[int], buckets: int) -> dict[int, dict[str, Run]]:
        """The same, by the buckets in which the groups lie; `partition` are the keys that decide that."""
        types = [self.node.plan.keys[i].type for i in partition]
        if not partition:
            lead = np.zeros(1, np.uint64)
            (bucket,) = by_bucket(lead, buckets)
            return {bucket: self.parts(changes)}
        if len(self.view.arrangements) > 1:
            lead = lead_of([changes.columns[f"k{i}"] for i in partition], types, self.seed)
            return {b: self.parts(changes.take(at)) for b, at in by_bucket(lead, buckets).items()}
        out: dict[int, dict[str, Run]] = {}
        for part, run in self.parts(changes).items():
            keys = group_columns(self.view, run)
            lead = lead_of([keys[i] for i in partition], types, self.seed)
            for bucket, piece in split(run, buckets, lead).items():
                out.setdefault(bucket, {})[part] = piece
        return out

    def _evaluated(self, changes: Changes) -> Evaluated:
        plan = self.node.plan
        keys = [whole(changes.columns[f"k{i}"]) for i in range(len(plan.keys))]
        arguments = [whole(changes.columns[f"v{i}"]) for i in range(len(plan.arguments))]
        summed = [p.argument for p in self.view.components if p.role == "sum" and p.argument is not None]
        check_sums(
            [plan.arguments[i] for i in summed], [arguments[i] for i in summed], self.node.text or "the view's sums"
        )
        return Evaluated(keys, arguments, changes.diff, np.arange(len(changes.diff)))


class GroupOperator(Operator):
    """An aggregate in one bucket in one step."""

    def __init__(self, layout: GroupLayout, state: State) -> None:
        super().__init__(state)
        self.layout = layout
        self.reduced = Reduced()

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
            self.taken += Passed(inserted=touched)
        if not layout.name:
            return None  # the answer is read from its arrangements
        changes = self.reduced.changes
        if first:
            return self._rows(empty_total(view) if changes is None else read_changes(view, changes)[1], 1)
        if changes is None:
            return None
        rows, diff = changed_rows(view, changes)
        return self._rows(rows, diff)

    def _rows(self, rows: pa.Table, diff: np.ndarray | int) -> Changes:
        layout = self.layout
        if layout.view.plan.shape is Shape.TOTAL and not rows.num_rows:
            rows = empty_total(layout.view)
        if layout.node.single and (rows.column("a1").to_numpy() > 1).any():
            raise more_than_one("")
        columns = {field.name: whole(rows.column(field.name)) for field in layout.node.fields}
        given = np.full(rows.num_rows, diff, np.int64) if isinstance(diff, int) else diff
        return Changes(columns, given)

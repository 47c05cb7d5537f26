"""The answer of a view, read from a snapshot: its rows, their number, and the changes of the last step.

A handle has an answer and does not know how it is kept. Most views keep groups, from which the answer follows by a
projection, a condition and an order. The answers of recomputed views and of window joins are stored as they are
(`recomputed`, `window_joins`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from headrace.engine import frames
from headrace.engine.reader import Reader
from headrace.operators.aggregate import empty_total, read_changes
from headrace.operators.layout import GROUPS, ViewLayout
from headrace.operators.order import arranged, limited_changes
from headrace.plan import native
from headrace.plan.expression import Expression
from headrace.plan.view import Output, Shape
from headrace.relation.change import cancelled
from headrace.relation.columns import whole
from headrace.relation.run import Run
from headrace.relation.schema import DIFF, STEP, Column, ddl
from headrace.relation.types import SqlType
from headrace.runtime.program import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headrace.engine.access import Access
    from headrace.sql.catalyst import AnalysedView


class Answer(Protocol):
    """The rows of one view."""

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        ...

    @property
    def needs_all(self) -> bool:
        """Whether all rows have to be read before the first is known."""
        ...

    def rows(self, reader: Reader) -> int:
        """How many rows there are."""
        ...

    def table(self, reader: Reader) -> pa.Table:
        """All rows."""
        ...

    def pieces(self, reader: Reader, rows: int) -> Iterator[pa.Table]:
        """All rows, about `rows` at a time."""
        ...

    def frame(self, reader: Reader, spark: SparkSession) -> DataFrame:
        """All rows as a DataFrame, which reads the files of the reader when it is run."""
        ...

    def changes(self, reader: Reader) -> pa.Table:
        """The changes of the last step, with `__diff`."""
        ...


@dataclass(frozen=True)
class GroupsAnswer:
    """An answer that follows from groups, which are read by their layout.

    Parameters
    ----------
    access : has the session in which Catalyst evaluates expressions over the groups.
    """

    name: str
    layout: ViewLayout
    analysed: AnalysedView
    access: Access

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(name, kind.arrow, nullable) for name, kind, nullable in self.analysed.schema])

    @property
    def needs_all(self) -> bool:
        return bool(self.layout.plan.order) or self.layout.plan.limit is not None

    def rows(self, reader: Reader) -> int:
        plan = self.layout.plan
        if plan.having is not None or plan.shape is Shape.ROWS:
            return self.table(reader).num_rows
        rows = 1 if plan.shape is Shape.TOTAL else reader.live(self.name, GROUPS) + reader.final(self.name)
        return rows if plan.limit is None else min(rows, plan.limit)

    def table(self, reader: Reader) -> pa.Table:
        return self._finish(self._groups(reader))

    def pieces(self, reader: Reader, rows: int) -> Iterator[pa.Table]:
        state = (reader.arrangements, reader.buckets)
        for groups in frames.view_pieces(reader.root, self.layout, self.name, *state, rows):
            yield self._finish(groups)

    def frame(self, reader: Reader, spark: SparkSession) -> DataFrame:
        state = (reader.arrangements, reader.buckets)
        return self.analysed.catalyst.finish(frames.view_frame(spark, reader.root, self.layout, self.name, *state))

    def changes(self, reader: Reader) -> pa.Table:
        plan = self.layout.plan
        changes = cancelled(self._sortable(self._changed_groups(reader), keep=(DIFF,), arrange=False))
        if plan.limit is not None:
            changes = limited_changes(plan, self._sortable(self._groups(reader), arrange=False), changes)
        else:
            changes = arranged(plan, changes)
        # Rows that differ only in what they are sorted by are the same.
        return changes if plan.shown == plan.outputs else cancelled(self._shown(changes))

    def finals(self, reader: Reader, since: int) -> pa.Table:
        """The rows that became final in steps after `since`, each with that step."""
        root, state = reader.root, reader.arrangements
        buckets = range(reader.buckets)
        closed = [frames.closed_bucket(root, self.layout, self.name, state, bucket, since) for bucket in buckets]
        return self._finish(pa.concat_tables(closed), keep=(STEP,))

    def finals_frame(self, reader: Reader, spark: SparkSession, since: int) -> DataFrame:
        """The rows that became final in steps after `since`, as a DataFrame."""
        state = (reader.arrangements, reader.buckets)
        groups = frames.closed_frame(spark, reader.root, self.layout, self.name, *state, since)
        return self.analysed.catalyst.finish(groups, keep=(STEP,))

    def _groups(self, reader: Reader) -> pa.Table:
        return frames.view_rows(reader.root, self.layout, self.name, reader.arrangements, reader.buckets)

    def _changed_groups(self, reader: Reader) -> pa.Table:
        """The groups that the last step changed: old versions with `__diff` -1, new versions with +1."""
        runs = reader.changes(self.name)
        pairs = [read_changes(self.layout, Run(run.words, run.payload, run.values)) for run in runs]
        sides = []
        for side, sign in ((0, -1), (1, 1)):
            tables = [pair[side] for pair in pairs]
            if self.layout.plan.shape is Shape.TOTAL:  # its one row is always there
                tables = [table if table.num_rows else empty_total(self.layout) for table in tables]
            sides += [_with_diff(self.layout, table, sign) for table in tables]
        return pa.concat_tables(sides) if sides else arrow_schema(self._slots((DIFF,))).empty_table()

    def _finish(self, groups: pa.Table, keep: Sequence[str] = ()) -> pa.Table:
        """The rows of the answer, arranged."""
        return self._shown(self._sortable(groups, keep))

    def _shown(self, rows: pa.Table) -> pa.Table:
        """The rows without what they are only sorted by."""
        return rows.drop_columns([one.name for one in self._hidden]) if self._hidden else rows

    @cached_property
    def _hidden(self) -> tuple[Output, ...]:
        return self.layout.plan.outputs[len(self.layout.plan.shown) :]

    def _sortable(self, groups: pa.Table, keep: Sequence[str] = (), arrange: bool = True) -> pa.Table:
        """The rows of the answer with all that they are sorted by."""
        hidden = (pa.field(one.name, one.expression.type.arrow) for one in self._hidden)
        wanted = pa.schema([*self.schema, *hidden, *(pa.field(name, pa.int64()) for name in keep)])
        why = self._why_catalyst
        if why is None:
            try:
                answer = pa.table(self._evaluated(groups, keep), schema=wanted)
                return arranged(self.layout.plan, answer) if arrange else answer
            except native.NeedsCatalyst as refused:
                why = str(refused)
        finishing = self.access.needing(f"Catalyst evaluates an expression of the answer: {why}").finishing
        # One chunk, because createDataFrame stops at the first chunk that is empty, as an unused bucket's is.
        frame = finishing.createDataFrame(groups.combine_chunks(), ddl(self._slots(keep)))
        return (
            self.analysed.catalyst.finish(frame, keep=tuple(keep), arrange=arrange, hidden=True).toArrow().cast(wanted)
        )

    @cached_property
    def _why_catalyst(self) -> str | None:
        """The expression of the answer that only Catalyst evaluates, if there is one."""
        plan = self.layout.plan
        expressions = [output.expression for output in plan.outputs] + ([] if plan.having is None else [plan.having])
        # A column is handed on whatever its type is.
        reasons = (native.why_not(expression) for expression in expressions if expression.op != "column")
        return next((reason for reason in reasons if reason is not None), None)

    def _evaluated(self, groups: pa.Table, keep: Sequence[str]) -> list[pa.ChunkedArray | pa.Array]:
        """The outputs for the groups that HAVING leaves, then the columns to keep."""
        plan = self.layout.plan
        if plan.having is not None:
            mask = native.evaluate(plan.having, _columns(groups, plan.having), groups.num_rows)
            groups = groups.filter(mask.fill_null(False))
        outputs = [
            groups.column(str(expression.value))
            if expression.op == "column"
            else native.evaluate(expression, _columns(groups, expression), groups.num_rows)
            for expression in (output.expression for output in plan.outputs)
        ]
        return [*outputs, *(groups.column(name) for name in keep)]

    def _slots(self, keep: Sequence[str]) -> list[Column]:
        return [*frames.slot_columns(self.layout), *(Column(name, SqlType("bigint")) for name in keep)]


def _columns(groups: pa.Table, expression: Expression) -> dict[str, pa.Array]:
    return {name: whole(groups.column(name)) for name in expression.columns}


def _with_diff(layout: ViewLayout, groups: pa.Table, sign: int) -> pa.Table:
    counts = groups.column("__rows").to_numpy()
    times = counts if layout.plan.shape is Shape.ROWS else np.ones(groups.num_rows, np.int64)
    slots = groups.select([column.name for column in frames.slot_columns(layout)])
    return slots.append_column(DIFF, pa.array(sign * times.astype(np.int64)))

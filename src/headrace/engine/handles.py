"""What users hold: handles of a table and of a view. They keep no state; they ask the engine for the current one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame

from headrace.engine import frames
from headrace.engine.analysis import Analysis, analysed
from headrace.engine.definition import PlannedView
from headrace.engine.explain import Explanation, explain, explain_kept, explain_live, explain_tree
from headrace.engine.watermarks import is_final
from headrace.errors import SchemaError
from headrace.factorized.explain import JoinExplanation
from headrace.foreign.explain import ForeignExplanation
from headrace.foreign.view import ForeignView
from headrace.operators.aggregate import empty_total, read_changes
from headrace.operators.closed import STEP
from headrace.operators.explain import OperatorsExplanation
from headrace.operators.layout import GROUPS, ViewLayout
from headrace.operators.order import arranged, limited_changes
from headrace.operators.tree_view import TreeView
from headrace.plan.view import Shape
from headrace.relation import runfile
from headrace.relation.change import cancelled
from headrace.relation.layout import TableLayout
from headrace.relation.run import Run
from headrace.relation.schema import DIFF, Column, TableSchema, ddl
from headrace.relation.types import SqlType
from headrace.runtime.log import Snapshot
from headrace.runtime.program import arrow_schema, final_arrangement, table_arrangement, view_arrangement

if TYPE_CHECKING:
    from headrace.engine.engine import Engine
    from headrace.engine.recomputed import RecomputeExplanation


class Table:
    """A changing table of an engine."""

    def __init__(self, engine: Engine, layout: TableLayout) -> None:
        self._engine = engine
        self._layout = layout

    @property
    def name(self) -> str:
        return self._layout.schema.name

    @property
    def schema(self) -> TableSchema:
        """Columns, key and references."""
        return self._layout.schema

    @property
    def key(self) -> tuple[str, ...]:
        return self._layout.schema.key

    @property
    def rows(self) -> int:
        """How many rows the table has now."""
        buckets = self._engine._store.snapshot.arrangements.get(table_arrangement(self.name), {})
        return sum(state.live for state in buckets.values())

    @property
    def watermark(self) -> datetime | None:
        """The time before which rows are late; None while the table has seen no time, or if it has no watermark."""
        mark, declared = self._engine._store.snapshot.watermarks.get(self.name), self.schema.watermark
        if mark is None or declared is None:
            return None
        moment: datetime = pa.scalar(mark, self.schema.column(declared.column).type.arrow).as_py()
        return moment

    def to_arrow(self) -> pa.Table:
        """The current rows."""
        root, buckets = str(self._engine.location), range(self._engine.buckets)
        table = self._engine._store.read(
            lambda snapshot: pa.concat_tables(
                [frames.table_bucket(root, self._layout, snapshot.arrangements, bucket) for bucket in buckets]
            )
        )
        counts = table.column(DIFF).to_numpy()
        table = table.drop_columns([DIFF])
        return table.take(pa.array(np.repeat(np.arange(len(counts)), counts))) if (counts != 1).any() else table

    def to_pandas(self) -> pd.DataFrame:
        """The current rows as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def __repr__(self) -> str:
        return f"Table({self.name!r}, {self.rows:,} rows)"


class View:
    """A maintained view of an engine."""

    def __init__(self, engine: Engine, name: str, planned: PlannedView) -> None:
        assert planned.layout is not None
        assert planned.analysed is not None
        self._engine = engine
        self._analysed = planned.analysed
        self._layout = planned.layout
        self.planned = planned
        self.name = name
        self.sql = planned.definition.sql

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the view's columns."""
        return pa.schema([pa.field(name, kind.arrow, nullable) for name, kind, nullable in self._analysed.schema])

    @property
    def rows(self) -> int:
        """How many rows the view has now."""
        plan = self._layout.plan
        if plan.having is not None or plan.shape is Shape.ROWS:
            return self.to_arrow().num_rows
        if plan.shape is Shape.TOTAL:
            rows = 1
        else:
            state = self._engine._store.snapshot.arrangements
            kept = (state.get(name, {}) for name in (view_arrangement(self.name, GROUPS), final_arrangement(self.name)))
            rows = sum(own.live for buckets in kept for own in buckets.values())
        return rows if plan.limit is None else min(rows, plan.limit)

    def to_df(self) -> DataFrame:
        """The view as of the last step, as a Spark DataFrame; later steps do not change it."""
        self._check_there()
        engine = self._engine
        owner = Pin()
        snapshot = engine._store.pin_for(owner)
        groups = frames.view_frame(
            engine.spark, str(engine.location), self._layout, self.name, snapshot.arrangements, engine.buckets
        )
        answer = self._analysed.catalyst.finish(groups)
        # The files of the snapshot are kept while this object lives (Store.pin_for).
        answer.__dict__["_headrace_pin"] = owner
        return answer

    def to_arrow(self) -> pa.Table:
        """The view as of the last step."""
        self._check_there()
        return self._finish(self._engine._store.read(self._groups))

    def to_pandas(self) -> pd.DataFrame:
        """The view as of the last step, as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def enumerate(self) -> Iterator[dict[str, Any]]:
        """List the rows of the view as of the last step, one after the other; later steps do not change them.

        Rows are read as they are asked for: the first comes as fast as any other, however many there are. Only ORDER BY
        and LIMIT need all of them first.
        """
        for batch in self.batches():
            yield from batch.to_pylist()

    def batches(self, rows: int = 8_192) -> Iterator[pa.RecordBatch]:
        """The rows of the view as of the last step, as Arrow batches of about so many rows, read as they are asked for.

        Their order is that of the state, unless the view has an ORDER BY or a LIMIT: then all rows are read first.
        """
        self._check_there()
        if rows < 1:
            raise SchemaError(f"batches of {rows} rows hold nothing", way_out="ask for 1 row or more")
        return self._batches(rows)

    def _batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        plan, engine = self._layout.plan, self._engine
        if plan.order or plan.limit is not None:
            yield from self.to_arrow().to_batches(max_chunksize=rows)
            return
        owner = Pin()  # lives as long as this generator, and with it the files of the snapshot
        state = engine._store.pin_for(owner).arrangements
        for groups in frames.view_pieces(str(engine.location), self._layout, self.name, state, engine.buckets, rows):
            yield from self._finish(groups).to_batches()

    def changes(self) -> pa.Table:
        """What the last step changed: rows that left with `__diff` -1, rows that came with +1."""
        self._check_there()
        plan = self._layout.plan
        if plan.limit is None:
            changed = self._engine._store.read(self._changed_groups)
            return arranged(plan, cancelled(self._finish(changed, keep=(DIFF,), arrange=False)))
        changed, groups = self._engine._store.read(lambda s: (self._changed_groups(s), self._groups(s)))
        changes = cancelled(self._finish(changed, keep=(DIFF,), arrange=False))
        return limited_changes(plan, self._finish(groups, arrange=False), changes)

    def finals(self, since: int = 0) -> pa.Table:
        """The rows of windows that have closed, with `__step`: which step closed each. No later step changes them.

        Parameters
        ----------
        since : leave out what this step and those before it closed. With the last step that a reader has seen, it gets
            every final row exactly once.
        """
        self._check_final()
        root, buckets = str(self._engine.location), range(self._engine.buckets)
        groups = self._engine._store.read(
            lambda snapshot: pa.concat_tables(
                [frames.closed_bucket(root, self._layout, self.name, snapshot.arrangements, b, since) for b in buckets]
            )
        )
        return self._finish(groups, keep=(STEP,))

    def finals_df(self, since: int = 0) -> DataFrame:
        """The rows of `finals` as a Spark DataFrame."""
        self._check_final()
        engine, owner = self._engine, Pin()
        state = engine._store.pin_for(owner).arrangements
        groups = frames.closed_frame(
            engine.spark, str(engine.location), self._layout, self.name, state, engine.buckets, since
        )
        answer = self._analysed.catalyst.finish(groups, keep=(STEP,))
        answer.__dict__["_headrace_pin"] = owner
        return answer

    def _check_final(self) -> None:
        self._check_there()
        if not is_final(self.planned):
            raise SchemaError(
                f"view {self.name!r} closes no windows: any of its rows may change again",
                way_out="create it with engine.view(..., final=True)",
            )

    def _groups(self, snapshot: Snapshot) -> pa.Table:
        root, buckets = str(self._engine.location), range(self._engine.buckets)
        return pa.concat_tables(
            [frames.view_bucket(root, self._layout, self.name, snapshot.arrangements, b) for b in buckets]
        )

    def _changed_groups(self, snapshot: Snapshot) -> pa.Table:
        """The changed groups as they were, with `__diff` -1, and as they are, with +1."""
        pairs = self._read_changes(snapshot)
        sides = []
        for side, sign in ((0, -1), (1, 1)):
            tables = [pair[side] for pair in pairs]
            if self._layout.plan.shape is Shape.TOTAL and pairs and not sum(t.num_rows for t in tables):
                tables = [empty_total(self._layout)]
            sides += [_with_diff(self._layout, table, sign) for table in tables]
        columns = [*frames.slot_columns(self._layout), Column(DIFF, SqlType("bigint"))]
        return pa.concat_tables(sides) if sides else arrow_schema(columns).empty_table()

    def _read_changes(self, snapshot: Snapshot) -> list[tuple[pa.Table, pa.Table]]:
        runs = [runfile.read(self._engine.location / "runs" / name) for name in snapshot.changes.get(self.name, [])]
        for run in runs:
            run.check()
        return [read_changes(self._layout, Run(run.words, run.payload, run.values)) for run in runs]

    def _check_there(self) -> None:
        if self._engine.views.get(self.name) is not self:
            raise SchemaError(f"view {self.name!r} has been dropped", way_out="create it again with engine.view(...)")

    def explain(
        self,
    ) -> Explanation | JoinExplanation | ForeignExplanation | OperatorsExplanation | RecomputeExplanation:
        """Say how the view is kept, why so, and what it costs."""
        self._check_there()
        if isinstance(self.planned.kernel, TreeView):
            return explain_tree(self._engine, self.name, self.planned)
        if isinstance(self.planned.kernel, ForeignView):
            return explain_live(self._engine, self.name, self.planned)
        if self.planned.planned is not None:
            return explain_kept(self._engine, self.name, self.planned)
        return explain(self._engine, self)

    def analyze(self) -> Analysis:
        """EXPLAIN ANALYZE: explain the view, with what each strategy would cost now, and what the last step did."""
        return analysed(self._engine, self, self.explain())

    def _finish(self, groups: pa.Table, keep: tuple[str, ...] = (), arrange: bool = True) -> pa.Table:
        wanted = [*self.schema, *(pa.field(name, pa.int64()) for name in keep)]
        if self._is_plain():
            plan = self._layout.plan
            columns = [groups.column(str(output.expression.value)) for output in plan.outputs]
            answer = pa.table([*columns, *(groups.column(name) for name in keep)], schema=pa.schema(wanted))
            return arranged(plan, answer) if arrange else answer
        slots = [*frames.slot_columns(self._layout), *(Column(name, SqlType("bigint")) for name in keep)]
        # One chunk, because createDataFrame stops at the first chunk that is empty, as an unused bucket's is.
        frame = self._engine._sql.spark.createDataFrame(groups.combine_chunks(), ddl(slots))
        return self._analysed.catalyst.finish(frame, keep=keep, arrange=arrange).toArrow().cast(pa.schema(wanted))

    def _is_plain(self) -> bool:
        plan = self._layout.plan
        simple = all(output.expression.op == "column" for output in plan.outputs)
        return simple and plan.having is None

    def __repr__(self) -> str:
        return f"View({self.name!r}, {self.sql!r})"


class Pin:
    """Something that lives as long as the DataFrame it is attached to."""


def _with_diff(layout: ViewLayout, groups: pa.Table, sign: int) -> pa.Table:
    counts = groups.column("__rows").to_numpy()
    times = counts if layout.plan.shape is Shape.ROWS else np.ones(groups.num_rows, np.int64)
    slots = groups.select([column.name for column in frames.slot_columns(layout)])
    return slots.append_column(DIFF, pa.array(sign * times.astype(np.int64)))

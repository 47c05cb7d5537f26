"""Handle and EXPLAIN of recomputed views: they are read as any other view, and say what that costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame

from headrace.engine import frames
from headrace.engine.definition import PlannedView
from headrace.engine.handles import Pin, View
from headrace.engine.recompute import ANSWER, F_SQL, Recomputed, RecomputedQuery
from headrace.factorized.order_text import from_json, to_text
from headrace.relation import runfile
from headrace.relation.arrangement import scan
from headrace.relation.schema import DIFF
from headrace.relation.table import COUNT
from headrace.runtime.log import BucketState, Snapshot
from headrace.runtime.openruns import OPEN
from headrace.runtime.program import table_arrangement, view_arrangement

if TYPE_CHECKING:
    from headrace.engine.engine import Engine

_SHOWN = 240  # characters of the statement that people see; it may be as long as a book


@dataclass(frozen=True)
class RecomputeExplanation:
    """How a recomputed view is kept. `str()` is for people, `to_dict()` for programs."""

    view: str
    sql: str
    strategy: str
    why: str
    tables: dict[str, list[str]]  # with the columns that are read
    rows_read: int
    order: str | None
    order_why: str | None
    statement: str
    answer_rows: int
    state_bytes: int
    estimated: str
    last_step: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The explanation as plain values for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        statement = " ".join(self.statement.split())
        if len(statement) > _SHOWN:
            statement = f"{statement[:_SHOWN]}... ({len(statement):,} characters)"
        lines = [f"view {self.view}: {self.strategy}, because {self.why}"]
        for table, columns in self.tables.items():
            lines.append(f"  reads      {table} ({', '.join(columns) or 'the number of its rows'})")
        if self.order is not None:
            lines.append(f"  order      {self.order_why}")
            lines += [f"    {line}" for line in self.order.splitlines()]
        lines += [
            f"  Spark runs {statement}",
            f"  state      {self.state_bytes:,} bytes, {self.answer_rows:,} rows of the answer and nothing else",
            f"  a step     {self.estimated}",
        ]
        if self.last_step:
            lines.append(f"  last step  {self.last_step['text']}")
        return "\n".join(lines)


def explain_recomputed(engine: Engine, name: str, planned: PlannedView) -> RecomputeExplanation:
    """Explain a recomputed view as of the last step."""
    kernel, definition, snapshot = planned.kernel, planned.definition, engine._store.snapshot
    assert isinstance(kernel, Recomputed)
    strategy = str(definition.chosen["strategy"])
    state = snapshot.arrangements.get(view_arrangement(name, kernel.part), {}).get(0, BucketState())
    rows = sum(
        bucket.live for t in kernel.tables for bucket in snapshot.arrangements.get(table_arrangement(t), {}).values()
    )
    order = definition.chosen.get("order")
    how = "one SQL query, its aggregates pushed past the joins" if strategy == F_SQL else "the query as it stands"
    return RecomputeExplanation(
        view=name,
        sql=definition.sql,
        strategy=strategy,
        why=f"{definition.chosen.get('why', 'it was asked for')}: {how}",
        tables={table: sorted(columns) for table, columns in kernel.reads.items()},
        rows_read=rows,
        order=None if order is None else to_text(from_json(order)),
        order_why=definition.chosen.get("order_why"),
        statement=kernel.statement,
        answer_rows=state.live,
        state_bytes=sum(run.bytes for run in state.runs),
        estimated=(
            f"that changes {' or '.join(kernel.tables)} has Spark read all their rows ({rows:,} now) "
            "and recompute the whole answer"
        ),
        last_step=snapshot.summary,
    )


class RecomputedView(View):
    """A SQL view that Spark recomputes in every step that changes one of its tables."""

    def __init__(self, engine: Engine, name: str, planned: PlannedView) -> None:
        assert isinstance(planned.kernel, RecomputedQuery)
        self._engine = engine
        self._kernel = planned.kernel
        self.planned = planned
        self.name = name
        self.sql = planned.definition.sql

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the view's columns."""
        return pa.schema([pa.field(name, kind.arrow, nullable) for name, kind, nullable in self._kernel.schema])

    @property
    def rows(self) -> int:
        """How many rows the view has now."""
        return self._state(self._engine._store.snapshot).live

    def to_df(self) -> DataFrame:
        """The view as of the last step, as a Spark DataFrame; later steps do not change it."""
        self._check_there()
        engine, kernel = self._engine, self._kernel
        owner = Pin()
        state, root = self._state(engine._store.pin_for(owner)), str(engine.location)
        frame = frames.answer_frame(
            engine.spark, kernel.columns, lambda: kernel.rows_of(scan(COUNT, OPEN.of(root, state)))
        )
        answer = frame.toDF(*self.schema.names)
        answer.__dict__["_headrace_pin"] = owner
        return answer

    def to_arrow(self) -> pa.Table:
        """The view as of the last step, in the order of its ORDER BY if it has one."""
        self._check_there()
        root = str(self._engine.location)
        rows = self._engine._store.read(
            lambda snapshot: self._kernel.rows_of(scan(COUNT, OPEN.of(root, self._state(snapshot))))
        )
        return pa.table(rows.columns, schema=self.schema)

    def _batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        yield from self.to_arrow().to_batches(max_chunksize=rows)

    def changes(self) -> pa.Table:
        """What the last step changed: rows that left with `__diff` -1, rows that came with +1 (or more, if equal)."""
        self._check_there()
        found = self._engine._store.read(self._read_difference)
        return pa.table(found.columns, schema=self.schema.append(pa.field(DIFF, pa.int64())))

    def explain(self) -> RecomputeExplanation:
        """Say how the view is kept, why so, and what it costs."""
        self._check_there()
        return explain_recomputed(self._engine, self.name, self.planned)

    def _state(self, snapshot: Snapshot) -> BucketState:
        return snapshot.arrangements.get(view_arrangement(self.name, ANSWER), {}).get(0, BucketState())

    def _read_difference(self, snapshot: Snapshot) -> pa.Table:
        names = snapshot.changes.get(self.name, [])
        runs = [runfile.read(self._engine.location / "runs" / name) for name in names]
        for run in runs:
            run.check()
        return self._kernel.rows_of(runs[0] if runs else None, diff=True)

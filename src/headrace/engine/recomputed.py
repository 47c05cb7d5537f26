"""Answer and EXPLAIN of recomputed views: they are read as any other view, and say what that costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headrace.engine import frames
from headrace.engine.access import Access
from headrace.engine.definition import PlannedView
from headrace.engine.reader import Reader
from headrace.engine.recompute import ANSWER, Recomputed, RecomputedQuery
from headrace.factorized.order_text import from_json, to_text
from headrace.relation.arrangement import scan
from headrace.relation.schema import DIFF
from headrace.relation.table import COUNT
from headrace.runtime.log import BucketState
from headrace.runtime.openruns import OPEN
from headrace.thrifty.strategy import F_SQL

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


def explain_recomputed(access: Access, name: str, planned: PlannedView) -> RecomputeExplanation:
    """Explain a recomputed view as of the last step."""
    kernel, definition, reader = planned.kernel, planned.definition, access.state.latest
    assert isinstance(kernel, Recomputed)
    strategy = str(definition.chosen["strategy"])
    rows = sum(reader.rows(table) for table in kernel.tables)
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
        answer_rows=reader.live(name, kernel.part),
        state_bytes=reader.bytes(name, [kernel.part]),
        estimated=(
            f"that changes {' or '.join(kernel.tables)} has Spark read all their rows ({rows:,} now) "
            "and recompute the whole answer"
        ),
        last_step=reader.summary,
    )


@dataclass(frozen=True)
class StoredAnswer:
    """The rows of a view that Spark recomputes, kept as it gave them."""

    name: str
    kernel: RecomputedQuery

    @classmethod
    def of(cls, name: str, planned: PlannedView) -> StoredAnswer:
        """The answer of a SQL view that keeps no groups."""
        assert isinstance(planned.kernel, RecomputedQuery)
        return cls(name, planned.kernel)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(name, kind.arrow, nullable) for name, kind, nullable in self.kernel.schema])

    @property
    def needs_all(self) -> bool:
        return True

    def rows(self, reader: Reader) -> int:
        return reader.live(self.name, ANSWER)

    def table(self, reader: Reader) -> pa.Table:
        rows = self.kernel.rows_of(scan(COUNT, reader.runs(self.name, ANSWER)))
        return pa.table(rows.columns, schema=self.schema)

    def pieces(self, reader: Reader, rows: int) -> Iterator[pa.Table]:
        yield self.table(reader)

    def frame(self, reader: Reader, spark: SparkSession) -> DataFrame:
        kernel, root = self.kernel, reader.root
        state = reader.states(self.name, ANSWER).get(0, BucketState())
        frame = frames.answer_frame(spark, kernel.columns, lambda: kernel.rows_of(scan(COUNT, OPEN.of(root, state))))
        return frame.toDF(*self.schema.names)

    def changes(self, reader: Reader) -> pa.Table:
        runs = reader.changes(self.name)
        found = self.kernel.rows_of(runs[0] if runs else None, diff=True)
        return pa.table(found.columns, schema=self.schema.append(pa.field(DIFF, pa.int64())))

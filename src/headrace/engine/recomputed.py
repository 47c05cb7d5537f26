"""The answer of a recomputed view, with the same methods as the answer of any other view."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.engine import frames
from headrace.engine.reader import Reader
from headrace.engine.recompute import ANSWER, RecomputedQuery
from headrace.relation.arrangement import scan
from headrace.relation.schema import DIFF
from headrace.rings import COUNT
from headrace.runtime.openruns import OPEN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class StoredAnswer:
    """The rows of a view that Spark recomputes, stored as Spark returned them."""

    name: str
    kernel: RecomputedQuery

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
        states = reader.states(self.name, ANSWER)
        frame = frames.answer_frame(
            spark, kernel.columns, lambda: kernel.rows_of(scan(COUNT, OPEN.of(root, states, 0)))
        )
        return frame.toDF(*self.schema.names)

    def changes(self, reader: Reader) -> pa.Table:
        runs = reader.changes(self.name)
        found = self.kernel.rows_of(runs[0] if runs else None, diff=True)
        return pa.table(found.columns, schema=self.schema.append(pa.field(DIFF, pa.int64())))

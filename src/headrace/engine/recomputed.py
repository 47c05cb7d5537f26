"""The answer of a recomputed view, with the same methods as the answer of any other view."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.engine import frames
from headrace.engine.reader import Reader
from headrace.engine.recompute import ANSWER, RecomputedQuery
from headrace.relation.schema import DIFF, Column
from headrace.relation.types import SqlType
from headrace.runtime.openruns import OPEN
from headrace.runtime.replacing import NUMBER, changed_rows, numbered_rows

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
        rows = numbered_rows(self.kernel.columns, reader.runs(self.name, ANSWER)).drop_columns([NUMBER])
        return pa.table(rows.columns, schema=self.schema)

    def pieces(self, reader: Reader, rows: int) -> Iterator[pa.Table]:
        yield self.table(reader)

    def frame(self, reader: Reader, spark: SparkSession) -> DataFrame:
        columns, root, states = self.kernel.columns, reader.root, reader.states(self.name, ANSWER)
        stored = [*columns, Column(NUMBER, SqlType("bigint"))]
        if frames.are_small([states], reader.buckets):
            frame = frames.answer_frame(spark, stored, lambda: numbered_rows(columns, OPEN.everything(root, states)))
        else:
            frame = frames.bucket_frame(
                spark, stored, reader.buckets, lambda bucket: [numbered_rows(columns, OPEN.of(root, states, bucket))]
            ).orderBy(NUMBER)
        return frame.drop(NUMBER).toDF(*self.schema.names)

    def changes(self, reader: Reader) -> pa.Table:
        found = changed_rows(self.kernel.columns, reader.changes(self.name))
        return pa.table(found.columns, schema=self.schema.append(pa.field(DIFF, pa.int64())))

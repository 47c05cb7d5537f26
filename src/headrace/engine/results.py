"""The answer of a view whose rows are kept factorized: they are listed when they are read, bucket by bucket.

What a bucket holds is read by the task that has the bucket, so a DataFrame lists its rows in Spark's tasks, and no row
passes the driver.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.engine import frames
from headrace.engine.answers import GroupsAnswer
from headrace.engine.reader import Reader
from headrace.errors import UnsupportedSQLError
from headrace.factorized.join_view import JoinView
from headrace.factorized.results import TOTAL, ResultReader, empty_table
from headrace.operators.layout import ViewLayout
from headrace.plan.view import Shape
from headrace.relation.columns import BATCH_ROWS
from headrace.relation.runset import AnyRun
from headrace.relation.schema import DIFF
from headrace.runtime.openruns import OPEN
from headrace.runtime.program import view_arrangement
from headrace.runtime.record import Arrangements

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class EnumeratedAnswer(GroupsAnswer):
    """Rows that are listed from a hierarchy of views, and have then the form of groups."""

    view: JoinView

    def rows(self, reader: Reader) -> int:
        """How many rows there are, without listing them: kept as a sum, or one pass over the views if DISTINCT."""
        plan = self.layout.plan
        rows = self._total(reader) if plan.shape is Shape.ROWS else self._distinct(reader)
        return rows if plan.limit is None else min(rows, plan.limit)

    def pieces(self, reader: Reader, rows: int) -> Iterator[pa.Table]:
        for groups in self.counted_pieces(reader, rows):
            for some in copies(self.layout, groups, rows):
                yield self._finish(some)

    def counted(self, reader: Reader, rows: int) -> Iterator[pa.Table]:
        """The distinct rows of the join with `__diff`, how often each occurs; about `rows` at a time."""
        for groups in self.counted_pieces(reader, rows):
            times = groups.column("__rows") if self.layout.plan.shape is Shape.ROWS else ones(groups.num_rows)
            yield self._finish(groups.append_column(DIFF, times), keep=(DIFF,))

    def counted_pieces(self, reader: Reader, rows: int) -> Iterator[pa.Table]:
        """The distinct rows of the join as columns k0.. and `__rows`, some at a time."""
        own = own_arrangements(self.name, self.view, reader.arrangements)
        for bucket in range(reader.buckets):
            yield from bucket_pieces(reader.root, self.layout, self.view, self.name, own, bucket, rows)

    def frame(self, reader: Reader, spark: SparkSession) -> DataFrame:
        root, layout, view, name = reader.root, self.layout, self.view, self.name
        own = own_arrangements(name, view, reader.arrangements)

        def read_one(bucket: int) -> Iterator[pa.Table]:
            for groups in bucket_pieces(root, layout, view, name, own, bucket, BATCH_ROWS):
                yield from copies(layout, groups, BATCH_ROWS)

        groups = frames.bucket_frame(spark, frames.slot_columns(layout), reader.buckets, read_one)
        return self.analysed.catalyst.finish(groups)

    def changes(self, reader: Reader) -> pa.Table:
        raise UnsupportedSQLError(
            f"view {self.name!r} is factorized, so a step changes a few of its views and not one row after the other",
            way_out="read the rows (enumerate, to_df), or create the view with representation='listing'",
        )

    def _groups(self, reader: Reader) -> pa.Table:
        listed = (frames.repeated(self.layout, piece) for piece in self.counted_pieces(reader, BATCH_ROWS))
        return pa.concat_tables([frames.repeated(self.layout, empty_table(self.layout)), *listed])

    def _total(self, reader: Reader) -> int:
        return sum(int(run.payload[0].sum()) for run in reader.runs(self.name, TOTAL))

    def _distinct(self, reader: Reader) -> int:
        own = own_arrangements(self.name, self.view, reader.arrangements)
        read = ResultReader(self.view, self.layout)
        states = (bucket_state(reader.root, self.view, self.name, own, b) for b in range(reader.buckets))
        return sum(read.enumeration(state, BATCH_ROWS).distinct() for state in states)


def ones(rows: int) -> pa.Array:
    """The multiplicities of rows that are all different."""
    return pa.array(np.ones(rows, np.int64))


def copies(layout: ViewLayout, groups: pa.Table, most: int) -> Iterator[pa.Table]:
    """Give every row of a bag as often as it occurs, about `most` rows at a time; of other views, every row once."""
    counts = groups.column("__rows").to_numpy()
    if layout.plan.shape is not Shape.ROWS or counts.sum() <= 2 * most:
        yield frames.repeated(layout, groups)
        return
    ends, shown = np.cumsum(counts), groups.select(frames.slot_names(layout))
    for start in range(0, int(ends[-1]), most):
        copy = np.arange(start, min(start + most, int(ends[-1])))
        yield shown.take(pa.array(np.searchsorted(ends, copy, "right")))


def own_arrangements(name: str, view: JoinView, state: Arrangements) -> Arrangements:
    """The arrangements of one view."""
    names = {view_arrangement(name, part) for part in view.arrangements}
    return {key: value for key, value in state.items() if key in names}


def bucket_state(root: str, view: JoinView, name: str, state: Arrangements, bucket: int) -> dict[str, list[AnyRun]]:
    """The runs that the rows of a bucket are listed from."""
    return {
        part: OPEN.of(root, state.get(view_arrangement(name, part), {}), view.home(part, bucket))
        for part in view.arrangements
    }


def bucket_pieces(
    root: str, layout: ViewLayout, view: JoinView, name: str, state: Arrangements, bucket: int, rows: int
) -> Iterator[pa.Table]:
    """List the distinct rows of one bucket, about `rows` at a time."""
    return ResultReader(view, layout).pieces(bucket_state(root, view, name, state, bucket), rows)

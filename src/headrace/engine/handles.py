"""Handles of tables and views, which users hold. A handle keeps no state; each call reads the current state."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.engine import frames
from headrace.engine.access import Access
from headrace.engine.answers import Answer, GroupsAnswer
from headrace.engine.catalogue import Entry
from headrace.engine.definition import ResultAnswer, SparkAnswer, SqlAnswer, SqlRequest
from headrace.engine.kept_handle import KeptHandle
from headrace.engine.reader import Reader
from headrace.errors import SchemaError
from headrace.relation.duration import Duration
from headrace.relation.layout import TableLayout
from headrace.relation.schema import DIFF, TableSchema

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

    from headrace.engine.freshness_report import Tradeoff
    from headrace.explain.report import Report
    from headrace.thrifty.incrementability import PathIncrementability


class Table:
    """A changing table of an engine."""

    def __init__(self, access: Access, layout: TableLayout) -> None:
        self._access = access
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
        self._access.state.follow()
        return self._access.state.latest.rows(self.name)

    @property
    def watermark(self) -> datetime | None:
        """The time before which rows are late; None while the table has seen no time, or if it has no watermark."""
        self._access.state.follow()
        mark, declared = self._access.state.latest.watermark(self.name), self.schema.watermark
        if mark is None or declared is None:
            return None
        moment: datetime = pa.scalar(mark, self.schema.column(declared.column).type.arrow).as_py()
        return moment

    def to_df(self) -> DataFrame:
        """The current rows as a Spark DataFrame; later steps do not change it."""
        self._access.state.follow()
        reader = self._access.state.reader()
        names = self.schema.names
        state = (reader.arrangements, reader.buckets)
        return reader.held_by(
            frames.rows_frame(
                self._access.needing("a DataFrame is Spark's").spark, reader.root, self._layout, *state, names
            )
        )

    def to_arrow(self) -> pa.Table:
        """The current rows."""
        self._access.state.follow()
        table = self._access.state.read(self._read)
        counts = table.column(DIFF).to_numpy()
        table = table.drop_columns([DIFF])
        return table.take(pa.array(np.repeat(np.arange(len(counts)), counts))) if (counts != 1).any() else table

    def to_pandas(self) -> pd.DataFrame:
        """The current rows as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def _read(self, reader: Reader) -> pa.Table:
        return frames.table_rows(reader.root, self._layout, reader.arrangements, reader.buckets)

    def __repr__(self) -> str:
        return f"Table({self.name!r}, {self.rows:,} rows)"


class AnswerHandle(KeptHandle):
    """The methods of all views whose answer is rows."""

    def __init__(self, access: Access, entry: Entry, answer: Answer) -> None:
        super().__init__(access, entry)
        self._answer = answer

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the view's columns."""
        return self._answer.schema

    @property
    def rows(self) -> int:
        """How many rows the view has now."""
        self._before_reading()
        return self._access.state.read(self._answer.rows)

    def count(self) -> int:
        """How many rows the view has now; of a factorized result, a sum that is kept, so that no row is listed."""
        return self.rows

    def to_df(self) -> DataFrame:
        """The view as of the last step, as a Spark DataFrame; later steps do not change it."""
        self._before_reading()
        reader = self._access.state.reader()
        return reader.held_by(self._answer.frame(reader, self._access.needing("a DataFrame is Spark's").spark))

    def to_arrow(self) -> pa.Table:
        """The view as of the last step (`as_of`, if it has a goal), in the order of its ORDER BY if it has one."""
        self._before_reading()
        return self._access.state.read(self._answer.table)

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
        """The rows of the view as of the last step, as Arrow batches of about `rows` rows, read on demand.

        Their order is that of the state, unless the view has an ORDER BY or a LIMIT: then all rows are read first.
        """
        self._before_reading()
        if rows < 1:
            raise SchemaError(f"batches of {rows} rows hold nothing", way_out="ask for 1 row or more")
        return self._batches(rows)

    def _batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        if self._answer.needs_all:
            yield from self.to_arrow().to_batches(max_chunksize=rows)
            return
        with self._access.state.reader() as reader:
            for piece in self._answer.pieces(reader, rows):
                yield from piece.to_batches()

    def changes(self) -> pa.Table:
        """The changes of the last step: deleted rows with negative `__diff`, inserted rows with positive `__diff`.

        Of a view with a goal, the changes of its last trigger.
        """
        self._before_reading()
        return self._access.state.read(self._answer.changes)

    def _before_reading(self) -> None:
        """Bring a lazy view up to date, if its engine may write."""
        self._entry.check_there()
        request = self.planned.definition.request
        if (
            isinstance(request, SqlRequest)
            and request.lazy
            and self._access.may_write
            and self.progress.first is not None
        ):
            self._access.control.refresh(self.name)


class View(AnswerHandle):
    """A maintained view of an engine."""

    def __init__(self, access: Access, entry: Entry) -> None:
        super().__init__(access, entry, _answer(access, entry))

    def multiplicities(self) -> Iterator[tuple[dict[str, Any], int]]:
        """List the rows of the view as `enumerate` does, each with how often it occurs.

        A factorized result lists a row of its join once, however often it occurs; other views list each copy.
        """
        if not isinstance(self.planned.answer, ResultAnswer) or self._answer.needs_all:
            yield from ((row, 1) for row in self.enumerate())
            return
        from headrace.engine.results import EnumeratedAnswer

        assert isinstance(self._answer, EnumeratedAnswer)
        self._before_reading()
        with self._access.state.reader() as reader:
            for rows in self._answer.counted(reader, 8_192):
                times = rows.column(DIFF).to_pylist()
                yield from zip(rows.drop_columns([DIFF]).to_pylist(), times, strict=True)

    @property
    def idle_after(self) -> Duration | None:
        """After how long without rows in its tables the view keeps only the state that the next change needs.

        Assign a duration, as in `view.idle_after = "10 minutes"`, to change it; None for never.
        """
        return self.planned.definition.idle_after

    @idle_after.setter
    def idle_after(self, wait: str | timedelta | Duration | None) -> None:
        self._entry.check_there()
        self._access.control.set_idle_after(self.name, None if wait is None else Duration.parse(wait))

    def finals(self, since: int = 0) -> Finals:
        """The rows of windows that have closed, with `__step`: which step closed each. No later step changes them.

        Parameters
        ----------
        since : leave out windows that closed in this step or before it. A reader that passes the last step it has seen
            gets every final row exactly once.
        """
        self._entry.check_there()
        if not self.planned.is_final:
            raise SchemaError(
                f"view {self.name!r} closes no windows: any of its rows may change again",
                way_out="create it with engine.view(..., final=True)",
            )
        assert isinstance(self._answer, GroupsAnswer)  # only groups close
        return Finals(self._access, self._entry, self._answer, since)

    def tradeoff(self) -> Tradeoff:
        """The estimated additional work and latency for shares of final work from 1 to 0.02, beside what was measured.

        For views with a goal that leaves a choice, after their first trigger.
        """
        from headrace.engine.freshness_report import tradeoff_of

        self._entry.check_there()
        return self._access.state.read(lambda reader: tradeoff_of(self.name, self.planned, reader))

    def incrementability(self) -> list[PathIncrementability]:
        """What more flushes of each path buy: fully, partially or not incrementable, and the operator that decides."""
        from headrace.engine.freshness_report import incrementability_of

        self._entry.check_there()
        return self._access.state.read(lambda reader: incrementability_of(self.name, self.planned, reader))

    def analyze(self) -> Report:
        """EXPLAIN ANALYZE: explain the view, with what each strategy would cost now, and what the last step did."""
        from headrace.engine.analysis import analysed

        return analysed(self._access, self, self.explain())

    def __repr__(self) -> str:
        return f"View({self.name!r}, {self.sql!r})"


class Finals:
    """The rows of a view that no later step changes; each call reads them from the current state."""

    def __init__(self, access: Access, entry: Entry, answer: GroupsAnswer, since: int) -> None:
        self._access = access
        self._entry = entry
        self._answer = answer
        self._since = since

    def to_df(self) -> DataFrame:
        """The final rows as of the last step, as a Spark DataFrame."""
        self._entry.check_there()
        reader = self._access.state.reader()
        return reader.held_by(
            self._answer.finals_frame(reader, self._access.needing("a DataFrame is Spark's").spark, self._since)
        )

    def to_arrow(self) -> pa.Table:
        """The final rows as of the last step."""
        self._entry.check_there()
        return self._access.state.read(lambda reader: self._answer.finals(reader, self._since))

    def to_pandas(self) -> pd.DataFrame:
        """The final rows as of the last step, as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def __repr__(self) -> str:
        return f"Finals({self._entry.name!r}, since={self._since})"


def _answer(access: Access, entry: Entry) -> Answer:
    answer = entry.planned.answer
    if isinstance(answer, SqlAnswer):
        return GroupsAnswer(entry.name, answer.layout, answer.analysed, access)
    if isinstance(answer, ResultAnswer):
        from headrace.engine.results import EnumeratedAnswer

        return EnumeratedAnswer(entry.name, answer.layout, answer.analysed, access, answer.view)
    assert isinstance(answer, SparkAnswer)  # no other view is of SQL
    from headrace.engine.recomputed import StoredAnswer

    return StoredAnswer(entry.name, answer.kernel)

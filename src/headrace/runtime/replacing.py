"""Replacing all rows of an arrangement, bucket by bucket, and finding out which of them changed.

The key of a row is its number in the order of the rows, and its bucket is that of a hash of the whole row. Equal rows
are in one bucket, whichever step wrote them, so each bucket can be compared with what it held before on its own: tasks
do so, write the new runs, and return references to them (`replacing_job`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.operators.kernel import ViewChange
from headrace.relation.change import cancelled
from headrace.relation.columns import take_rows, whole
from headrace.relation.run import Run
from headrace.relation.runset import AnyRun
from headrace.relation.schema import DIFF, Column
from headrace.runtime.location import Location
from headrace.runtime.openruns import OPEN
from headrace.runtime.program import BucketResult, arrow_schema, view_arrangement
from headrace.runtime.record import BucketState
from headrace.runtime.runwriter import RunWriter

NUMBER = "__number"


@dataclass(frozen=True)
class Replacing:
    """What a task needs to know to replace rows of one arrangement of a view.

    Parameters
    ----------
    columns : those of the rows, as they are stored.
    states : the arrangement before the step, by bucket.
    buckets : how many buckets the location has.
    version : of the commit that the step leads to.
    """

    view: str
    part: str
    columns: tuple[Column, ...]
    states: Mapping[int, BucketState]
    buckets: int
    root: str
    version: int
    fsync: bool

    @property
    def arrangement(self) -> str:
        """The name of the arrangement in the commit log."""
        return view_arrangement(self.view, self.part)

    def writer(self) -> RunWriter:
        """Make a writer for the runs that one task adds."""
        return RunWriter(Location(self.root), self.version, fsync=self.fsync)

    def one_bucket(self, bucket: int, rows: pa.Table, writer: RunWriter) -> BucketResult:
        """Replace the rows of one bucket; `rows` have their numbers, in ascending order."""
        before = OPEN.of(self.root, self.states, bucket)
        if not before and not rows.num_rows:
            return BucketResult()
        after = self._run(rows)
        result = self._compared(before, after, writer)
        runs = (writer.add(after),) if after.rows else ()
        result.buckets[self.arrangement] = {bucket: BucketState(runs, after.rows)}
        return result

    def _run(self, rows: pa.Table) -> Run:
        schema = arrow_schema(self.columns)
        numbers = whole(rows.column(NUMBER)).to_numpy(zero_copy_only=False).astype(np.uint64)
        return _as_run(rows.select(schema.names).cast(schema), numbers, np.ones(rows.num_rows, np.int64))

    def _compared(self, before: Sequence[AnyRun], after: Run, writer: RunWriter) -> BucketResult:
        """Count the changes, and write them as a run."""
        sides = [
            rows.append_column(DIFF, pa.array(np.full(rows.num_rows, sign)))
            for rows, sign in ((stored_rows(self.columns, before), -1), (stored_rows(self.columns, [after]), 1))
        ]
        changes = cancelled(pa.concat_tables(sides))
        diff = np.asarray(whole(changes.column(DIFF)).to_numpy(zero_copy_only=False), np.int64)
        said = ViewChange(int(diff[diff > 0].sum()), int(-diff[diff < 0].sum()))
        result = BucketResult(summaries={self.view: said})
        if len(diff):
            run = _as_run(changes.drop_columns([DIFF]), np.arange(len(diff), dtype=np.uint64), diff)
            result.changes[self.view] = [writer.add(run)]
        return result


def _as_run(rows: pa.Table, numbers: NDArray[np.uint64], counts: NDArray[np.int64]) -> Run:
    return Run(numbers[None, :], (counts,), {name: whole(rows.column(name)) for name in rows.column_names})


def stored_rows(columns: Sequence[Column], runs: Sequence[AnyRun]) -> pa.Table:
    """Read the rows of runs, those of one run after those of another."""
    for run in runs:
        run.check()
    schema = arrow_schema(columns)
    tables = (pa.table(list(run.values.values()), schema=schema) for run in runs)
    return pa.concat_tables([schema.empty_table(), *tables])


def numbered_rows(columns: Sequence[Column], runs: Sequence[AnyRun]) -> pa.Table:
    """Read the rows of runs of any buckets with their numbers, in the order of the numbers."""
    rows = stored_rows(columns, runs)
    numbers = np.concatenate([np.empty(0, np.uint64), *(run.words[0] for run in runs)]).astype(np.int64)
    rows = rows.append_column(NUMBER, pa.array(numbers))
    # Runs are not merged: where Spark computed a part again, rows of two buckets may have got the same number.
    return take_rows(rows, np.argsort(numbers, kind="stable")) if len(runs) > 1 else rows


def changed_rows(columns: Sequence[Column], runs: Sequence[AnyRun]) -> pa.Table:
    """Read the rows of runs of changes, with `__diff`."""
    rows = stored_rows(columns, runs)
    counts = np.concatenate([np.empty(0, np.int64), *(run.payload[0] for run in runs)])
    return rows.append_column(DIFF, pa.array(counts))

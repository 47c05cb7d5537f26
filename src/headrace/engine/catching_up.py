"""Bringing state that was filled from an older snapshot up to date, without going through the tables again.

A table is the sum of its runs. So what has changed in it between two snapshots is the sum of the runs that came less
the sum of those that are gone, whatever steps and merges happened in between, and wherever these steps ran.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headrace.operators.kernel import ViewKernel
from headrace.relation.change import ChangeBatch
from headrace.relation.layout import TableLayout
from headrace.runtime.filling import columns_read, narrowed
from headrace.runtime.inline import run_inline
from headrace.runtime.log import Snapshot
from headrace.runtime.openruns import OPEN
from headrace.runtime.program import BucketResult, Program, table_arrangement
from headrace.runtime.record import RunRef


@dataclass(frozen=True)
class TableChange:
    """The runs of a table that a later snapshot has, and those that it has no longer."""

    come: tuple[RunRef, ...]
    gone: tuple[RunRef, ...]

    @property
    def rows(self) -> int:
        """How many entries there are to read."""
        return sum(run.rows for run in (*self.come, *self.gone))


def changed_tables(kernel: ViewKernel, before: Snapshot, after: Snapshot) -> dict[str, TableChange]:
    """The tables that a view or a shared subplan reads, as far as they have other runs than before."""
    found = {}
    for table in dict.fromkeys(side.table for side in kernel.sides):
        old, new = (_runs(snapshot, table) for snapshot in (before, after))
        if old.keys() != new.keys():
            come, gone = (run for run in new if run not in old), (run for run in old if run not in new)
            found[table] = TableChange(tuple(come), tuple(gone))
    return found


def _runs(snapshot: Snapshot, table: str) -> dict[RunRef, None]:
    states = snapshot.arrangements.get(table_arrangement(table), {})
    return dict.fromkeys(run for state in states.values() for run in state.runs)


def caught_up(program: Program, changes: Mapping[str, TableChange], threads: int) -> BucketResult:
    """Run a program, which stores no rows, over what has changed in its tables."""
    columns = columns_read(program)
    batches = {t.name: _batch(program, t.layout, changes[t.name], columns[t.name]) for t in program.tables}
    narrow = replace(program, tables=tuple(narrowed(task, columns[task.name]) for task in program.tables))
    return run_inline(narrow, batches, threads)


def _batch(program: Program, layout: TableLayout, change: TableChange, names: tuple[str, ...]) -> ChangeBatch:
    """What has changed in some columns of a table; a row that only moved is there twice, and adds up to nothing."""
    tables, counts = [], []
    for sign, runs in ((1, change.come), (-1, change.gone)):
        for ref in runs:
            run = OPEN.one(program.root, ref).select(names)
            entries = run.slice(0, run.rows)
            tables.append(pa.table(layout.rows(entries, names)))
            counts.append(sign * entries.payload[0].astype(np.int64))
    return ChangeBatch(pa.concat_tables(tables).combine_chunks(), np.concatenate(counts))

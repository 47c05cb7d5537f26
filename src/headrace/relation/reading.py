"""Reading a table's rows back from its runs: the columns asked for, some rows at a time.

Readers of a table add its rows up, which needs no order: runs that only insert are read one after the other, without
merging or copying them. Where rows were deleted, only the entries of those keys are added up first. So readers get live
rows only, and evaluate no expression on a deleted one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
import pyarrow as pa

from headrace.relation.change import ChangeBatch
from headrace.relation.kernels import Words
from headrace.relation.layout import TableLayout
from headrace.relation.run import Run, concatenate_words, consolidate, merge
from headrace.relation.runset import AnyRun, as_set
from headrace.rings import COUNT


def read_rows(layout: TableLayout, runs: Sequence[AnyRun], names: Collection[str], most: int) -> Iterator[ChangeBatch]:
    """Read columns of the rows of one bucket, each with its count, about so many at a time, in any order.

    The columns may be views into the files: copy them to keep them.
    """
    runs = [run.select(names) for run in runs if run.rows]
    removed = _removed(runs)
    left = [np.ones(run.rows if removed.shape[1] else 0, bool) for run in runs]
    for start in range(0, removed.shape[1], most):
        keys = np.ascontiguousarray(removed[:, start : start + most])
        touched = []
        for run, kept in zip(runs, left, strict=True):
            at = as_set([run]).find(keys)[1]
            kept[at] = False
            touched.append(run.take(at))
        yield from _batch(layout, merge(COUNT, touched), names)
    for run, kept in zip(runs, left, strict=True):
        for start in range(0, run.rows, most):
            stop = min(start + most, run.rows)
            entries, there = run.slice(start, stop), kept[start:stop]
            yield from _batch(layout, entries if there.all() else entries.take(there), names)


def _removed(runs: Sequence[AnyRun]) -> Words:
    """Return the keys of all entries that delete rows, ascending."""
    found = []
    for run in runs:
        entries = run.select(()).slice(0, run.rows)
        at = np.flatnonzero(entries.payload[0] <= 0)
        if len(at):
            found.append(np.take(entries.words, at, axis=1))
    if not found:
        return np.zeros((1, 0), np.uint64)
    words = concatenate_words(found)
    return consolidate(COUNT, words, (np.ones(words.shape[1], np.int64),), {}).words


def _batch(layout: TableLayout, entries: Run, names: Collection[str]) -> Iterator[ChangeBatch]:
    """Yield the entries as a change batch, if there are any."""
    if entries.rows:
        yield ChangeBatch(pa.table(layout.rows(entries, names)), entries.payload[0])

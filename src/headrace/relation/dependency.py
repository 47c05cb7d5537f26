"""The guard of a functional dependency: which values of some columns are there, and what they determine.

Rows of a table lie by their key, so rows that could contradict each other lie anywhere. A guard is one more arrangement
of the table, by the columns on the left of a dependency: (their values, a hash of what they determine) -> rows. As with
keys, a batch is judged after it has been added up, so a row may replace another that the same batch deletes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.relation import kernels
from headrace.relation.arrangement import lookup
from headrace.relation.change import BadRows, ChangeBatch
from headrace.relation.columns import whole
from headrace.relation.kernels import Words
from headrace.relation.keys import KeyLayout, validity
from headrace.relation.layout import TableLayout, hash_rows
from headrace.relation.run import Run, merge
from headrace.relation.runset import AnyRun, as_set
from headrace.relation.table import TableChange
from headrace.rings import COUNT


@dataclass(frozen=True)
class Guard:
    """One dependency of a table."""

    table: TableLayout
    number: int  # among those of the table

    @property
    def of(self) -> tuple[str, ...]:
        """The columns that determine others."""
        return self.table.schema.fds[self.number][0]

    @property
    def determined(self) -> tuple[str, ...]:
        return self.table.schema.fds[self.number][1]

    def __str__(self) -> str:
        return f"{', '.join(self.of)} -> {', '.join(self.determined)}"

    @cached_property
    def keys(self) -> KeyLayout:
        """Layout of the columns on the left, none of which is NULL."""
        kinds = tuple(self.table.schema.column(name).type for name in self.of)
        return KeyLayout(kinds, (False,) * len(kinds), self.table.seed)

    def about(self, batch: ChangeBatch) -> ChangeBatch:
        """The rows that the dependency says something of: NULL on the left determines nothing."""
        there = np.ones(len(batch), bool)
        for name in self.of:
            column = whole(batch.rows.column(name))
            if column.null_count:
                there &= validity(column)
        return batch if there.all() else batch.take(there)

    def left(self, rows: pa.Table) -> Words:
        """The words of the columns on the left."""
        return self.keys.encode([whole(rows.column(name)) for name in self.of])

    def lead(self, rows: pa.Table) -> NDArray[np.uint64]:
        """The first of these words: it decides the bucket."""
        return np.ascontiguousarray(self.left(rows)[0])

    def words(self, rows: pa.Table) -> Words:
        """The words of the columns on the left, and a hash of those on the right."""
        right = [self.table.schema.column(name) for name in self.determined]
        return np.concatenate([self.left(rows), hash_rows(rows, right, self.table.seed + 4)[None, :]])


def guards(table: TableLayout) -> list[Guard]:
    """The guards of all dependencies of a table."""
    return [Guard(table, number) for number in range(len(table.schema.fds))]


def judge_dependency(guard: Guard, runs: Sequence[AnyRun], batch: ChangeBatch) -> TableChange:
    """Add a batch (rows of one bucket of the guard) to its runs, and find the rows that break the dependency."""
    words = guard.words(batch.rows)
    order = kernels.sort_order(words)
    pair_of = np.empty(len(order), np.int64)
    pairs = kernels.group_sorted(words, order, pair_of)
    net = COUNT.sum_by((batch.diff[order],), pair_of, pairs)[0].astype(np.int64)
    first = order[np.flatnonzero(np.diff(pair_of, prepend=-1))]
    change = Run(np.ascontiguousarray(words[:, first]), (net,))
    broken, kept = _broken(guard, runs, change)
    run = change.take(np.flatnonzero((net != 0) & ~broken))
    if not broken.any():
        return TableChange(run, None)
    row_pair = np.empty(len(order), np.int64)
    row_pair[order] = pair_of
    at = np.flatnonzero(broken[row_pair] & (batch.diff > 0))
    chosen, left, right = batch.take(at), ", ".join(guard.of), ", ".join(guard.determined)
    reasons = [
        f"breaks {guard}: rows that are there have another {right} with this {left}"
        if kept[pair]
        else f"breaks {guard}: the batch has rows with this {left} and different {right}"
        for pair in row_pair[at]
    ]
    return TableChange(run, BadRows(guard.table.schema.name, chosen.rows, chosen.diff, reasons, judge=str(guard)))


def _broken(guard: Guard, runs: Sequence[AnyRun], change: Run) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Per changed pair: whether it is one of several on the left side, and new; and whether an old one stays there."""
    width = guard.keys.width
    left_of = np.empty(change.rows, np.int64)
    lefts = kernels.group_sorted(change.words[:width], np.arange(change.rows), left_of)
    heads = np.ascontiguousarray(change.words[:width, np.flatnonzero(np.diff(left_of, prepend=-1))])
    stored = as_set(runs).matching(COUNT, heads) if runs else None
    (before,) = lookup(COUNT, runs, change.words)
    after = merge(COUNT, [change] if stored is None else [stored, change])
    after = after.take(np.flatnonzero(after.payload[0] > 0))
    there = np.bincount(_place(heads, after, width), minlength=lefts)
    old = np.zeros(lefts, bool)
    if stored is not None and after.rows:
        was = lookup(COUNT, [stored], after.words)[0] > 0
        old[_place(heads, after, width)[was]] = True
    new = (change.payload[0] > 0) & (before <= 0)
    return new & (there[left_of] > 1), old[left_of]


def _place(heads: Words, run: Run, width: int) -> NDArray[np.int64]:
    """The number of the left side of each entry."""
    first, _ = Run(heads, (np.ones(heads.shape[1], np.int64),)).find(np.ascontiguousarray(run.words[:width]))
    return first

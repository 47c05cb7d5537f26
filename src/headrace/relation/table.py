"""The kernel of a table: adds a change batch to the rows it has, and finds the changes that contradict them.

A table with a key has at most one row per key, so inserting needs the key to be free and deleting needs the very row to
be there. A table without a key is a bag, and only deletions can be wrong. Both are decided for a whole batch at once,
after the batch has been added up: an insertion and a deletion of the same row cancel, whatever their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.relation import kernels
from headrace.relation.arrangement import lookup
from headrace.relation.change import BadRows, ChangeBatch
from headrace.relation.kernels import Positions, Words
from headrace.relation.layout import TableLayout
from headrace.relation.run import Run, Values, take_values
from headrace.relation.runset import AnyRun, Entries, RunSet, as_set
from headrace.rings import COUNT

DUPLICATE = "duplicate key: a row with this key is there already"
TWICE = "duplicate key: the batch inserts several rows with this key"
ABSENT = "deletes a row that is not there"
DIFFERENT = "deletes a row that is not there: the row with this key has other values"


@dataclass(frozen=True)
class TableChange:
    """What a change batch does to one bucket of a table."""

    run: Run
    bad: BadRows | None


def apply_changes(
    layout: TableLayout, runs: Sequence[AnyRun], batch: ChangeBatch, words: Words, *, judged: bool = False
) -> TableChange:
    """Add a batch (the rows of one bucket, with their words) to the runs of that bucket.

    `judged` says that the changes were made from what the runs have, so that none of them can contradict these.
    """
    order = kernels.sort_order(words)
    row_of = np.empty(len(order), np.int64)
    rows = kernels.group_sorted(words, order, row_of)
    net = COUNT.sum_by((batch.diff[order],), row_of, rows)[0].astype(np.int64)
    first = order[np.flatnonzero(np.diff(row_of, prepend=-1))]
    distinct = np.ascontiguousarray(words[:, first])
    if judged:
        reasons = np.zeros(len(net), np.int64)
    else:
        judge = _judge_keyed if layout.schema.key else _judge_bag
        reasons = judge(layout, runs, distinct, net)
    good = (net != 0) & (reasons == 0)
    run = Run(
        np.ascontiguousarray(distinct[:, good]),
        (net[good],),
        take_values(layout.values(batch.rows), first[good]),
    )
    if not reasons.any():
        return TableChange(run, None)
    reason_of = np.empty(len(order), np.int64)
    reason_of[order] = reasons[row_of]
    at = np.flatnonzero(reason_of)
    chosen = batch.take(at)
    texts = [_REASONS[int(code)] for code in reason_of[at]]
    return TableChange(run, BadRows(layout.schema.name, chosen.rows, chosen.diff, texts))


_REASONS = {1: DUPLICATE, 2: TWICE, 3: ABSENT, 4: DIFFERENT}


def _judge_bag(layout: TableLayout, runs: Sequence[AnyRun], rows: Words, net: NDArray[np.int64]) -> Positions:
    reasons = np.zeros(len(net), np.int64)
    deleted = np.flatnonzero(net < 0)
    if len(deleted):
        (there,) = lookup(COUNT, runs, np.ascontiguousarray(rows[:, deleted]))
        reasons[deleted[there + net[deleted] < 0]] = 3
    return reasons


def _judge_keyed(layout: TableLayout, runs: Sequence[AnyRun], rows: Words, net: NDArray[np.int64]) -> Positions:
    width = layout.key_width
    key_of = np.empty(rows.shape[1], np.int64)
    keys = kernels.group_sorted(rows[:width], np.arange(rows.shape[1]), key_of)
    first = np.flatnonzero(np.diff(key_of, prepend=-1))
    found = live_rows(runs, np.ascontiguousarray(rows[:width, first]), width)
    count, live = found.count, found.hash
    removes = net < 0
    there = count[key_of] == 1
    right = there & (rows[width] == live[key_of])
    removed = removes & right & (net == -1)
    left = count - np.bincount(key_of[removed], minlength=keys)
    adds = net > 0
    candidates = np.bincount(key_of[adds], weights=net[adds], minlength=keys)
    reasons = np.zeros(len(net), np.int64)
    reasons[adds & (left[key_of] != 0)] = 1
    reasons[adds & (candidates[key_of] > 1)] = 2
    reasons[removes & ~removed] = 3
    reasons[removes & ~removed & there & ~right] = 4
    return reasons


@dataclass(frozen=True)
class LiveRows:
    """The rows that a table has of some keys.

    Parameters
    ----------
    count : how many rows there are of each key: 0 or 1.
    hash : the last word of that row.
    """

    count: NDArray[np.int64]
    hash: NDArray[np.uint64]
    _runs: RunSet
    _entries: Entries
    _hashes: NDArray[np.uint64]
    _times: NDArray[np.int64]

    def read(self, keys: Positions) -> tuple[Positions, Values]:
        """What is stored beside the words of the rows that these keys have, and the key of each: in another order."""
        wanted = np.zeros(len(self.count), bool)
        wanted[keys] = True
        owners = self._entries.owners
        # A row that was deleted and came back has several entries, all alike.
        at = np.flatnonzero(wanted[owners] & (self._times > 0) & (self._hashes == self.hash[owners]))
        entry_of = np.full(len(self.count), -1)
        entry_of[owners[at]] = at
        chosen = np.sort(entry_of[keys])  # run by run, as they can be read
        return owners[chosen], self._runs.values(self._entries.take(chosen))


def live_rows(runs: Sequence[AnyRun], keys: Words, width: int) -> LiveRows:
    """Find, per key, how many rows there are (0 or 1), and the hash of that row.

    Both are sums over all entries with that key: of the counts, and of count times hash (modulo 2**64). Everything but
    the live row cancels, so no entry has to be matched with the one that deleted it.
    """
    m, stored = keys.shape[1], as_set(runs)
    entries = stored.entries(keys)
    (times,) = stored.payload(entries.runs, entries.positions) if len(entries) else COUNT.zeros(0)
    hashes = stored.words(entries.runs, entries.positions, width, width + 1)[0]
    (count,) = COUNT.sum_by((times,), entries.owners, m)
    (live,) = COUNT.sum_by(((hashes * times.view(np.uint64)).view(np.int64),), entries.owners, m)
    return LiveRows(count, live.view(np.uint64), stored, entries, hashes, times)

"""Changes that name rows by their keys: what becomes of the row with a key, whatever that row is now.

A change batch says which rows go and which come. Whoever only knows the new row of a key, or only the key of a row that
is gone, gives that. What is asked is *resolved* against the rows that the table has: each key is searched in the
arrangement of the table, and what is found gives the deletion that the batch lacks. So a table and its views only ever
see plain changes. A row that stays as it is gives none.

Resolving looks up the keys that were given and reads no other row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.relation import kernels
from headrace.relation.arrangement import scan
from headrace.relation.change import BadRows, ChangeBatch
from headrace.relation.columns import take_rows, whole
from headrace.relation.kernels import Positions, Words
from headrace.relation.keys import validity
from headrace.relation.layout import TableLayout
from headrace.relation.run import Run, consolidate, merge
from headrace.relation.runset import AnyRun
from headrace.relation.table import DUPLICATE, TWICE, live_rows
from headrace.rings import COUNT

OP = "__op"  # the column of a resolved batch's rows that says what each of them asks
SEQUENCE = "__sequence"  # the column that orders several changes of one key

REPLACE, INSERT, UPDATE, DELETE = range(4)
_UNKNOWN = -1
_WORDS = {"i": INSERT, "insert": INSERT, "u": UPDATE, "update": UPDATE, "d": DELETE, "delete": DELETE}

SEVERAL = "several changes of one key in the batch, and no order_by says which is the last"
TIED = "several changes of one key in the batch have the same place in the order"
UNORDERED = "its place in the order is NULL"
NO_UPDATE = "updates a row that is not there: no row has this key"
NO_DELETE = "deletes a row that is not there: no row has this key"
FROZEN = "replaces or deletes a row of a table that is append-only"


@dataclass(frozen=True)
class Wanted:
    """What the rows of a batch ask for.

    Parameters
    ----------
    op : what each row asks that has no operation of its own: REPLACE or DELETE.
    has_op : whether the column OP says what each row asks.
    replaces : whether an operation that inserts or updates replaces whatever row has the key.
    has_sequence : whether the column SEQUENCE orders the changes of one key; then the last of them counts.
    ignores_missing : whether updates and deletions of rows that are not there are left out; otherwise they are bad.
    is_whole : whether the rows are all that the table is to have; nothing else counts then.
    """

    op: int = REPLACE
    has_op: bool = False
    replaces: bool = False
    has_sequence: bool = False
    ignores_missing: bool = False
    is_whole: bool = False


@dataclass(frozen=True)
class Resolved:
    """Plain changes, and the rows that ask for what cannot be."""

    batch: ChangeBatch
    bad: BadRows | None


def resolve(layout: TableLayout, runs: Sequence[AnyRun], wanted: Wanted, given: pa.Table) -> Resolved:
    """Turn rows, and what they ask, into changes of a table's rows; the table has a key, or `wanted.is_whole`.

    Parameters
    ----------
    runs : those of the table, as far as they have the keys of the rows; all of a bucket, if `wanted.is_whole`.
    given : the columns of the table, and OP and SEQUENCE where `wanted` says so. Of a row that deletes only the key
        counts.
    """
    if wanted.is_whole:
        return difference(layout, runs, given)
    bad = _Bad(layout, given)
    ops, left = _operations(wanted, given, bad)
    batch = _in_order(layout, wanted, given, ops, left, bad)
    old = live_rows(runs, batch.keys, layout.key_width)
    is_there = old.count == 1
    last = _last(batch, ops[batch.rows], is_there, wanted, bad)
    keys = np.flatnonzero(last >= 0)
    final = batch.rows[last[keys]]
    stays = ops[final] != DELETE
    new, new_keys = final[stays], keys[stays]
    same = is_there[new_keys] & (layout.rest(given)[new] == old.hash[new_keys])
    replaced = np.zeros(len(is_there), bool)
    replaced[keys] = is_there[keys]
    replaced[new_keys[same]] = False
    if layout.schema.append_only and replaced.any():
        bad.note(final[replaced[keys]], FROZEN)
        same |= replaced[new_keys]
        replaced[:] = False
    gone, values = old.read(np.flatnonzero(replaced))
    removed = Run(np.concatenate([batch.keys[:, gone], old.hash[None, gone]]), (), values)
    added = np.sort(new[~same])  # mostly all rows, which then need no copy
    rows = given if len(added) == given.num_rows else take_rows(given, added)
    return Resolved(_changes(layout, removed, rows), bad.rows(ops))


def _in_order(
    layout: TableLayout, wanted: Wanted, given: pa.Table, ops: NDArray[np.int8], left: Positions, bad: _Bad
) -> _Sorted:
    """The rows that can be told apart, in the order in which they happen; the others are noted as bad."""
    bad.nulls(ops, left)
    if wanted.has_sequence:
        places = whole(given.column(SEQUENCE))
        bad.note(left[~validity(places)[left] & ~bad.mask[left]], UNORDERED)
    words = layout.keys.encode([whole(given.column(name)) for name in layout.schema.key])

    def sort() -> _Sorted:
        chosen = left[~bad.mask[left]]
        return _Sorted.of(words, chosen, _ranks(given, chosen) if wanted.has_sequence else None)

    batch = sort()
    if not batch.repeated.any():
        return batch
    bad.note(batch.rows[batch.repeated], TIED if wanted.has_sequence else SEVERAL)
    return sort()


def _last(batch: _Sorted, ops: NDArray[np.int8], is_there: NDArray[np.bool_], wanted: Wanted, bad: _Bad) -> Positions:
    """Per key, which row decides what becomes of it; -1 if none does. Rows that cannot happen are noted as bad."""
    before = batch.before(ops, is_there)
    bad.note(batch.rows[(ops == INSERT) & before], DUPLICATE)
    lost = ((ops == UPDATE) | (ops == DELETE)) & ~before
    if not wanted.ignores_missing:
        bad.note(batch.rows[lost & (ops == UPDATE)], NO_UPDATE)
        bad.note(batch.rows[lost & (ops == DELETE)], NO_DELETE)
    return batch.last(~lost & ~bad.mask[batch.rows])


def _changes(layout: TableLayout, removed: Run, added: pa.Table) -> ChangeBatch:
    """Rows that go and rows that come, as one batch."""
    added = added.select(layout.schema.names)
    diff = np.repeat(np.array([-1, 1]), [removed.rows, added.num_rows])
    if not removed.rows:
        return ChangeBatch(added, diff)
    old = pa.table(layout.rows(removed), schema=added.schema)
    return ChangeBatch(pa.concat_tables([old, added]).combine_chunks(), diff)


@dataclass(frozen=True)
class _Sorted:
    """Rows of a batch in the order of their keys, and of those with one key in the order of their places.

    Parameters
    ----------
    rows : their positions in the batch.
    key_of : the number of each row's key.
    keys : the words of each key.
    repeated : which rows have the key and the place of another one; without places, the key.
    """

    rows: Positions
    key_of: Positions
    keys: Words
    repeated: NDArray[np.bool_]

    @classmethod
    def of(cls, words: Words, chosen: Positions, ranks: NDArray[np.uint64] | None) -> _Sorted:
        own = words if len(chosen) == words.shape[1] else np.ascontiguousarray(words[:, chosen])
        placed = own if ranks is None else np.concatenate([own, ranks[None, :]])
        order = kernels.sort_order(placed)
        key_of, place_of = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
        places = kernels.group_sorted(placed, order, place_of)
        if ranks is None:
            key_of = place_of
        else:
            kernels.group_sorted(own, order, key_of)
        first = np.flatnonzero(np.diff(key_of, prepend=-1))
        repeated = np.zeros(len(order), bool)
        if places < len(order):
            repeated = np.bincount(place_of, minlength=places)[place_of] > 1
        return cls(chosen[order], key_of, np.ascontiguousarray(own[:, order[first]]), repeated)

    def before(self, ops: NDArray[np.int8], is_there: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether the table has a row with the key of each row when its turn comes.

        An update leaves that as it is, whether it finds a row or not; after any other operation it does not depend on
        what was before.
        """
        if len(ops) == len(is_there):  # no key comes twice
            return is_there
        at = np.arange(len(ops))
        decided = np.maximum.accumulate(np.where(ops != UPDATE, at, -1))
        decided = np.concatenate([[-1], decided[:-1]])
        first = np.flatnonzero(np.diff(self.key_of, prepend=-1))[self.key_of]
        by_batch = decided >= first
        return np.where(by_batch, ops[decided] != DELETE, is_there[self.key_of])

    def last(self, good: NDArray[np.bool_]) -> Positions:
        """Per key, which of these rows is the last good one; -1 if none is."""
        out = np.full(self.keys.shape[1], -1)
        at = np.flatnonzero(good)
        out[self.key_of[at]] = at  # of several, the last one stays
        return out


class _Bad:
    """The bad rows of a batch, each with the first reason that was found."""

    def __init__(self, layout: TableLayout, given: pa.Table) -> None:
        self._layout = layout
        self._given = given
        self._reasons: dict[int, str] = {}
        self.mask = np.zeros(given.num_rows, bool)

    def note(self, rows: Positions, reason: str) -> None:
        """Note that rows are bad; those that are already keep their reason."""
        for row in rows[~self.mask[rows]].tolist():
            self._reasons[row] = reason
        self.mask[rows] = True

    def nulls(self, ops: NDArray[np.int8], rows: Positions) -> None:
        """Note rows with NULL where none may be; of a deletion, only the key counts."""
        schema = self._layout.schema
        for column in schema.columns:
            array = whole(self._given.column(column.name))
            if not column.nullable and array.null_count:
                is_key = column.name in schema.key
                missing = rows[~validity(array)[rows]]
                missing = missing if is_key else missing[ops[missing] != DELETE]
                self.note(missing, f"NULL in {'key' if is_key else 'NOT NULL'} column {column.name!r}")

    def rows(self, ops: NDArray[np.int8]) -> BadRows | None:
        """All bad rows; None if there are none."""
        if not self._reasons:
            return None
        at = np.flatnonzero(self.mask)
        rows = take_rows(self._given.select(self._layout.schema.names), at)
        diff = np.where(ops[at] == DELETE, -1, 1).astype(np.int64)
        return BadRows(self._layout.schema.name, rows, diff, [self._reasons[i] for i in at.tolist()])


def _operations(wanted: Wanted, given: pa.Table, bad: _Bad) -> tuple[NDArray[np.int8], Positions]:
    """What each row asks, and the rows that ask for something that is known."""
    n = given.num_rows
    if not wanted.has_op:
        return np.full(n, wanted.op, np.int8), np.arange(n)
    written = whole(given.column(OP)).dictionary_encode()
    texts = written.dictionary.to_pylist()
    codes = np.array([_WORDS.get(text.strip().lower(), _UNKNOWN) for text in texts] + [_UNKNOWN], np.int8)
    indices = written.indices.fill_null(len(texts)).to_numpy(zero_copy_only=False)
    ops = codes[indices]
    for row in np.flatnonzero(ops == _UNKNOWN).tolist():
        text = [*texts, None][indices[row]]
        found = "is NULL" if text is None else f"{text!r} is not known"
        bad.note(np.array([row]), f"its operation {found}: I, U and D are, and insert, update and delete")
    if wanted.replaces:
        ops[(ops == INSERT) | (ops == UPDATE)] = REPLACE
    return ops, np.flatnonzero(~bad.mask)


def _ranks(given: pa.Table, rows: Positions) -> NDArray[np.uint64]:
    """The places of some rows in the order, as numbers."""
    places = whole(given.column(SEQUENCE)).take(pa.array(rows))
    return np.asarray(pc.rank(places, tiebreaker="dense").to_numpy(), np.uint64)


def difference(layout: TableLayout, runs: Sequence[AnyRun], given: pa.Table) -> Resolved:
    """Turn all rows that a table is to have into changes of those that it has, which are all read.

    A key whose row is bad keeps the row that it has.
    """
    bad = _Bad(layout, given)
    inserts = np.full(given.num_rows, INSERT, np.int8)
    bad.nulls(inserts, np.arange(given.num_rows))
    words = layout.words(given)
    width = layout.key_width
    if layout.schema.key:
        left = np.flatnonzero(~bad.mask)
        by_key = _Sorted.of(np.ascontiguousarray(words[:width]), left, None)
        bad.note(by_key.rows[by_key.repeated], TWICE)
    good = np.flatnonzero(~bad.mask)
    rows = take_rows(given, good) if bad.mask.any() else given
    ones = np.ones(len(good), np.int64)
    wanted = consolidate(COUNT, np.ascontiguousarray(words[:, good]), (ones,), layout.values(rows))
    there = scan(COUNT, runs)
    change = wanted
    if there is not None:
        change = merge(COUNT, [wanted, Run(there.words, (-there.payload[0],), there.values)])
    if bad.mask.any() and layout.schema.key:
        firsts, lasts = change.find(np.ascontiguousarray(words[:width, bad.mask]))
        keeps = np.ones(change.rows, bool)
        for first, last in zip(firsts, lasts, strict=True):
            keeps[first:last] = False
        change = change.take(keeps)
    types = {column.name: column.type.arrow for column in layout.schema.columns}
    changed = pa.table(layout.rows(change), schema=pa.schema(types))
    return Resolved(ChangeBatch(changed, change.payload[0]), bad.rows(inserts))

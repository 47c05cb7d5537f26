"""Tables under random batches against a dictionary (with a key) and a Counter (without)."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.relation import runfile
from headrace.relation.change import ChangeBatch, change_batch
from headrace.relation.layout import TableLayout
from headrace.relation.run import Run, merge
from headrace.relation.schema import Column, TableSchema
from headrace.relation.storedrun import StoredRun
from headrace.relation.table import ABSENT, DIFFERENT, DUPLICATE, TWICE, TableChange, apply_changes
from headrace.relation.types import SqlType
from headrace.rings import COUNT

COLUMNS = [
    Column("a", SqlType("string")),
    Column("b", SqlType("int")),
    Column("x", SqlType("double")),
    Column("y", SqlType("decimal", 30, 1)),
]
KEYED = TableLayout(TableSchema.of("t", COLUMNS, key=("a", "b")), seed=11)
BAG = TableLayout(TableSchema.of("t", COLUMNS), seed=11)

ROW = st.tuples(
    st.sampled_from(["", "a", "\0"]),
    st.integers(0, 2),
    st.sampled_from([0.0, math.inf, None]),
    st.sampled_from([None, 7]),
)
BATCH = st.lists(st.tuples(ROW, st.sampled_from([1, 1, 1, -1, -1, 2, -2])), max_size=12)


def batch_of(layout: TableLayout, entries) -> ChangeBatch:
    columns = list(zip(*(row for row, _ in entries), strict=True)) or [()] * 4
    arrays = [
        pa.array(list(c), t) for c, t in zip(columns, (pa.string(), pa.int64(), pa.float64(), pa.int64()), strict=True)
    ]
    table = pa.table(
        [*arrays, pa.array([diff for _, diff in entries], pa.int64())], names=["a", "b", "x", "y", "__diff"]
    )
    return change_batch(layout.schema, table)


def apply(layout: TableLayout, runs, entries) -> TableChange:
    batch = batch_of(layout, entries)
    return apply_changes(layout, runs, batch, layout.words(batch.rows))


def rows_of(layout: TableLayout, runs) -> Counter:
    merged = merge(COUNT, runs) if runs else None
    if merged is None:
        return Counter()
    columns = layout.rows(merged)
    rows = zip(*(columns[name].to_pylist() for name in "abxy"), strict=True)
    return Counter(
        dict(
            zip(
                ((a, b, x, None if y is None else int(y)) for a, b, x, y in rows),
                merged.payload[0].tolist(),
                strict=True,
            )
        )
    )


def net(entries) -> dict:
    total: dict = defaultdict(int)
    for row, diff in entries:
        total[row] += diff
    return {row: diff for row, diff in total.items() if diff}


def judged_keyed(table: dict, changes: dict) -> dict:
    """The rules of a keyed table, row by row: deletions first, then insertions."""
    reasons, left = {}, dict(table)
    for row, diff in changes.items():
        if diff < 0:
            live = table.get(row[:2])
            if live == row and diff == -1:
                del left[row[:2]]
            else:
                reasons[row] = DIFFERENT if live not in (None, row) else ABSENT
    inserted = Counter()
    for row, diff in changes.items():
        inserted[row[:2]] += max(diff, 0)
    for row, diff in changes.items():
        if diff > 0 and inserted[row[:2]] > 1:
            reasons[row] = TWICE
        elif diff > 0 and row[:2] in left:
            reasons[row] = DUPLICATE
    return reasons


def judged_bag(table: Counter, changes: dict) -> dict:
    return {row: ABSENT for row, diff in changes.items() if table[row] + diff < 0}


def reported(change: TableChange) -> list:
    if change.bad is None:
        return []
    rows = zip(*(change.bad.rows.column(name).to_pylist() for name in "abxy"), strict=True)
    rows = [(a, b, x, None if y is None else int(y)) for a, b, x, y in rows]
    return list(zip(rows, change.bad.diff.tolist(), change.bad.reasons, strict=True))


def follow(layout: TableLayout, batches, compact, stored: bool) -> None:
    runs, table = [], Counter()
    for entries, merging in zip(batches, compact, strict=False):
        changes = net(entries)
        current = {row[:2]: row for row in table} if layout is KEYED else table
        reasons = judged_keyed(current, changes) if layout is KEYED else judged_bag(table, changes)
        change = apply(layout, runs, entries)
        assert reported(change) == [(row, diff, reasons[row]) for row, diff in entries if row in reasons]
        good = {row: diff for row, diff in changes.items() if row not in reasons}
        assert rows_of(layout, [change.run]) == good
        table.update(good)
        table = +table
        if change.run.rows:
            runs.append(on_disk(change.run) if stored else change.run)
        if merging and len(runs) > 1:
            runs = [*runs[:-2], merge(COUNT, runs[-2:])]
        assert rows_of(layout, runs) == table


def on_disk(run: Run) -> StoredRun:
    return runfile.decode(np.frombuffer(bytes(runfile.encode(run)), np.uint8), "in memory")


@settings(max_examples=60, deadline=None)
@given(st.lists(BATCH, max_size=6), st.lists(st.booleans(), min_size=6, max_size=6), st.booleans())
def test_a_keyed_table_takes_good_rows_and_names_bad_ones(batches, compact, stored):
    follow(KEYED, batches, compact, stored)


@settings(max_examples=60, deadline=None)
@given(st.lists(BATCH, max_size=6), st.lists(st.booleans(), min_size=6, max_size=6), st.booleans())
def test_a_bag_counts_its_rows_and_never_goes_below_none(batches, compact, stored):
    follow(BAG, batches, compact, stored)


ONE, OTHER = ("a", 1, 0.0, None), ("a", 1, math.inf, None)


@pytest.mark.parametrize(
    ("before", "entries", "reasons"),
    [
        ([], [(ONE, 1)], []),
        ([], [(ONE, 2)], [TWICE]),
        ([], [(ONE, 1), (OTHER, 1)], [TWICE, TWICE]),
        ([], [(ONE, -1)], [ABSENT]),
        ([], [(ONE, 1), (ONE, -1)], []),
        ([], [(ONE, -1), (ONE, 1)], []),
        ([ONE], [(ONE, 1)], [DUPLICATE]),
        ([ONE], [(OTHER, 1)], [DUPLICATE]),
        ([ONE], [(ONE, -1), (OTHER, 1)], []),
        ([ONE], [(OTHER, 1), (ONE, -1)], []),
        ([ONE], [(OTHER, -1)], [DIFFERENT]),
        ([ONE], [(ONE, -2)], [ABSENT]),
        ([ONE], [(OTHER, -1), (ONE, 1)], [DIFFERENT, DUPLICATE]),
        ([ONE], [(ONE, 1), (ONE, -1)], []),
    ],
)
def test_what_a_key_allows(before, entries, reasons):
    runs = [apply(KEYED, [], [(row, 1) for row in before]).run]
    assert [reason for *_, reason in reported(apply(KEYED, runs, entries))] == reasons


def test_a_row_is_found_again_whichever_zero_or_nan_it_was_given_with():
    runs = [apply(KEYED, [], [(("a", 1, -0.0, 7), 1), (("a", 2, math.nan, 7), 1)]).run]
    gone = apply(KEYED, runs, [(("a", 1, 0.0, 7), -1), (("a", 2, -math.nan, 7), -1)])
    assert gone.bad is None
    assert merge(COUNT, [*runs, gone.run]).rows == 0


def test_an_empty_batch_changes_nothing():
    for layout in (KEYED, BAG):
        change = apply(layout, [], [])
        assert (change.run.rows, change.bad) == (0, None)


def test_applying_changes_leaves_its_arguments_alone():
    runs = [apply(KEYED, [], [(ONE, 1)]).run]
    words, payload = runs[0].words.copy(), runs[0].payload[0].copy()
    batch = batch_of(KEYED, [(ONE, -1), (OTHER, 1), (OTHER, 1)])
    rows, diff, batch_words = batch.rows, batch.diff.copy(), KEYED.words(batch.rows)
    before = batch_words.copy()
    assert apply_changes(KEYED, runs, batch, batch_words).bad is not None
    assert (runs[0].words == words).all()
    assert (runs[0].payload[0] == payload).all()
    assert (batch_words == before).all()
    assert (batch.diff == diff).all()
    assert batch.rows is rows


def test_the_lead_word_is_the_first_of_all_words():
    batch = batch_of(KEYED, [(ONE, 1), (("", 0, None, None), 1)])
    for layout in (KEYED, BAG):
        assert (layout.lead(batch.rows) == layout.words(batch.rows)[0]).all()


@pytest.mark.parametrize("swapped", [("x", "y"), ("y", "x")])
def test_a_null_in_one_column_is_not_a_null_in_another(swapped):
    layout = TableLayout(TableSchema.of("t", [Column("x", SqlType("int")), Column("y", SqlType("int"))]), seed=1)
    rows = pa.table({"x": pa.array([None, 5, 0, None], pa.int32()), "y": pa.array([5, None, None, 0], pa.int32())})
    assert (
        len({tuple(words) for words in layout.words(rows.select(swapped).rename_columns(["x", "y"])).T.tolist()}) == 4
    )


def test_a_table_whose_key_is_all_its_columns_holds_a_set():
    layout = TableLayout(TableSchema.of("s", [Column("id", SqlType("decimal", 38, 0))], key="id"), seed=3)
    batch = change_batch(layout.schema, pa.table({"id": [1, 2, 2], "__diff": [1, 1, -1]}))
    change = apply_changes(layout, [], batch, layout.words(batch.rows))
    assert change.bad is None
    assert [int(x) for x in layout.rows(change.run)["id"].to_pylist()] == [1]

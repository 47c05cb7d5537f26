"""Orders as words: keys sort as values do, are read back as they were, and what ties is decided by the texts."""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.relation.coded import Coded, coded, values
from headrace.relation.kernels import sort_order
from headrace.relation.ordered import Ordering, Sorted, rows_in
from headrace.relation.run import Run, consolidate, take_values
from headrace.relation.types import SqlType
from headrace.rings import COUNT

SEED = 7
LONG = "exactly 15 byte"
TEXTS = [
    "",
    "\0",
    "a",
    "a\0",
    "é",
    "\U0001f600",
    *(LONG[:14] + tail for tail in ("", "e", "e\0", "ea", "eb", "f", "eaa")),
]
VALUES = {
    "tinyint": st.sampled_from([-128, -1, 0, 1, 127]),
    "int": st.integers(-2, 2),
    "bigint": st.sampled_from([-(2**63), -1, 0, 2**63 - 1]),
    "float": st.sampled_from([0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf]),
    "double": st.sampled_from([0.0, -0.0, 1e-300, -1.5, math.nan, math.inf, -math.inf]),
    "decimal(9,2)": st.sampled_from([Decimal("0.01"), Decimal("-0.01"), Decimal(0)]),
    "decimal(38,2)": st.sampled_from([Decimal("0.01"), Decimal("-0.01"), Decimal(10**30), Decimal(-(10**30))]),
    "date": st.sampled_from([date(1969, 12, 31), date(1970, 1, 1), date(2026, 2, 3)]),
    "timestamp_ntz": st.sampled_from([datetime(1969, 12, 31, 23, 59), datetime(1970, 1, 1), datetime(2026, 2, 3)]),
    "boolean": st.booleans(),
    "string": st.sampled_from(TEXTS),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[Ordering, list[tuple[object, ...]]]:
    """An order of some columns, and rows."""
    kinds = draw(st.lists(st.sampled_from([*VALUES, "string", "string"]), min_size=1, max_size=4))
    columns = []
    for i, kind in enumerate(kinds):
        columns.append(
            Sorted(f"c{i}", SqlType.parse(kind), draw(st.booleans()), draw(st.booleans()), draw(st.booleans()))
        )
    row = st.tuples(*(VALUES[k] | st.none() if c.nullable else VALUES[k] for k, c in zip(kinds, columns, strict=True)))
    return Ordering(tuple(columns)), draw(st.lists(row, max_size=30))


def rank(ordering: Ordering, row: tuple[object, ...]) -> tuple[object, ...]:
    """What Python sorts rows by."""
    return tuple(_Ranked(column, value) for column, value in zip(ordering.columns, row, strict=True))


class _Ranked:
    def __init__(self, column: Sorted, value: object) -> None:
        self.is_null, self.column = value is None, column
        if isinstance(value, float):
            value = (math.isnan(value), 0.0 if math.isnan(value) else value)
        self.value = value.encode() if isinstance(value, str) else value

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, _Ranked)
        return (self.is_null, self.value) == (other.is_null, other.value)

    def __lt__(self, other: _Ranked) -> bool:
        if self.is_null or other.is_null:
            return self.is_null != other.is_null and self.is_null == self.column.nulls_first
        return bool(other.value < self.value if self.column.descending else self.value < other.value)  # type: ignore[operator]


def as_columns(ordering: Ordering, rows: list[tuple[object, ...]]) -> dict[str, Coded]:
    arrays = [pa.array([row[i] for row in rows], c.type.arrow) for i, c in enumerate(ordering.columns)]
    return {c.name: coded(array, c.type, SEED) for c, array in zip(ordering.columns, arrays, strict=True)}


def run_of(ordering: Ordering, rows: list[tuple[object, ...]], counts: list[int] | None = None) -> Run:
    columns = as_columns(ordering, rows)
    texts = {name: column.text for name, column in columns.items() if column.text is not None}
    payload = np.array([1] * len(rows) if counts is None else counts, np.int64)
    return consolidate(COUNT, ordering.words(columns, len(rows)), (payload,), texts)


def rows_of(ordering: Ordering, run: Run) -> list[tuple[object, ...]]:
    columns = [values(ordering.column(column, run)).to_pylist() for column in ordering.columns]
    return list(zip(*columns, strict=True))


def seen(ordering: Ordering, rows: list[tuple[object, ...]]) -> list[object]:
    """Rows so that equal ones are equal: NaN is NaN, and zeros have no sign."""
    return [tuple((one.is_null, one.value) for one in rank(ordering, row)) for row in rows]  # type: ignore[attr-defined]


@settings(max_examples=100, deadline=None)
@given(tables())
def test_rows_in_the_order_of_their_words_and_texts_are_in_the_order_of_their_values(table):
    ordering, rows = table
    columns = as_columns(ordering, rows)
    words = ordering.words(columns, len(rows))
    texts = {name: column.text for name, column in columns.items() if column.text is not None}
    at = sort_order(words) if rows else np.arange(0)
    sorted_by_words = at
    entries = Run(words[:, at], (np.ones(len(rows), np.int64),), take_values(texts, at))
    expected = sorted(rows, key=lambda row: rank(ordering, row))
    if rows:
        at = at[ordering.exact(entries)]
    assert seen(ordering, [rows[i] for i in at]) == seen(ordering, expected)
    assert words.shape[0] == ordering.width
    assert seen(ordering, rows_of(ordering, entries)) == seen(ordering, [rows[i] for i in sorted_by_words])


@settings(max_examples=60, deadline=None)
@given(tables())
def test_only_texts_that_are_longer_than_their_words_tie(table):
    ordering, rows = table
    run = run_of(ordering, rows)
    exact = [
        i
        for i, row in enumerate(rows_of(ordering, run))
        if not any(isinstance(v, str) and len(v.encode()) > 15 for v in row)
    ]
    decided = ordering.decided(run.words)
    assert (decided[exact] == ordering.width).all()
    for at in range(run.rows):
        low, high = ordering.tied(run, at)
        beginnings = run.words[: decided[at]]
        same = (beginnings == beginnings[:, at : at + 1]).all(axis=0)
        assert same[low:high].all()
        assert same.sum() == high - low


@settings(max_examples=100, deadline=None)
@given(tables(), st.data())
def test_heads_edges_and_last_entries_are_those_of_the_sorted_rows(table, data):
    ordering, rows = table
    counts = data.draw(st.lists(st.integers(-1, 3), min_size=len(rows), max_size=len(rows)))
    run = run_of(ordering, rows, counts)
    order = sorted(
        zip(rows_of(ordering, run), run.payload[0].tolist(), strict=True), key=lambda e: rank(ordering, e[0])
    )
    wanted = data.draw(st.integers(1, 12))
    head = ordering.head(run, wanted)
    got = seen(ordering, rows_of(ordering, run.take(head.positions)))
    reached, expected = 0, []
    for row, count in order:
        if reached >= wanted:
            break
        expected.append(row)
        reached += max(count, 0)
    if reached < wanted:
        assert (head.last, head.excess) == (None, 0)
    else:
        assert head.excess == reached - wanted
        assert head.last is not None
        assert got[head.last] == seen(ordering, expected[-1:])[0]
    assert sorted(map(repr, got)) == sorted(map(repr, seen(ordering, expected)))
    assert rows_in(run) == sum(max(count, 0) for _, count in order)
    if run.rows:
        last = ordering.last(run)
        assert seen(ordering, rows_of(ordering, last)) == seen(ordering, [order[-1][0]])
        edge = run_of(ordering, [data.draw(st.sampled_from(rows))])
        (edge_row,) = rows_of(ordering, edge)
        limit = rank(ordering, edge_row)
        before = [row for row, _ in order if not limit < rank(ordering, row)]
        near = ordering.up_to(run, edge)
        assert sorted(map(repr, seen(ordering, rows_of(ordering, near)))) == sorted(map(repr, seen(ordering, before)))

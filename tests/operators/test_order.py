"""ORDER BY and LIMIT over an answer, against Python's own sort by the rules of Spark."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.operators.order import arranged, limited_changes, total_order
from headrace.plan.expression import column
from headrace.plan.view import Order, Output, Shape, TableRows, ViewPlan
from headrace.relation.schema import DIFF
from headrace.relation.types import SqlType

TYPES = {"i": "int", "s": "string", "x": "double", "d": "decimal(38,2)", "o": "boolean"}
VALUES = {
    "i": st.integers(-2, 2),
    "s": st.sampled_from(["", "a", "a\0", "ab", "b", "é", "\U0001f600", "a rather long one"]),
    "x": st.sampled_from([0.0, -0.0, 1.5, -1.5, math.nan, math.inf, -math.inf]),
    "d": st.sampled_from([Decimal("0.01"), Decimal("-0.01"), Decimal(10**30), Decimal(-(10**30))]),
    "o": st.booleans(),
}
ROW = st.tuples(*(st.none() | values for values in VALUES.values()))
ORDERS = st.lists(st.sampled_from(sorted(TYPES)), unique=True, max_size=3).flatmap(
    lambda names: st.tuples(*(st.builds(Order, st.just(n), st.booleans(), st.booleans()) for n in names))
)


def plan_of(order: tuple[Order, ...], limit: int | None) -> ViewPlan:
    outputs = tuple(Output(name, column(f"k{i}", SqlType.parse(t), True)) for i, (name, t) in enumerate(TYPES.items()))
    return ViewPlan(TableRows("t"), Shape.ROWS, (), (), (), None, outputs, order, limit)


def table_of(rows: list[tuple[object, ...]], diff: list[int] | None = None) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(TYPES)
    arrays = [pa.array(list(c), SqlType.parse(t).arrow) for c, t in zip(columns, TYPES.values(), strict=True)]
    table = pa.table(dict(zip(TYPES, arrays, strict=True)))
    return table if diff is None else table.append_column(DIFF, pa.array(diff, pa.int64()))


def rows_of(table: pa.Table) -> list[str]:
    return [repr(tuple(row.values())) for row in table.to_pylist()]


def rank(value: object) -> object:
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    return value.encode() if isinstance(value, str) else value


def by_definition(plan: ViewPlan, rows: list[tuple[object, ...]], items: tuple[Order, ...]) -> list[tuple[object, ...]]:
    """Stable sorts from the last column to the first."""
    names = list(TYPES)
    rows = sorted(rows, key=lambda row: math.copysign(1, row[2]) if isinstance(row[2], float) else 0)
    for item in reversed(items):
        at = names.index(item.column)
        present = [row for row in rows if row[at] is not None]
        missing = [row for row in rows if row[at] is None]
        present.sort(key=lambda row: rank(row[at]))
        if item.descending:  # reversed, and yet stable
            present = [row for _, group in reversed(runs(present, at)) for row in group]
        rows = missing + present if item.nulls_first else present + missing
    return rows


def runs(rows: list[tuple[object, ...]], at: int) -> list[tuple[object, list[tuple[object, ...]]]]:
    out: list[tuple[object, list[tuple[object, ...]]]] = []
    for row in rows:
        if out and out[-1][0] == rank(row[at]):
            out[-1][1].append(row)
        else:
            out.append((rank(row[at]), [row]))
    return out


@settings(max_examples=150, deadline=None)
@given(st.lists(ROW, max_size=25), ORDERS, st.integers(0, 12))
def test_a_limit_keeps_the_first_rows_of_the_total_order(rows, order, limit):
    plan = plan_of(order, limit)
    expected = by_definition(plan, rows, total_order(plan))[:limit]
    assert rows_of(arranged(plan, table_of(rows))) == rows_of(table_of(expected))


@settings(max_examples=60, deadline=None)
@given(st.lists(ROW, max_size=25), ORDERS)
def test_without_a_limit_only_the_named_columns_matter(rows, order):
    plan = plan_of(order, None)
    got = arranged(plan, table_of(rows))
    names = [item.column for item in order]
    expected = table_of(by_definition(plan, rows, order))
    zeros = lambda table: [text.replace("-0.0", "0.0") for text in rows_of(table.select(names))]  # noqa: E731
    assert zeros(got) == zeros(expected)
    assert Counter(rows_of(got)) == Counter(rows_of(expected))


@settings(max_examples=150, deadline=None)
@given(st.lists(ROW, max_size=20), st.lists(ROW, max_size=8), st.data(), ORDERS, st.integers(0, 8))
def test_changes_are_the_difference_of_the_first_rows(before, came, data, order, limit):
    plan = plan_of(order, limit)
    left = data.draw(st.lists(st.sampled_from(range(len(before))), unique=True)) if before else []
    kept = [row for i, row in enumerate(before) if i not in left]
    after = kept + came
    moved = Counter(map(Row, came))
    moved.subtract(Row(before[i]) for i in left)
    changes = {row: n for row, n in moved.items() if n}
    table = table_of([row.values for row in changes], list(changes.values()))
    got = Counter()
    for row in limited_changes(plan, table_of(after), table).to_pylist():
        n = row.pop(DIFF)
        assert n != 0
        got[repr(tuple(row.values()))] += n
    expected = Counter(rows_of(arranged(plan, table_of(after))))
    expected.subtract(rows_of(arranged(plan, table_of(before))))
    assert got == {row: n for row, n in expected.items() if n}


class Row:
    """A row that equals those that look the same: NaN equals NaN, and 0.0 is not -0.0."""

    def __init__(self, values: tuple[object, ...]) -> None:
        self.values = values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Row) and repr(self.values) == repr(other.values)

    def __hash__(self) -> int:
        return hash(repr(self.values))


def test_fewer_rows_than_the_limit_and_none_at_all():
    plan = plan_of((Order("i", True, False),), 5)
    rows = [(1, "a", 0.5, None, True), (2, "b", None, None, False)]
    assert arranged(plan, table_of(rows)).column("i").to_pylist() == [2, 1]
    assert arranged(plan, table_of([])).num_rows == 0
    assert arranged(plan_of((), 0), table_of(rows)).num_rows == 0
    assert limited_changes(plan, table_of(rows), table_of([], [])).num_rows == 0

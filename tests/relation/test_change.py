"""Change batches: what is converted, what is refused, and what the refusal says."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from headrace.errors import BadRowsError
from headrace.relation.change import BadRows, change_batch, combine_bad_rows, set_apart
from headrace.relation.schema import Column, TableSchema
from headrace.relation.types import SqlType


def schema_of(kind: str, *, key: str | None = None) -> TableSchema:
    return TableSchema.of("orders", [Column("x", SqlType.parse(kind))], key=key)


def converted(kind: str, values: pa.Array | pa.ChunkedArray) -> list[object]:
    batch = change_batch(schema_of(kind), pa.table({"x": values}))
    assert batch.rows.schema.field("x").type == SqlType.parse(kind).arrow
    return batch.rows.column("x").to_pylist()


def refusal(kind: str, values: pa.Array) -> str:
    with pytest.raises(BadRowsError) as caught:
        change_batch(schema_of(kind), pa.table({"x": values}))
    message = str(caught.value)
    assert "table 'orders', column 'x'" in message
    return message


NOON = datetime(2020, 2, 29, 12)
MIDNIGHT = datetime(2020, 2, 29)


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        ("bigint", pa.array([1, None], pa.int8()), [1, None]),
        ("tinyint", pa.array([-128, 127], pa.int64()), [-128, 127]),
        ("bigint", pa.array([2**63 - 1], pa.uint64()), [2**63 - 1]),
        ("int", pa.array([1.0, None, -0.0]), [1, None, 0]),
        ("bigint", pa.array([2.0**60]), [2**60]),
        ("double", pa.array([2**53, -(2**53)]), [2.0**53, -(2.0**53)]),
        ("double", pa.array([0.5], pa.float32()), [0.5]),
        ("float", pa.array([0.5, None, math.inf]), [0.5, None, math.inf]),
        ("float", pa.array([2**24]), [2.0**24]),
        ("decimal(4,2)", pa.array([99, -99, None]), [Decimal("99.00"), Decimal("-99.00"), None]),
        ("decimal(38,30)", pa.array([1, 2**26]), [Decimal(1), Decimal(2**26)]),
        ("decimal(38,0)", pa.array([2**64 - 1], pa.uint64()), [Decimal(2**64 - 1)]),
        ("decimal(38,18)", pa.array([2**63 - 1, -(2**63)]), [Decimal(2**63 - 1), Decimal(-(2**63))]),
        ("decimal(5,2)", pa.array([Decimal("1.5")]), [Decimal("1.50")]),
        ("decimal(5,1)", pa.array([Decimal("1.500")]), [Decimal("1.5")]),
        ("decimal(3,0)", pa.array([Decimal(123)], pa.decimal256(76, 0)), [Decimal(123)]),
        ("string", pa.array(["a", None, ""]), ["a", None, ""]),
        ("string", pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
        ("string", pa.array(["a", None], pa.string_view()), ["a", None]),
        ("date", pa.array([date(2020, 2, 29)], pa.date64()), [date(2020, 2, 29)]),
        ("timestamp", pa.array([NOON], pa.timestamp("ms")), [NOON.replace(tzinfo=UTC)]),
        ("timestamp", pa.array([NOON], pa.timestamp("us", "Asia/Tokyo")), [NOON.replace(tzinfo=UTC)]),
        ("timestamp_ntz", pa.array([NOON], pa.timestamp("ns")), [NOON]),
        ("boolean", pa.array([True, None]), [True, None]),
        ("bigint", pa.array([Decimal("7.00"), None]), [7, None]),
        ("date", pa.array([MIDNIGHT, None]), [MIDNIGHT.date(), None]),
        ("date", pa.array([MIDNIGHT], pa.timestamp("ns")), [MIDNIGHT.date()]),
        # A midnight in Tokyo is 15 o'clock on the day before in UTC, and its date is that of Tokyo.
        ("date", pa.array([datetime(2020, 2, 28, 15)], pa.timestamp("us", "Asia/Tokyo")), [MIDNIGHT.date()]),
        *[(kind, pa.nulls(1), [None]) for kind in ("int", "decimal(5,2)", "string", "date", "timestamp", "boolean")],
    ],
)  # fmt: skip
def test_what_can_be_converted_without_changing_a_value_is(kind, given, expected):
    assert converted(kind, given) == expected


@pytest.mark.parametrize(
    ("kind", "given", "samples"),
    [
        ("tinyint", pa.array([1, 128, -129]), "128, -129"),
        ("bigint", pa.array([1, 2**63], pa.uint64()), str(2**63)),
        ("bigint", pa.array([1.0, 1.5, math.nan, math.inf]), "1.5, nan, inf"),
        ("bigint", pa.array([2.0**63]), "9.223372036854776e+18"),
        ("double", pa.array([1, 2**53 + 1]), str(2**53 + 1)),
        ("float", pa.array([0.5, 0.1, math.nan]), "0.1"),
        ("float", pa.array([1e300, math.inf]), "1e+300"),
        ("float", pa.array([2**24 + 1]), str(2**24 + 1)),
        ("decimal(4,2)", pa.array([99, 100]), "Decimal('100')"),
        ("decimal(38,30)", pa.array([1, 10**9]), "Decimal('1000000000')"),
        ("decimal(4,2)", pa.array([Decimal("1.25"), Decimal("1.255")]), "Decimal('1.255')"),
        ("decimal(4,2)", pa.array([Decimal("100.0"), Decimal("1.0")]), "Decimal('100.0')"),
        ("timestamp", pa.array([1, 1000], pa.timestamp("ns")), "1970"),
        ("date", pa.array([MIDNIGHT, NOON]), repr(NOON)),
        ("date", pa.array([NOON], pa.timestamp("us", "Asia/Tokyo")), "datetime.datetime(2020, 2, 29, 21, 0"),
        ("bigint", pa.array([Decimal("7.50")]), "Decimal('7.50')"),
        ("timestamp", pa.array([2**62, 0], pa.timestamp("s")), str(2**62)),
    ],
)
def test_a_value_that_would_change_is_refused_and_shown(kind, given, samples):
    message = refusal(kind, given)
    assert f"values do not fit {SqlType.parse(kind)}".lower() in message.lower()
    assert samples in message
    assert f"(from {given.type} to " in message
    assert "-> round or widen them first" in message


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("bigint", pa.array(["1"])),
        ("bigint", pa.array([True])),
        ("double", pa.array([Decimal(1)])),
        ("decimal(5,2)", pa.array([1.5])),
        ("string", pa.array([1])),
        ("string", pa.array([b"a"])),
        ("date", pa.array(["2020-01-01"])),
        ("timestamp", pa.array([date(2020, 1, 1)])),
        ("timestamp_ntz", pa.array([NOON], pa.timestamp("us", "UTC"))),
        ("boolean", pa.array([1])),
    ],
)
def test_a_type_that_means_something_else_is_refused(kind, given):
    message = refusal(kind, given)
    assert f"{given.type} given, {kind.upper()} wanted ({given[0].as_py()!r}, say)" in message
    assert "-> cast the column yourself" in message


def test_up_to_five_samples_are_shown_once_each():
    message = refusal("tinyint", pa.array([1000 + i % 8 for i in range(50)]))
    assert "1000, 1001, 1002, 1003, 1004 (from int64 to TINYINT)\n" in message


def test_chunks_and_slices_are_one_column():
    chunks = pa.chunked_array([pa.array([1, 2]), pa.array([], pa.int64()), pa.array([3])])
    assert converted("int", chunks) == [1, 2, 3]
    assert converted("int", pa.array([1, 2, 3, 4]).slice(1, 2)) == [2, 3]
    assert converted("string", pa.array(["a", "b", None]).slice(1)) == ["b", None]
    assert converted("bigint", pa.chunked_array([], pa.int64())) == []


def test_pandas_integers_with_nulls_come_as_doubles_and_are_integers_again():
    frame = pd.DataFrame({"x": [1, None, 3]})
    assert frame["x"].dtype == np.float64
    assert change_batch(schema_of("bigint"), frame).rows.column("x").to_pylist() == [1, None, 3]
    nullable = pd.DataFrame({"x": pd.array([1, None], dtype="Int64")})
    assert change_batch(schema_of("int"), nullable).rows.column("x").to_pylist() == [1, None]


@pytest.mark.parametrize(
    ("kind", "series", "expected"),
    [
        ("string", pd.Series(["a", None]), ["a", None]),
        ("string", pd.Series(["a", "b", "a"], dtype="category"), ["a", "b", "a"]),
        ("timestamp_ntz", pd.Series([pd.Timestamp("2020-02-29 12:00")]), [NOON]),
        ("timestamp", pd.Series([pd.Timestamp("2020-02-29 12:00", tz="UTC")]), [NOON.replace(tzinfo=UTC)]),
        ("date", pd.Series([date(2020, 2, 29)]), [date(2020, 2, 29)]),
        ("decimal(5,2)", pd.Series([Decimal("1.25"), None]), [Decimal("1.25"), None]),
        ("boolean", pd.Series([True, None], dtype="boolean"), [True, None]),
    ],
)
def test_pandas_columns_take_the_types_of_the_table(kind, series, expected):
    frame = pd.DataFrame({"x": series}).rename(index=lambda i: i + 5)
    batch = change_batch(schema_of(kind), frame)
    assert batch.rows.column("x").to_pylist() == expected


@pytest.mark.parametrize("values", [[1, "a"], [2**70, 1]])
def test_a_pandas_column_that_no_type_holds_is_refused(values):
    with pytest.raises(BadRowsError, match=r"'orders'.*no one type can hold.*\n  -> give every column one type"):
        change_batch(schema_of("bigint"), pd.DataFrame({"x": values}))


def test_a_record_batch_is_a_table():
    batch = change_batch(schema_of("int"), pa.record_batch({"x": [1, 2]}))
    assert (len(batch), batch.diff.tolist()) == (2, [1, 1])


def test_anything_else_is_refused_with_a_way_out():
    with pytest.raises(BadRowsError, match=r"changes are a list with a int, 1\n  -> pass a Spark DataFrame, an Arrow"):
        change_batch(schema_of("int"), [1, 2])
    with pytest.raises(BadRowsError, match=r"changes are a set\n  -> pass a Spark DataFrame, an Arrow"):
        change_batch(schema_of("int"), {1, 2})


def test_lists_of_dicts_and_dicts_of_lists_are_tables():
    rows = [{"Y": None, "x": 1}, {"x": 2.0, "Y": 5, "__DIFF": -1.0}]
    with pytest.raises(BadRowsError, match=r"row 0 lacks '__DIFF': \{'Y': None, 'x': 1\}\n  -> give every row all"):
        change_batch(TWO, rows)
    batch = change_batch(TWO, [{**rows[0], "__DIFF": 1}, rows[1]])
    assert (batch.rows.to_pylist(), batch.diff.tolist()) == ([{"x": 1, "y": None}, {"x": 2, "y": 5}], [1, -1])
    batch = change_batch(TWO, {"x": [1, 2], "y": np.array([3, 4], np.int8), "__diff": (1, 1)})
    assert batch.rows.to_pylist() == [{"x": 1, "y": 3}, {"x": 2, "y": 4}]
    with pytest.raises(BadRowsError, match=r"not all columns are of one length: 'x' has 1, 'y' has 2"):
        change_batch(TWO, {"x": [1], "y": [1, 2]})
    with pytest.raises(BadRowsError, match=r"the list of dicts has a column that no one type can hold: 'x'"):
        change_batch(TWO, [{"x": 1, "y": 1}, {"x": "one", "y": 1}])
    with pytest.raises(BadRowsError, match=r"column 'x' is 7\n  -> give each column as a list"):
        change_batch(TWO, {"x": 7, "y": [1]})


@pytest.mark.parametrize(
    "empty",
    [
        pd.DataFrame({"x": [], "y": pd.Series([], dtype=object), "__diff": pd.Series([], dtype=object)}),
        pd.DataFrame({"x": pd.Series([], dtype="datetime64[ns]"), "y": pd.Series([], dtype=str)}),
        {"x": [], "y": []},
        pa.table({"x": pa.array([], pa.string()), "y": pa.nulls(0)}),
    ],
)
def test_a_frame_without_rows_needs_no_types(empty):
    batch = change_batch(TWO, empty)
    assert (len(batch), batch.rows.schema.types) == (0, [pa.int32(), pa.int32()])


def test_names_in_another_case_are_found_unless_the_very_name_is_there():
    assert change_batch(TWO, pa.table({"Y": [2], "X": [1]})).rows.to_pylist() == [{"x": 1, "y": 2}]
    with pytest.raises(BadRowsError, match=r"given twice: 'X'"):
        change_batch(TWO, pa.table({"y": [2], "X": [1], "x": [1]}))


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.int64()])
def test_diff_may_be_any_integer_and_zeros_are_nothing(kind):
    changes = pa.table({"x": [1, 2, 3, 4], "__diff": pa.array([2, 0, -3, 1], kind)})
    batch = change_batch(schema_of("int"), changes)
    assert batch.diff.dtype == np.int64
    assert batch.diff.tolist() == [2, -3, 1]
    assert batch.rows.column("x").to_pylist() == [1, 3, 4]


def test_diff_may_be_whole_numbers_of_other_types():
    for diff in ([1.0, -2.0], [Decimal("1.0"), Decimal("-2.0")]):
        batch = change_batch(schema_of("int"), pa.table({"x": [1, 2], "__diff": diff}))
        assert batch.diff.tolist() == [1, -2]
    with pytest.raises(
        BadRowsError, match=r"column '__diff': values do not fit BIGINT: 1\.5 \(from double to BIGINT\)"
    ):
        change_batch(schema_of("int"), pa.table({"x": [1], "__diff": [1.5]}))


@pytest.mark.parametrize(
    "diff", [pa.array([None], pa.float64()), pa.array(["+1"]), pa.array([None], pa.int64()), pa.array([True])]
)
def test_a_diff_that_is_not_a_whole_number_is_refused(diff):
    with pytest.raises(BadRowsError, match=r"'orders': column '__diff' is .*\n  -> give whole numbers"):
        change_batch(schema_of("int"), pa.table({"x": [1], "__diff": diff}))


def test_a_diff_beyond_64_bits_is_refused():
    changes = pa.table({"x": [1], "__diff": pa.array([2**64 - 1], pa.uint64())})
    with pytest.raises(BadRowsError, match=r"'orders', column '__diff': .*18446744073709551615"):
        change_batch(schema_of("int"), changes)


TWO = TableSchema.of("orders", [Column("x", SqlType("int")), Column("y", SqlType("int"))])


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (["x"], "missing: 'y'"),
        ([], "missing: 'x', 'y'"),
        (["x", "y", "z"], "not in the table: 'z'"),
        (["x", "X"], "missing: 'y'; given twice: 'X'"),
        (["x", "y", "y"], "given twice: 'y'"),
        (["x", "y", "__diff", "__diff"], "given twice: '__diff'"),
        (["x", "y", "__reason"], "not in the table: '__reason'"),
    ],
)
@pytest.mark.parametrize("pandas", [False, True])
def test_columns_that_do_not_fit_are_named(names, problem, pandas):
    data = pd.DataFrame([[1] * len(names)], columns=names) if pandas else pa.table([[1]] * len(names), names=names)
    with pytest.raises(BadRowsError) as caught:
        change_batch(TWO, data)
    assert f"table 'orders': the columns of the change batch do not fit; {problem}" in str(caught.value)
    assert caught.value.way_out == "give exactly x, y and, if you like, __diff"


def test_columns_come_in_the_order_of_the_table():
    assert change_batch(TWO, pa.table({"__diff": [1], "y": [2], "x": [1]})).rows.to_pylist() == [{"x": 1, "y": 2}]


def test_nulls_in_columns_that_may_not_be_null_are_bad_rows():
    columns = [Column("id", SqlType("int")), Column("n", SqlType("int"), nullable=False), Column("o", SqlType("int"))]
    schema = TableSchema.of("orders", columns, key="id")
    batch = change_batch(
        schema, pa.table({"id": [None, 1, 2], "n": [None, None, 3], "o": pa.nulls(3), "__diff": [1, -1, 1]})
    )
    good, bad = set_apart(schema, batch)
    assert bad is not None
    assert len(good) + len(bad.reasons) == len(batch)
    assert bad.reasons == ["NULL in key column 'id'", "NULL in NOT NULL column 'n'"]
    assert bad.diff.tolist() == [1, -1]
    assert set_apart(schema, batch.take(np.array([2])))[1] is None


def bad_rows(count: int) -> BadRows:
    rows = pa.table({"x": pa.array(range(count), pa.int32())})
    return BadRows("orders", rows, np.array([(-1) ** i for i in range(count)]), [f"why {i}" for i in range(count)])


@pytest.mark.parametrize(("count", "more"), [(1, None), (5, None), (6, "... and 1 more"), (700, "... and 695 more")])
def test_an_error_shows_up_to_five_bad_rows_with_their_reasons(count, more):
    message = str(bad_rows(count).error())
    assert f"table 'orders': {count} bad row{'s' * (count > 1)} in the change batch; nothing was applied" in message
    assert "+1 (x=0): why 0" in message
    assert message.count("why") == min(count, 5)
    assert ("... and" in message) == (more is not None)
    assert more is None or more in message
    assert 'on_bad_rows="quarantine"' in message


def test_bad_rows_are_combined_and_shown_as_a_table():
    combined = combine_bad_rows([bad_rows(2), bad_rows(1)])
    assert combined.to_arrow().to_pydict() == {
        "x": [0, 1, 0],
        "__diff": [1, -1, 1],
        "__reason": ["why 0", "why 1", "why 0"],
    }

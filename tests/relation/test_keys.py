"""Keys: words tell apart exactly what SQL tells apart, sort as SQL sorts, and read back as what they were made from."""

from __future__ import annotations

import math
import struct
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.relation import kernels
from headrace.relation.keys import (
    KeyLayout,
    ordered_string_words,
    ordered_words,
    string_buffers,
    strings_of_words,
    values_of_words,
)
from headrace.relation.types import SqlType

EXACT = Context(prec=80)
DECIMALS = [f"decimal({p},{s})" for p in range(1, 39) for s in sorted({0, p // 2, p})]
INTEGERS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
PLAIN = [*INTEGERS, "float", "double", "string", "date", "timestamp", "timestamp_ntz", "boolean"]
STRINGS = ["", "a", "b", "aa", "a\0", "a\0\0", "\0", "\0a", "a\0b", "abcdefgh", "abcdefghi", "abcdefgh\0", "abcdefg"]
STRINGS += ["é", "e\u0301", "日本", "\U0001f600", "\uffff", "zz", "x" * 100, "x" * 99 + "y", "\x7f", "\x80"]
FLOATS = [0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, math.nan, 5e-324, -5e-324, 1.7e308, -1.7e308]


def decimal_of(unscaled: int, scale: int) -> Decimal:
    return Decimal(unscaled).scaleb(-scale, EXACT)


def edges(kind: SqlType) -> list[object]:
    """Values at which an encoding is likely to go wrong, each distinct to SQL but for the zeros."""
    if kind.is_integer:
        top = 2 ** (INTEGERS[kind.kind] - 1)
        return [0, 1, -1, top - 1, -top, 5, -5]
    if kind.is_decimal:
        top = 10**kind.precision - 1
        limits = {
            0,
            1,
            -1,
            top,
            -top,
            top // 2,
            -(top // 3),
            *(s * 2**b for b in (63, 64) for s in (1, -1) if 2**b < top),
        }
        return [decimal_of(value, kind.scale) for value in limits]
    if kind.kind == "float":
        return [float(np.float32(x)) for x in (0.0, -0.0, 1.5, -0.1, math.inf, -math.inf, math.nan, 1e-45, 3e38)]
    if kind.kind.startswith("timestamp"):
        zone = UTC if kind.kind == "timestamp" else None
        before = datetime(1969, 12, 31, 23, 59, 59, 999999, zone)
        return [datetime(1, 1, 1, tzinfo=zone), before, datetime(9999, 12, 31, 23, 59, 59, 999999, zone)]
    return {
        "double": FLOATS,
        "string": STRINGS,
        "date": [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(9999, 12, 31)],
        "boolean": [True, False],
    }[kind.kind]


def identity(value: object) -> object:
    """What SQL compares: NaN is one value, -0.0 is 0.0."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def layout_of(*kinds: str, nullable: bool = True, seed: int = 7) -> KeyLayout:
    types = tuple(SqlType.parse(kind) for kind in kinds)
    return KeyLayout(types, (nullable,) * len(types), seed)


@pytest.mark.parametrize("text", [*PLAIN, *DECIMALS])
def test_values_and_nulls_survive_the_round_trip(text):
    kind = SqlType.parse(text)
    values = [None, *edges(kind), None]
    column = pa.array(values, kind.arrow)
    (decoded,) = layout_of(text).decode(layout_of(text).encode([column]))
    if text == "string":
        assert decoded is None  # stored beside the key
    else:
        assert decoded.type == kind.arrow
        assert list(map(identity, decoded.to_pylist())) == list(map(identity, values))


@pytest.mark.parametrize("text", [*PLAIN, *DECIMALS])
@pytest.mark.parametrize("nullable", [True, False])
def test_keys_are_equal_exactly_where_words_are(text, nullable):
    kind = SqlType.parse(text)
    values = edges(kind) * 2 + [None, None] * nullable
    words = layout_of(text, nullable=nullable).encode([pa.array(values, kind.arrow)]).T.tolist()
    for i, j in combinations(range(len(values)), 2):
        assert (words[i] == words[j]) == (identity(values[i]) == identity(values[j])), (values[i], values[j])


ROWS = st.tuples(
    st.one_of(st.none(), st.sampled_from(STRINGS[:6])),
    st.one_of(st.none(), st.integers(-2, 1), st.sampled_from([-(2**63), 2**63 - 1])),
    st.one_of(st.none(), st.sampled_from([Decimal(0), Decimal(10**37), Decimal(-1), Decimal(2**64)])),
    st.one_of(st.none(), st.sampled_from([0.0, -0.0, math.nan, 1.0])),
    st.one_of(st.none(), st.booleans()),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=30), st.integers(0, 2**63 - 10))
def test_keys_of_several_columns_are_equal_exactly_where_words_are(rows, seed):
    layout = layout_of("string", "bigint", "decimal(38,0)", "double", "boolean", seed=seed)
    columns = [pa.array([row[i] for row in rows], kind.arrow) for i, kind in enumerate(layout.types)]
    words = [tuple(key) for key in layout.encode(columns).T.tolist()]
    keys = [tuple(map(identity, row)) for row in rows]
    assert len(set(words)) == len(set(keys)) == len(set(zip(words, keys, strict=True)))
    decoded = layout.decode(layout.encode(columns))
    assert [c and list(map(identity, c.to_pylist())) for c in decoded[1:]] == [
        [key[i] for key in keys] for i in range(1, 5)
    ]


@pytest.mark.parametrize("columns", [64, 65, 130])
def test_nulls_of_very_wide_keys_are_told_apart(columns):
    layout = layout_of(*["bigint"] * columns)
    lowest = [pa.array([-(2**63)], pa.int64())] * columns
    seen = {tuple(layout.encode(lowest)[:, 0].tolist())}
    for i in range(columns):
        key = list(lowest)
        key[i] = pa.array([None], pa.int64())
        words = layout.encode(key)
        seen.add(tuple(words[:, 0].tolist()))
        assert [c.to_pylist()[0] is None for c in layout.decode(words)] == [j == i for j in range(columns)]
    assert len(seen) == columns + 1


def test_wide_decimals_spread_over_the_buckets():
    layout = layout_of("decimal(38,0)", nullable=False)
    words = layout.encode([pa.array(range(1000)).cast(pa.decimal128(38, 0))])
    codes = np.empty(1000, np.int32)
    kernels.buckets_of(words[0], 4, codes)
    assert np.bincount(codes, minlength=4).min() > 150


def test_sliced_columns_encode_as_their_copies_do():
    for text in [*PLAIN, "decimal(9,2)", "decimal(30,2)"]:
        kind = SqlType.parse(text)
        whole = pa.array([None, *edges(kind), None], kind.arrow)
        part = whole.slice(1, len(whole) - 2)
        copy = pa.array(part.to_pylist(), kind.arrow)
        assert (layout_of(text).encode([part]) == layout_of(text).encode([copy])).all(), text


@pytest.mark.parametrize("text", [*PLAIN, "decimal(9,2)", "decimal(30,2)"])
def test_no_keys_and_only_nulls_are_keys_too(text):
    kind, layout = SqlType.parse(text), layout_of(text)
    assert layout.encode([pa.array([], kind.arrow)]).shape == (layout.width, 0)
    assert len(np.unique(layout.encode([pa.nulls(3, kind.arrow)]), axis=1).T) == 1


@pytest.mark.parametrize("text", [*PLAIN, "decimal(9,2)", "decimal(30,2)"])
def test_whatever_stands_under_a_null_it_is_the_same_key(text):
    kind = SqlType.parse(text)
    values = edges(kind)[:8]
    hidden = pa.array(values, kind.arrow)
    nulls = pa.Array.from_buffers(kind.arrow, len(values), [pa.py_buffer(b"\0"), *hidden.buffers()[1:]])
    assert nulls.null_count == len(values)
    same = pa.array([1] * len(values), pa.int32())
    for words in (layout_of(text).encode([nulls]), layout_of(text, "int").encode([nulls, same])):
        assert len({tuple(key) for key in words.T.tolist()}) == 1


def test_the_seed_decides_the_hashes():
    column = [pa.array(STRINGS, pa.large_string())]
    assert (layout_of("string", seed=1).encode(column)[:2] != layout_of("string", seed=2).encode(column)[:2]).all()


@pytest.mark.parametrize("text", [k for k in [*PLAIN, *DECIMALS] if k != "string"])
def test_ordered_words_sort_as_values_do(text):
    kind = SqlType.parse(text)
    values = edges(kind)
    words = [tuple(w) for w in ordered_words(pa.array(values, kind.arrow), kind).T.tolist()]
    nan_last = [(identity(value) == "NaN", 0 if identity(value) == "NaN" else value) for value in values]
    by_value = sorted(range(len(values)), key=nan_last.__getitem__)
    assert [words[i] for i in by_value] == sorted(words)
    back = values_of_words(ordered_words(pa.array(values, kind.arrow), kind), kind, None)
    assert list(map(identity, back.to_pylist())) == list(map(identity, values))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=20))
def test_any_two_doubles_compare_as_their_words_do(bits):
    values = [struct.unpack("<d", struct.pack("<Q", b))[0] for b in bits]
    words = ordered_words(pa.array(values, pa.float64()), SqlType("double"))[0].tolist()
    rank = [(math.isnan(v), 0.0 if math.isnan(v) else v) for v in values]
    for i, j in combinations(range(len(values)), 2):
        assert (words[i] < words[j]) == (rank[i] < rank[j])


TEXT = st.one_of(st.sampled_from(STRINGS), st.text(max_size=20), st.text("a\0", max_size=18))


@settings(max_examples=60, deadline=None)
@given(st.lists(TEXT, max_size=25))
def test_ordered_string_words_sort_as_utf8_bytes_do_and_read_back(strings):
    words = ordered_string_words(pa.array(strings, pa.large_string()))
    keys = [tuple(w) for w in words.T.tolist()]
    assert len(set(keys)) == len(set(strings))
    assert sorted(range(len(keys)), key=keys.__getitem__) == sorted(range(len(keys)), key=lambda i: strings[i].encode())
    assert strings_of_words(words, None).to_pylist() == strings


def test_null_strings_read_back_as_null():
    words = ordered_string_words(pa.array(["abc", "ignored"], pa.large_string()))
    assert strings_of_words(words, np.array([False, True])).to_pylist() == ["abc", None]


def test_no_strings_read_back_as_none():
    for width in (1, 2, 4):
        assert strings_of_words(np.zeros((width, 0), np.uint64), np.zeros(0, bool)).to_pylist() == []


def test_string_buffers_of_slices_hold_the_right_strings():
    column = pa.array(["ab", "", None, "cde", "f"], pa.large_string()).slice(1, 3)
    offsets, data = string_buffers(column)
    assert [bytes(data[offsets[i] : offsets[i + 1]]) for i in (0, 2)] == [b"", b"cde"]

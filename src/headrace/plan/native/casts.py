"""Casts between types. A value without a counterpart in the other type is left to Catalyst, to raise or become NULL.

Casts that read text are not here, since Spark reads more than any other parser does; nor are those of floating-point
numbers to text and to decimals, which depend on how Java writes a number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.plan.expression import Expression
from headrace.plan.native.calendar import check_years
from headrace.plan.native.decimals import rounded, to_floating
from headrace.plan.native.rule import Datum, NeedsCatalyst, Rows, Rule
from headrace.plan.native.vectors import elementwise
from headrace.plan.native.zones import is_utc
from headrace.relation.types import INTEGER_DIGITS, INTEGERS, SqlType, sql_type

Way = Callable[[Datum, SqlType], Datum]


def widens(source: SqlType, target: SqlType) -> bool:
    """Whether every value of one type has a counterpart in the other; that of a large integer is the nearest double."""
    if source.is_integer and target.is_integer:
        return INTEGERS[source.kind] <= INTEGERS[target.kind]
    if source.is_integer and target.is_decimal:
        return target.precision - target.scale >= INTEGER_DIGITS[source.kind]
    if source.is_decimal and target.is_decimal:
        return target.scale >= source.scale and target.precision - target.scale >= source.precision - source.scale
    return target.kind == "double" and (source.is_integer or source.kind == "float")


def _way(source: SqlType, target: SqlType) -> Way | None:
    """How to cast one type to another; None where only Spark knows."""
    if source.is_decimal:
        return _way_from_decimal(source, target)
    if source.is_integer or source.is_floating or source.kind == "boolean":
        return _way_from_number(source, target)
    return _OF_TIMES.get((source.kind, target.kind))


def _way_from_decimal(source: SqlType, target: SqlType) -> Way | None:
    if target.is_decimal:
        return lambda values, type: rounded(values, type.arrow)
    if target.is_floating:
        return lambda values, type: to_floating(values, type.arrow)
    if target.kind == "boolean":
        return _is_not_zero
    # Spark may cast by way of doubles to all integers but bigint; up to 15 digits that makes no difference.
    if target.kind == "bigint" or (target.is_integer and source.precision <= 15):
        return _whole_part
    # With up to 6 places Java never writes an exponent, in ANSI mode or not.
    return _plain if target.kind == "string" and source.scale <= 6 else None


def _way_from_number(source: SqlType, target: SqlType) -> Way | None:
    if target.kind == "boolean":
        return _is_not_zero
    if target.is_floating:
        return _nearest
    if source.is_floating:
        return _truncated if target.is_integer else None
    if target.is_decimal:
        return _scaled if INTEGER_DIGITS.get(source.kind, INTEGER_DIGITS["tinyint"]) + target.scale <= 38 else None
    return _plain if target.is_integer or target.kind == "string" else None


def _plain(values: Datum, type: SqlType) -> Datum:
    return pc.cast(values, type.arrow)


def _nearest(values: Datum, type: SqlType) -> Datum:
    # Not "safe": a large integer becomes the nearest double, as in Spark, and Arrow would call that an error.
    return pc.cast(values, type.arrow, safe=False)


def _is_not_zero(values: Datum, type: SqlType) -> Datum:
    return pc.not_equal(values, pa.scalar(0, values.type))


def _scaled(values: Datum, type: SqlType) -> Datum:
    numbers = pc.cast(values, pa.int8()) if pa.types.is_boolean(values.type) else values
    digits = INTEGER_DIGITS[sql_type(numbers.type).kind]
    return pc.cast(pc.cast(numbers, pa.decimal128(digits + type.scale, type.scale)), type.arrow)


def _whole_part(values: Datum, type: SqlType) -> Datum:
    return pc.cast(rounded(values, pa.decimal128(38, 0), "towards_zero"), type.arrow)


def _truncated(values: Datum, type: SqlType) -> Datum:
    dtype = np.dtype(type.arrow.to_pandas_dtype())
    bounds = np.iinfo(dtype)

    def truncate(numbers: NDArray[Any]) -> NDArray[Any]:
        whole = np.trunc(numbers.astype(np.float64))
        if not bool(np.all((whole >= float(bounds.min)) & (whole < float(bounds.max) + (dtype.itemsize < 8)))):
            raise NeedsCatalyst(f"a number is too large for {type}")
        return whole.astype(dtype)

    return elementwise(truncate, type.arrow, values)


def _days_to_text(values: Datum, type: SqlType) -> Datum:
    check_years(values)
    return pc.cast(values, type.arrow)


def _seconds(values: Datum, type: SqlType) -> Datum:
    return elementwise(lambda micros: micros // 1_000_000, type.arrow, values)


def _relabelled(values: Datum, type: SqlType) -> Datum:
    return pc.cast(pc.cast(values, pa.int64()), type.arrow)


def _days(values: Datum, type: SqlType) -> Datum:
    return elementwise(lambda micros: micros // 86_400_000_000, type.arrow, values)


# Casts that need no time zone.
_OF_TIMES: dict[tuple[str, str], Way] = {
    ("date", "string"): _days_to_text,
    ("date", "timestamp_ntz"): _plain,
    ("timestamp_ntz", "date"): _days,
    ("timestamp", "bigint"): _seconds,
}
_IN_UTC: dict[tuple[str, str], Way] = {
    ("timestamp", "date"): _days,
    ("date", "timestamp"): _plain,
    ("timestamp", "timestamp_ntz"): _relabelled,
    ("timestamp_ntz", "timestamp"): _relabelled,
}


def _cast(node: Expression, rows: Rows) -> Datum:
    way = _way_of(node)
    assert way is not None, node.sql
    return way(rows.value(node.args[0]), node.type)


def _way_of(node: Expression) -> Way | None:
    source, target = node.args[0].type, node.type
    return _way(source, target) or (_IN_UTC.get((source.kind, target.kind)) if is_utc(node) else None)


RULES = {"Cast": Rule(lambda node: _way_of(node) is not None, _cast)}

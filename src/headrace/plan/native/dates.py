"""Functions of dates, and of timestamps where no time zone can matter, or it is UTC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.plan.expression import Expression
from headrace.plan.native import calendar
from headrace.plan.native.rule import Datum, Rows, Rule, literal_int, literal_text, of_kind, over_args
from headrace.plan.native.vectors import elementwise
from headrace.plan.native.zones import is_utc
from headrace.relation.types import INTEGERS

_DAY = 86_400_000_000  # microseconds

# Parts.


def _date_part(part: Callable[..., Datum]) -> Rule:
    def compute(dates: Datum) -> Datum:
        calendar.check_years(dates)
        return pc.cast(part(dates), pa.int32())

    return Rule(of_kind("date"), over_args(compute))


def _time_part(unit: int, count: int) -> Rule:
    """A part of the time of day."""
    part = _of_number(lambda micros: micros // unit % count, pa.int32())
    return Rule(
        lambda node: of_kind("timestamp_ntz")(node) or (of_kind("timestamp")(node) and is_utc(node)), over_args(part)
    )


def _of_number(function: Callable[[NDArray[Any]], NDArray[Any]], type: pa.DataType) -> Callable[[Datum], Datum]:
    return lambda values: elementwise(function, type, values)


# Days.


def _days_between(end: Datum, start: Datum) -> Datum:
    return pc.subtract_checked(pc.cast(end, pa.int32()), pc.cast(start, pa.int32()))


def _date_and_count(node: Expression) -> bool:
    return node.args[0].type.kind == "date" and node.args[1].type.kind in INTEGERS


def _moved_days(checked: Callable[..., Datum]) -> Rule:
    def compute(dates: Datum, count: Datum) -> Datum:
        return pc.cast(checked(pc.cast(dates, pa.int32()), pc.cast(count, pa.int32())), pa.date32())

    return Rule(_date_and_count, over_args(compute))


# Months and intervals. An interval is no value of a column; as a literal it is a number of months or microseconds.


def _add_months(dates: Datum, months: Datum) -> Datum:
    return elementwise(calendar.add_months, pa.date32(), dates, months)


def _moved_by_months(node: Expression, rows: Rows) -> Datum:
    return _add_months(rows.value(node.args[0]), pa.scalar(literal_int(node.args[1]), pa.int32()))


def _moved_by_time(node: Expression, rows: Rows) -> Datum:
    micros = pa.scalar(literal_int(node.args[1]), pa.duration("us"))
    return pc.add_checked(rows.value(node.args[0]), micros)


def _time_types(node: Expression) -> bool:
    moved, kind = literal_int(node.args[1]), node.args[0].type.kind
    # Whole days are days of the calendar, which a time zone may make longer or shorter; less than a day never is.
    return moved is not None and (kind == "timestamp_ntz" or (kind == "timestamp" and abs(moved) < _DAY))


def _of_interval(accepts: Callable[[Expression], bool], compute: Callable[[Expression, Rows], Datum]) -> Rule:
    return Rule(accepts, compute, operands=lambda node: node.args[:1])


# Truncation.


def _first_of_months(count: int) -> Callable[[NDArray[Any]], NDArray[Any]]:
    return lambda days: calendar.first_day(calendar.month_of(days) // count * count)


_TRUNCATIONS: dict[str, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "WEEK": calendar.monday,
    **dict.fromkeys(("MON", "MONTH", "MM"), _first_of_months(1)),
    "QUARTER": _first_of_months(3),
    **dict.fromkeys(("YEAR", "YYYY", "YY"), _first_of_months(12)),
}


def _truncation(node: Expression) -> Callable[[NDArray[Any]], NDArray[Any]] | None:
    return _TRUNCATIONS.get((literal_text(node.args[1]) or "").upper())


def _truncated(node: Expression, rows: Rows) -> Datum:
    truncation = _truncation(node)
    assert truncation is not None, node.sql
    return elementwise(truncation, pa.date32(), rows.value(node.args[0]))


_SHORT = {"SECOND": 1_000_000, "MINUTE": 60_000_000, "HOUR": 3_600_000_000, "DAY": _DAY, "DD": _DAY}


def _truncates_in_utc(node: Expression) -> bool:
    unit = (literal_text(node.args[0]) or "").upper()
    return (unit in _SHORT or unit in _TRUNCATIONS) and node.args[1].type.kind == "timestamp" and is_utc(node)


def _truncated_timestamp(node: Expression, rows: Rows) -> Datum:
    unit = (literal_text(node.args[0]) or "").upper()

    def truncate(micros: NDArray[Any]) -> NDArray[Any]:
        if unit in _SHORT:
            return micros // _SHORT[unit] * _SHORT[unit]
        return _TRUNCATIONS[unit](micros // _DAY) * _DAY

    instants = rows.value(node.args[1])
    calendar.check_years(elementwise(lambda micros: micros // _DAY, pa.date32(), instants))
    return elementwise(truncate, node.type.arrow, instants)


def _sunday_first(dates: Datum) -> Datum:
    return pc.day_of_week(dates, count_from_zero=False, week_start=7)


RULES = {
    "Year": _date_part(pc.year),
    "Quarter": _date_part(pc.quarter),
    "Month": _date_part(pc.month),
    "WeekOfYear": _date_part(pc.iso_week),
    "DayOfYear": _date_part(pc.day_of_year),
    "DayOfMonth": _date_part(pc.day),
    "DayOfWeek": _date_part(_sunday_first),
    "WeekDay": _date_part(pc.day_of_week),
    "Hour": _time_part(3_600_000_000, 24),
    "Minute": _time_part(60_000_000, 60),
    "Second": _time_part(1_000_000, 60),
    "DateDiff": Rule(of_kind("date"), over_args(_days_between)),
    "DateAdd": _moved_days(pc.add_checked),
    "DateSub": _moved_days(pc.subtract_checked),
    "UnixDate": Rule(of_kind("date"), over_args(lambda dates: pc.cast(dates, pa.int32()))),
    "DateFromUnixDate": Rule(of_kind("int"), over_args(lambda days: pc.cast(days, pa.date32()))),
    "UnixMicros": Rule(of_kind("timestamp"), over_args(lambda instants: pc.cast(instants, pa.int64()))),
    "UnixMillis": Rule(of_kind("timestamp"), over_args(_of_number(lambda micros: micros // 1_000, pa.int64()))),
    "UnixSeconds": Rule(of_kind("timestamp"), over_args(_of_number(lambda micros: micros // 1_000_000, pa.int64()))),
    "AddMonths": Rule(_date_and_count, over_args(_add_months)),
    "DateAddYMInterval": _of_interval(lambda node: literal_int(node.args[1]) is not None, _moved_by_months),
    "TimestampAddInterval": _of_interval(_time_types, _moved_by_time),
    "LastDay": Rule(of_kind("date"), over_args(_of_number(calendar.last_day, pa.date32()))),
    "TruncTimestamp": Rule(_truncates_in_utc, _truncated_timestamp, operands=lambda node: node.args[1:]),
    "TruncDate": Rule(lambda node: _truncation(node) is not None and node.args[0].type.kind == "date", _truncated),
}

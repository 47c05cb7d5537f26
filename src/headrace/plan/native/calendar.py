"""The calendar in vectors: months as numbers of months since 1970, by NumPy's arithmetic of dates.

Both Java and NumPy reckon with the Gregorian calendar, extended to all years.
"""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.plan.native.rule import Datum, NeedsCatalyst

# Beyond these, Arrow's years, which are 16 bits wide, may be wrong, and dates are written in another way.
_FIRST_DAY, _LAST_DAY = datetime.date(1, 1, 1), datetime.date(9999, 12, 31)

Days = NDArray[np.int64]


def check_years(dates: Datum) -> None:
    """Leave dates outside of the years 1 to 9999 to Catalyst."""
    if pc.any(pc.or_(pc.less(dates, _FIRST_DAY), pc.greater(dates, _LAST_DAY))).as_py():
        raise NeedsCatalyst("a date is outside of the years 1 to 9999")


def month_of(days: NDArray[Any]) -> NDArray[np.int64]:
    """The month of each day."""
    return days.astype("M8[D]").astype("M8[M]").astype(np.int64)


def first_day(months: NDArray[np.int64]) -> Days:
    """The first day of each month."""
    return months.astype("M8[M]").astype("M8[D]").astype(np.int64)


def last_day(days: NDArray[Any]) -> Days:
    """The last day of the month of each day."""
    return first_day(month_of(days) + 1) - 1


def add_months(days: NDArray[Any], months: NDArray[Any]) -> Days:
    """The same day of another month, or the last day of that month if it is too short."""
    at = month_of(days)
    moved = at + months.astype(np.int64)
    return np.minimum(first_day(moved) + (days - first_day(at)), first_day(moved + 1) - 1)


def monday(days: NDArray[Any]) -> Days:
    """The Monday of the week of each day."""
    since_thursday = days.astype(np.int64)  # 1970-01-01 was a Thursday
    return since_thursday - (since_thursday + 3) % 7

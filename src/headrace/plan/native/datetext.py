"""Dates and timestamps as text, by patterns such as `yyyy-MM-dd` and `HH:mm`.

A pattern is vetted if every field of it has a fixed width and stands for a number, since names of months and days are
a matter of locale. Its texts are then a matrix of digits, which NumPy writes at once.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.plan.expression import Expression
from headrace.plan.native import calendar
from headrace.plan.native.rule import Datum, NeedsCatalyst, Rows, Rule, literal_text
from headrace.plan.native.vectors import numbers_of, over_array
from headrace.plan.native.zones import is_utc

_DAY = 86_400_000_000  # microseconds
_WIDTHS = {"yyyy": 4, "MM": 2, "dd": 2, "HH": 2, "mm": 2, "ss": 2}
_OF_TIME = {"HH", "mm", "ss"}
# A run of one letter; quoted text; or what stands for itself.
_PIECE = re.compile(r"([A-Za-z])\1*|'[A-Za-z0-9 ]+'|[-/:., _]")
# Before, Spark's setting for old patterns would count by the Julian calendar; after, years have more than four digits.
_FIRST, _LAST = (np.datetime64(day, "D").astype(np.int64) for day in ("1582-10-15", "9999-12-31"))


@lru_cache(maxsize=256)
def pieces(pattern: str | None) -> tuple[str, ...] | None:
    """The fields of a pattern and the texts between them, the latter quoted; None where only Spark knows.

    >>> pieces("yyyy-MM")
    ('yyyy', "'-", 'MM')
    >>> pieces("yyyy MMM") is None
    True
    """
    out, at = list[str](), 0
    for match in _PIECE.finditer(pattern or ""):
        text = match[0]
        if match.start() != at or (match[1] and text not in _WIDTHS) or text[0] == "'" == (pattern or "")[at - 1 : at]:
            return None
        out.append(text if match[1] else "'" + text.strip("'"))
        at = match.end()
    return tuple(out) if out and at == len(pattern or "") else None


def _formatted(node: Expression) -> Expression:
    """What is formatted: of a date, Spark formats its midnight in the session's time zone."""
    source = node.args[0]
    if source.op == "Cast" and source.args[0].type.kind in ("date", "timestamp_ntz"):
        return source.args[0]
    return source


def _accepts(node: Expression) -> bool:
    found, kind = pieces(literal_text(node.args[1])), _formatted(node).type.kind
    if found is None or kind not in ("date", "timestamp", "timestamp_ntz"):
        return False
    # Any zone's midnight is on its day, but it is not at midnight where clocks are moved then.
    return is_utc(node) or (kind == "date" and not _OF_TIME & set(found))


def _compute(node: Expression, rows: Rows) -> Datum:
    found = pieces(literal_text(node.args[1]))
    assert found is not None, node.sql
    return over_array(lambda array: _written(array, found), rows.value(_formatted(node)))


def _written(array: pa.Array, found: tuple[str, ...]) -> pa.Array:
    numbers = numbers_of(array).astype(np.int64)
    days, micros = (numbers, np.zeros_like(numbers)) if pa.types.is_date32(array.type) else np.divmod(numbers, _DAY)
    if len(days) and (days.min() < _FIRST or days.max() > _LAST):
        raise NeedsCatalyst("a date is before 1582-10-15, or after the year 9999")
    fields = _fields(days, micros)
    columns = [_digits(fields[p], _WIDTHS[p]) if p in _WIDTHS else _repeated(p[1:], len(days)) for p in found]
    text = np.ascontiguousarray(np.concatenate(columns, axis=1))
    edges = np.arange(len(days) + 1, dtype=np.int64) * text.shape[1]
    texts = pa.LargeStringArray.from_buffers(len(days), pa.py_buffer(edges), pa.py_buffer(text))
    return pc.if_else(array.is_valid(), texts, pa.scalar(None, texts.type)) if array.null_count else texts


def _fields(days: NDArray[np.int64], micros: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    months, seconds = calendar.month_of(days), micros // 1_000_000
    return {
        "yyyy": 1970 + months // 12,
        "MM": 1 + months % 12,
        "dd": 1 + days - calendar.first_day(months),
        "HH": seconds // 3600,
        "mm": seconds // 60 % 60,
        "ss": seconds % 60,
    }


def _digits(numbers: NDArray[Any], width: int) -> NDArray[np.uint8]:
    powers = 10 ** np.arange(width - 1, -1, -1)
    return (numbers[:, None] // powers % 10 + ord("0")).astype(np.uint8)


def _repeated(text: str, rows: int) -> NDArray[np.uint8]:
    return np.broadcast_to(np.frombuffer(text.encode(), np.uint8), (rows, len(text)))


RULES = {"DateFormatClass": Rule(_accepts, _compute, operands=lambda node: (_formatted(node),))}

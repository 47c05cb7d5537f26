"""How one row is written in a case file: SQL values, separated by commas, that read back as what they were."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterable, Sequence
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

Row = tuple[Any, ...]

# A text in single quotes (with '' for a quote), or anything up to the next comma.
_VALUE = re.compile(r"\s*('(?:[^']|'')*'|[^',]+?)\s*(?:,|$)")


def row_text(row: Sequence[Any]) -> str:
    """Write a row as a case file does.

    >>> row_text((1, None, "it's", Decimal("1.50"), datetime.date(2024, 2, 29), True, 0.5))
    "1, null, 'it''s', 1.50, 2024-02-29, true, 0.5"
    """
    return ", ".join(value_text(value) for value in row)


def value_text(value: Any) -> str:
    """Write one value; two values of a type are written alike only if they are the same."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        if not value.isprintable():
            raise ValueError(f"{value!r} has characters that a line of a case file cannot show")
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, float):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(repr(value), repr(value))
    if isinstance(value, datetime.datetime):
        return str(value.astimezone(datetime.UTC).replace(tzinfo=None) if value.tzinfo else value)
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def parse_row(text: str, types: Sequence[pa.DataType]) -> Row:
    """Read a row back.

    >>> parse_row("1, null, 'it''s, so'", [pa.int32(), pa.int32(), pa.large_string()])
    (1, None, "it's, so")
    """
    words, at = [], 0
    while at < len(text):
        match = _VALUE.match(text, at)
        if match is None:
            raise ValueError(f"cannot read a value at {text[at:]!r}")
        words.append(match[1])
        at = match.end()
    if len(words) != len(types):
        raise ValueError(f"{len(words)} values for {len(types)} columns: {text}")
    return tuple(_parse_value(word, kind) for word, kind in zip(words, types, strict=True))


def _parse_value(word: str, kind: pa.DataType) -> Any:
    if word == "null":
        return None
    if pa.types.is_large_string(kind):
        if not word.startswith("'"):
            raise ValueError(f"texts are quoted, {word} is not")
        return word[1:-1].replace("''", "'")
    if pa.types.is_boolean(kind):
        return {"true": True, "false": False}[word]
    if pa.types.is_integer(kind):
        return int(word)
    if pa.types.is_floating(kind):
        return float(word)
    if pa.types.is_decimal(kind):
        return Decimal(word).quantize(Decimal(1).scaleb(-kind.scale), context=Context(prec=38))
    if pa.types.is_date(kind):
        return datetime.date.fromisoformat(word)
    moment = datetime.datetime.fromisoformat(word)
    return moment.replace(tzinfo=datetime.UTC) if kind.tz else moment


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Sort rows, NULL first; doubles that differ in their last digits only are as good as equal."""
    return sorted(rows, key=lambda row: tuple((value is not None, *_sortable(value)) for value in row))


def _sortable(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else float(f"{value:.9e}"))
    return (value,)


def same_rows(left: Sequence[Row], right: Sequence[Row]) -> bool:
    """Whether two lists of rows agree, one by one: doubles to 1e-12 relative, all else exactly."""
    if len(left) != len(right):
        return False
    return all(_same(a, b) for one, other in zip(left, right, strict=True) for a, b in zip(one, other, strict=True))


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-300)
    return type(a) is type(b) and a == b

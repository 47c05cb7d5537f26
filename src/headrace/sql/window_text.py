"""Windows of time as parts of SQL text, made from names and durations that are checked first.

A query that is put together from variables needs them quoted. A window knows its own text, so that a program says once
which window it means and names it wherever the query does: in GROUP BY, and its start and end in SELECT.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from headrace.errors import SchemaError
from headrace.relation.duration import Duration
from headrace.relation.schema import check_name
from headrace.sql.session import quote

Length = str | timedelta | Duration


@dataclass(frozen=True)
class Window:
    """Windows of a column of a table, as SQL: `str()` is what to group by, `start` and `end` are what to select.

    >>> w = tumbling("orders", "ts", "600 seconds")
    >>> print(w)
    window(`orders`.`ts`, '10 minutes')
    >>> print(w.start)
    window(`orders`.`ts`, '10 minutes').start
    """

    table: str
    column: str
    size: Duration
    slide: Duration
    offset: Duration

    def __str__(self) -> str:
        lengths = [self.size, self.slide, self.offset] if self.offset.microseconds else [self.size, self.slide]
        if self.slide == self.size and not self.offset.microseconds:
            lengths = [self.size]
        time = f"{quote(self.table)}.{quote(self.column)}"
        return f"window({', '.join([time, *(repr(str(length)) for length in lengths)])})"

    @property
    def start(self) -> str:
        """The first moment of a window."""
        return f"{self}.start"

    @property
    def end(self) -> str:
        """The first moment after a window."""
        return f"{self}.end"


def tumbling(table: str, column: str, size: Length, *, offset: Length = "0 seconds") -> Window:
    """Windows of one size, one after the other: every row is in one.

    Parameters
    ----------
    table : as FROM names it: the table, or its alias.
    column : a TIMESTAMP or TIMESTAMP_NTZ column of the table.
    size : as in "10 minutes"; or a timedelta.
    offset : by how much windows start after full multiples of their size since 1970-01-01 00:00 UTC.
    """
    return sliding(table, column, size, size, offset=offset)


def sliding(table: str, column: str, size: Length, slide: Length, *, offset: Length = "0 seconds") -> Window:
    """Windows of one size that start every `slide`: they overlap, so a row is in several. Otherwise like `tumbling`."""
    check_name(table, "table")
    if not isinstance(column, str) or not column or not column.isprintable():
        raise SchemaError(f"{column!r} is no name of a column", way_out="name a column of the table")
    window = Window(table, column, Duration.parse(size), Duration.parse(slide), Duration.parse(offset))
    what = None
    if not window.slide.microseconds:
        what = f"windows that start every {window.slide} never end"
    elif window.slide > window.size:
        what = f"windows of {window.size} that start every {window.slide} leave rows out"
    elif window.offset >= window.slide:
        what = f"an offset of {window.offset} is not less than the {window.slide} after which windows start"
    if what is not None:
        raise SchemaError(what, way_out="give offset < slide <= size, as in sliding('t', 'ts', '1 hour', '5 minutes')")
    return window

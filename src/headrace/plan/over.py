"""Functions over the rows around a row (`OVER`), as values: what they compute, and the frame of rows that they see."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.relation.types import SqlType

NUMBERS = frozenset({"row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile"})
"""Functions of the place of a row in its partition, which see no frame."""

SHIFTS = frozenset({"lag", "lead"})
"""Functions that read a row some places before or behind."""

PICKS = frozenset({"first", "last", "nth"})
"""Functions that read one row of a frame."""

AGGREGATES = frozenset({"count", "sum", "avg", "min", "max"})
"""Functions of all rows of a frame."""


@dataclass(frozen=True)
class Frame:
    """The rows that a function sees, from one bound to another.

    Parameters
    ----------
    by_value : RANGE: bounds are distances from the value by which rows are ordered, and rows that tie stand together;
        otherwise ROWS: bounds count rows.
    low, high : the bounds, negative for rows before; None if there is none. The values of dates count days, and those
        of timestamps microseconds; those of decimals are in units of their last digit.
    """

    by_value: bool
    low: int | float | None
    high: int | float | None

    @property
    def text(self) -> str:
        """The frame as SQL says it."""
        kind = "RANGE" if self.by_value else "ROWS"
        return f"{kind} BETWEEN {_bound(self.low, 'PRECEDING')} AND {_bound(self.high, 'FOLLOWING')}"


def _bound(offset: int | float | None, without: str) -> str:
    if offset is None:
        return f"UNBOUNDED {without}"
    if offset == 0:
        return "CURRENT ROW"
    return f"{abs(offset)} {'PRECEDING' if offset < 0 else 'FOLLOWING'}"


@dataclass(frozen=True)
class OverFunction:
    """One function over the rows around each row.

    Parameters
    ----------
    function : one of `NUMBERS`, `SHIFTS`, `PICKS` or `AGGREGATES`.
    argument : the position of its argument among the fields of the port; None for those that have none.
    where : the position of the condition of a FILTER.
    default : the position of what a row gets that has no row so far away.
    number : of `ntile`, into how many parts; of `nth`, which row; of `lag` and `lead`, how far behind the row is.
    """

    function: str
    type: SqlType
    sql: str
    argument: int | None = None
    frame: Frame | None = None
    where: int | None = None
    default: int | None = None
    number: int = 0
    ignores_nulls: bool = False


@dataclass(frozen=True)
class First:
    """A condition on the place of a row: `row_number`, `rank` or `dense_rank` is at most `count`."""

    function: str
    count: int

"""What a window join is asked: which windows, which aggregate of the joined rows, and when the answer is wanted.

All times are microseconds. Windows are numbered by their slide: window w begins at w times the slide.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.errors import SchemaError
from headrace.relation.duration import Duration

Times = NDArray[np.int64]

_AGGREGATE = re.compile(
    r"\s*(count|sum|avg)\s*(?:\(\s*(?:(\*)|(left|right|r|s)\.)?\s*([^\W\d]\w*|`[^`]+`)?\s*\))?\s*", re.I
)
_MOST_WINDOWS = 1_000  # that one row may belong to


@dataclass(frozen=True)
class Aggregate:
    """The aggregate over the joined rows of a window: their number, or the sum or mean of a column of one side."""

    function: str  # count | sum | avg
    side: int = 0  # whose column
    column: str | None = None

    @classmethod
    def parse(cls, text: str) -> Aggregate:
        """Read `count`, `sum(v)`, `avg(right.v)`.

        >>> Aggregate.parse("sum(right.price)")
        Aggregate(function='sum', side=1, column='price')
        """
        found = _AGGREGATE.fullmatch(text) if isinstance(text, str) else None
        way_out = "write count, sum(v) or avg(v), where v is a column of the left side, or right.v for one of the right"
        if found is None:
            raise SchemaError(f"{text!r} is no aggregate of a window join", way_out=way_out)
        function, star, side, column = found.groups()
        function, column = function.lower(), column and column.strip("`")
        if function == "count":
            if column:
                raise SchemaError(f"{text!r}: joined rows are counted, and not values", way_out=way_out)
            return cls("count")
        if not column or star:
            raise SchemaError(f"{text!r} names no column", way_out=way_out)
        return cls(function, 1 if (side or "").lower() in ("right", "s") else 0, column)

    def __str__(self) -> str:
        return (
            self.function if self.column is None else f"{self.function}({('left', 'right')[self.side]}.{self.column})"
        )


@dataclass(frozen=True)
class WindowSpec:
    """The windows of a join.

    Parameters
    ----------
    length, slide : of windows; where they are equal, windows tumble.
    emit_after : how long after its start a window is answered, which may be before it ends.
    horizon : how late a row may be; what is later is set aside. A window is complete that long after its end.
    within : for an interval join, how far apart the times of two rows may be; a pair belongs to the window of its left
        row. None where all rows of a window meet.
    """

    length: int
    slide: int
    emit_after: int
    horizon: int
    aggregate: Aggregate = Aggregate("count")
    within: int | None = None

    def __post_init__(self) -> None:
        length, slide, emit_after, horizon = (
            Duration(time) for time in (self.length, self.slide, self.emit_after, self.horizon)
        )
        self._check(self.length > 0, f"a window of {length} has no room for a row", "give a window above 0")
        self._check(self.slide > 0, f"windows that slide by {slide} never move", "give a slide above 0")
        self._check(
            self.slide <= self.length,
            f"windows of {length} that slide by {slide} leave rows out between them",
            "give a slide up to the length of a window",
        )
        self._check(
            self.overlap <= _MOST_WINDOWS,
            f"each row would belong to {self.overlap:,} windows",
            f"give a slide of at least {Duration(-(-self.length // _MOST_WINDOWS))}",
        )
        self._check(
            self.emit_after > 0,
            f"emit_after of {emit_after} asks for an answer before the window starts",
            "give a time after the start of the window, as '10 ms'",
        )
        self._check(self.horizon >= 0, f"a horizon of {horizon} is negative", "give how late rows may be")
        self._check(self.within is None or self.within >= 0, "an interval is negative", "give one of 0 or more")

    @classmethod
    def parse(
        cls,
        window: object,
        *,
        slide: object = None,
        emit_after: object = None,
        horizon: object = None,
        agg: str = "count",
        within: object = None,
    ) -> WindowSpec:
        """Read durations. By default windows tumble, are answered at their end, and take rows ten lengths late."""
        length = duration_of("window", window).microseconds
        return cls(
            length,
            length if slide is None else duration_of("slide", slide).microseconds,
            length if emit_after is None else duration_of("emit_after", emit_after).microseconds,
            10 * length if horizon is None else duration_of("horizon", horizon).microseconds,
            Aggregate.parse(agg),
            None if within is None else duration_of("within", within).microseconds,
        )

    @staticmethod
    def _check(holds: bool, what: str, way_out: str) -> None:
        if not holds:
            raise SchemaError(what, way_out=way_out)

    @property
    def overlap(self) -> int:
        """The largest number of windows that a moment is in."""
        return -(-self.length // self.slide)

    def start(self, window: int) -> int:
        return window * self.slide

    def end(self, window: int) -> int:
        return window * self.slide + self.length

    def emitted_at(self, window: int) -> int:
        """Return the moment at which a window is answered."""
        return self.start(window) + self.emit_after

    def complete_at(self, window: int) -> int:
        """Return the moment from which on no row can change a window."""
        return max(self.end(window) + self.reach + self.horizon, self.emitted_at(window))

    def completed_by(self, moment: int) -> int:
        """Return the window before which all windows are complete at a moment."""
        return (moment - self.complete_at(0)) // self.slide + 1

    def seen_from(self, arrival: Times) -> Times:
        """Return, per arrival, the first moment from it on at which some window is answered or completes."""
        due = [arrival + (first - arrival) % self.slide for first in (self.emitted_at(0), self.complete_at(0))]
        first: Times = np.minimum(*due)
        return first

    @property
    def reach(self) -> int:
        """How far outside of a window the rows of the right side that count for it may be."""
        return self.within or 0

    def first_window(self, times: Times) -> Times:
        """Return the first window that each time is in."""
        found: Times = -((self.length - 1 - times) // self.slide)
        return found

    def last_window(self, times: Times) -> Times:
        """Return the last window that each time is in."""
        found: Times = times // self.slide
        return found


def duration_of(what: str, given: object) -> Duration:
    """Read a duration; an error names the option `what`."""
    try:
        return Duration.parse(given)
    except SchemaError as error:
        raise SchemaError(f"{what}: {error.what}", way_out=error.way_out) from None

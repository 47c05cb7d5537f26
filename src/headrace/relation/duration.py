"""Lengths of time, as people and Spark write them: `10 minutes`, `1 hour 30 minutes`.

Only units of a fixed length are here, since a duration is a number of microseconds: a window of a month would be longer
in March than in February.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from headrace.errors import SchemaError

_UNITS = {
    "week": 604_800_000_000,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
_SHORT = {"ms": "millisecond", "us": "microsecond", "s": "second", "min": "minute", "h": "hour", "d": "day"}
_LONGEST = 2**53  # nearly three centuries, so that sums of a time and a few durations stay far from 64 bits
_PART = re.compile(r"\s*([+-]?\d+)\s*([a-z]+)", re.IGNORECASE)
_WAY_OUT = f"write whole numbers of {', '.join(f'{unit}s' for unit in _UNITS)}, as in '10 minutes'"


@dataclass(frozen=True, order=True)
class Duration:
    """A length of time that is never negative.

    >>> print(Duration.parse("INTERVAL 90 minutes"))
    1 hour 30 minutes
    """

    microseconds: int

    @classmethod
    def parse(cls, given: object) -> Duration:
        """Read a text or a timedelta."""
        if isinstance(given, Duration):
            return given
        if isinstance(given, timedelta):
            micros = given // timedelta(microseconds=1)
        elif isinstance(given, str):
            micros = _microseconds(given)
        else:
            raise SchemaError(f"{given!r} is no duration", way_out=_WAY_OUT)
        if not 0 <= micros <= _LONGEST:
            raise SchemaError(
                f"the duration {given!r} is {'negative' if micros < 0 else 'too long'}",
                way_out="give one from 0 seconds to 100,000 days",
            )
        return cls(micros)

    def __str__(self) -> str:
        parts, rest = [], self.microseconds
        for unit, size in _UNITS.items():
            count, rest = divmod(rest, size)
            if count:
                parts.append(f"{count} {unit}{'' if count == 1 else 's'}")
        return " ".join(parts) or "0 seconds"


def _microseconds(text: str) -> int:
    rest = re.sub(r"^\s*interval\b", "", text, flags=re.IGNORECASE)
    total, at = 0, 0
    while match := _PART.match(rest, at):
        unit = _SHORT.get(match[2].lower()) or match[2].lower().removesuffix("s")
        if unit in ("month", "year"):
            raise SchemaError(f"the duration {text!r} has {unit}s, which are not all equally long", way_out=_WAY_OUT)
        if unit not in _UNITS:
            raise SchemaError(f"the duration {text!r} has an unknown unit, {match[2]!r}", way_out=_WAY_OUT)
        total, at = total + int(match[1]) * _UNITS[unit], match.end()
    if not at or rest[at:].strip():
        raise SchemaError(f"{text!r} is no duration", way_out=_WAY_OUT)
    return total

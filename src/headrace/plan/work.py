"""What a step would cost: the few numbers from which strategies are compared.

A strategy says how many rows it touches when each of its sources changes a little; a row's cost is a constant of the
strategy, measured once. The estimates need not be good, only good enough to tell a thousand rows from a million: they
decide which strategy a view gets, and EXPLAIN ANALYZE shows them beside what was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

CHANGED_SHARE = 0.001  # of a table that a step changes, on average, as long as nothing else is known
LOOKED_UP_SHARE = 0.0001  # of a table whose rows others look up by key: customers change less often than they order
_LOOKED_UP, _NOT_LOOKED_UP = 1_000, 1_000_000  # rows of tables that are empty, and of which nothing is known


@dataclass(frozen=True)
class Statistics:
    """What is known, or assumed, of the sources of a view: their rows, and how many of them a step changes."""

    rows: Mapping[str, float]
    changed: Mapping[str, float]

    @classmethod
    def of(
        cls,
        rows: Mapping[str, int],
        looked_up: Mapping[str, bool],
        static: Mapping[str, bool],
        rates: Mapping[str, float],
    ) -> Statistics:
        """Fill in what is not known.

        Parameters
        ----------
        rows : rows of each source; nothing, or 0, where it is not known.
        looked_up : the sources, and whether others find their rows by a key: then these are fewer, and change less.
        static : whether a source never changes.
        rates : how many rows a step changes, where that has been seen.
        """
        known = {s: float(rows.get(s) or (_LOOKED_UP if by_key else _NOT_LOOKED_UP)) for s, by_key in looked_up.items()}
        share = {s: LOOKED_UP_SHARE if by_key else CHANGED_SHARE for s, by_key in looked_up.items()}
        changed = {s: 0.0 if static[s] else float(rates.get(s) or share[s] * size) for s, size in known.items()}
        return cls(known, changed)


@dataclass(frozen=True)
class Work:
    """What a step is estimated to cost by one strategy, by the source that changes."""

    strategy: str
    touched: Mapping[str, float]  # rows that are looked at, for the changes of each source
    microseconds: float  # a row
    fixed: float = 0.0  # seconds a step, whatever changes

    @property
    def rows(self) -> float:
        return sum(self.touched.values())

    @property
    def seconds(self) -> float:
        return self.fixed + 1e-6 * self.microseconds * self.rows

    def most(self) -> str:
        """The source whose changes cost most; empty if nothing changes."""
        return max(self.touched, key=lambda source: self.touched[source]) if self.rows else ""


def fan_out(rows: float, others: float) -> float:
    """How many rows of the others one row meets, where each of the others meets one."""
    return max(1.0, others / max(1.0, rows))


def time_text(seconds: float) -> str:
    """A time in the unit that suits it."""
    return f"{seconds * 1e3:,.3g} ms" if seconds < 1 else f"{seconds:,.3g} s"

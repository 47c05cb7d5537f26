"""What a step would cost: the rows that a plan touches, times what a row costs on this machine.

One function per kind of plan (`tree_cost`, `view_tree_cost`, and the two below) counts the rows. The time per row is a
unit, fitted to the machine (`calibration`) or, until then, as measured on the developers' machine. Costs decide which
strategy a view gets, and EXPLAIN ANALYZE shows them beside measured times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.thrifty.statistics import Statistics


@dataclass(frozen=True)
class Units:
    """Microseconds per row of each kind of work, and the seconds that Spark takes to start a query."""

    group: float = 1.0  # a row is added to its group
    join: float = 1.0  # a row is looked up in the other side of a join, and the pairs are passed on
    product: float = 2.5  # a key of a view tree is multiplied with its siblings and summed
    scan: float = 0.25  # Spark reads and aggregates a row
    compare: float = 0.1  # two rows are compared, on columns, without looking anything up
    job: float = 0.2  # seconds


UNITS = Units()
"""The units as measured on the developers' machine, used until they are fitted on this one."""


@dataclass(frozen=True)
class Cost:
    """The estimated cost of a step, by the source that changes."""

    touched: Mapping[str, float]  # rows that are looked at, for the changes of each source
    microseconds: float  # per row
    fixed: float = 0.0  # seconds per step, whatever changes

    @property
    def rows(self) -> float:
        return sum(self.touched.values())

    @property
    def seconds(self) -> float:
        return self.fixed + 1e-6 * self.microseconds * self.rows

    def most(self) -> str:
        """The source whose changes cost most; empty if nothing changes."""
        return max(self.touched, key=lambda source: self.touched[source]) if self.rows else ""


def one_table_cost(table: str, statistics: Statistics) -> Cost:
    """The cost of a view of one table: each changed row is evaluated, and added to its group."""
    changed = statistics.of_sources({table: table}, {table: False}).changed[table]
    return Cost({table: 2 * changed}, statistics.units.group)


def recompute_cost(tables: Iterable[str], statistics: Statistics) -> Cost:
    """The cost of recomputing: Spark runs the query again, over all rows."""
    units = statistics.units
    return Cost({table: float(statistics.size(table)) for table in tables}, units.scan, units.job)


def fan_out(rows: float, others: float) -> float:
    """How many of `others` rows one of `rows` meets on average, if each of the others meets exactly one."""
    return max(1.0, others / max(1.0, rows))


def time_text(seconds: float) -> str:
    """A time in the unit that suits it.

    >>> time_text(0.00123), time_text(75)
    ('1.23 ms', '75 s')
    """
    return f"{seconds * 1e3:,.3g} ms" if seconds < 1 else f"{seconds:,.3g} s"

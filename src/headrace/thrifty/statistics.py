"""What is known of tables when a view is planned: how large they are, and how much of them a step changes.

Sizes are counted and rates are watched, step by step; both are part of what a step commits, so a restart forgets
neither. Where nothing is known, `plan.assumptions` says what is assumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from headrace.plan.assumptions import CHANGED_SHARE, LOOKED_UP_SHARE, UNKNOWN_GROWTH, UNKNOWN_ROWS
from headrace.plan.join import Source
from headrace.relation.schema import TableSchema
from headrace.thrifty.cost import UNITS, Units

_LOAD_SHARE = 0.1  # a step that changes a larger share is a load, and says little about later steps
_NEWS = 0.2  # the weight of the last step in the average


@dataclass(frozen=True)
class OfSources:
    """The known or assumed sizes of the sources of a view, and how many of their rows a step changes."""

    rows: Mapping[str, float]
    changed: Mapping[str, float]


@dataclass(frozen=True)
class Statistics:
    """What is known of all tables, and of the machine.

    Parameters
    ----------
    rows : rows of each table now.
    rates : how many rows of a table a step changes, for the tables where that has been observed (`watched`).
    """

    tables: Mapping[str, TableSchema]
    rows: Mapping[str, int] = field(default_factory=dict)
    rates: Mapping[str, float] = field(default_factory=dict)
    units: Units = UNITS

    def size(self, table: str) -> int:
        """The current or the expected rows of a table, whichever is more; 0 if nothing is known."""
        return max(self.rows.get(table, 0), self.tables[table].expected_rows or 0)

    def sizes(self, sources: Mapping[str, str]) -> dict[str, int]:
        """The rows of each source, given its table; sources of unknown size are left out."""
        found = {source: self.size(table) for source, table in sources.items()}
        return {source: size for source, size in found.items() if size}

    def knows(self, tables: Iterable[str]) -> bool:
        """Whether the size of at least one of the tables is known or expected."""
        return any(self.size(table) for table in tables)

    def share(self, table: str, *, looked_up: bool = False) -> float:
        """The share of a table that a step changes, as observed or as assumed."""
        if self.tables[table].static:
            return 0.0
        assumed = LOOKED_UP_SHARE if looked_up else CHANGED_SHARE
        size = self.size(table)
        return self.rates[table] / size if size and self.rates.get(table) else assumed

    @cached_property
    def keys(self) -> dict[str, tuple[str, ...]]:
        """The key of each table."""
        return {name: table.key for name, table in self.tables.items()}

    @cached_property
    def values(self) -> dict[tuple[str, str], int]:
        """The number of values of each column (table, column) that refers to a table of known size."""
        return {
            (name, column): self.size(target)
            for name, table in self.tables.items()
            for column, target in table.references
            if isinstance(column, str) and target in self.tables and self.size(target)
        }

    def of_sources(self, sources: Mapping[str, str], looked_up: Mapping[str, bool]) -> OfSources:
        """The sizes and changes of the sources of a view, with assumptions where nothing is known.

        Parameters
        ----------
        sources : the table of each source.
        looked_up : per source, whether a join finds its rows by key; if so, it is assumed smaller, with fewer changes.
        """
        rows, changed = {}, {}
        for source, table in sources.items():
            assumed = UNKNOWN_ROWS if looked_up[source] else UNKNOWN_ROWS * UNKNOWN_GROWTH
            rows[source] = float(self.size(table) or assumed)
            seen = 0.0 if self.tables[table].static else self.rates.get(table, 0.0)
            changed[source] = seen or rows[source] * self.share(table, looked_up=looked_up[source])
        return OfSources(rows, changed)

    def of_joined(self, sources: Iterable[Source]) -> OfSources:
        """`of_sources` for a join: a source is looked up if its key is among the join variables."""
        sources = tuple(sources)
        names = [name for source in sources for name in source.variable_names]
        found = {}
        for source in sources:
            joined = {str(e.value) for name, e in source.variables if names.count(name) > 1 and e.op == "column"}
            key = self.tables[source.table].key
            found[source.name] = bool(key) and joined.issuperset(key)
        return self.of_sources({source.name: source.table for source in sources}, found)


def watched(rates: Mapping[str, float], changed: Mapping[str, int], rows: Mapping[str, int]) -> dict[str, float]:
    """The new rates of the tables that a step has changed, from the old rates and the sizes after the step.

    >>> watched({"sale": 10.0}, {"sale": 20, "shop": 500}, {"sale": 1_000, "shop": 600})
    {'sale': 12.0}
    """
    out = {}
    for table, count in changed.items():
        if count <= _LOAD_SHARE * rows[table]:
            before = rates.get(table, float(count))
            out[table] = before + _NEWS * (count - before)
    return out

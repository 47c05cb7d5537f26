"""Rows of an operator in an order, as the runs of an ordered arrangement.

It is to ORDER BY what `changes.RowLayout` is to a search: it writes changed rows as entries of runs, and reads them
back. The key of an entry is the whole row, in the order asked for (`relation.ordered`); columns that the order does not
name come after those that it names, ascending with NULLs first, and break ties.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headrace.operators.changes import Changes, Rows
from headrace.plan.tree import Field
from headrace.relation.coded import coded
from headrace.relation.ordered import Ordering, Sorted
from headrace.relation.run import Run


@dataclass(frozen=True)
class OrderedRows:
    """How rows of some fields are arranged in an order.

    Parameters
    ----------
    asked : (field, descending, nulls first), most significant first.
    """

    fields: tuple[Field, ...]
    asked: tuple[tuple[int, bool, bool], ...]
    seed: int

    @cached_property
    def _directions(self) -> dict[int, tuple[bool, bool]]:
        """The fields in the order of their weight: whether each is descending, and whether its NULLs come first."""
        found: dict[int, tuple[bool, bool]] = {}
        for i, descending, nulls_first in (*self.asked, *((i, False, True) for i in range(len(self.fields)))):
            found.setdefault(i, (descending, nulls_first))
        return found

    @property
    def places(self) -> tuple[int, ...]:
        """The fields in the order of their weight."""
        return tuple(self._directions)

    @cached_property
    def ordering(self) -> Ordering:
        """The order of all rows."""
        fields = ((self.fields[i], directions) for i, directions in self._directions.items())
        return Ordering(tuple(Sorted(f.name, f.type, f.nullable, *directions) for f, directions in fields))

    def rows(self, changes: Changes) -> Rows:
        """The words of changed rows, in the order in which they come."""
        columns = {f.name: coded(changes.columns[f.name], f.type, self.seed) for f in self.fields}
        texts = {name: column.text for name, column in columns.items() if column.text is not None}
        return Rows(self.ordering.words(columns, changes.rows), changes.diff, texts)

    def run(self, changes: Changes) -> Run:
        """Arrange rows as a run; equal rows are added up, and rows that cancel are dropped."""
        return self.rows(changes).run()

    def changes(self, run: Run) -> Changes:
        """Read a whole run back."""
        found = {column.name: self.ordering.column(column, run) for column in self.ordering.columns}
        columns = {field.name: found[field.name] for field in self.fields}
        return Changes(columns, run.payload[0].astype(np.int64))

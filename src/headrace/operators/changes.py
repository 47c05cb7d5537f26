"""Change batches between operators, and the runs in which their rows are arranged.

Operators hand each other columns and multiplicities. Rows become a run where they are searched, stored or sent. The key
of that run is all their fields, the searched ones first, so equal rows are one entry with a count. Columns that come
out of a run stay words (`relation.coded`) until an expression reads their values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.plan.tree import Field
from headrace.relation.coded import Coded, Column, coded, concatenated, lead_of_words, nulls_of, take_any, values
from headrace.relation.columns import take_column
from headrace.relation.kernels import Positions, Words
from headrace.relation.run import Run, consolidate, take_values
from headrace.relation.types import SqlType
from headrace.relation.variables import Variable, Variables
from headrace.rings import COUNT


@dataclass(frozen=True)
class Changes:
    """Rows in columns, each with a multiplicity: positive for inserted rows, negative for deleted ones."""

    columns: dict[str, Column]
    diff: NDArray[np.int64]

    @property
    def rows(self) -> int:
        return len(self.diff)

    def take(self, positions: NDArray[np.integer]) -> Changes:
        """Pick rows by position."""
        columns = {name: take_any(column, positions) for name, column in self.columns.items()}
        return Changes(columns, self.diff[positions])

    def arrays(self) -> dict[str, pa.Array]:
        """All columns as values."""
        return {name: values(column) for name, column in self.columns.items()}


def together(parts: Iterable[Changes]) -> Changes | None:
    """Add changes up; None when there are none."""
    found = [part for part in parts if part.rows]
    if len(found) < 2:
        return found[0] if found else None
    names = found[0].columns
    columns = {name: concatenated([part.columns[name] for part in found]) for name in names}
    return Changes(columns, np.concatenate([part.diff for part in found]))


@dataclass(frozen=True)
class Rows:
    """Changed rows as words, in no order, each with its multiplicity."""

    words: Words
    diff: NDArray[np.int64]
    texts: dict[str, pa.Array]

    def take(self, positions: Positions) -> Rows:
        """Pick rows by position."""
        return Rows(np.take(self.words, positions, axis=1), self.diff[positions], take_values(self.texts, positions))

    def run(self) -> Run:
        """Sort rows into a run; equal rows are added up, and rows that cancel are dropped."""
        return consolidate(COUNT, self.words, (self.diff,), self.texts)


@dataclass(frozen=True)
class RowLayout:
    """How rows of some fields are arranged: sorted by the first `keys` of them, then by all others.

    Parameters
    ----------
    safe : for each key, whether NULL is a value like any other; a key that is not `safe` is never NULL here.
    """

    fields: tuple[Field, ...]
    keys: int
    safe: tuple[bool, ...]
    seed: int

    @cached_property
    def variables(self) -> Variables:
        kinds = {}
        for i, field in enumerate(self.fields):
            # Both sides of a join must encode a key alike, whether or not it can be NULL on one of them.
            nullable = self.safe[i] if i < self.keys else field.nullable
            kinds[field.name] = Variable(field.type, nullable)
        return Variables(kinds, self.seed)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    @cached_property
    def _slices(self) -> dict[str, slice]:
        return self.variables.slices(self.names)

    @cached_property
    def key_width(self) -> int:
        """How many words a key has."""
        return sum(self.variables.widths[name] for name in self.names[: self.keys])

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """Fields that cannot be read back from their words."""
        return tuple(field.name for field in self.fields if field.type.kind == "string")

    def rows(self, changes: Changes) -> Rows:
        """The words of changed rows, in their own order."""
        parts, texts = list[Words](), {}
        for name, field in zip(self.names, self.fields, strict=True):
            column = coded(changes.columns[name], field.type, self.seed)
            parts.append(column.words)
            if self.variables.kinds[name].nullable:
                missing = column.missing
                parts.append(
                    np.zeros((1, changes.rows), np.uint64) if missing is None else missing.astype(np.uint64)[None]
                )
            if column.text is not None:
                texts[name] = column.text
        words = np.concatenate(parts) if parts else np.zeros((1, changes.rows), np.uint64)
        return Rows(words, changes.diff, texts)

    def run(self, changes: Changes) -> Run:
        """Arrange rows as a run; equal rows are added up, and rows that cancel are dropped."""
        return self.rows(changes).run()

    def probes(self, run: Run) -> Words:
        """The keys of a run's entries, to look for elsewhere."""
        return np.ascontiguousarray(run.words[: self.key_width])

    def lead(self, places: Sequence[int], words: Words) -> NDArray[np.uint64]:
        """The word that decides the bucket of entries, if these fields do; keys suffice if all of them are keys."""
        rows: list[int] = []
        for name in (self.names[place] for place in places):
            own = self._slices[name]
            rows += range(own.start, own.stop - int(self.variables.kinds[name].nullable))
        return lead_of_words(words[rows], self.seed)

    def column(self, name: str, run: Run, at: Positions | None = None) -> Coded:
        """One field of a run's entries: of all, or of those at some positions."""
        kind = self.variables.kinds[name]
        words = run.words[self._slices[name]]
        words = words if at is None else np.take(words, at, axis=1)
        missing = None
        if kind.nullable:
            missing = words[-1].astype(bool)
            words, missing = words[:-1], missing if missing.any() else None
        text = run.values.get(name)
        return Coded(kind.type, words, missing, text if text is None or at is None else take_column(text, at))

    def changes(self, run: Run) -> Changes:
        """Read a whole run back."""
        columns = {name: self.column(name, run) for name in self.names}
        return Changes(columns, run.payload[0].astype(np.int64))


def null_in(columns: Iterable[Column]) -> NDArray[np.bool_] | None:
    """Tell which rows have a NULL in one of some columns; None when none has."""
    found: NDArray[np.bool_] | None = None
    for column in columns:
        missing = nulls_of(column)
        if missing is not None:
            found = missing if found is None else found | missing
    return found


def no_values(kind: SqlType, rows: int) -> pa.Array:
    """A column of NULLs."""
    return pa.nulls(rows, kind.arrow)

"""Change batches between operators, and the runs in which their rows are arranged.

Operators hand each other columns and multiplicities. To be searched, to be stored and to be sent, rows become a run:
all their fields are its key, those that are searched for in front, so equal rows are one entry with a count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.operators.layout import COUNT
from headrace.plan.tree import Field
from headrace.relation import kernels
from headrace.relation.columns import take_column, whole
from headrace.relation.kernels import Positions, Words
from headrace.relation.keys import KeyLayout, validity, values_of_words
from headrace.relation.run import Run, consolidate
from headrace.relation.types import SqlType
from headrace.relation.variables import Variable, Variables

Columns = Mapping[str, pa.Array]


@dataclass(frozen=True)
class Changes:
    """Rows in columns, and how often each comes (positive) or goes (negative)."""

    columns: dict[str, pa.Array]
    diff: NDArray[np.int64]

    @property
    def rows(self) -> int:
        return len(self.diff)

    def take(self, positions: NDArray[np.integer]) -> Changes:
        """Pick rows by position."""
        columns = {name: take_column(column, positions) for name, column in self.columns.items()}
        return Changes(columns, self.diff[positions])


def together(parts: Iterable[Changes]) -> Changes | None:
    """Add changes up; None when there are none."""
    found = [part for part in parts if part.rows]
    if len(found) < 2:
        return found[0] if found else None
    names = found[0].columns
    columns = {name: pa.concat_arrays([part.columns[name] for part in found]) for name in names}
    return Changes(columns, np.concatenate([part.diff for part in found]))


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

    def run(self, changes: Changes) -> Run:
        """Arrange rows; equal ones are added up, and those that cancel are gone."""
        words = {name: self.variables.encode(name, changes.columns[name]) for name in self.names}
        texts = {name: changes.columns[name] for name in self.texts}
        return consolidate(COUNT, self.variables.key(words, self.names, changes.rows), (changes.diff,), texts)

    def probes(self, run: Run) -> Words:
        """The keys of a run's entries, to look for elsewhere."""
        return np.ascontiguousarray(run.words[: self.key_width])

    def column(self, name: str, run: Run, at: Positions | None = None) -> pa.Array:
        """Read a field of a run's entries (at some positions) back."""
        if name in self.texts:
            text = run.values[name]
            return text if at is None else take_column(text, at)
        kind = self.variables.kinds[name]
        words = run.words[self._slices[name]]
        words = words if at is None else np.take(words, at, axis=1)
        missing = words[-1].astype(bool) if kind.nullable else None
        return values_of_words(words, kind.type, missing)

    def changes(self, run: Run) -> Changes:
        """Read a whole run back."""
        columns = {name: self.column(name, run) for name in self.names}
        return Changes(columns, run.payload[0].astype(np.int64))


def lead_of(columns: Sequence[pa.Array], types: Sequence[SqlType], seed: int) -> NDArray[np.uint64]:
    """The word that decides in which bucket a row lies, from the columns by which it is partitioned.

    It is the same wherever equal values stand, in a group, on either side of a join, with or without NULLs around.
    """
    parts = []
    for column, kind in zip(columns, types, strict=True):
        layout = KeyLayout((kind,), (False,), seed)
        parts.append(layout.encode([whole(column)])[int(layout.has_lead) :])
    words = parts[0] if len(parts) == 1 else np.concatenate(parts)
    if len(words) == 1:
        return np.ascontiguousarray(words[0])
    lead = np.empty(words.shape[1], np.uint64)
    kernels.fold(words, np.uint64(seed), lead)
    return lead


def by_bucket(lead: NDArray[np.uint64], buckets: int) -> dict[int, Positions]:
    """The rows of each bucket that has some."""
    codes = np.empty(len(lead), np.int32)
    kernels.buckets_of(lead, buckets, codes)
    order, starts = np.empty(len(lead), np.int64), np.empty(buckets + 1, np.int64)
    kernels.split_by(codes, buckets, order, starts)
    return {b: order[starts[b] : starts[b + 1]] for b in range(buckets) if starts[b] < starts[b + 1]}


def null_in(columns: Iterable[pa.Array]) -> NDArray[np.bool_] | None:
    """Tell which rows have a NULL in one of some columns; None when none has."""
    found: NDArray[np.bool_] | None = None
    for column in columns:
        if column.null_count:
            missing = ~validity(column)
            found = missing if found is None else found | missing
    return found


def no_values(kind: SqlType, rows: int) -> pa.Array:
    """A column of NULLs."""
    return pa.nulls(rows, kind.arrow)

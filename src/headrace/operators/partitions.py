"""Rows arranged by partition and, in each partition, in an order: what functions over windows of rows read.

The key of an entry begins with the words of the partition, as those of a group do, so that partitions are found and
spread over buckets like groups. Behind them are the words of all other fields, in the order asked for (`ordered_rows`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from headrace.operators.changes import Changes, RowLayout, Rows
from headrace.operators.ordered_rows import OrderedRows
from headrace.plan.tree import Field
from headrace.relation.coded import Coded
from headrace.relation.kernels import Positions, Words
from headrace.relation.run import Run


@dataclass(frozen=True)
class PartitionedRows:
    """How rows of some fields are arranged by partition.

    Parameters
    ----------
    keys : how many of the first fields are the partition.
    asked : the order in a partition: (field, descending, nulls first), most significant first.
    """

    fields: tuple[Field, ...]
    keys: int
    asked: tuple[tuple[int, bool, bool], ...]
    seed: int

    @cached_property
    def head(self) -> RowLayout:
        """How the fields of the partition are written."""
        return RowLayout(self.fields[: self.keys], self.keys, (True,) * self.keys, self.seed)

    @cached_property
    def tail(self) -> OrderedRows:
        """How all other fields are written; a field of the partition orders nothing in it."""
        asked = tuple((i - self.keys, descending, first) for i, descending, first in self.asked if i >= self.keys)
        return OrderedRows(self.fields[self.keys :], asked, self.seed)

    @property
    def decided(self) -> int:
        """How many fields of the tail the order names."""
        return len({i for i, *_ in self.tail.asked})

    @cached_property
    def depth(self) -> int:
        """How many words tell the partition; without fields, all rows are in one, whose word is zero."""
        return max(1, self.head.key_width)

    def rows(self, changes: Changes) -> Rows:
        """The words of changed rows, in the order in which they come."""
        head, tail = self.head.rows(changes), self.tail.rows(changes)
        return Rows(np.concatenate([head.words, tail.words]), changes.diff, head.texts | tail.texts)

    def run(self, changes: Changes) -> Run:
        """Arrange rows as a run; equal rows are added up, and rows that cancel are dropped."""
        return self.rows(changes).run()

    def lead(self, places: Sequence[int], words: Words) -> NDArray[np.uint64]:
        """The word that decides the bucket of entries, if these fields of the partition do."""
        return self.head.lead(places, words)

    def columns(self, run: Run) -> dict[str, Coded]:
        """The fields of a run's entries."""
        behind = self._behind(run)
        found = {name: self.head.column(name, run) for name in self.head.names}
        found |= {column.name: self.tail.ordering.column(column, behind) for column in self.tail.ordering.columns}
        return {field.name: found[field.name] for field in self.fields}

    def begins(self, run: Run) -> NDArray[np.bool_]:
        """Which entries of a run begin a partition."""
        words = run.words[: self.depth]
        new = np.ones(run.rows, bool)
        new[1:] = (words[:, 1:] != words[:, :-1]).any(axis=0)
        return new

    def partitions(self, run: Run) -> tuple[Positions, Words]:
        """Where each partition begins in a run, and the words of the partitions."""
        at = np.flatnonzero(self.begins(run))
        return at, np.ascontiguousarray(run.words[: self.depth, at])

    def without(self, run: Run, gone: NDArray[np.bool_]) -> Run:
        """The run without some of its partitions."""
        return run.take(np.flatnonzero(~gone[np.cumsum(self.begins(run)) - 1]))

    def decides_order(self, run: Run, at: Positions | slice = slice(None)) -> NDArray[np.bool_]:
        """For which entries words alone tell the place: those without texts that are longer than words show."""
        ordering = self.tail.ordering
        words = run.words[self.depth :, at]
        if not ordering.hashes:
            return np.ones(words.shape[1], bool)
        decided: NDArray[np.bool_] = ordering.decided(words) == ordering.width
        return decided

    def is_decided(self, run: Run) -> bool:
        """Whether words alone tell the order of all entries."""
        return bool(self.decides_order(run).all())

    def in_order(self, run: Run) -> Run:
        """The entries with those that long texts leave open in their right order, which is not that of a run."""
        if run.rows < 2 or self.is_decided(run):
            return run
        starts, _ = self.partitions(run)
        partition = np.repeat(np.arange(len(starts)), np.diff(starts, append=run.rows))
        exact = self.tail.ordering.exact(self._behind(run))
        return run.take(exact[np.argsort(partition[exact], kind="stable")])

    def new_places(self, run: Run) -> NDArray[np.bool_]:
        """Which entries, in their order, do not tie with the one before: they have another partition or other values.

        Only the values that the order names count.
        """
        new = self.begins(run)
        columns = self.columns(run)
        for column in self.tail.ordering.columns[: self.decided]:
            values = columns[column.name]
            new[1:] |= (values.words[:, 1:] != values.words[:, :-1]).any(axis=0)
            if values.missing is not None:
                new[1:] |= values.missing[1:] != values.missing[:-1]
        return new

    def _behind(self, run: Run) -> Run:
        texts = {f.name for f in self.fields[self.keys :]}
        values = {name: text for name, text in run.values.items() if name in texts}
        return Run(run.words[self.depth :], run.payload, values)

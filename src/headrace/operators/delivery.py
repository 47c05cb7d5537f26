"""Delivery of rows to an operator: the bucket that each row goes to, and the run in which it travels there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from headrace.operators.changes import Changes, Rows
from headrace.operators.placement import Places, Way
from headrace.plan.tree import Field
from headrace.relation.coded import by_bucket, coded, lead_of_words
from headrace.relation.run import Run

Delivery = tuple[int, str, Run]  # bucket, part, changes


def one_bucket(buckets: int) -> int:
    """The bucket of operators that are not spread over buckets."""
    (bucket,) = by_bucket(np.zeros(1, np.uint64), buckets)
    return bucket


class Arranges(Protocol):
    """How rows of some fields become runs: by what they are searched for, or in an order."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns of the rows."""
        ...

    def rows(self, changes: Changes) -> Rows:
        """The words of changed rows, in the order in which they come."""
        ...

    def run(self, changes: Changes) -> Run:
        """Arrange rows as a run; equal rows are added up, and rows that cancel are dropped."""
        ...


@dataclass(frozen=True)
class Destination:
    """Where the rows of one feed go.

    Parameters
    ----------
    partition : the positions of the fields whose values decide the bucket; empty if one bucket has all rows.
    bucket : the bucket that the rows are in; None for rows of a table, which have been judged already.
    """

    way: Way
    partition: Places
    buckets: int
    seed: int
    bucket: int | None

    @property
    def judged(self) -> bool:
        """Whether the rows hold no value that a sum cannot subtract again."""
        return self.bucket is None

    @property
    def here(self) -> int:
        """The bucket of rows that stay where they are."""
        assert self.bucket is not None
        return self.bucket

    @property
    def one(self) -> int:
        """The bucket of an operator that is not spread over buckets."""
        return one_bucket(self.buckets)

    def deliver(self, layout: Arranges, part: str, changes: Changes) -> Iterator[Delivery]:
        """Arrange rows as runs, one per bucket that gets any."""
        if self.way is Way.STAY:
            yield self.here, part, layout.run(changes)
        elif self.way is Way.EVERYWHERE:
            run = layout.run(changes)
            if run.rows:
                yield from ((to, part, run) for to in range(self.buckets))
        elif not self.partition:
            yield self.one, part, layout.run(changes)
        else:
            yield from self._spread_out(layout, part, changes)

    def _spread_out(self, layout: Arranges, part: str, changes: Changes) -> Iterator[Delivery]:
        fields = [layout.fields[place] for place in self.partition]
        leading = {f.name: coded(changes.columns[f.name], f.type, self.seed) for f in fields}
        words = [leading[f.name].words for f in fields]  # a field may decide twice: `SELECT x, x ...`
        lead = lead_of_words(words[0] if len(words) == 1 else np.concatenate(words), self.seed)
        changes = Changes(changes.columns | leading, changes.diff)
        rows = layout.rows(changes)
        for to, at in by_bucket(lead, self.buckets).items():
            yield to, part, (rows.take(at) if len(at) < changes.rows else rows).run()

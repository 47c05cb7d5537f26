"""One join of a chain in one bucket: which rows become alive on a child, and which cease to be, in a whole step.

Rows that wait, I(R, Rc), and live rows of the child, L(Rc), are relations over counts, so what a step changes is

    d(I x L) = dI x (L + dL)  +  I x dL

and both products only look at rows that change: new rows look for their child, changed children look for the rows that
wait for them. A row that leaves and comes back in one step cancels. Nothing here is decided row by row: the keys are
sorted, and a step finds all of them in one pass over each run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.foreign.chain import Join
from headrace.operators.layout import COUNT
from headrace.operators.operator import loaded
from headrace.relation.arrangement import AnyRun, stretches
from headrace.relation.columns import take_column
from headrace.relation.kernels import Positions, Words
from headrace.relation.run import Run, consolidate
from headrace.relation.variables import Variables


@dataclass(frozen=True)
class Tuples:
    """Changed rows in no order: the words of their variables, the texts beside them, and how often each occurs."""

    order: tuple[str, ...]
    words: Words
    diff: NDArray[np.int64]
    texts: dict[str, pa.Array]

    @property
    def rows(self) -> int:
        return len(self.diff)

    def as_run(self, variables: Variables, order: Sequence[str]) -> Run:
        """Sort rows by some of their variables; equal ones are added up, and those that cancel are gone."""
        texts = {name: text for name, text in self.texts.items() if name in order}
        words = self.words if tuple(order) == self.order else self._in_order(variables, order)
        return consolidate(COUNT, words, (self.diff,), texts)

    def _in_order(self, variables: Variables, order: Sequence[str]) -> Words:
        at = variables.slices(self.order)
        rows = [row for name in order for row in range(at[name].start, at[name].stop)]
        return self.words[rows] if rows else np.zeros((1, self.rows), np.uint64)


@dataclass(frozen=True)
class LiveJoin:
    """A join as a function over runs; `out` are the variables that go on."""

    join: Join
    variables: Variables
    out: tuple[str, ...]
    texts: frozenset[str]  # variables whose text travels along

    def changes(
        self,
        left: Run | None,
        right: Run | None,
        waiting: Sequence[AnyRun],
        live: Sequence[AnyRun],
    ) -> Tuples | None:
        """What a step changes of the joined rows; the arrangements are as they were before it."""
        found = []
        if left is not None and left.rows:
            for run in (*live, right) if right is not None else live:
                positions, owners = stretches(run, self._probes(left))
                found.append(self._matched(left, owners, run, positions))
        if right is not None and right.rows:
            for run in waiting:
                positions, owners = stretches(run, self._probes(right))
                found.append(self._matched(run, positions, right, owners))
        parts = [part for part in found if part is not None]
        if not parts:
            return None
        if len(parts) == 1:
            return parts[0]
        return Tuples(
            self.out,
            np.concatenate([part.words for part in parts], axis=1),
            np.concatenate([part.diff for part in parts]),
            {name: pa.concat_arrays([part.texts[name] for part in parts]) for name in parts[0].texts},
        )

    def _probes(self, run: Run) -> Words:
        return run.words[: self._key_width]

    def _matched(self, left: AnyRun, left_at: Positions, right: AnyRun, right_at: Positions) -> Tuples | None:
        if not len(left_at):
            return None
        left, left_at = loaded(left, left_at)
        right, right_at = loaded(right, right_at)
        if self._compared:
            agree = np.ones(len(left_at), bool)
            for mine, other in self._compared:
                agree &= left.words[mine][left_at] == right.words[other][right_at]
            if not agree.all():
                left_at, right_at = left_at[agree], right_at[agree]
        words = np.empty((max(1, len(self._sources)), len(left_at)), np.uint64)
        words[:1] = 0
        for row, (from_left, at) in enumerate(self._sources):
            np.take((left if from_left else right).words[at], left_at if from_left else right_at, out=words[row])
        texts = {
            name: take_column(left.values[name], left_at)
            if name in left.values
            else take_column(right.values[name], right_at)
            for name in self.out
            if name in self.texts
        }
        return Tuples(self.out, words, left.payload[0][left_at] * right.payload[0][right_at], texts)

    @cached_property
    def _key_width(self) -> int:
        return sum(self.variables.widths[name] for name in self.join.key)

    @cached_property
    def _sources(self) -> list[tuple[bool, int]]:
        """For each word of what goes on: whether it is the left side's, and which word it is there."""
        left, right = self.variables.slices(self.join.left), self.variables.slices(self.join.right)
        out = []
        for name in self.out:
            at = left.get(name) or right[name]
            out += [(name in left, row) for row in range(at.start, at.stop)]
        return out

    @cached_property
    def _compared(self) -> list[tuple[int, int]]:
        """The words of assertion keys on both sides."""
        left, right = self.variables.slices(self.join.left), self.variables.slices(self.join.right)
        return [
            pair
            for name in self.join.asserted
            for pair in zip(
                range(left[name].start, left[name].stop), range(right[name].start, right[name].stop), strict=True
            )
        ]

"""Answers of views over joins: SQL groups, and moments for models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headrace.factorized.bucket import without_residue
from headrace.factorized.sums import SumsAlgebra
from headrace.operators.aggregate import maintain
from headrace.operators.delta import split
from headrace.operators.kernel import Incoming, Lifted, Reduced, State, ViewChange
from headrace.operators.layout import GROUPS, ViewLayout
from headrace.relation import kernels
from headrace.relation.arrangement import alive, lookup
from headrace.relation.kernels import Positions
from headrace.relation.keys import KeyLayout
from headrace.relation.run import Run, merge
from headrace.relation.variables import Variables
from headrace.rings import Group, Payload, take
from headrace.rings.covariance import Covariance

MOMENTS = "moments"


@dataclass(frozen=True)
class GroupsAnswer:
    """The groups of a SQL view, stored like those of a view over one table."""

    layout: ViewLayout
    algebra: SumsAlgebra
    variables: Variables

    @property
    def arrangements(self) -> Mapping[str, Group]:
        return self.layout.arrangements

    def split(self, changes: Sequence[Run], buckets: int) -> Lifted:
        root = merge(self.algebra.group(self.algebra.plan.root), changes)
        order = self.algebra.plan.views[self.algebra.plan.root].orders[0]
        run, _ = regrouped(
            self.variables, self.layout.keys, root, order, self.algebra.join.keys, self.algebra.answer(root.payload)
        )
        return {bucket: {GROUPS: piece} for bucket, piece in split(run, buckets).items()}

    def reduce(self, state: State, incoming: Incoming) -> Reduced:
        return maintain(self.layout, state, incoming)


@dataclass(frozen=True)
class MomentsAnswer:
    """Covariance triples by group; without groups, one triple."""

    keys: KeyLayout
    names: tuple[str, ...]  # the variables of GROUP BY
    order: tuple[str, ...]  # the order of the root's keys
    degree: int
    variables: Variables

    @cached_property
    def arrangements(self) -> Mapping[str, Group]:
        return {MOMENTS: Covariance(self.degree)}

    def split(self, changes: Sequence[Run], buckets: int) -> Lifted:
        run, _ = self.regrouped(merge(Covariance(self.degree), changes))
        return {bucket: {MOMENTS: piece} for bucket, piece in split(run, buckets).items()}

    def regrouped(self, root: Run) -> tuple[Run, Positions]:
        """Rewrite a change of the root view with the keys of the answer; with the positions that entries had."""
        return regrouped(self.variables, self.keys, root, self.order, self.names, root.payload)

    def reduce(self, state: State, incoming: Incoming) -> Reduced:
        group = Covariance(self.degree)
        change = merge(group, list(incoming[MOMENTS]))
        if not change.rows:
            return Reduced()
        before = lookup(group, state[MOMENTS], change.words)
        change = without_residue(group, state[MOMENTS], change)
        was, now = alive(before), alive(group.add(before, change.payload))
        summary = ViewChange(int((now & ~was).sum()), int((was & ~now).sum()), int((was & now).sum()))
        if not self.names:
            summary = ViewChange(updated=1)
        return Reduced({MOMENTS: change}, {MOMENTS: int(now.sum()) - int(was.sum())}, summary=summary)


def regrouped(
    variables: Variables,
    layout: KeyLayout,
    root: Run,
    order: Sequence[str],
    names: Sequence[str],
    payload: Payload,
) -> tuple[Run, Positions]:
    """Rewrite a change of the root view with the keys of the answer; with the positions that entries had."""
    slices = variables.slices(order)
    words = variables.group_key(layout, {name: root.words[at] for name, at in slices.items()}, names, root.rows)
    sorted_rows = kernels.sort_order(words)
    values = {f"k{i}": root.values[names[i]].take(sorted_rows) for i in layout.stored}
    return Run(np.take(words, sorted_rows, axis=1), take(payload, sorted_rows), values), sorted_rows

"""An aggregate view over one table as the runtime sees it: one map side, one stage."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headrace.operators.aggregate import maintain
from headrace.operators.delta import deltas, group_words, not_summable, split
from headrace.operators.kernel import Evaluated, Incoming, Lifted, MapSide, Reduced, State, ViewKernel
from headrace.operators.layout import GROUPS, ViewLayout
from headrace.plan.expression import Expression
from headrace.relation import kernels
from headrace.rings import Group


@dataclass(frozen=True)
class AggregateView(ViewKernel):
    """COUNT, SUM, AVG, MIN, MAX and COUNT(DISTINCT) of the rows of one table, by group."""

    layout: ViewLayout

    @cached_property
    def sides(self) -> tuple[MapSide, ...]:
        plan = self.layout.plan
        return (MapSide(plan.table, "", plan.condition, plan.keys, plan.arguments),)

    @property
    def row_keys(self) -> tuple[tuple[str, tuple[Expression, ...]], ...]:
        return ((self.layout.plan.table, self.layout.plan.keys),)

    @property
    def arrangements(self) -> Mapping[str, Group]:
        return self.layout.arrangements

    @property
    def stages(self) -> tuple[tuple[str, ...], ...]:
        return (tuple(self.layout.arrangements),)

    def home(self, part: str, bucket: int) -> int:
        return bucket

    def refused(self, source: str, rows: Evaluated) -> dict[int, str]:
        return not_summable(self.layout, rows)

    def lift(self, source: str, rows: Evaluated, buckets: int, own: Collection[int] | None) -> Lifted:
        words = group_words(self.layout, rows)
        if own is not None and len(own) < buckets:
            at = kernels.rows_of_buckets(words[0], buckets, own)
            rows, words = rows.take(at), np.ascontiguousarray(words[:, at])
        out: Lifted = {}
        if len(rows.diff):
            for part, run in deltas(self.layout, rows, words).items():
                for bucket, piece in split(run, buckets).items():
                    out.setdefault(bucket, {})[part] = piece
        return out

    def reduce(self, stage: int, bucket: int, state: State, incoming: Incoming) -> Reduced:
        if not incoming.get(GROUPS):
            return Reduced()
        return maintain(self.layout, state, {part: incoming.get(part, []) for part in self.arrangements})

"""Delivery of rows to an operator: the bucket that each row goes to, and the run in which it travels there."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from headrace.operators.changes import Changes, RowLayout, null_in
from headrace.operators.group import GroupLayout
from headrace.operators.join import JoinLayout
from headrace.operators.not_in import seen, seen_part
from headrace.operators.placement import Placement, Way
from headrace.operators.top import TopLayout
from headrace.plan.tree import FeedId, JoinKind
from headrace.relation import kernels
from headrace.relation.coded import by_bucket, coded, lead_of_words
from headrace.relation.run import Run

Layout = JoinLayout | GroupLayout | TopLayout
Delivery = tuple[int, str, Run]  # bucket, part, changes


@dataclass(frozen=True)
class Deliverer:
    """Delivers changes to the operators of one view."""

    layouts: tuple[Layout, ...]
    placement: Placement
    buckets: int
    seed: int

    @property
    def one_bucket(self) -> int:
        """The bucket of operators that are not spread over buckets."""
        (bucket,) = by_bucket(np.zeros(1, np.uint64), self.buckets)
        return bucket

    def deliver(
        self, feed_id: FeedId, changes: Changes, bucket: int | None, own: Collection[int] | None
    ) -> Iterator[Delivery]:
        """Split changes into runs, each with the bucket and the part of the operator that it goes to.

        Parameters
        ----------
        bucket : the bucket that the changes are in; None for rows of a table, which have been judged already.
        own : the buckets whose share is wanted; None for all.
        """
        if not changes.rows:
            return
        layout, way = self.layouts[feed_id[0]], self.placement.routes[feed_id].way
        if isinstance(layout, JoinLayout):
            yield from self._to_join(layout, feed_id, way, changes, bucket, own)
        elif isinstance(layout, TopLayout):
            if own is None or self.one_bucket in own:
                yield self.one_bucket, layout.rows_part, layout.rows.run(changes)
        else:
            for to, parts in self._to_groups(layout, feed_id, way, changes, bucket, own).items():
                for part, run in parts.items():
                    yield to, part, run

    def _to_groups(
        self,
        layout: GroupLayout,
        feed_id: FeedId,
        way: Way,
        changes: Changes,
        bucket: int | None,
        own: Collection[int] | None,
    ) -> dict[int, dict[str, Run]]:
        judged = bucket is None
        if way is Way.STAY:
            assert bucket is not None
            return {bucket: layout.parts(changes)}
        partition = self.placement.places[feed_id[0]].partition
        if partition:
            return layout.parts_by_bucket(changes, partition, self.buckets, own, judged=judged)
        if own is not None and self.one_bucket not in own:
            return {}
        return {self.one_bucket: layout.parts(changes, judged=judged)}

    def _to_join(
        self,
        layout: JoinLayout,
        feed_id: FeedId,
        way: Way,
        changes: Changes,
        bucket: int | None,
        own: Collection[int] | None,
    ) -> Iterator[Delivery]:
        number, side, _ = feed_id
        node, rows, part = layout.node, layout.rows[side], layout.parts[side]
        mine = range(self.buckets) if own is None else own
        if node.kind is JoinKind.NULL_AWARE and side == 1:
            nulls = null_in([changes.columns[rows.names[0]]])
            for to in mine:
                yield to, seen_part(layout), seen(changes.diff, nulls)
        unsafe = [name for name, safe in zip(rows.names, node.safe, strict=False) if not safe]
        missing = null_in([changes.columns[name] for name in unsafe])
        if missing is not None:
            absent = changes.take(np.flatnonzero(missing))
            changes = changes.take(np.flatnonzero(~missing))
            if layout.passes_absent(side):
                yield from self._spread_out(
                    layout.absent_rows(side), layout.absent_part(side), number, way, absent, bucket, own
                )
        if way is Way.EVERYWHERE:
            run = rows.run(changes)
            if run.rows:
                yield from ((to, part, run) for to in mine)
        else:
            yield from self._spread_out(rows, part, number, way, changes, bucket, own)

    def _spread_out(
        self,
        layout: RowLayout,
        part: str,
        number: int,
        way: Way,
        changes: Changes,
        bucket: int | None,
        own: Collection[int] | None,
    ) -> Iterator[Delivery]:
        if way is Way.STAY:
            assert bucket is not None
            yield bucket, part, layout.run(changes)
            return
        partition = self.placement.places[number].partition
        if not partition:
            if own is None or self.one_bucket in own:
                yield self.one_bucket, part, layout.run(changes)
            return
        fields = [layout.fields[place] for place in partition]
        leading = {f.name: coded(changes.columns[f.name], f.type, self.seed) for f in fields}
        words = [leading[f.name].words for f in fields]  # a field may decide twice: `SELECT x, x ...`
        lead = lead_of_words(words[0] if len(words) == 1 else np.concatenate(words), self.seed)
        changes = Changes(changes.columns | leading, changes.diff)
        if own is not None and len(own) < self.buckets:  # each task reads all rows, and arranges its own
            at = kernels.rows_of_buckets(lead, self.buckets, own)
            changes, lead = changes.take(at), lead[at]
        rows = layout.rows(changes)
        for to, at in by_bucket(lead, self.buckets).items():
            yield to, part, (rows.take(at) if len(at) < changes.rows else rows).run()

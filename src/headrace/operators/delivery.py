"""From rows to parts of an operator: into which bucket each row goes, and in which run it travels there."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from headrace.operators.changes import Changes, by_bucket, lead_of, null_in
from headrace.operators.group import GroupLayout
from headrace.operators.join import JoinLayout
from headrace.operators.not_in import seen, seen_part
from headrace.operators.placement import FeedId, Placement, Way
from headrace.operators.top import TopLayout
from headrace.plan.tree import JoinKind
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
        """The bucket of what is not spread out."""
        (bucket,) = by_bucket(np.zeros(1, np.uint64), self.buckets)
        return bucket

    def deliver(
        self, feed_id: FeedId, changes: Changes, bucket: int | None, own: Collection[int] | None
    ) -> Iterator[Delivery]:
        """Where changes go: to which bucket and part, as runs. `own` limits the buckets, `bucket` is where they are."""
        if not changes.rows:
            return
        layout, way = self.layouts[feed_id[0]], self.placement.routes[feed_id].way
        mine = range(self.buckets) if own is None else own
        if isinstance(layout, JoinLayout):
            yield from self._to_join(layout, feed_id, way, changes, bucket, mine)
        elif isinstance(layout, TopLayout):
            if self.one_bucket in mine:
                yield self.one_bucket, layout.rows_part, layout.rows.run(changes)
        elif way is Way.STAY:
            assert bucket is not None
            for part, run in layout.parts(changes).items():
                yield bucket, part, run
        else:
            partition = self.placement.places[feed_id[0]].partition
            if own is not None and partition:
                changes = self._own_share(layout, partition, changes, own)
            for to, parts in layout.parts_by_bucket(changes, partition, self.buckets).items():
                for part, run in parts.items():
                    if to in mine:
                        yield to, part, run

    def _own_share(
        self, layout: GroupLayout, partition: tuple[int, ...], changes: Changes, own: Collection[int]
    ) -> Changes:
        """The rows of some buckets only: each task reads all rows, and sums its own."""
        types = [layout.node.plan.keys[i].type for i in partition]
        lead = lead_of([changes.columns[f"k{i}"] for i in partition], types, self.seed)
        found = [at for b, at in by_bucket(lead, self.buckets).items() if b in own]
        return changes.take(np.sort(np.concatenate(found)) if found else np.zeros(0, np.int64))

    def _to_join(
        self,
        layout: JoinLayout,
        feed_id: FeedId,
        way: Way,
        changes: Changes,
        bucket: int | None,
        mine: Collection[int],
    ) -> Iterator[Delivery]:
        number, side, _ = feed_id
        node, rows, part = layout.node, layout.rows[side], layout.parts[side]
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
                for to, piece in self._spread_out(layout, number, side, way, absent, bucket):
                    if to in mine:
                        yield to, layout.absent_part(side), layout.absent_rows(side).run(piece)
        if way is Way.EVERYWHERE:
            run = rows.run(changes)
            if run.rows:
                yield from ((to, part, run) for to in mine)
            return
        for to, piece in self._spread_out(layout, number, side, way, changes, bucket):
            if to in mine:
                yield to, part, rows.run(piece)

    def _spread_out(
        self, layout: JoinLayout, number: int, side: int, way: Way, changes: Changes, bucket: int | None
    ) -> Iterator[tuple[int, Changes]]:
        if way is Way.STAY:
            assert bucket is not None
            yield bucket, changes
            return
        fields = layout.node.ports[side].fields
        partition = self.placement.places[number].partition
        if not partition:
            yield self.one_bucket, changes
            return
        columns = [changes.columns[fields[i].name] for i in partition]
        lead = lead_of(columns, [fields[i].type for i in partition], self.seed)
        for to, at in by_bucket(lead, self.buckets).items():
            yield to, changes.take(at) if len(at) < changes.rows else changes

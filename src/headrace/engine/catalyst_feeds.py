"""Feeds between two operators that only Spark can evaluate: Catalyst evaluates them in the middle of a step.

Changed rows of all buckets are evaluated together, so a step pays for one evaluation, however many buckets there are.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from headrace.engine.definition import PlannedView
from headrace.engine.step_runner import translating_spark_errors
from headrace.operators.kernel import Sent, ViewKernel
from headrace.operators.tree_view import TreeView
from headrace.plan.tree import FeedId
from headrace.relation.columns import take_column, whole
from headrace.relation.run import Run
from headrace.relation.schema import DIFF

_BUCKET = "__bucket"


class BetweenOperators:
    """Evaluates feeds of views for one step."""

    def __init__(self, views: Mapping[str, PlannedView]) -> None:
        self._views = views

    def __call__(self, view: str, kernel: ViewKernel, feed_id: FeedId, runs: Mapping[int, Run]) -> list[Sent]:
        """Evaluate a feed on the changes of each bucket; returns the changes to send on."""
        planned = self._views[view]
        assert isinstance(kernel, TreeView)
        assert planned.analysed is not None
        feed = kernel.tree.nodes[feed_id[0]].ports[feed_id[1]].feeds[feed_id[2]]
        assert feed.producer is not None
        layout = kernel.given_rows(feed.producer)
        parts = []
        for bucket, run in runs.items():
            changes = layout.changes(run)
            numbers = pa.array(np.full(changes.rows, bucket, np.int64))
            parts.append(pa.table({**changes.arrays(), DIFF: pa.array(changes.diff), _BUCKET: numbers}))
        given = pa.concat_tables(parts).combine_chunks()
        catalyst = planned.analysed.catalyst

        def evaluated() -> pa.Table:
            values = catalyst.between_values(given, feed_id)
            found = pa.table({**values, DIFF: given.column(DIFF), _BUCKET: given.column(_BUCKET)})
            return found if feed.condition is None else found.filter(found.column("c"))

        rows = translating_spark_errors(evaluated).combine_chunks()
        fields = kernel.tree.nodes[feed_id[0]].ports[feed_id[1]].fields
        values = [whole(rows.column(f"k{i}").cast(field.type.arrow)) for i, field in enumerate(fields)]
        times = None if feed.times is None else whole(rows.column("v0"))
        diff = np.asarray(rows.column(DIFF).to_numpy(), np.int64)
        buckets = rows.column(_BUCKET).to_numpy()
        sent: list[Sent] = []
        for bucket in np.unique(buckets):
            at = np.flatnonzero(buckets == bucket)
            sent += kernel.delivered(
                feed_id,
                [take_column(value, at) for value in values],
                diff[at],
                None if times is None else take_column(times, at),
                int(bucket),
            )
        return sent

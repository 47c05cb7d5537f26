"""Rows of a feed between two operators, on their way to Catalyst and back.

Kernels know runs, Catalyst knows columns. Both directions are here, so that rows in the driver and rows in tasks go the
same way, whoever evaluates the feed in between.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from headrace.operators.kernel import Sent, ViewKernel
from headrace.operators.tree_view import TreeView
from headrace.plan.tree import Feed, FeedId, Field
from headrace.relation.columns import take_column, whole
from headrace.relation.run import Run
from headrace.relation.schema import BUCKET, DIFF, Column
from headrace.relation.types import SqlType

CARRIED = (DIFF, BUCKET)
"""Columns that an evaluation passes on as they are."""


def fed_columns(kernel: ViewKernel, feed_id: FeedId) -> list[Column]:
    """The columns of the rows that a feed is evaluated on."""
    tree, producer = _producer(kernel, feed_id)
    fields = tree.tree.nodes[producer].fields
    return [
        *(Column(field.name, field.type) for field in fields),
        *(Column(name, SqlType("bigint")) for name in CARRIED),
    ]


def fed_rows(kernel: ViewKernel, feed_id: FeedId, runs: Mapping[int, Run]) -> pa.Table:
    """Make rows of the changes of each bucket that a feed is evaluated on."""
    tree, producer = _producer(kernel, feed_id)
    layout = tree.given_rows(producer)
    parts = []
    for bucket, run in runs.items():
        changes = layout.changes(run)
        numbers = pa.array(np.full(changes.rows, bucket, np.int64))
        parts.append(pa.table({**changes.arrays(), DIFF: pa.array(changes.diff), BUCKET: numbers}))
    return pa.concat_tables(parts).combine_chunks()


def sent_on(kernel: ViewKernel, feed_id: FeedId, evaluated: pa.Table) -> list[Sent]:
    """Send on the rows of a feed that was evaluated: `c` is its condition, `k0..` its fields, `v0` its repetitions."""
    assert isinstance(kernel, TreeView)
    feed, fields = _feed(kernel, feed_id)
    rows = evaluated if feed.condition is None else evaluated.filter(evaluated.column("c"))
    rows = rows.combine_chunks()
    values = [whole(rows.column(f"k{i}").cast(field.type.arrow)) for i, field in enumerate(fields)]
    times = None if feed.times is None else whole(rows.column("v0"))
    diff = np.asarray(rows.column(DIFF).to_numpy(), np.int64)
    buckets = rows.column(BUCKET).to_numpy()
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


def _feed(kernel: TreeView, feed_id: FeedId) -> tuple[Feed, tuple[Field, ...]]:
    number, side, i = feed_id
    port = kernel.tree.nodes[number].ports[side]
    return port.feeds[i], port.fields


def _producer(kernel: ViewKernel, feed_id: FeedId) -> tuple[TreeView, int]:
    assert isinstance(kernel, TreeView), "only operators feed each other"
    feed, _ = _feed(kernel, feed_id)
    assert feed.producer is not None, "a feed of a table is evaluated before the step"
    return kernel, feed.producer

"""What sharing is estimated to save: the work per step of what views share, beside that of views that share nothing.

Views share by this estimate (`thrifty.share.benefit`), so EXPLAIN shows the same one, made anew from the tables as they
are. Where steps are small, it is mostly the starts of operators; where they are large, mostly rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from headrace.engine import frames
from headrace.engine.catalogue import Catalogue
from headrace.engine.reader import Reader
from headrace.operators.tree_view import TreeView
from headrace.thrifty.cost import time_text
from headrace.thrifty.goal import Freshness
from headrace.thrifty.schedule import Progress, expected_rows
from headrace.thrifty.share.benefit import SECONDS, Sample, work_of
from headrace.thrifty.share.blocks import Block
from headrace.thrifty.share.plan import Shared, largest_blocks
from headrace.thrifty.statistics import Statistics

_SAMPLED = 2_000  # rows of a table by which conditions are compared


@dataclass(frozen=True)
class SharedWork:
    """The estimated work of an average step, in seconds: shared, and if no view shared."""

    shared: float
    apart: float

    def __str__(self) -> str:
        if not self.apart:
            return "nothing is known yet of how many rows a step changes"
        ratio = f"{self.shared / self.apart:.2g}"
        said = f"{time_text(self.shared)} of work in an average step in place of {time_text(self.apart)} ({ratio})"
        # What has equal conditions is shared in any case.
        return said if self.shared <= self.apart else f"{said}; state is kept once"


def shared_work(catalogue: Catalogue, reader: Reader) -> dict[str, SharedWork]:
    """The estimated work of each shared subplan."""
    shared, schemas = catalogue.subplans, catalogue.schemas
    kernels = {view: catalogue.views[view].kernel for one in shared.values() for view in one.views}
    trees = {view: kernel.alone for view, kernel in kernels.items() if isinstance(kernel, TreeView)}
    statistics = Statistics(schemas, {table: reader.rows(table) for table in schemas}, reader.rates)
    tables = {table for kernel in trees.values() for table in kernel.tree.tables}
    work = work_of(samples_of(tables, catalogue, reader, statistics))
    found = {}
    for name, one in shared.items():
        blocks = [
            block for view in one.views for block in _blocks(view, trees[view], one, catalogue, reader, statistics)
        ]
        apart = sum(work([block], one.manner) for block in blocks)
        found[name] = SharedWork(SECONDS * work(blocks, one.manner), SECONDS * apart)
    return found


def _blocks(
    view: str, kernel: TreeView, shared: Shared, catalogue: Catalogue, reader: Reader, statistics: Statistics
) -> list[Block]:
    """What a view would run by itself in place of a subplan, and how often."""
    numbers = {member.number for member in shared.members if member.view == view}
    planned = catalogue.views[view]
    fresh = planned.definition.freshness
    eager = None if fresh is None else eagerness(planned.tables, fresh, reader.progress(view), statistics)
    every = largest_blocks(kernel, eager)
    return [b for b in every if numbers & {b.number, *(inner.number for inner in b.inner.values())}]


def eagerness(tables: Iterable[str], fresh: Freshness, progress: Progress, statistics: Statistics) -> float:
    """How many times per step the joins of a view with a goal have to be brought up to date; 1 if not known."""
    expected = expected_rows(fresh, progress)
    rows = sum(statistics.share(table) * statistics.size(table) for table in tables)
    flushes = max([1, *progress.paces.values()])
    return min(1.0, flushes * rows / expected) if expected and rows else 1.0


def samples_of(
    tables: Iterable[str], catalogue: Catalogue, reader: Reader, statistics: Statistics
) -> Mapping[str, Sample]:
    """Some rows of each table, and how many rows of it a step changes."""
    referred_to = {target for schema in catalogue.schemas.values() for _, target in schema.references}
    found = {}
    for table in tables:
        rows = frames.some_rows(reader.root, catalogue.tables[table], reader.arrangements).rows
        every = max(1, rows.num_rows // _SAMPLED)
        changed = statistics.share(table, looked_up=table in referred_to) * statistics.size(table)
        found[table] = Sample(rows.take(pa.array(range(0, rows.num_rows, every), pa.int64())), changed)
    return found

"""Shared subplans of an engine: what views have in common is kept once, and each of them reads it.

A view is made alone. Then its operators are compared with those of the other views, and joins that are the same but for
filters and projections become one shared subplan. It is filled from the tables; the operators of its members that it
stands for lose their state, and all others keep theirs. So an answer never changes by sharing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.engine import frames
from headrace.engine.catalogue import Catalogue
from headrace.engine.definition import PlannedView, SqlAnswer
from headrace.engine.opening import EXACT, OFF
from headrace.engine.plan_text import OtherPlanError, from_json, to_json
from headrace.engine.store import Store
from headrace.errors import StorageError
from headrace.operators.tree_view import TreeView
from headrace.runtime.log import Arrangements
from headrace.runtime.program import arrangements_kept
from headrace.thrifty.share.benefit import Sample, Work, work_of
from headrace.thrifty.share.blocks import Block
from headrace.thrifty.share.plan import Shared, given_to, planned

if TYPE_CHECKING:
    from headrace.engine.maintenance import Maintenance
    from headrace.thrifty.statistics import Statistics

_SAMPLED = 2_000  # rows of a table by which conditions are compared


class Sharing:
    """Decides what the views of one engine share, and changes it.

    Parameters
    ----------
    statistics : tells what is known of the tables.
    mode : "exact" shares joins that differ in projections only; "auto" also those that differ in filters, if that is
        estimated to be less work; "off" none.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        store: Store,
        maintenance: Maintenance,
        statistics: Callable[[], Statistics],
        mode: str,
    ) -> None:
        self._catalogue = catalogue
        self._store = store
        self._maintenance = maintenance
        self._statistics = statistics
        self.mode = mode

    def update(self, without: Collection[str] = ()) -> None:
        """Share what can be shared now; views in `without` are kept alone."""
        before, views = dict(self._catalogue.shared), self._catalogue.views
        able = {
            name: view.kernel.alone for name, view in views.items() if name not in without and self._may_share(view)
        }
        optional = {
            name: frozenset(column.name for column in schema.columns if column.nullable)
            for name, schema in self._catalogue.schemas.items()
        }
        after = {} if self.mode == OFF else planned(able, optional, self._work(able), before)
        if after == before:
            return
        try:
            filled, dropped = self._moved(before, after, views)
            anew = {name for name in before if name not in after or after[name].kernel != before[name].kernel}
            record = self._store.next_record(
                shared=shared_to_json(after),
                buckets=filled,
                dropped=tuple(dropped),
                unkept={name: {} for name in anew},
            )
            self._store.commit(record)
        except BaseException:
            self._store.roll_back()
            raise
        self._catalogue.share(after)
        self._catalogue.leave_out({name: p for name, p in self._catalogue.unkept.items() if name not in anew})
        self._store.remove_orphans()  # state of operators that was filled along with what was missing

    def _work(self, views: Mapping[str, TreeView]) -> Work:
        """Estimates work by samples of the tables; for "exact", nothing is known of views with different conditions."""
        if self.mode == EXACT:
            return lambda blocks: None
        found: list[Work] = []

        def work(blocks: Sequence[Block]) -> float | None:
            if not found:  # rows are read only if there are views to be compared
                found.append(work_of(self._samples(views)))
            return found[0](blocks)

        return work

    def _samples(self, views: Mapping[str, TreeView]) -> dict[str, Sample]:
        statistics = self._statistics()
        samples = {}
        with self._store.reader() as reader:
            for table in {table for kernel in views.values() for table in kernel.tree.tables}:
                rows = frames.some_rows(reader.root, self._catalogue.tables[table], reader.arrangements).rows
                every = max(1, rows.num_rows // _SAMPLED)
                changed = statistics.share(table) * statistics.size(table)
                samples[table] = Sample(rows.take(pa.array(range(0, rows.num_rows, every), pa.int64())), changed)
        return samples

    def _may_share(self, view: PlannedView) -> bool:
        """Whether a view may read from a shared subplan: one that follows every step, over tables that keep rows."""
        kernel, schemas = view.kernel, self._catalogue.schemas
        return (
            isinstance(kernel, TreeView)
            and isinstance(view.answer, SqlAnswer)
            and view.definition.freshness is None
            and not view.is_final
            and kernel.alone.in_one_pass is not None
            and all(schemas[table].kept for table in view.tables)
        )

    def _moved(
        self, before: Mapping[str, Shared], after: Mapping[str, Shared], views: Mapping[str, PlannedView]
    ) -> tuple[Arrangements, list[str]]:
        """The state that has to be filled, and the arrangements that are not needed any more."""
        filled: Arrangements = {}
        dropped: list[str] = []
        for name, one in before.items():
            if name not in after or after[name].kernel != one.kernel:
                dropped += arrangements_kept(name, one.kernel)
        for name, one in after.items():
            if name not in before or before[name].kernel != one.kernel:
                filled |= self._maintenance.fill_shared(name, one.kernel)
        for name, view in views.items():
            kernel = view.kernel
            if not isinstance(kernel, TreeView):
                continue
            changed = replace(kernel.alone, given=given_to(name, after))
            had, has = (set(arrangements_kept(name, one)) for one in (kernel, changed))
            dropped += sorted(had - has)
            if has - had:
                whole = self._maintenance.fill(name, replace(view, kernel=kernel.alone))[1]
                filled |= {part: states for part, states in whole.items() if part in has - had}
        return filled, [part for part in dropped if part not in filled]


def shared_to_json(shared: Mapping[str, Shared]) -> dict[str, Any]:
    """Shared subplans as the log keeps them."""
    return {name: to_json(one) for name, one in shared.items()}


def shared_from_json(data: Mapping[str, Any]) -> dict[str, Shared]:
    """Shared subplans as the log has kept them."""
    try:
        return {name: from_json(one) for name, one in data.items()}
    except OtherPlanError as error:
        raise StorageError(
            f"a subplan that views share was written by another version of Headrace: {error}",
            way_out="open the location with the version that wrote it, or make it anew",
        ) from error

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
from headrace.errors import HeadraceError, StorageError
from headrace.operators.tree_view import TreeView
from headrace.runtime.log import Arrangements
from headrace.runtime.program import arrangements_kept, arrangements_waiting
from headrace.thrifty.schedule import LEARNING, expected_rows
from headrace.thrifty.share.benefit import Sample, Work, work_of
from headrace.thrifty.share.blocks import Block
from headrace.thrifty.share.orders import Manner
from headrace.thrifty.share.patience import can_wait, may_be_given
from headrace.thrifty.share.plan import Shared, given_to, planned

if TYPE_CHECKING:
    from headrace.engine.maintenance import Maintenance
    from headrace.thrifty.goal import Freshness
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

    def update(self, without: Collection[str] = (), fresh: Collection[str] | None = None) -> None:
        """Share what can be shared now; views in `without` are kept alone.

        Where many views share already, only the views in `fresh` look for others; None stands for all views.
        """
        alone = set(without)
        while True:
            before, after, views = dict(self._catalogue.shared), self._planned(alone, fresh), self._catalogue.views
            if after == before:
                return
            stuck = self._settled(before, after, views)
            if stuck is None:
                break
            alone.add(stuck)
        try:
            filled, dropped = self._moved(before, after, views)
            goals = self._goals_after(after, views)
            anew = {name for name in before if name not in after or after[name].kernel != before[name].kernel}
            unkept = {name: {} for name in anew} | self._unkept_after(after, views)
            what = {"buckets": filled, "dropped": tuple(dropped), "goals": goals, "unkept": unkept}
            self._store.commit(self._store.next_record(shared=shared_to_json(after), **what))
        except BaseException:
            self._store.roll_back()
            raise
        self._catalogue.share(after)
        for name, view in self._catalogue.views.items():
            if view.kernel != views[name].kernel:
                self._maintenance.goals.pacing.forget(name)  # its operators are others from now on
        self._catalogue.leave_out(self._store.snapshot.unkept)
        self._store.remove_orphans()  # state of operators that was filled along with what was missing

    def _planned(self, alone: Collection[str], fresh: Collection[str] | None) -> dict[str, Shared]:
        """What views should share, apart from those that are kept alone."""
        views = self._catalogue.views
        able = {name: view.kernel.alone for name, view in views.items() if name not in alone and self.may_share(view)}
        optional = {
            name: frozenset(column.name for column in schema.columns if column.nullable)
            for name, schema in self._catalogue.schemas.items()
        }
        if self.mode == OFF:
            return {}
        goals = {name: goal for name in able if (goal := views[name].definition.freshness) is not None}
        patient = {name: self._eagerness(name, goal) for name, goal in goals.items()}
        known = self._known(able)
        return planned(able, optional, self._work(able), self._catalogue.shared, known, fresh, patient)

    def _eagerness(self, name: str, fresh: Freshness) -> float:
        """How many times per step the joins of a view with a goal have to be brought up to date; 1 if not known."""
        progress, statistics = self._maintenance.goals.progress(name), self._statistics()
        expected = expected_rows(fresh, progress)
        rows = sum(statistics.share(table) * statistics.size(table) for table in self._catalogue.views[name].tables)
        flushes = max([1, *progress.paces.values()])
        return min(1.0, flushes * rows / expected) if expected and rows else 1.0

    def _settled(
        self, before: Mapping[str, Shared], after: Mapping[str, Shared], views: Mapping[str, PlannedView]
    ) -> str | None:
        """Let changes go on that wait where the plan is about to change; gives a view whose changes cannot.

        Where a subplan gets other members or another form, what waits for it goes to the members that it has. Where a
        subplan takes over operators of a view with a goal, what waits before these goes on to the operators above.
        """
        self._maintenance.settle([name for name, one in before.items() if after.get(name) != one], {})
        for name, view in views.items():
            kernel = view.kernel
            if view.definition.freshness is None or not isinstance(kernel, TreeView):
                continue
            leaving = kernel.own - replace(kernel.alone, given=given_to(name, after)).own
            paths = [path.name for path in kernel.paths if path.number in leaving]
            try:
                if paths:
                    self._maintenance.settle((), {name: paths})
            except HeadraceError:
                return name  # an operator above refuses these rows for now, so the view stays as it is
        return None

    def _goals_after(self, after: Mapping[str, Shared], views: Mapping[str, PlannedView]) -> dict[str, Any]:
        """The progress of views with goals whose changes will wait in other places; new places are learnt about."""
        out = {}
        for name, view in views.items():
            kernel = view.kernel
            if view.definition.freshness is None or not isinstance(kernel, TreeView):
                continue
            changed = replace(kernel.alone, given=given_to(name, after))
            if changed.holds.keys() != kernel.holds.keys():
                progress = self._maintenance.goals.progress(name)
                new = LEARNING if LEARNING in progress.paces.values() else 1
                paces = {path: progress.paces.get(path, new) for path in changed.holds} if progress.paces else {}
                out[name] = replace(progress, paces=paces).to_json()
        return out

    def _unkept_after(self, after: Mapping[str, Shared], views: Mapping[str, PlannedView]) -> dict[str, Any]:
        """What views have dropped; there is nothing to drop of operators that subplans stand for."""
        out = {}
        for name, parts in self._store.snapshot.unkept.items():
            kernel = views[name].kernel if name in views else None
            if isinstance(kernel, TreeView):
                own = replace(kernel.alone, given=given_to(name, after), unkept=frozenset()).arrangements
                out[name] = {part: size for part, size in parts.items() if part in own}
        return out

    def _known(self, views: Mapping[str, TreeView]) -> set[str]:
        """The tables whose rows tell what conditions have in common; none, if only equal ones are to be shared."""
        tables = {table for kernel in views.values() for table in kernel.tree.tables}
        return set() if self.mode == EXACT else {table for table in tables if self._store.latest.rows(table)}

    def _work(self, views: Mapping[str, TreeView]) -> Work:
        """Estimates work by samples of the tables."""
        found: list[Work] = []

        def work(blocks: Sequence[Block], manner: Manner) -> float:
            if not found:  # rows are read only if there are views to be compared
                found.append(work_of(self._samples(views)))
            return found[0](blocks, manner)

        return work

    def _samples(self, views: Mapping[str, TreeView]) -> dict[str, Sample]:
        statistics = self._statistics()
        referred_to = {target for schema in self._catalogue.schemas.values() for _, target in schema.references}
        samples = {}
        with self._store.reader() as reader:
            for table in {table for kernel in views.values() for table in kernel.tree.tables}:
                rows = frames.some_rows(reader.root, self._catalogue.tables[table], reader.arrangements).rows
                every = max(1, rows.num_rows // _SAMPLED)
                changed = statistics.share(table, looked_up=table in referred_to) * statistics.size(table)
                samples[table] = Sample(rows.take(pa.array(range(0, rows.num_rows, every), pa.int64())), changed)
        return samples

    def may_share(self, view: PlannedView) -> bool:
        """Whether a view may read from a shared subplan: one of operators, over tables that keep rows."""
        kernel, schemas = view.kernel, self._catalogue.schemas
        return (
            isinstance(kernel, TreeView)
            and isinstance(view.answer, SqlAnswer)
            and not view.is_final
            and kernel.alone.in_one_pass is not None
            and (view.definition.freshness is None or can_wait(kernel))
            and all(schemas[table].kept for table in view.tables)
        )

    def can_go_on(self, view: PlannedView) -> bool:
        """Whether a view may read what it reads of shared subplans now."""
        kernel = view.kernel
        if not isinstance(kernel, TreeView) or not kernel.given or view.definition.freshness is None:
            return True
        return self.may_share(view) and all(may_be_given(kernel.alone, number) for number in kernel.given)

    def _moved(
        self, before: Mapping[str, Shared], after: Mapping[str, Shared], views: Mapping[str, PlannedView]
    ) -> tuple[Arrangements, list[str]]:
        """The state that has to be filled, and the arrangements that are not needed any more."""
        filled: Arrangements = {}
        dropped: list[str] = []
        for name, one in before.items():
            if name not in after or after[name].kernel != one.kernel:
                dropped += [*arrangements_kept(name, one.kernel), *arrangements_waiting(name, one.kernel)]
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
            dropped += sorted({*arrangements_waiting(name, kernel)} - {*arrangements_waiting(name, changed)})
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

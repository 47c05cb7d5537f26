"""Shared subplans of an engine: what views have in common is kept once, and each of them reads it.

A view is made alone. Then its operators are compared with those of the other views, and joins that are the same but for
filters and projections become one shared subplan. State that the old plan has anywhere is taken over (`moving`), and
only the rest is filled; the operators that the subplan stands for lose their state, and all others keep theirs. So an
answer never changes by sharing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.engine.catalogue import Catalogue
from headrace.engine.definition import PlannedView, SqlAnswer
from headrace.engine.moving import Moves, moves_of
from headrace.engine.opening import EXACT, OFF
from headrace.engine.plan_text import OtherPlanError, from_json, to_json
from headrace.engine.sharing_work import eagerness, samples_of
from headrace.engine.stacking import all_read_by
from headrace.engine.store import Store
from headrace.engine.unsharing import taken_apart
from headrace.errors import HeadraceError, StorageError
from headrace.operators.tree_view import TreeView
from headrace.runtime.record import Arrangements
from headrace.thrifty.schedule import LEARNING
from headrace.thrifty.share.answers import Reading, answers, not_run
from headrace.thrifty.share.apart import Apart, still_apart
from headrace.thrifty.share.benefit import Sample, Work, work_of
from headrace.thrifty.share.blocks import Block
from headrace.thrifty.share.orders import Manner
from headrace.thrifty.share.patience import can_wait, may_be_given
from headrace.thrifty.share.plan import Shared, given_to, planned

if TYPE_CHECKING:
    from headrace.engine.maintenance import Maintenance
    from headrace.thrifty.goal import Freshness
    from headrace.thrifty.statistics import Statistics


@dataclass(frozen=True)
class Change:
    """Another plan of what views share, and how the state of the old plan becomes that of the new one.

    Parameters
    ----------
    apart : what the new plan keeps apart.
    """

    before: Mapping[str, Shared]
    after: Mapping[str, Shared]
    views: Mapping[str, PlannedView]
    moves: Moves
    apart: tuple[Apart, ...]


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

    def update(
        self,
        without: Collection[str] = (),
        fresh: Collection[str] | None = None,
        apart: Sequence[Apart] | None = None,
    ) -> None:
        """Share what can be shared now; views in `without` are kept alone.

        Where many views share already, only the views in `fresh` look for others; None stands for all views.

        Parameters
        ----------
        apart : what was taken apart and stays so; as it is, if nothing is said.
        """
        change = self.prepared(without, fresh, apart)
        if change is not None:
            self.make(change)
        elif apart is not None:
            self.remember(apart)

    def make(self, change: Change, merged: Collection[str] = ()) -> None:
        """Fill what a change needs, and commit it; `merged` are views for which nothing more has to be done."""
        try:
            with self._store.reader() as reader:
                parts = [self._maintenance.states.fill_parts(one, reader.snapshot) for one in change.moves.filled]
                self.commit(change, {name: states for one in parts for name, states in one.items()}, merged)
        except BaseException:
            self._store.roll_back()
            raise
        self._store.remove_orphans()  # files that filling wrote on the way

    def prepared(
        self,
        without: Collection[str] = (),
        fresh: Collection[str] | None = None,
        apart: Sequence[Apart] | None = None,
    ) -> Change | None:
        """What `update` would change; None if all is shared as it should be. Nothing waits where the plan changes."""
        alone, apart = set(without), self.apart if apart is None else tuple(apart)
        while True:
            before, after, views = (
                dict(self._catalogue.shared),
                self._planned(alone, fresh, apart),
                self._catalogue.views,
            )
            if after == before:
                return None
            stuck = self._settled(before, after, views)
            if stuck is None:
                moves = moves_of(before, after, views, self._store.snapshot)
                return Change(before, after, views, moves, apart)
            if stuck in alone:
                return None  # its rows can go neither on nor back for now, so all stays as it is
            alone.add(stuck)

    def renewed(self, change: Change) -> Change | None:
        """The same change after further steps; None if it does not fit any more, because views or plans have changed.

        Nothing waits where the plan changes.
        """
        before, views = change.before, self._catalogue.views
        if (
            change.apart != self.apart
            or dict(self._catalogue.shared) != before
            or _plans(views) != _plans(change.views)
        ):
            return None
        if self._settled(before, change.after, views) is not None:
            return None
        moves = moves_of(before, change.after, views, self._store.snapshot)
        return replace(change, views=views, moves=moves) if moves == change.moves else None

    def commit(self, change: Change, filled: Arrangements, merged: Collection[str] = ()) -> None:
        """Change the plan, given the state that had to be filled, as of the last commit.

        Parameters
        ----------
        merged : views for which nothing more has to be done.
        """
        before, after, views = change.before, change.after, change.views
        gone = (n for n, one in before.items() if n not in after or after[n].kernel != one.kernel)
        anew = {name for name in gone if not before[name].is_answer}
        self._store.commit(
            self._store.next_record(
                shared=shared_to_json(after),
                buckets=change.moves.taken_in(self._store.snapshot) | filled,
                dropped=change.moves.dropped,
                goals=self._goals_after(after, views),
                unkept={name: {} for name in anew} | self._unkept_after(after, views),
                unshared=[one.to_json() for one in change.apart],
                unmerged=[name for name in self._store.snapshot.unmerged if name not in merged],
            )
        )
        self._catalogue.share(after)
        for name, view in self._catalogue.views.items():
            if view.kernel != views[name].kernel:
                self._maintenance.goals.pacing.forget(name)  # its operators are others from now on
        self._catalogue.leave_out(self._store.snapshot.unkept)

    def better_apart(self) -> tuple[Apart, ...] | None:
        """All that should be kept apart, if the last trigger has shown something new to be better apart."""
        seen, self._maintenance.goals.planned_together = self._maintenance.goals.planned_together, None
        if seen is None or self.mode == OFF:
            return None
        kernels = {name: view.kernel for name, view in self._catalogue.views.items() if name in seen.plan.views}
        trees = {name: kernel.alone for name, kernel in kernels.items() if isinstance(kernel, TreeView)}
        found = taken_apart(seen, self._catalogue.shared, trees, lambda: self.samples(trees))
        return (*self.apart, *found) if found else None

    @property
    def apart(self) -> tuple[Apart, ...]:
        """What was taken apart and stays so."""
        return tuple(map(Apart.from_json, self._store.snapshot.unshared))

    def forget(self, view: str) -> None:
        """Forget what was taken apart because of the goal that a view had."""
        self.remember(still_apart(self.apart, [view]))

    def remember(self, apart: Sequence[Apart]) -> None:
        """Note what is kept apart from now on."""
        if tuple(apart) != self.apart:
            self._store.commit(self._store.next_record(unshared=[one.to_json() for one in apart]))

    def _planned(
        self, alone: Collection[str], fresh: Collection[str] | None, apart: Sequence[Apart]
    ) -> dict[str, Shared]:
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
        known, before = self._known(able), self._catalogue.subplans
        answering = self._answers(able)
        elsewhere: dict[str, frozenset[int]] = {
            name: not_run(able[name], given_to(name, answering)) for one in answering.values() for name in one.views
        }
        found = planned(able, optional, self._work(able), before, known, fresh, patient, apart, elsewhere)
        return found | answering

    def _answers(self, able: Mapping[str, TreeView]) -> dict[str, Shared]:
        """The views whose answers stand for operators of the views that read them."""
        views = self._catalogue.views
        waiting = {name for name in able if views[name].definition.freshness is not None}
        readings = {
            name: Reading(kernel, all_read_by(name, views), views[name].views, name in waiting)
            for name, kernel in able.items()
            if views[name].definition.views
        }
        return answers({name: kernel for name, kernel in able.items() if name not in waiting}, readings)

    def _eagerness(self, name: str, fresh: Freshness) -> float:
        """How many times per step the joins of a view with a goal have to be brought up to date; 1 if not known."""
        tables = self._catalogue.views[name].tables
        return eagerness(tables, fresh, self._maintenance.goals.progress(name), self._statistics())

    def _settled(
        self, before: Mapping[str, Shared], after: Mapping[str, Shared], views: Mapping[str, PlannedView]
    ) -> str | None:
        """Let changes go on that wait where the plan is about to change; gives a view whose changes cannot.

        Where a subplan gets other members or another form, what waits for it goes to the members that it has. Where a
        subplan takes over operators of a view with a goal, or hands them back, what waits before these goes on to the
        operators above.
        """
        changed_subplans = [name for name, one in before.items() if after.get(name) != one and not one.is_answer]
        self._maintenance.settle(changed_subplans, {})
        for name, view in views.items():
            kernel = view.kernel
            if view.definition.freshness is None or not isinstance(kernel, TreeView):
                continue
            changed = replace(kernel.alone, given=given_to(name, after))
            leaving = kernel.own - changed.own
            # What another operator gives to a join does not wait there, as rows of a subplan do.
            gone = kernel.holds.keys() - changed.holds.keys()
            paths = [path.name for path in kernel.paths if path.number in leaving or path.name in gone]
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
                # Where a subplan is taken apart, its reader goes on at its pace until more is known.
                left = [progress.paces.get(one.by, 1) for one in kernel.given.values()]
                new = LEARNING if LEARNING in progress.paces.values() else max([1, *left])
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
                found.append(work_of(self.samples(views)))
            return found[0](blocks, manner)

        return work

    def samples(self, views: Mapping[str, TreeView]) -> Mapping[str, Sample]:
        """Some rows of each table that views read, and how many rows of it a step changes."""
        tables = {table for kernel in views.values() for table in kernel.tree.tables}
        statistics = self._statistics()
        with self._store.reader() as reader:
            return samples_of(tables, self._catalogue, reader, statistics)

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

    @property
    def tables(self) -> Collection[str]:
        """The tables of the engine."""
        return self._catalogue.schemas.keys()

    @property
    def able(self) -> list[str]:
        """The views that may share subplans."""
        return [name for name, view in self._catalogue.views.items() if self.may_share(view)]

    def others(self, view: PlannedView) -> list[str]:
        """The views that may share with a new one: they read some of the same tables."""
        tables = {*view.tables}
        found = self._catalogue.views.items()
        return [name for name, one in found if not tables.isdisjoint(one.tables) and self.may_share(one)]

    def can_go_on(self, view: PlannedView) -> bool:
        """Whether a view may read what it reads of shared subplans now."""
        kernel = view.kernel
        if not isinstance(kernel, TreeView) or not kernel.given or view.definition.freshness is None:
            return True
        return self.may_share(view) and all(may_be_given(kernel.alone, number) for number in kernel.given)


def _plans(views: Mapping[str, PlannedView]) -> dict[str, Any]:
    return {name: (view.kernel, view.definition) for name, view in views.items()}


def shared_to_json(shared: Mapping[str, Shared]) -> dict[str, Any]:
    """Shared subplans as the log keeps them."""
    return {name: to_json(one) for name, one in shared.items()}


def shared_from_json(data: Mapping[str, Any]) -> dict[str, Shared]:
    """Shared subplans as the log has kept them."""
    try:
        return {name: from_json(one) for name, one in data.items()}
    except (OtherPlanError, AttributeError) as error:
        raise StorageError(
            f"a subplan that views share was written by another version of Headrace: {error}",
            way_out="open the location with the version that wrote it, or make it anew",
        ) from error

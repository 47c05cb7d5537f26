"""Another number of buckets for a location that has some already: all of its state is laid out anew, in one commit.

Every arrangement tells, by the residences that steps in one pass use too, in which bucket its entries lie; so entries
move, and nothing is computed again. Plans stay as they are: operators run where they ran, with more buckets or fewer.
Two kinds of views are different. Rows that Spark computed lie by a hash that only Spark has, so a job lays them out.
And some views over joins keep sums whose keys do not tell from which bucket they are: if the new number divides the old
one, buckets are united as they are, and otherwise such a view is filled again from its tables.

Until the commit, all of this is files that nothing refers to. After it, the old files go as those of merges do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace

from headrace.engine import stored_plans
from headrace.engine.catalogue import Catalogue
from headrace.engine.catalyst_feeds import BetweenOperators
from headrace.engine.definition import PlannedView
from headrace.engine.filling import fill
from headrace.engine.maintenance import Maintenance
from headrace.engine.planning import Planner
from headrace.engine.programs import view_tasks
from headrace.engine.recompute import RecomputedQuery, Recomputer
from headrace.engine.sharing import shared_to_json
from headrace.engine.step_runner import StepRunner, translating_spark_errors
from headrace.engine.store import Store
from headrace.errors import SchemaError
from headrace.factorized.join_view import JoinView
from headrace.operators.kernel import ViewKernel
from headrace.operators.tree_view import TreeView
from headrace.relation.residence import Residence, first_word
from headrace.rings import COUNT
from headrace.runtime.program import (
    BucketResult,
    Program,
    TableTask,
    final_arrangement,
    is_table,
    pending_arrangement,
    table_arrangement,
    view_arrangement,
)
from headrace.runtime.rebucketing import Rebucketing, Relocation, add_states, batches_of
from headrace.runtime.record import Arrangements, BucketState, Record
from headrace.runtime.spark import run_side_by_side
from headrace.runtime.stages import each
from headrace.thrifty.share.plan import Shared
from headrace.thrifty.statistics import Statistics


@dataclass(frozen=True)
class Rebucketed:
    """What another number of buckets came to.

    Parameters
    ----------
    before, after : the numbers of buckets.
    filled : the views that were filled again from their tables.
    bytes : the size of all state after that.
    """

    before: int
    after: int
    filled: tuple[str, ...]
    bytes: int


class Rebucketer:
    """Changes the number of buckets of one engine."""

    def __init__(
        self,
        catalogue: Catalogue,
        store: Store,
        planner: Planner,
        know: Callable[[], Statistics],
        maintenance: Maintenance,
        step_runner: StepRunner,
        recomputer: Recomputer,
    ) -> None:
        self._catalogue = catalogue
        self._store = store
        self._planner = planner
        self._know = know
        self._maintenance = maintenance
        self._step_runner = step_runner
        self._recomputer = recomputer

    def waiting(self, buckets: int) -> list[str]:
        """The views with goals that have to be brought up to date first, because they are filled again.

        Raises what cannot be done, before anything is.
        """
        schemas, found = self._catalogue.schemas, []
        for name, view in self._catalogue.views.items():
            if not self._is_filled(view.kernel, buckets):
                continue
            unkept = [table for table in view.tables if not schemas[table].kept]
            if unkept:
                now = self._store.settings.buckets
                able = ", ".join(str(number) for number in range(1, now) if now % number == 0) or "there is none"
                raise SchemaError(
                    f"view {name!r} keeps sums that do not tell their bucket, and table {unkept[0]!r} keeps no rows, "
                    f"from which the view could be filled again in {buckets} buckets",
                    way_out=f"choose a number that divides {now}, as then buckets can be united: {able}",
                )
            if view.definition.freshness is not None:
                found.append(name)
        return found

    def rebucket(self, buckets: int) -> Rebucketed:
        """Lay all state out for so many buckets, and commit it; the caller holds the lock."""
        store, before = self._store, self._store.snapshot
        old = store.settings.buckets
        if buckets == old:
            return Rebucketed(old, old, (), before.bytes())
        plans, shared = self._plans(buckets), self._shared(buckets)
        refilled = tuple(name for name, view in plans.items() if self._is_filled(view.kernel, buckets))
        with store.merging(set(before.runs())) as names:
            try:
                moving = Rebucketing(store.location.path, before.version + 1, old, buckets, store.fsync, names)
                there = self._moved(moving, self._relocations(plans, shared, before.arrangements, buckets, refilled))
                shown = self._moved(moving, self._relocations(plans, shared, before.shown, buckets, refilled))
                for name, view in plans.items():
                    if isinstance(view.kernel, RecomputedQuery):
                        for states, found in ((before.arrangements, there), (before.shown, shown)):
                            found |= self._laid_out(name, view.kernel, states, buckets)
                for name in refilled:
                    there |= self._filled(name, plans[name], there, moving)
                store.commit(self._record(plans, shared, there, shown, moving))
            except BaseException:
                store.roll_back()  # before the new files go: the commit may have happened
                if store.settings.buckets == buckets:
                    self._take_over(plans, shared)
                raise
        self._take_over(plans, shared)
        return Rebucketed(old, buckets, refilled, store.snapshot.bytes())

    # -- plans ----------------------------------------------------------------------------------------------------

    def _plans(self, buckets: int) -> dict[str, PlannedView]:
        """All views in so many buckets, with their operators where they are; without what they share and leave out."""
        planner = Planner(self._planner.session, self._planner.seed, buckets)
        plans, statistics = {}, self._know()
        for name, view in self._catalogue.views.items():
            definition, kernel = view.definition, view.kernel
            if isinstance(kernel, TreeView):
                moved = replace(kernel, given={}, unkept=frozenset()).rebucketed(buckets)
                assert definition.tree is not None, "a tree of operators was chosen"
                placed = replace(definition.tree, placed_for=moved.placed_for)
                definition = definition.with_choice(definition.strategy, plan=placed)
                plans[name] = replace(view, definition=definition, kernel=moved)
            else:
                plans[name] = planner.plan(name, definition, statistics)
        return plans

    def _shared(self, buckets: int) -> dict[str, Shared]:
        return {
            name: replace(one, kernel=one.kernel.rebucketed(buckets)) for name, one in self._catalogue.shared.items()
        }

    def _is_filled(self, kernel: ViewKernel, buckets: int) -> bool:
        """Whether a view is filled again: its entries do not tell their buckets, and these cannot be united."""
        now = self._store.settings.buckets
        unclear = kernel.arrangements.keys() - kernel.residences(buckets).keys()
        return isinstance(kernel, JoinView) and bool(unclear) and now % buckets != 0

    # -- what moves -----------------------------------------------------------------------------------------------

    def _relocations(
        self,
        plans: Mapping[str, PlannedView],
        shared: Mapping[str, Shared],
        states: Arrangements,
        buckets: int,
        refilled: Collection[str],
    ) -> Iterator[Relocation]:
        """The arrangements whose entries move, each with where they go."""
        for name in states:
            if is_table(name):
                yield Relocation(name, COUNT, states[name], Residence(buckets, first_word))
        kernels: dict[str, ViewKernel] = {name: view.kernel for name, view in plans.items() if name not in refilled}
        kernels |= {name: one.kernel for name, one in shared.items() if not one.is_answer}
        for name, kernel in kernels.items():
            if isinstance(kernel, RecomputedQuery):
                continue
            where = kernel.residences(buckets)
            for part, ring in kernel.arrangements.items():
                if (arrangement := view_arrangement(name, part)) in states:
                    yield Relocation(arrangement, ring, states[arrangement], where.get(part))
            for part, inlet in kernel.inlets.items():
                if (arrangement := pending_arrangement(name, part)) in states:
                    yield Relocation(arrangement, inlet.ring, states[arrangement], inlet.residence)
            if (final := final_arrangement(name)) in states:
                kind = self._catalogue.kind_of(final, buckets)
                assert kind is not None, "only views in SQL close windows"
                # Whoever reads them reads all buckets, so they may lie in any.
                yield Relocation(final, kind.ring, states[final], Residence(buckets, first_word))

    def _moved(self, moving: Rebucketing, relocations: Iterator[Relocation]) -> Arrangements:
        """The states that arrangements get; in tasks where filling them would be a job."""
        found = list(relocations)
        batches = batches_of(found, moving.before)
        runner = self._step_runner
        if runner.in_driver or (runner.executor == "auto" and sum(one.entries for one in found) <= runner.driver_rows):
            done = list(each(moving.done, batches, runner.threads))
        else:
            by_tasks = replace(moving, names=None)
            done = translating_spark_errors(lambda: run_side_by_side(runner.spark, by_tasks.done, batches))
        # An arrangement without entries is there all the same.
        result = BucketResult(buckets={one.arrangement: {} for one in found})
        for one in done:
            add_states(result, one.buckets)
        for relocation in found:  # a table that keeps no rows has a number of rows, and no runs
            live = sum(state.live for state in relocation.states.values())
            if is_table(relocation.arrangement) and not relocation.entries and live:
                result.buckets[relocation.arrangement] = {0: BucketState((), live)}
        return result.buckets

    def _laid_out(self, name: str, kernel: RecomputedQuery, states: Arrangements, buckets: int) -> Arrangements:
        """Rows that Spark computed, in the buckets of the hash that only Spark has."""
        arrangement = view_arrangement(name, kernel.part)
        if arrangement not in states:
            return {}
        result = self._recomputer.laid_out(name, kernel, states[arrangement], buckets)
        self._maintenance.states.untold(name, result)
        return result.buckets

    def _filled(self, name: str, view: PlannedView, state: Arrangements, moving: Rebucketing) -> Arrangements:
        """A view from its tables, as these are in the new buckets."""
        store, tables = self._store, self._catalogue.tables
        # A part without entries has no runs, and is there all the same.
        empty: Arrangements = {
            arrangement: {}
            for part in view.kernel.arrangements
            if (arrangement := view_arrangement(name, part)) in store.snapshot.arrangements
        }
        read = [table for table in view.tables if store.latest.rows(table)]
        if not read:
            return empty
        tasks = tuple(TableTask(tables[table], view_tasks(name, view.kernel, table), store=False) for table in read)
        program = Program(
            version=moving.version,
            root=moving.root,
            buckets=moving.after,
            tables=tasks,
            state={arrangement: state[arrangement] for arrangement in map(table_arrangement, read)},
            step=store.snapshot.step + 1,
            fsync=store.fsync,
            owes=True,
            between=BetweenOperators({name: view}),
            seeds={name: view.kernel.seeds},
            names=moving.names,
        )
        result = fill(self._step_runner, program, {} if view.analysed is None else {name: view.analysed})
        self._maintenance.states.untold(name, result)
        return empty | result.buckets

    # -- the commit -----------------------------------------------------------------------------------------------

    def _record(
        self,
        plans: Mapping[str, PlannedView],
        shared: Mapping[str, Shared],
        there: Arrangements,
        shown: Arrangements,
        moving: Rebucketing,
    ) -> Record:
        store, before = self._store, self._store.snapshot
        gone = [name for name in before.arrangements if name not in there]
        assert all(not own.runs for name in gone for own in before.arrangements[name].values()), f"{gone} did not move"
        known = self._catalogue.views
        return store.next_record(
            dropped=tuple(before.arrangements),
            buckets=there,
            shown=shown,
            settings=asdict(replace(store.settings, buckets=moving.after)),
            views={n: view.definition.to_json() for n, view in plans.items() if view.definition != known[n].definition},
            shared=shared_to_json(shared),
        )

    def _take_over(self, plans: Mapping[str, PlannedView], shared: Mapping[str, Shared]) -> None:
        """Go on by the new plans."""
        self._planner.buckets = self._store.settings.buckets
        self._catalogue.replan(plans)
        self._catalogue.share(shared)
        self._catalogue.leave_out(self._store.snapshot.unkept)
        for name, view in plans.items():
            self._maintenance.goals.pacing.forget(name)
            stored_plans.write(self._store, name, view)

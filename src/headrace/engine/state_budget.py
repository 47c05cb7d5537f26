"""The memory budget of an engine: which arrangements of operators are kept between steps, and which are dropped.

A step that reads a dropped arrangement has it made again first, as of before the step (`made_again`). When the step is
done, and before it is committed, the arrangements that fit into the budget are chosen, for the change that is expected
next; all others are dropped with the same commit (`settled`). So the budget holds at every commit, a crash
leaves the state of one commit, and an answer never depends on what is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from headrace.engine.catalogue import Catalogue
from headrace.engine.chosen_states import Chosen, Settled, plans_of, present
from headrace.engine.definition import PlannedView, SqlAnswer
from headrace.engine.expectations import Expectations
from headrace.engine.idleness import Activity, Idleness
from headrace.engine.store import Store
from headrace.operators.dropping import holdings, needed
from headrace.operators.tree_view import TreeView
from headrace.runtime.program import BucketResult, view_arrangement
from headrace.runtime.record import Arrangements
from headrace.thrifty.keep.actions import Op, Request
from headrace.thrifty.keep.change import Change
from headrace.thrifty.keep.policies import Policy, by_program, everything
from headrace.thrifty.keep.prediction import Prediction
from headrace.thrifty.keep.selection import Key, anew, best_cost, cost_of_one, states_of
from headrace.thrifty.keep.view_plan import ViewPlan

_GROWN = 1.1  # the choice is made again when the kept state has grown by this factor

Rebuilding = Callable[[str, TreeView, Collection[str]], Arrangements]


class StateBudget:
    """Keeps the state of an engine's operators within a budget.

    Parameters
    ----------
    rebuild : makes parts of a view or a shared subplan again, as of the last step.
    can_recompute : whether the answer of a view can be computed anew by kernels in the driver.
    """

    def __init__(
        self, catalogue: Catalogue, store: Store, rebuild: Rebuilding, can_recompute: Callable[[TreeView], bool]
    ) -> None:
        self._catalogue = catalogue
        self._store = store
        self._rebuild = rebuild
        self._can_recompute = can_recompute
        self.idleness = Idleness(catalogue, store)
        self.budget: int | None = None
        self.policy: Policy = by_program
        self._expectations = Expectations(catalogue, store)

    @property
    def prediction(self) -> Prediction:
        """Which changes are expected."""
        return self._expectations.prediction

    @property
    def is_off(self) -> bool:
        """Whether everything is kept, nothing has been dropped, and no view gets idle."""
        return self.budget is None and not self._store.snapshot.unkept and self.idleness.is_off

    # -- steps ----------------------------------------------------------------------------------------------------

    def read(self, tables: Collection[str]) -> dict[str, frozenset[str]]:
        """The dropped parts that a step with changes of these tables reads, by view."""
        if not self._catalogue.unkept:
            return {}
        kernels, views = self._kernels(), self._catalogue.views
        found = {}
        for name in self._catalogue.unkept:
            kernel = kernels[name]
            read = needed(kernel, tables)
            if read and name in views and views[name].definition.freshness is not None:
                read = kernel.unkept  # once rows wait for the view, its state does not follow from its tables any more
            found[name] = read & kernel.unkept
        return {name: parts for name, parts in found.items() if parts}

    def anew(self, read: Collection[str], came: Mapping[str, Change]) -> frozenset[str]:
        """Those of some views whose answers cost less to compute anew than by making again what they lack."""
        activity = self.idleness.after(came)
        able = self._recomputable(activity).intersection(read)
        if not able:
            return frozenset()
        snapshot = self._store.snapshot
        holders = {name: kernel for name, kernel in self._holders(activity).items() if name in able}
        plans = plans_of(holders, snapshot.arrangements, snapshot.unkept, came, self._expectations.statistics(), able)
        later, kept_later = self._later(holders, self.prediction.after(came), activity)
        found = set()
        for name, plan in plans.items():
            # What is made again now may serve the next step too; what is computed anew leaves nothing behind.
            now, then = plan.plan(), later[name].plan()
            again = cost_of_one(now, present(plan), Request.DELTA) + best_cost(then, kept_later)
            if anew(now) + best_cost(then, frozenset()) < again:
                found.add(name)
        return frozenset(found)

    def _later(
        self, holders: Mapping[str, TreeView], prediction: Prediction, activity: Activity
    ) -> tuple[Mapping[str, ViewPlan], frozenset[Key]]:
        """Views at the change after the next one, and what would be kept for it."""
        if self._store.snapshot.memory.get("missing", 1) or not self._still_holds(prediction, activity, {}):
            chosen = self._chosen({}, {}, prediction, activity)
            return chosen.plans, chosen.kept
        snapshot, able = self._store.snapshot, holders.keys()
        expected = self._expected(prediction)
        plans = plans_of(
            holders, snapshot.arrangements, snapshot.unkept, expected, self._expectations.statistics(), able
        )
        return plans, frozenset().union(*(present(plan) for plan in plans.values()))

    def made_again(self, read: Mapping[str, Collection[str]]) -> Arrangements:
        """Make dropped parts again, as of the last step."""
        return self._made_again(read) if read else {}

    def settled(
        self, changed: Arrangements, again: Arrangements, came: Mapping[str, Change], anew: Collection[str]
    ) -> Settled:
        """Choose what is kept after a step.

        Parameters
        ----------
        changed, again : the arrangements that the step changed, and those made again for it.
        anew : views that were computed anew: what they had kept is out of date.
        """
        prediction, activity = self.prediction.after(came), self.idleness.after(came)
        if not again and self._keep_nothing(anew) and self._still_holds(prediction, activity, changed):
            news = {"prediction": prediction.to_json()} | activity.to_json()
            return Settled(memory={**self._store.snapshot.memory, **news})
        return self._chosen(changed, again, prediction, activity, anew).settled

    def _keep_nothing(self, names: Collection[str]) -> bool:
        """Whether all state of some views was dropped before, so that none of it can be out of date."""
        kernels = self._kernels()
        return all(set(one.parts) <= kernels[name].unkept for name in names for one in holdings(kernels[name]))

    def _still_holds(self, prediction: Prediction, activity: Activity, changed: Arrangements) -> bool:
        """Whether the last choice is good for the next change too: about the same is expected, and it fits."""
        memory, expected = self._store.snapshot.memory, prediction.next()
        if self.idleness.committed.idle != activity.idle:
            return False
        if self.budget is None and not activity.idle and not self._store.snapshot.unkept:
            return memory.get("budget") is None  # everything is kept, whatever comes
        planned: Mapping[str, float] = memory.get("planned", {})
        if memory.get("budget") != self.budget or not planned or planned.keys() != expected.keys():
            return False
        if any(not 0.5 <= change.rows / planned[table] <= 2.0 for table, change in expected.items()):
            return False
        holders = self._holders(activity)
        size = self._bytes(holders, changed)
        grown = size > _GROWN * memory["planned_bytes"]
        return not grown and (self.budget is None or self._fixed(holders, changed) + size <= self.budget)

    def happened(self, settled: Settled) -> None:
        """Let views do without what a commit has dropped."""
        if settled.unkept is not None:
            self._catalogue.leave_out(settled.unkept)
            self._store.discard(settled.written)

    # -- between steps --------------------------------------------------------------------------------------------

    def rebalance(self, *, build: bool = False) -> None:
        """Choose again what is kept, as a commit of its own; `build` also makes what is wanted and was dropped."""
        if self.is_off:
            self._forget_budget()
            return
        activity = self.idleness.after()
        self.restore(*(self._catalogue.unkept.keys() - self._holders(activity).keys()))
        with self._undoing():
            again: Arrangements = {}
            chosen = self._chosen({}, again, self.prediction, activity)
            if build:
                again = self._made_again(chosen.missing())
                chosen = self._chosen({}, again, self.prediction, activity)
            settled = chosen.settled
            self._store.commit(self._store.next_record(buckets=settled.stored({}), **settled.record()))
        self.happened(settled)

    def restore(self, *names: str) -> None:
        """Make all dropped arrangements of views and subplans again, because from now on they may not drop any."""
        wanted = {name: parts for name in names if (parts := self._catalogue.unkept.get(name))}
        if wanted:
            with self._undoing():
                again = self._made_again(wanted)
                self._store.commit(self._store.next_record(buckets=again, unkept={name: {} for name in wanted}))

    def expect(self, changes: Mapping[str, Change] | None) -> None:
        """Let the user say which changes come next; None leaves that to what has come."""
        said = replace(self.prediction, said=changes)
        memory = {**self._store.snapshot.memory, "prediction": said.to_json()}
        self._store.commit(self._store.next_record(memory=memory))
        self.rebalance(build=True)

    def announce(self, source: str, changes: Mapping[str, Change | None] | None) -> None:
        """Let a source that is being played say what its next batch brings; None at its end.

        The choice is made again if something else is expected now. What it wants beyond what is kept is made at the
        first need, because a source may announce much and bring nothing.

        Parameters
        ----------
        changes : per table; None where the source cannot say how many rows: then as many as steps change on average.
        """
        if self._expectations.announce(source, changes):
            self.rebalance()

    def forget_sources(self) -> None:
        """Expect nothing of sources any more, because the engine in which they are played ends."""
        if self._expectations.forget_sources() and not self.is_off:
            self._write_prediction()

    def _forget_budget(self) -> None:
        """Take back what an earlier commit says of a budget and of sources that have gone."""
        memory = self._store.snapshot.memory
        announced = Prediction.from_json(memory.get("prediction", {})).announced
        if memory.get("budget") is not None or (announced and announced != self.prediction.announced):
            self._write_prediction()

    def _write_prediction(self) -> None:
        news = {"budget": self.budget, "prediction": self.prediction.to_json()}
        self._store.commit(self._store.next_record(memory={**self._store.snapshot.memory, **news}))

    @contextmanager
    def _undoing(self) -> Iterator[None]:
        """Undo what was done if it fails."""
        before = self._catalogue.unkept
        try:
            yield
        except BaseException:
            self._catalogue.leave_out(before)
            self._store.roll_back()
            raise

    def _made_again(self, wanted: Mapping[str, Collection[str]]) -> Arrangements:
        again: Arrangements = {}
        unkept, kernels = dict(self._catalogue.unkept), self._kernels()
        for name, parts in wanted.items():
            if parts:
                states = self._rebuild(name, kernels[name], parts)
                # A part without entries has no runs, and is there all the same.
                again |= {one: states.get(one, {}) for one in (view_arrangement(name, part) for part in parts)}
                unkept[name] = unkept[name] - set(parts)
        self._catalogue.leave_out(unkept)
        return again

    # -- the choice -----------------------------------------------------------------------------------------------

    def _kernels(self) -> dict[str, TreeView]:
        """All views and shared subplans of operators, by name."""
        found = {name: self._catalogue.shared_kernel(name) for name in self._catalogue.subplans}
        return found | {n: kernel for n, kernel in self._catalogue.kernels.items() if isinstance(kernel, TreeView)}

    def _holders(self, activity: Activity) -> dict[str, TreeView]:
        """The views and shared subplans that may drop arrangements: their state follows from the rows of tables."""
        views, shared = self._catalogue.views, self._catalogue.subplans
        never = {name for name in shared if self._catalogue.shared_waits(name)}
        for name, view in views.items():
            if why_never(view, self._catalogue, is_idle=name in activity.idle) is not None:
                never.add(name)
        return {name: kernel for name, kernel in self._kernels().items() if name not in never}

    def _recomputable(self, activity: Activity) -> frozenset[str]:
        """The views whose answer the driver can compute anew: those that share nothing, by kernels alone."""
        views = self._catalogue.views
        return frozenset(
            name
            for name, kernel in self._holders(activity).items()
            if kernel.answers and not kernel.given and self._can_recompute(kernel)
            # The changes of an answer that is computed anew reach nobody who reads it.
            if name not in self._catalogue.answering
            # Rows that come wait for a view with a goal, so no step computes its answer.
            if views[name].definition.freshness is None
        )

    def _chosen(
        self,
        changed: Arrangements,
        again: Arrangements,
        prediction: Prediction,
        activity: Activity,
        anew: Collection[str] = (),
    ) -> Chosen:
        snapshot = self._store.snapshot
        states = snapshot.arrangements | again
        states |= {name: states.get(name, {}) | buckets for name, buckets in changed.items()}
        holders, idle = self._holders(activity), self.idleness.with_subplans(activity)
        known = (states, snapshot.unkept)
        rest = (self._expectations.statistics(), self._recomputable(activity))
        plans = plans_of(_but(holders, idle), *known, self._expected(prediction), *rest)
        plans |= plans_of(_but(holders, holders.keys() - idle), *known, prediction.next(), *rest)
        made = {name: plan.plan() for name, plan in plans.items()}
        kept = self._policy_of(made, idle, self._fixed(holders, changed))
        kept = frozenset(key for key in kept if key[0] not in anew)
        written = BucketResult(buckets=again).files() | BucketResult(buckets=changed).files()
        about = self._memory_of(prediction, activity)
        return Chosen(plans, list(made.values()), kept, again, frozenset(written), snapshot.unkept, about)

    def _policy_of(self, made: Mapping[str, Op], idle: Collection[str], fixed: int) -> frozenset[Key]:
        """The states that are wanted: within what the budget leaves, or all but those that idle views do not need."""
        if self.budget is not None:
            return self.policy(list(made.values()), max(0, self.budget - fixed))
        waiting = [plan for name, plan in made.items() if name in idle]
        enough = sum(state.bytes for plan in waiting for _, state in states_of(plan))
        return everything([plan for name, plan in made.items() if name not in idle], 0) | self.policy(waiting, enough)

    def _memory_of(self, prediction: Prediction, activity: Activity) -> dict[str, Any]:
        """What the log says of memory, besides what the choice itself comes to."""
        planned = {table: change.rows for table, change in prediction.next().items()}
        said = {"prediction": prediction.to_json(), "budget": self.budget, "planned": planned}
        return said | activity.to_json()

    def _expected(self, prediction: Prediction) -> dict[str, Change]:
        # As long as nothing is known, each table may change by a little.
        return prediction.next() or self._expectations.usual()

    def _fixed(self, holders: Collection[str], changed: Arrangements) -> int:
        """The bytes of operators that may not be dropped: they take their share of the budget first."""
        return self._bytes({name: one for name, one in self._kernels().items() if name not in holders}, changed)

    def _bytes(self, kernels: Mapping[str, TreeView], changed: Arrangements) -> int:
        """The bytes of all that some views and subplans may hold, once a step has changed some of it."""
        states = self._store.snapshot.arrangements
        parts = [(name, part) for name, kernel in kernels.items() for one in holdings(kernel) for part in one.parts]
        names = [view_arrangement(name, part) for name, part in parts]
        buckets = [state for name in names for state in {**states.get(name, {}), **changed.get(name, {})}.values()]
        return sum(run.bytes for state in buckets for run in state.runs)


def _but(holders: Mapping[str, TreeView], names: Collection[str]) -> dict[str, TreeView]:
    return {name: kernel for name, kernel in holders.items() if name not in names}


def why_never(view: PlannedView, catalogue: Catalogue, *, is_idle: bool) -> str | None:
    """Why a view kept by operators drops nothing: its state must follow from the rows that its tables have now."""
    if view.definition.freshness is not None:
        if not is_idle:
            return "it has a goal, so rows of its tables wait for it, and are ahead of its state, until it is idle"
        if isinstance(view.kernel, TreeView) and view.kernel.given:
            return "it has a goal, and reads a shared subplan that others move on"
    if view.is_final:
        return "its windows close, and what is final does not follow from the tables"
    if not isinstance(view.answer, SqlAnswer):
        return "it keeps moments or a model"
    unkept = [table for table in view.tables if not catalogue.schemas[table].kept]
    return f"{unkept[0]} keeps no rows, from which anything could be made again" if unkept else None

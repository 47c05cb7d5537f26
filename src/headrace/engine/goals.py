"""Views with goals: what waits for them, when it is flushed, and what their readers see meanwhile.

A step holds the changes of such views (`runtime.pending`). This module then decides what is due, flushes it, and says
how far each view is; the step commits all of it with its rows. A flush before the trigger may fail for a reason that
passes, such as a sum that overflows on the way: it is undone, and its changes wait for the trigger. If the flush of a
trigger fails, the view keeps its last answer and says why; all other views go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.engine.catalogue import Catalogue
from headrace.engine.definition import PlannedView
from headrace.engine.pacing import Learnt, Pacing
from headrace.engine.pacing_together import Planned, Together, together
from headrace.engine.recompute import Recomputed, Recomputer
from headrace.engine.step_runner import NOT_COMMITTED, StepRunner, translating_spark_errors
from headrace.engine.store import Store
from headrace.engine.waiting_subplans import WaitingSubplans
from headrace.engine.watermarks import Windows, windows_of
from headrace.errors import HeadraceError, SchemaError, StepFailedError
from headrace.operators.kernel import ViewKernel
from headrace.operators.tree_view import TreeView
from headrace.plan.native import NeedsCatalyst
from headrace.runtime.flushing import flush
from headrace.runtime.jvm import java_cpu
from headrace.runtime.program import BucketResult, Flush, Holding, Program, view_arrangement
from headrace.runtime.record import Arrangements
from headrace.runtime.spark import jobs_of
from headrace.thrifty.cost import time_text
from headrace.thrifty.goal import FAIL, AtWindowEnd, Budget, FinalWork, Freshness
from headrace.thrifty.schedule import (
    Progress,
    credit,
    expected_rows,
    goal_met,
    is_due,
    now,
    paths_due,
    progress_of,
    wakes_at,
)

MakeSharedProgram = Callable[[str, Arrangements], Program]
MakeProgram = Callable[[Mapping[str, PlannedView], Arrangements], Program]


@dataclass
class Advance:
    """What a step did for views with goals, for the record of the step.

    Parameters
    ----------
    progress : of the views that it concerned.
    fired : the views whose trigger gave a result.
    shown : what readers still see of answers that have moved ahead.
    """

    result: BucketResult = field(default_factory=BucketResult)
    progress: dict[str, Progress] = field(default_factory=dict)
    fired: list[str] = field(default_factory=list)
    shown: Arrangements = field(default_factory=dict)
    learnt: dict[str, Any] = field(default_factory=dict)
    planned: list[str] = field(default_factory=list)  # views whose paces were chosen anew
    undone: bool = False  # whether a flush failed, and left files behind

    def goals(self) -> dict[str, object]:
        """The progress of views, as the log keeps it."""
        return {name: progress.to_json() for name, progress in self.progress.items()}


@dataclass(frozen=True)
class Moment:
    """A step, as views with goals meet it.

    Parameters
    ----------
    program : makes a program over views, given the state that the step has changed so far.
    shared : makes a program that brings a shared subplan up to date, given the same.
    state : what the step has done so far; what shared subplans do is added to it.
    watermarks : those that the step has moved.
    began : when the step began.
    again : the arrangements that were made again for the step, as of before it.
    """

    program: MakeProgram
    shared: MakeSharedProgram
    state: BucketResult
    watermarks: Mapping[str, int]
    began: int
    again: Arrangements = field(default_factory=dict)

    @property
    def changed(self) -> Arrangements:
        """The arrangements that the step has changed or made again, as they are now."""
        changed = self.state.buckets
        return {name: self.again.get(name, {}) | changed.get(name, {}) for name in {**self.again, **changed}}


class Goals:
    """The views with goals of one engine."""

    def __init__(
        self, catalogue: Catalogue, store: Store, step_runner: StepRunner, recomputer: Recomputer, windows: Windows
    ) -> None:
        self._catalogue = catalogue
        self._store = store
        self._step_runner = step_runner
        self._recomputer = recomputer
        self._windows = windows
        self.pacing = Pacing(step_runner.threads)
        self.planned_together: Together | None = None  # by the last trigger, until sharing has been considered again
        self.subplans = WaitingSubplans(catalogue, store, self.pacing, self._run)

    def of(self, name: str) -> Freshness | None:
        """The goal of a view; None if every step brings it up to date."""
        return self._catalogue.views[name].definition.freshness

    @property
    def waiting(self) -> dict[str, Freshness]:
        """The views that do not follow every step, each with its goal."""
        found = {name: view.definition.freshness for name, view in self._catalogue.views.items()}
        return {name: fresh for name, fresh in found.items() if fresh is not None}

    def progress(self, name: str) -> Progress:
        """How far a view is."""
        return progress_of(self._store.snapshot.goals, name)

    def wakes_at(self) -> int | None:
        """When the first view is due; None if none will be by the clock alone."""
        found = (wakes_at(fresh, self.progress(name)) for name, fresh in self.waiting.items())
        return min((at for at in found if at is not None), default=None)

    def is_due(self) -> bool:
        """Whether the trigger of a view is due by the clock."""
        at = self.wakes_at()
        return at is not None and at <= now()

    def set_paces(self, name: str, paces: Mapping[str, int], expected: int) -> None:
        """Flush each path of a view so often per trigger, and expect so many rows until the next one."""
        unknown = paces.keys() - {*self._catalogue.views[name].kernel.holds, *self._catalogue.shared_by(name)}
        if unknown:
            raise SchemaError(f"view {name!r} has no path {sorted(unknown)[0]!r}", way_out="see explain()")
        progress = replace(self.progress(name), paces=dict(paces), expected=float(expected))
        self._store.commit(self._store.next_record(goals={name: progress.to_json()}))

    def begun(self, view: PlannedView, fresh: Freshness) -> Progress:
        """The progress of a view that is new."""
        return Progress(fired=now(), step=self._store.snapshot.step, paces=self.pacing.first(view, fresh))

    def changed(self, name: str, view: PlannedView, fresh: Freshness | None) -> Progress:
        """The progress of a view under another goal; None is that of a view that follows every step."""
        paces = {} if fresh is None else self._paces_for(name, view, fresh)
        before = self.progress(name)
        after = replace(before, paces=paces, flushed={}, again=0)
        if before.first is None:
            after = replace(after, fired=now(), step=self._store.snapshot.step, credit=0.0)
        return after

    def check_answered(self, names: Iterable[str]) -> None:
        """Raise if a view has failed at its trigger."""
        for name in names:
            why = self.progress(name).failed
            if why:
                raise StepFailedError(
                    f"view {name!r} could not be refreshed: {why}",
                    way_out="correct or delete the rows that it fails on, and refresh it again; until then its answer "
                    "is that of the last trigger",
                )

    # -- in a step ------------------------------------------------------------------------------------------------

    def advance(self, moment: Moment, rows: Mapping[str, int], wanted: Collection[str] = ()) -> Advance:
        """Flush what is due after rows have come.

        Parameters
        ----------
        rows : changed rows that have come, by table.
        wanted : views whose trigger the user fires.
        """
        out = Advance()
        waiting, views = self.waiting, self._catalogue.views
        for name in waiting:
            self._note_rows(name, views[name], rows, moment)
        self.pacing.given(moment.state.traffic)
        for name, fresh in waiting.items():
            view = views[name]
            came = sum(count for table, count in rows.items() if table in view.tables)
            progress = self.progress(name).came(came, moment.began, moment.state.held.get(name, Holding()).cpu)
            ended = isinstance(fresh.trigger, AtWindowEnd) and self._window_ended(name, view, moment.watermarks)
            if came:
                out.progress[name] = progress
            if progress.first is None:
                continue  # nothing waits
            if name in wanted or is_due(fresh, progress, now(), window_ended=ended):
                self._fire(name, view, fresh, progress, moment, out)
            elif came and (due := self._due(view, fresh, progress)):
                self._flush_some(name, view, progress, due, moment, out)
        self._plan_together(out)
        return out

    def _note_rows(self, name: str, view: PlannedView, rows: Mapping[str, int], moment: Moment) -> None:
        """Let the rows that have come be learnt from, once the trigger of the view has fired."""
        held = moment.state.held
        if not any(table in view.tables for table in rows):
            return
        self.pacing.came(name, view, held.get(name, Holding()).rows, is_first=self.progress(name).first is None)
        for subplan in self.subplans.of(view):
            self.pacing.held_below(name, subplan, held.get(subplan, Holding()).cpu)

    def _plan_together(self, out: Advance) -> None:
        """Choose the paces of views anew whose triggers have fired together, and those of the subplans they share.

        If there is news of one of them, all that read the same subplans are planned with it.
        """
        below = {name: {*self.subplans.of(self._catalogue.views[name])} for name in out.fired if name in out.learnt}
        news = set[str]().union(*(below[name] for name in out.planned))
        views = {
            name: Planned(self._catalogue.views[name], fresh, Learnt.from_json(out.learnt[name]))
            for name, read in below.items()
            if read & news and (fresh := self.of(name)) is not None
        }
        self.planned_together = together(views)
        for name, (paces, learnt) in (self.planned_together.results if self.planned_together else {}).items():
            out.progress[name] = replace(out.progress[name], paces=paces)
            out.learnt[name] = learnt.to_json()

    def _due(self, view: PlannedView, fresh: Freshness, progress: Progress) -> dict[str, int]:
        """The paths to flush before the trigger, and the shared subplans; not what is shared otherwise by now."""
        found, there = (
            paths_due(progress, expected_rows(fresh, progress)),
            {*view.kernel.holds, *self.subplans.of(view)},
        )
        return {path: count for path, count in found.items() if path in there}

    def flush_paths(self, name: str, paths: Collection[str], moment: Moment) -> None:
        """Flush some paths of a view, none of which ends in its answer."""
        moment.state.add(self._flush(name, self._catalogue.views[name], paths, moment))

    def _fire(
        self, name: str, view: PlannedView, fresh: Freshness, progress: Progress, moment: Moment, out: Advance
    ) -> None:
        """Flush all that waits for a view, and let its readers see the new answer."""
        clock, start = self._clock(view), time.perf_counter()
        try:
            brought, elsewhere = self.subplans.bring(view, view.kernel.holds, moment)
            done = self._flush(name, view, None, moment)
            if view.is_final:
                tables = self._catalogue.tables
                base = moment.program({name: view}, {**moment.state.buckets, **done.buckets})
                self._windows.close_flushed(name, view, tables, base, done, moment.watermarks)
        except HeadraceError as error:
            out.undone = True
            self.pacing.forget(name)
            out.progress[name] = progress.fail(error.what.removeprefix(f"{NOT_COMMITTED}: "), now())
            return
        spent = clock() + done.elsewhere + elsewhere
        out.result.add(done)
        out.fired.append(name)
        at = now()
        left = credit(fresh.goal, progress, at, spent) if isinstance(fresh.goal, Budget) else 0.0
        known = self.learnt(name)
        met = goal_met(fresh, progress, moment.began, at, left)
        if isinstance(fresh.goal, FinalWork) and known is not None and known.share is not None:
            met = spent <= fresh.goal.share * known.batch
        step = self._store.snapshot.step + 1
        after = progress.trigger(at, step, spent, time.perf_counter() - start, met, left)
        self._saw(name, view, done, spent - brought, is_last=True)
        found = self.pacing.chosen(name, view, fresh, progress, known)
        if found is not None:
            paces, learnt = found
            out.planned += [name] if known is None or learnt.planning > known.planning else []
            after = replace(after, paces=paces)
            out.learnt[name] = learnt.to_json()
        out.progress[name] = after

    def _saw(self, name: str, view: PlannedView, done: BucketResult, cpu: float, *, is_last: bool) -> None:
        before = self._store.snapshot.arrangements
        self.pacing.saw(name, view, before, done.traffic.get(name, {}), cpu, is_last=is_last)

    def _paces_for(self, name: str, view: PlannedView, fresh: Freshness) -> dict[str, int]:
        """The paces to begin with under a goal: by what is known of the view, or those of a view that is new."""
        known = self.learnt(name)
        if known is None:
            return self.pacing.first(view, fresh)
        if self.subplans.of(view) and (shared := together({name: Planned(view, fresh, known)})):
            return dict(shared.results[name][0])
        found = self.pacing.under(known, fresh, self.progress(name))
        if not found.feasible and fresh.infeasible == FAIL:
            raise SchemaError(
                f"view {name!r}: {fresh} is out of reach: doing everything at the trigger takes "
                f"{time_text(known.batch)}, and {time_text(found.work.final / 1e6)} of it would be left",
                way_out="give a weaker goal (view.tradeoff() has estimates), or infeasible='best' to come near it",
            )
        return dict(zip(known.plan.paths, found.paces, strict=True))

    def learnt(self, name: str) -> Learnt | None:
        """What is known of the triggers of a view."""
        data = self._store.snapshot.learnt.get(name)
        found = None if data is None else Learnt.from_json(data)
        # What was learnt of other paths, before a shared subplan took them over or gave them back, says nothing.
        return found if found and found.plan.paths == tuple(self._catalogue.views[name].kernel.holds) else None

    def _flush_some(
        self,
        name: str,
        view: PlannedView,
        progress: Progress,
        due: Mapping[str, int],
        moment: Moment,
        out: Advance,
    ) -> None:
        """Flush some paths ahead of the trigger; readers go on seeing the answer of the last one."""
        clock = self._clock(view)
        try:
            brought, elsewhere = self.subplans.bring(view, due, moment)
            own = [path for path in due if path in view.kernel.holds]
            done = self._flush(name, view, own, moment) if own else BucketResult()
        except HeadraceError:
            out.undone = True  # what is wrong now may be right when all changes are there
            out.progress[name] = progress.flush(due, 0.0)
            return
        before = self._store.snapshot
        for part in answer_parts(view):
            arrangement = view_arrangement(name, part)
            if arrangement in done.buckets and arrangement not in before.shown:
                out.shown[arrangement] = before.arrangements.get(arrangement, {})
        out.result.add(done)
        spent = clock() + done.elsewhere + elsewhere
        if own:
            self._saw(name, view, done, spent - brought, is_last=False)
        out.progress[name] = progress.flush(due, spent)

    def _flush(self, name: str, view: PlannedView, paths: Collection[str] | None, moment: Moment) -> BucketResult:
        """Flush some paths of a view, or all of them."""
        kernel = view.kernel
        if isinstance(kernel, Recomputed):
            return self._recomputer.run({name: kernel}, self._catalogue.tables, moment.state.buckets)
        every = {part for parts in kernel.holds.values() for part in parts}
        chosen = kernel.holds if paths is None else paths
        flushed = frozenset(part for path in chosen for part in kernel.holds[path])
        program = moment.program({name: view}, moment.changed)

        def run(by: ViewKernel) -> BucketResult:
            what = Flush(by, flushed, frozenset(every - flushed))
            return self._run(replace(program, flushes={name: what}))

        try:
            return run(kernel)
        except NeedsCatalyst:
            return run(kernel.evaluated_by_catalyst())

    def _clock(self, view: PlannedView) -> Callable[[], float]:
        """Start counting the CPU seconds of a flush: of this thread, and of Spark's JVM if it has a part in the work.

        Otherwise the JVM does not count: its compiler and its collector work at any time, for anybody.
        """
        kernel, spark = view.kernel, self._step_runner.spark
        asked = isinstance(kernel, TreeView) and any(r.catalyst for r in kernel.placement.routes.values())
        with_jvm = asked or isinstance(kernel, Recomputed) or not self._step_runner.in_driver
        own, jvm = time.thread_time(), java_cpu(spark) if with_jvm else 0.0
        return lambda: time.thread_time() - own + (java_cpu(spark) - jvm if with_jvm else 0.0)

    def _run(self, program: Program) -> BucketResult:
        runner = self._step_runner
        jobs = (lambda ready: jobs_of(runner.spark, ready)) if not runner.in_driver else None
        runner.leftovers += jobs is not None
        return translating_spark_errors(lambda: flush(program, runner.threads, jobs))

    def _window_ended(self, name: str, view: PlannedView, watermarks: Mapping[str, int]) -> bool:
        windows = windows_of(name, view, self._catalogue.schemas)
        mark = watermarks.get(windows.table)
        return mark is not None and windows.due(self._store.snapshot.watermarks.get(windows.table), mark)


def answer_parts(view: PlannedView) -> Iterable[str]:
    """The parts of a view that its readers see."""
    layout = getattr(view.answer, "layout", None)
    return layout.arrangements if layout is not None else ()


def check_goal(name: str, view: PlannedView, fresh: Freshness, catalogue: Catalogue) -> None:
    """Refuse a goal that the view cannot have."""
    if not (view.kernel.holds or isinstance(view.kernel, Recomputed)):
        raise SchemaError(
            f"view {name!r} has moments of its own at which it answers, so it takes no goal",
            way_out="leave the goal out; emit_after says when a window join answers",
        )
    if isinstance(fresh.trigger, AtWindowEnd):
        try:
            windows_of(name, view, catalogue.schemas)
        except SchemaError as error:
            raise SchemaError(
                f"view {name!r}: AT WINDOW END waits for the end of a window, and the view has none that ends",
                way_out="GROUP BY window(column, '10 minutes') of the watermark column of one table, or choose "
                "another trigger",
            ) from error

"""Maintenance: turns changes into programs, runs them, and commits their results.

This is the one place where a step happens: all code before it only prepares, all work of executors can be thrown away,
and the step exists from the moment of the commit at its end.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from headrace.engine import frames
from headrace.engine.catalogue import Catalogue
from headrace.engine.catalyst_feeds import BetweenOperators
from headrace.engine.centring import with_shifts
from headrace.engine.chosen_states import Settled
from headrace.engine.definition import PlannedView, SqlAnswer
from headrace.engine.filling import can_recompute, fill, rebuild, recompute
from headrace.engine.goals import Advance, Goals, Moment
from headrace.engine.late import Late, without_late
from headrace.engine.recompute import Recomputer, recomputed
from headrace.engine.state_budget import StateBudget, changes_of
from headrace.engine.step import Step
from headrace.engine.step_runner import Inputs, Outcome, StepRunner
from headrace.engine.store import Store
from headrace.engine.watermarks import Windows, windows_of
from headrace.errors import BadRowsError, SchemaError, StepFailedError
from headrace.operators.aggregate import net_change
from headrace.operators.kernel import ViewChange, ViewKernel
from headrace.operators.traffic import traffic_numbers
from headrace.operators.tree_view import TreeView
from headrace.plan.native import NeedsCatalyst
from headrace.relation.change import ChangeBatch
from headrace.runtime.aside import Aside, AsideWriter
from headrace.runtime.log import Arrangements, BucketState
from headrace.runtime.openruns import OPEN
from headrace.runtime.program import (
    BucketResult,
    Flush,
    Program,
    TableTask,
    ViewTask,
    arrangements_kept,
    arrangements_waiting,
    table_arrangement,
    view_arrangement,
    why_catalyst,
)
from headrace.runtime.runwriter import discard
from headrace.runtime.stages import run_later_stages
from headrace.thrifty.schedule import now
from headrace.thrifty.statistics import watched

Source = tuple[str, int]


class Maintenance:
    """Steps and fillings of views for one engine."""

    def __init__(self, catalogue: Catalogue, store: Store, step_runner: StepRunner, recomputer: Recomputer) -> None:
        self._catalogue = catalogue
        self._store = store
        self._step_runner = step_runner
        self._recomputer = recomputer
        self._windows = Windows(store, step_runner)
        self.goals = Goals(catalogue, store, step_runner, recomputer, self._windows)
        self.memory = StateBudget(catalogue, store, self.rebuild, partial(can_recompute, step_runner))

    def committed_before(self, source: Source) -> bool:
        """Whether the step of a micro-batch has been committed already."""
        name, number = source
        return self._store.snapshot.sources.get(name, -1) >= number

    def step(self, inputs: Inputs, on_bad_rows: str, source: Source | None, start: float) -> Step:
        """Apply inputs to their tables and bring every view up to date, wholly or not at all."""
        inputs = self._step_runner.brought({n: self._catalogue.tables[n].schema for n in inputs}, inputs)
        snapshot = self._store.snapshot
        aside = AsideWriter(str(self._store.location.root), snapshot.version + 1, snapshot.step + 1, self._store.fsync)
        try:
            with without_late(self._catalogue.tables, inputs, snapshot.watermarks, aside) as (in_time, late):
                step = self._attempted(in_time, late, on_bad_rows, source, start)
        except BaseException:
            self._store.roll_back()
            raise
        if step.quarantined:
            self._store.remove_orphans()  # files of the attempt that met the bad rows
        return step

    def _attempted(self, inputs: Inputs, late: Late, on_bad_rows: str, source: Source | None, start: float) -> Step:
        """Take a step; views that lack much of their state are computed anew, if that costs less."""
        read = self.memory.read(inputs)
        # Rows that a view refuses are set aside by the step itself, so then the view must take part in it.
        anew = self.memory.anew(read, changes_of(inputs)) if read and on_bad_rows == "fail" else frozenset()
        if anew:
            with suppress(NeedsCatalyst):
                return self._step(inputs, late, on_bad_rows, source, start, anew)
        return self._step(inputs, late, on_bad_rows, source, start)

    def _step(
        self,
        inputs: Inputs,
        late: Late,
        on_bad_rows: str,
        source: Source | None,
        start: float,
        anew: Collection[str] = (),
    ) -> Step:
        began = now()
        shifted = self._shifted(inputs)
        before = self._catalogue.replan(shifted)
        kept_before = self._catalogue.unkept
        try:
            read = self.memory.read(inputs)
            again = self.memory.made_again({name: parts for name, parts in read.items() if name not in anew})
            tables, views = self._catalogue.tables, self._catalogue.views
            followed = {name: view for name, view in views.items() if view.definition.freshness is None}
            program = self._program(tuple(self._table_task(name, anew) for name in inputs), views, again)
            analysed = {name: view.analysed for name, view in views.items() if view.analysed is not None}
            outcome = self._recomputed(self._step_runner.run(program, inputs, analysed, on_bad_rows))
            for name in anew:
                outcome.result.add(self._anew(name, outcome.result.buckets))
            outcome = replace(self._windows.close(outcome, program, tables, followed), late=late)
            definitions = {name: view.definition.to_json() for name, view in shifted.items()}
            rows = _rows_of(inputs, outcome)
            advance = self._advance(outcome, rows, began) if len(followed) < len(views) else Advance()
            settled = self.memory.settled(outcome.result.buckets, again, changes_of(inputs, rows), anew)
            step = self._commit(rows, outcome, source, start, definitions, advance, settled)
        except BaseException:
            self._catalogue.replan(before)
            self._catalogue.leave_out(kept_before)
            raise
        self.memory.happened(settled)
        return step

    def fire(self, wanted: Collection[str], start: float) -> Step:
        """Fire the triggers of some views, and those that are due by the clock, as a step without rows."""
        outcome = Outcome(BucketResult(), "driver", "no rows came", {})
        try:
            step = self._commit(None, outcome, None, start, {}, self._advance(outcome, {}, now(), wanted))
        except BaseException:
            self._store.roll_back()
            raise
        return step

    def _advance(self, outcome: Outcome, rows: Mapping[str, int], began: int, wanted: Collection[str] = ()) -> Advance:
        moment = Moment(self._flush_program, self._shared_program, outcome.result, outcome.watermarks, began)
        advance = self.goals.advance(moment, rows, wanted)
        outcome.result.add(replace(advance.result, changes={}))
        return advance

    def _flush_program(self, views: Mapping[str, PlannedView], changed: Arrangements) -> Program:
        """A program without rows over views, given what the step has changed so far."""
        snapshot = self._store.snapshot
        names = [
            arrangement
            for name, view in views.items()
            for arrangement in (*arrangements_kept(name, view.kernel), *arrangements_waiting(name, view.kernel))
        ]
        base = self._program((), views)
        return replace(
            base, state={name: snapshot.arrangements.get(name, {}) | changed.get(name, {}) for name in names}
        )

    def _shared_program(self, name: str, changed: Arrangements) -> Program:
        """A program in which a shared subplan takes all that waits for it, and what it gives waits at its readers."""
        snapshot, kernel = self._store.snapshot, self._catalogue.shared_kernel(name)
        followers = _followers([kernel])
        needed = [*arrangements_kept(name, kernel), *arrangements_waiting(name, kernel)]
        needed += [part for view, own in followers.items() for part in arrangements_waiting(view, own)]
        return replace(
            self._program((), {}),
            state={part: snapshot.arrangements.get(part, {}) | changed.get(part, {}) for part in needed},
            flushes={name: Flush(kernel, frozenset(kernel.inlets), frozenset())},
            followers=followers,
            patient=frozenset(followers),
        )

    def settle(self, shared: Collection[str], paths: Mapping[str, Collection[str]]) -> None:
        """Let changes go on, so that what views share can change; no answer changes by it.

        Parameters
        ----------
        shared : subplans for which nothing may wait.
        paths : per view with a goal, the paths in which nothing may wait.
        """
        moment = Moment(self._flush_program, self._shared_program, BucketResult(), {}, now())
        try:
            for name in shared:
                self.goals.subplans.flush(name, moment)
            for name, own in paths.items():
                self.goals.flush_paths(name, own, moment)
        except BaseException:
            self._store.roll_back()
            raise
        if moment.state.buckets:
            self._store.commit(self._store.next_record(buckets=moment.state.buckets))

    def _recomputed(self, outcome: Outcome) -> Outcome:
        """Recompute those recomputed views that read a changed table."""
        changed = outcome.result.buckets
        due = {
            name: kernel
            for name, kernel in recomputed(self._catalogue.kernels).items()
            if self.goals.of(name) is None and any(table_arrangement(table) in changed for table in kernel.tables)
        }
        if not due:
            return outcome
        outcome.result.add(self._recomputer.run(due, self._catalogue.tables, changed))
        rest = "in the driver" if outcome.ran == "driver" else "as a job"
        return replace(outcome, ran="job", why=f"Spark recomputed {', '.join(due)}; all else ran {rest}: {outcome.why}")

    def _shifted(self, inputs: Inputs) -> dict[str, PlannedView]:
        """New plans for the views that now get the first rows of some feature."""
        found = {name: with_shifts(view, inputs) for name, view in self._catalogue.views.items()}
        return {name: view for name, view in found.items() if view is not None}

    def fill(self, name: str, view: PlannedView) -> tuple[PlannedView, Arrangements]:
        """Compute a new view from the rows of its tables; the caller commits the arrangements with the view."""
        latest, tables = self._store.latest, self._catalogue.tables
        rows = {table: latest.rows(table) for table in view.tables}
        filled = [table for table, count in rows.items() if count]
        self._check_fillable(name, view, filled)
        if not filled and view.kernel.starts_empty:
            return view, {}
        with self._store.reader() as reader:
            try:
                some = {t: partial(frames.some_rows, reader.root, tables[t], reader.arrangements) for t in filled}
                view = with_shifts(view, some) or view
                if computed := recomputed({name: view.kernel}):
                    result = self._recomputer.run(computed, tables, {})
                    self._untold(name, result)
                    return view, result.buckets
                analysed = {} if view.analysed is None else {name: view.analysed}
                tasks = [
                    TableTask(tables[t], _view_tasks(name, view.kernel, t), store=False) for t in filled or view.tables
                ]
                program = replace(self._program(tuple(tasks), {name: view}), seeds={name: view.kernel.seeds})
                # Even over empty tables a view may have an answer.
                empty = run_later_stages(program, BucketResult()) if not filled else None
                result = empty or fill(self._step_runner, program, analysed)
                self._windows.close_filled(name, view, tables, program, result)
            except BaseException as error:
                self._store.roll_back()
                raise _filling_failed(name, error) from error
        self._untold(name, result)
        return view, result.buckets

    def fill_shared(self, name: str, kernel: TreeView) -> Arrangements:
        """Compute the state of a new shared subplan from the rows of its tables; the caller commits it."""
        tables = [table for table in kernel.tree.tables if self._store.latest.rows(table)]
        if not tables:
            return {}
        layouts = self._catalogue.tables
        with self._store.reader():
            tasks = tuple(TableTask(layouts[t], _view_tasks(name, kernel, t), store=False) for t in tables)
            return fill(self._step_runner, self._program(tasks, {}), {}).buckets

    def rebuild(self, name: str, kernel: TreeView, wanted: Collection[str]) -> Arrangements:
        """Make dropped parts of a view or a shared subplan again, as of the last step; the caller commits them."""
        views = {name: self._catalogue.views[name]} if name in self._catalogue.views else {}
        analysed = {n: view.analysed for n, view in views.items() if view.analysed is not None}
        made = partial(self._rebuilding, name, kernel, {})
        with self._store.reader():
            result = rebuild(self._step_runner, name, kernel, wanted, made, analysed)
        self._untold(name, result)
        return result.buckets

    def _anew(self, name: str, changed: Arrangements) -> BucketResult:
        """Compute the answer of a view anew, given what the step has changed in its tables."""
        kernel = self._catalogue.kernels[name]
        assert isinstance(kernel, TreeView)
        return recompute(self._step_runner, name, kernel, partial(self._rebuilding, name, kernel, changed))

    def _rebuilding(self, name: str, kernel: TreeView, changed: Arrangements, rebuilt: TreeView) -> Program:
        """A program that makes parts of a view from its tables, as the step has changed them so far."""
        layouts, snapshot = self._catalogue.tables, self._store.snapshot
        read = [
            table for table in dict.fromkeys(side.table for side in rebuilt.sides) if self._rows_after(table, changed)
        ]
        tasks = tuple(TableTask(layouts[t], _view_tasks(name, rebuilt, t), store=False) for t in read)
        state = {part: snapshot.arrangements.get(part, {}) for part in arrangements_kept(name, kernel)}
        for arrangement in map(table_arrangement, read):
            state[arrangement] = snapshot.arrangements.get(arrangement, {}) | changed.get(arrangement, {})
        views = {name: self._catalogue.views[name]} if name in self._catalogue.views else {}
        program = self._program(tasks, views, state)
        return replace(program, seeds={name: rebuilt.seeds}, followers={name: rebuilt})

    def _check_fillable(self, name: str, view: PlannedView, filled: Sequence[str]) -> None:
        """Refuse a view that needs rows which were not kept, or that is to close windows which it does not have."""
        for table in filled:
            if not self._catalogue.tables[table].schema.kept:
                raise SchemaError(
                    f"view {name!r}: the rows that table {table!r} has had were not kept",
                    way_out="create views before the rows come, or register the table with keep_rows=True",
                )
        if view.is_final:
            windows_of(name, view, self._catalogue.schemas)

    def _untold(self, name: str, result: BucketResult) -> None:
        """Delete the files of changes that filling a view wrote: filling counts as no change of the view."""
        changes = {run.name for run in result.changes.get(name, [])}
        discard(self._store.location, changes - BucketResult(buckets=result.buckets).files())

    def _table_task(self, name: str, without: Collection[str] = ()) -> TableTask:
        layout, views = self._catalogue.tables[name], self._catalogue.views
        tasks = [
            replace(task, waits=self._catalogue.shared_waits(shared))
            for shared in self._catalogue.shared
            for task in _view_tasks(shared, self._catalogue.shared_kernel(shared), name)
        ]
        tasks += [
            replace(task, waits=planned.definition.freshness is not None)
            for view, planned in views.items()
            if view not in without
            for task in _view_tasks(view, planned.kernel, name)
        ]
        return TableTask(layout, _numbered(tasks), store=layout.schema.kept)

    def _program(
        self, tasks: tuple[TableTask, ...], views: Mapping[str, PlannedView], again: Arrangements | None = None
    ) -> Program:
        """A program over the last snapshot, and over arrangements that were made again for it."""
        snapshot = self._store.snapshot
        running = [view.kernel for task in tasks for view in task.views if not view.waits]
        followers = _followers(kernel for kernel in running if isinstance(kernel, TreeView))
        patient = frozenset(followers.keys() & self.goals.waiting.keys()) if followers else frozenset()
        needed = {table_arrangement(task.name) for task in tasks} | {
            arrangement
            for task in tasks
            for view in task.views
            for arrangement in (arrangements_waiting if view.waits else arrangements_kept)(view.name, view.kernel)
        }
        needed |= {
            part
            for name, kernel in followers.items()
            for part in (arrangements_waiting if name in patient else arrangements_kept)(name, kernel)
        }
        return Program(
            version=snapshot.version + 1,
            root=str(self._store.location.root),
            buckets=self._store.settings.buckets,
            tables=tasks,
            state={n: buckets for n, buckets in snapshot.arrangements.items() if n in needed} | (again or {}),
            step=snapshot.step + 1,
            fsync=self._store.fsync,
            owes=True,
            between=BetweenOperators(views),
            followers=followers,
            patient=patient,
        )

    def _passed(self, result: BucketResult) -> Arrangements:
        """The new arrangements of tables whose rows are not kept: they hold only the number of rows."""
        out: Arrangements = {}
        for name, (_, net) in result.passed.items():
            arrangement = table_arrangement(name)
            before = self._store.snapshot.arrangements.get(arrangement, {}).get(0, BucketState())
            out[arrangement] = {0: BucketState((), before.live + net)}
        return out

    def _commit(
        self,
        applied: dict[str, int] | None,
        outcome: Outcome,
        source: Source | None,
        start: float,
        definitions: Mapping[str, Any],
        advance: Advance,
        settled: Settled | None = None,
    ) -> Step:
        settled = settled or Settled()
        result, snapshot, rows = outcome.result, self._store.snapshot, applied or {}
        quarantined = {name: bad.rows for name, bad in outcome.bad.items()}
        step = Step(
            number=snapshot.step + 1,
            rows=rows,
            seconds=time.perf_counter() - start,
            state_bytes=0,
            views=self._changed_answers(result, advance),
            ran=outcome.ran,
            why=outcome.why,
            quarantined=quarantined,
            late={name: late.rows for name, late in outcome.late.items()},
            closed=result.closed,
        )
        buckets = settled.stored(result.buckets) | self._passed(result)
        self._store.commit(
            self._store.next_record(
                step=step.number,
                buckets=buckets,
                views=dict(definitions),
                **self._told(applied, result, advance),
                sources=dict([source]) if source else {},
                quarantine=_with_files(snapshot.quarantine, outcome.bad),
                watermarks=outcome.watermarks,
                rates=watched(snapshot.rates, step.rows, {name: self._rows_after(name, buckets) for name in step.rows}),
                late=_with_files(snapshot.late, outcome.late),
                **settled.record(),
                summary={"text": str(step), "ran": step.ran, "why": step.why, "spent": result.spent} | _traffic(result),
            )
        )
        if advance.undone:
            self._store.remove_orphans()
        return replace(step, seconds=time.perf_counter() - start, state_bytes=self._store.snapshot.bytes())

    def _changed_answers(self, result: BucketResult, advance: Advance) -> dict[str, ViewChange]:
        """How the answers that readers see have changed; a view with a goal shows its changes at its trigger."""
        unseen = self.goals.waiting.keys() - set(advance.fired)
        out = {n: result.summaries[n] for n in self._catalogue.views if n in result.summaries and n not in unseen}
        for name in advance.fired:
            answer, ahead = self._catalogue.views[name].answer, self._store.snapshot.unshown.get(name, [])
            if ahead and isinstance(answer, SqlAnswer):
                root = str(self._store.location.root)
                runs = [OPEN.one(root, run) for run in (*ahead, *advance.result.changes.get(name, []))]
                for run in runs:
                    run.check()
                out[name] = net_change(answer.layout, runs)
        return out

    def _told(self, applied: Mapping[str, int] | None, result: BucketResult, advance: Advance) -> dict[str, Any]:
        """What a record says of views with goals, and of the changes of all views."""
        snapshot = self._store.snapshot
        # A step that only fires triggers concerns their views; what others last changed stays known.
        told = dict(snapshot.changes) if applied is None else dict(result.changes)
        unshown = dict(snapshot.unshown)
        published = []
        for name in self.goals.waiting:
            ahead = [*unshown.pop(name, []), *advance.result.changes.get(name, [])]
            if name in advance.fired:
                told[name] = ahead
                published += [view_arrangement(name, part) for part in self._catalogue.kernels[name].arrangements]
                continue
            if name in snapshot.changes:
                told[name] = snapshot.changes[name]
            if ahead:
                unshown[name] = ahead
        return {
            "changes": told,
            "unshown": unshown,
            "goals": advance.goals(),
            "learnt": advance.learnt,
            "shown": advance.shown,
            "published": tuple(published),
        }

    def _rows_after(self, table: str, changed: Arrangements) -> int:
        """How many rows a table has after a step that changed some of its buckets."""
        arrangement = table_arrangement(table)
        buckets = self._store.snapshot.arrangements.get(arrangement, {}) | changed.get(arrangement, {})
        return sum(state.live for state in buckets.values())


def _followers(kernels: Iterable[TreeView]) -> dict[str, ViewKernel]:
    """The views that read some shared subplans."""
    return {one.view: one.kernel for kernel in kernels for one in kernel.followers}


def _with_files(before: Mapping[str, list[str]], aside: Mapping[str, Aside]) -> dict[str, list[str]]:
    """The files of rows set aside, per table that a step adds some to."""
    return {name: [*before.get(name, []), *added.files] for name, added in aside.items()}


def _rows_of(inputs: Inputs, outcome: Outcome) -> dict[str, int]:
    """How many changed rows of each table a step has applied."""
    result = outcome.result
    quarantined = {name: bad.rows for name, bad in outcome.bad.items()}
    return {
        # Only the tasks know how many rows a Spark DataFrame had.
        name: len(given) - quarantined.get(name, 0)
        if isinstance(given, ChangeBatch)
        else result.seen.get(name, result.passed.get(name, (0, 0))[0])
        for name, given in inputs.items()
    }


def _traffic(result: BucketResult) -> dict[str, Any]:
    """What the operators of views took and gave in a step, for EXPLAIN; empty if the step reached no operator."""
    found = {
        view: traffic_numbers(through, result.summaries.get(view, ViewChange()))
        for view, through in result.traffic.items()
    }
    return {"operators": found} if found else {}


def _filling_failed(view: str, error: BaseException) -> BaseException:
    """Reword the error of a step for the filling of a view, in which the user applied no change batch."""
    if isinstance(error, BadRowsError):
        return BadRowsError(
            f"view {view!r} cannot be filled: {error.what}",
            way_out="correct or delete these rows of the table first, or leave them out with WHERE",
        )
    if isinstance(error, StepFailedError):
        return StepFailedError(
            f"view {view!r} cannot be filled: {error.what}",
            way_out="correct the expression, or the rows of the table that it fails on, and create the view again",
        )
    return error


def _view_tasks(name: str, kernel: ViewKernel, table: str) -> tuple[ViewTask, ...]:
    return _numbered([ViewTask(name, kernel, side, None) for side in kernel.sides if side.table == table])


def _numbered(tasks: Sequence[ViewTask]) -> tuple[ViewTask, ...]:
    """Give each task whose expressions Catalyst evaluates its own prefix for column names."""
    return tuple(
        task if why_catalyst(task.side) is None else replace(task, prefix=f"__v{i}_") for i, task in enumerate(tasks)
    )

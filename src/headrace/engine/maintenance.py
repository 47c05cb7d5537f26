"""Maintenance: turns changes into programs, runs them, and commits their results.

This is the one place where a step happens: all code before it only prepares, all work of executors can be thrown away,
and the step exists from the moment of the commit at its end.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pyspark.sql import DataFrame

from headrace.engine import step_runner as running
from headrace.engine.catalogue import Catalogue
from headrace.engine.centring import with_shifts
from headrace.engine.chosen_states import Settled
from headrace.engine.definition import PlannedView, SqlAnswer
from headrace.engine.expectations import changes_of
from headrace.engine.filling import can_recompute
from headrace.engine.goals import Advance, Goals, Moment
from headrace.engine.late import Late, without_late
from headrace.engine.products import check_products
from headrace.engine.programs import Programs
from headrace.engine.recompute import Recomputer, recomputed
from headrace.engine.resolving import Given, resolved
from headrace.engine.state_budget import StateBudget
from headrace.engine.state_maker import StateMaker
from headrace.engine.step import Step
from headrace.engine.step_runner import Inputs, Outcome, StepRunner
from headrace.engine.store import Store
from headrace.engine.watermarks import Windows
from headrace.operators.aggregate import net_change
from headrace.operators.kernel import ViewChange
from headrace.operators.traffic import traffic_numbers
from headrace.plan.native import NeedsCatalyst
from headrace.relation.product import ProductBatch
from headrace.runtime.aside import Aside, AsideWriter, both_aside
from headrace.runtime.openruns import OPEN
from headrace.runtime.program import (
    BucketResult,
    table_arrangement,
    view_arrangement,
)
from headrace.runtime.record import Arrangements, BucketState
from headrace.thrifty.schedule import now
from headrace.thrifty.statistics import watched

Source = tuple[str, int]


@dataclass(frozen=True)
class Before:
    """What became of rows before a step.

    Parameters
    ----------
    late, bad : those that were set aside, per table.
    by_key : the tables whose changes were found by key.
    """

    late: Late = field(default_factory=dict)
    bad: Mapping[str, Aside] = field(default_factory=dict)
    by_key: frozenset[str] = frozenset()


class Maintenance:
    """The steps of one engine."""

    def __init__(self, catalogue: Catalogue, store: Store, step_runner: StepRunner, recomputer: Recomputer) -> None:
        self._catalogue = catalogue
        self._store = store
        self._step_runner = step_runner
        self._recomputer = recomputer
        self._windows = Windows(store, step_runner)
        self._programs = Programs(catalogue, store)
        self.states = StateMaker(catalogue, store, step_runner, recomputer, self._windows, self._programs)
        self.goals = Goals(catalogue, store, step_runner, recomputer, self._windows)
        self.memory = StateBudget(catalogue, store, self.states.rebuild, partial(can_recompute, step_runner))

    def committed_before(self, source: Source) -> bool:
        """Whether the step of a micro-batch has been committed already."""
        name, number = source
        return self._store.snapshot.sources.get(name, -1) >= number

    def step(self, given: Given, on_bad_rows: str, source: Source | None, start: float) -> Step:
        """Apply inputs to their tables and bring every view up to date, wholly or not at all."""
        check_products(self._programs, self._catalogue.schemas, given)
        snapshot = self._store.snapshot
        aside = AsideWriter(self._store.location.path, snapshot.version + 1, snapshot.step + 1, self._store.fsync)
        try:
            quarantines = on_bad_rows == "quarantine"
            with resolved(self._step_runner, given, lambda name: self._programs.of_table(name, quarantines)) as ready:
                inputs = self._step_runner.brought({n: self._catalogue.tables[n].schema for n in given}, ready.inputs)
                with without_late(self._catalogue.tables, inputs, snapshot.watermarks, aside) as (in_time, late):
                    before = Before(late, ready.bad, ready.by_key)
                    step = self._attempted(in_time, before, on_bad_rows, source, start)
        except BaseException:
            self._store.roll_back()
            raise
        # Files of the attempt that met the bad rows, or of tasks that Spark ran twice.
        if step.quarantined or self._step_runner.leftovers >= running.MOST_LEFTOVERS:
            self._step_runner.leftovers = 0
            self._store.remove_orphans()
        return step

    def _attempted(
        self, inputs: Inputs, earlier: Before, on_bad_rows: str, source: Source | None, start: float
    ) -> Step:
        """Take a step; views that lack much of their state are computed anew, if that costs less."""
        read = self.memory.read(inputs)
        # Rows that a view refuses are set aside by the step itself, so then the view must take part in it.
        anew = self.memory.anew(read, changes_of(inputs)) if read and on_bad_rows == "fail" else frozenset()
        if anew:
            with suppress(NeedsCatalyst):
                return self._step(inputs, earlier, on_bad_rows, source, start, anew)
        return self._step(inputs, earlier, on_bad_rows, source, start)

    def _step(
        self,
        inputs: Inputs,
        earlier: Before,
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
            program = self._programs.over(
                tuple(self._programs.table_task(name, anew, name in earlier.by_key) for name in inputs), views, again
            )
            analysed = {name: view.analysed for name, view in views.items() if view.analysed is not None}
            outcome = self._recomputed(self._step_runner.run(program, inputs, analysed, on_bad_rows))
            for name in anew:
                outcome.result.add(self.states.anew(name, outcome.result.buckets))
            outcome = replace(self._windows.close(outcome, program, tables, followed), late=earlier.late)
            outcome = replace(outcome, bad=both_aside(earlier.bad, outcome.bad))
            definitions = {name: view.definition.to_json() for name, view in shifted.items()}
            rows = _rows_of(inputs, outcome, earlier.by_key)
            advance = self._advance(outcome, rows, began, again=again) if len(followed) < len(views) else Advance()
            settled = Settled()
            if not self.memory.is_off:
                settled = self.memory.settled(outcome.result.buckets, again, changes_of(inputs, rows), anew)
            stands = {name: given.rows for name, given in inputs.items() if isinstance(given, ProductBatch)}
            step = self._commit(rows, outcome, source, start, definitions, advance, settled, stands)
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

    def _advance(
        self,
        outcome: Outcome,
        rows: Mapping[str, int],
        began: int,
        wanted: Collection[str] = (),
        again: Arrangements | None = None,
    ) -> Advance:
        programs = self._programs
        moment = Moment(programs.flush, programs.shared, outcome.result, outcome.watermarks, began, again or {})
        advance = self.goals.advance(moment, rows, wanted)
        outcome.result.add(replace(advance.result, changes={}))
        return advance

    def settle(self, shared: Collection[str], paths: Mapping[str, Collection[str]]) -> None:
        """Let changes go on, so that what views share can change; no answer changes by it.

        Parameters
        ----------
        shared : subplans for which nothing may wait.
        paths : per view with a goal, the paths in which nothing may wait.
        """
        moment = Moment(self._programs.flush, self._programs.shared, BucketResult(), {}, now())
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
        self._step_runner.leftovers += 1
        rest = "in the driver" if outcome.ran == "driver" else "as a job"
        return replace(outcome, ran="job", why=f"Spark recomputed {', '.join(due)}; all else ran {rest}: {outcome.why}")

    def _shifted(self, inputs: Inputs) -> dict[str, PlannedView]:
        """New plans for the views that now get the first rows of some feature."""
        found = {name: with_shifts(view, inputs) for name, view in self._catalogue.views.items()}
        return {name: view for name, view in found.items() if view is not None}

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
        stands_for: Mapping[str, int] | None = None,
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
            stands_for=dict(stands_for or {}),
            multiplied_out=result.multiplied,
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
                summary={"text": str(step), "ran": step.ran, "why": step.why, "spent": result.spent}
                | _multiplied(result)
                | _traffic(result),
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
                root = self._store.location.path
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


def _with_files(before: Mapping[str, list[str]], aside: Mapping[str, Aside]) -> dict[str, list[str]]:
    """The files of rows set aside, per table that a step adds some to."""
    return {name: [*before.get(name, []), *added.files] for name, added in aside.items()}


def _rows_of(inputs: Inputs, outcome: Outcome, by_key: Collection[str]) -> dict[str, int]:
    """How many changed rows of each table a step has applied."""
    result = outcome.result
    quarantined = {name: bad.rows for name, bad in outcome.bad.items()}
    return {
        # Only the tasks know how many rows a Spark DataFrame had, and how many stayed because of bad ones.
        name: len(given) - quarantined.get(name, 0)
        if not isinstance(given, DataFrame) and name not in by_key
        else result.seen.get(name, result.passed.get(name, (0, 0))[0])
        for name, given in inputs.items()
    }


def _multiplied(result: BucketResult) -> dict[str, Any]:
    """The entries that views made of products, for EXPLAIN."""
    return {"multiplied_out": result.multiplied} if result.multiplied else {}


def _traffic(result: BucketResult) -> dict[str, Any]:
    """What the operators of views took and gave in a step, for EXPLAIN; empty if the step reached no operator."""
    found = {
        view: traffic_numbers(through, result.summaries.get(view, ViewChange()))
        for view, through in result.traffic.items()
    }
    return {"operators": found} if found else {}

"""State that is made from the rows of tables: of new views, of shared subplans, and of what was dropped.

All of it is computed as of some commit, and written as files that nothing refers to. Whoever asked for the state
commits it, or leaves the files to be collected.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial

from headrace.engine import frames
from headrace.engine.catalogue import Catalogue
from headrace.engine.catching_up import caught_up, changed_tables
from headrace.engine.centring import with_shifts
from headrace.engine.definition import PlannedView
from headrace.engine.filling import fill, rebuild, recompute
from headrace.engine.moving import Wanted
from headrace.engine.programs import Programs, view_tasks
from headrace.engine.recompute import Recomputer, recomputed
from headrace.engine.step_runner import StepRunner, check_good
from headrace.engine.store import Store
from headrace.engine.watermarks import Windows, windows_of
from headrace.errors import BadRowsError, HeadraceError, SchemaError, StepFailedError
from headrace.operators.tree_view import TreeView
from headrace.runtime.log import Snapshot
from headrace.runtime.program import BucketResult, Program, TableTask, arrangements_kept, renamed, table_arrangement
from headrace.runtime.record import Arrangements
from headrace.runtime.runwriter import discard
from headrace.runtime.stages import run_later_stages
from headrace.sql.catalyst import AnalysedView

_BESIDE = "~"  # ends no name of a view


class StateMaker:
    """Makes the state of one engine's views and shared subplans."""

    def __init__(
        self,
        catalogue: Catalogue,
        store: Store,
        step_runner: StepRunner,
        recomputer: Recomputer,
        windows: Windows,
        programs: Programs,
    ) -> None:
        self._catalogue = catalogue
        self._store = store
        self._step_runner = step_runner
        self._recomputer = recomputer
        self._windows = windows
        self._programs = programs

    def fill_beside(self, name: str, view: PlannedView) -> tuple[PlannedView, Arrangements]:
        """Compute a view that takes the place of another one of its name, which goes on meanwhile."""
        beside = f"{name}{_BESIDE}"
        try:
            view, filled = self.fill(beside, view)
        except HeadraceError as error:
            raise type(error)(error.what.replace(repr(beside), repr(name)), way_out=error.way_out) from error
        return view, {renamed(arrangement, beside, name): states for arrangement, states in filled.items()}

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
                    self.untold(name, result)
                    return view, result.buckets
                analysed = {} if view.analysed is None else {name: view.analysed}
                tasks = [
                    TableTask(tables[t], view_tasks(name, view.kernel, t), store=False) for t in filled or view.tables
                ]
                program = replace(self._programs.over(tuple(tasks), {name: view}), seeds={name: view.kernel.seeds})
                # Even over empty tables a view may have an answer.
                empty = run_later_stages(program, BucketResult()) if not filled else None
                result = empty or fill(self._step_runner, program, analysed)
                self._windows.close_filled(name, view, tables, program, result)
            except BaseException as error:
                self._store.roll_back()
                raise _filling_failed(name, error) from error
        self.untold(name, result)
        return view, result.buckets

    def fill_parts(self, wanted: Wanted, snapshot: Snapshot, names: set[str] | None = None) -> Arrangements:
        """Compute state of a view or a shared subplan that no arrangement holds yet; the caller commits it.

        What is taken over from elsewhere stands for the operators below it, so only what is missing is computed.

        Parameters
        ----------
        snapshot : the state to start from; somebody keeps its files.
        names : gets the names of new files.
        """
        name, taken = wanted.name, wanted.taken_in(snapshot)
        missing = {*wanted.kernel.arrangements} - wanted.taken.keys()
        kernel = replace(wanted.kernel, unkept=wanted.kernel.unkept | missing)

        def made(rebuilt: TreeView) -> Program:
            return replace(self._programs.rebuilding(name, taken, snapshot.arrangements, rebuilt), names=names)

        result = rebuild(self._step_runner, name, kernel, wanted.filled, made, self._analysed(name))
        self.untold(name, result)
        # A part without entries has no runs, and is there all the same.
        return {one: result.buckets.get(one, {}) for one in wanted.arrangements}

    def catch_up(
        self, wanted: Wanted, filled: Arrangements, before: Snapshot, after: Snapshot, names: set[str]
    ) -> Arrangements:
        """Bring what was filled of a shared subplan from one snapshot to a later one; the caller commits it.

        Parameters
        ----------
        names : gets the names of new files, of which the result need not refer to all.
        """
        name, layouts = wanted.name, self._catalogue.tables
        kernel = replace(wanted.kernel, unkept=frozenset())
        changes = changed_tables(kernel, before, after)
        if not changes:
            return filled
        tasks = tuple(TableTask(layouts[t], view_tasks(name, kernel, t), store=False) for t in changes)
        state = wanted.taken_in(before) | filled
        program = replace(self._programs.over(tasks, {}), state=state, names=names)
        result = caught_up(program, changes, self._step_runner.threads)
        check_good(program, result)
        return {one: states | result.buckets.get(one, {}) for one, states in filled.items()}

    def can_fill_beside(self, wanted: Wanted) -> bool:
        """Whether state can be filled while steps go on: in the driver, and of a shared subplan.

        What is filled of a view itself would have to be brought up to date with its answer.
        """
        return self._step_runner.in_driver and not wanted.kernel.answers

    def rebuild(self, name: str, kernel: TreeView, wanted: Collection[str]) -> Arrangements:
        """Make dropped parts of a view or a shared subplan again, as of the last step; the caller commits them."""
        state = self._store.snapshot.arrangements
        made = partial(self._programs.rebuilding, name, self._kept(name, kernel), state)
        with self._store.reader():
            result = rebuild(self._step_runner, name, kernel, wanted, made, self._analysed(name))
        self.untold(name, result)
        return result.buckets

    def anew(self, name: str, changed: Arrangements) -> BucketResult:
        """Compute the answer of a view anew, given what the step has changed in its tables."""
        kernel, before = self._catalogue.kernels[name], self._store.snapshot.arrangements
        assert isinstance(kernel, TreeView)
        tables = {
            part: before.get(part, {}) | changed.get(part, {}) for part in map(table_arrangement, kernel.tree.tables)
        }
        made = partial(self._programs.rebuilding, name, self._kept(name, kernel), tables)
        return recompute(self._step_runner, name, kernel, made)

    def _kept(self, name: str, kernel: TreeView) -> Arrangements:
        """What a view or a shared subplan keeps, as of the last step."""
        state = self._store.snapshot.arrangements
        return {part: state.get(part, {}) for part in arrangements_kept(name, kernel)}

    def _analysed(self, name: str) -> dict[str, AnalysedView]:
        """How Catalyst reads a view; empty for a shared subplan."""
        view = self._catalogue.views.get(name)
        return {} if view is None or view.analysed is None else {name: view.analysed}

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

    def untold(self, name: str, result: BucketResult) -> None:
        """Delete the files of changes that filling a view wrote: filling counts as no change of the view."""
        changes = {run.name for run in result.changes.get(name, [])}
        discard(self._store.location, changes - BucketResult(buckets=result.buckets).files())


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

"""Watermarks of tables, and the windows that they close.

A table's watermark is the latest time it has seen, minus the allowed delay of its rows. It follows from committed steps
and never goes back. In a view that was made with `final=True`, windows that end at the watermark or before it are over:
any further row for them would be late. The step that moves the watermark there takes these windows out of the state and
adds them to the view's final rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from headrace.engine.definition import PlannedView, SqlAnswer
from headrace.engine.step_runner import Outcome, StepRunner, translating_spark_errors
from headrace.engine.store import Store
from headrace.errors import SchemaError
from headrace.operators.closed import Closing
from headrace.plan.expression import Expression
from headrace.plan.timewindow import WindowBound, window_bound
from headrace.plan.view import Shape
from headrace.relation.layout import TableLayout
from headrace.relation.schema import TableSchema
from headrace.runtime.closing import ClosingTask, close_bucket
from headrace.runtime.log import Snapshot
from headrace.runtime.one_pass import moved
from headrace.runtime.program import BucketResult, Program, final_arrangement, view_arrangement
from headrace.runtime.record import Arrangements
from headrace.runtime.runwriter import discard
from headrace.runtime.spark import run_each
from headrace.runtime.stages import each


@dataclass(frozen=True)
class WindowsOf:
    """How the windows of a view close: which of its keys is a bound of the window, and how far it is from the end."""

    table: str
    key: int
    length: int  # from the key to the end of its window; 0 if the key is the end
    slide: int
    phase: int  # windows end at this, plus any multiple of the slide

    def until(self, mark: int) -> int:
        """The last key that is over at a watermark."""
        return mark - self.length

    def due(self, before: int | None, mark: int) -> bool:
        """Whether the end of a window may lie between two watermarks: after `before`, and not after `mark`."""
        return before is None or (mark - self.phase) // self.slide > (before - self.phase) // self.slide


def windows_of(name: str, view: PlannedView, tables: Mapping[str, TableSchema]) -> WindowsOf:
    """Find the windows of a view that close.

    Raises
    ------
    SchemaError : the view has no such windows, or it cannot be known which of them are over.
    """
    sources, answer = view.kernel.row_keys, view.answer
    table = sources[0][0] if sources else ""
    if len({source for source, _ in sources}) != 1 or not isinstance(answer, SqlAnswer):
        raise _not_closable(name, "it is not a grouping of the rows of one table")
    watermark = tables[table].watermark
    if watermark is None:
        raise SchemaError(
            f"view {name!r}: final=True closes windows by a watermark, and table {table!r} has none",
            way_out=f"declare it: engine.table({table!r}, ..., watermark=(column, delay))",
        )
    if answer.layout.plan.limit is not None:
        raise _not_closable(name, "it has a LIMIT, and which rows that keeps is never final")
    found = [w for i in range(len(sources[0][1])) if (w := _window(table, watermark.column, i, sources))]
    if not found or answer.layout.plan.shape is not Shape.GROUPS:
        raise _not_closable(name, f"it does not group by a window of {watermark.column!r}, the watermark column")
    return found[0]


def advanced(tables: Mapping[str, TableLayout], before: Mapping[str, int], newest: Mapping[str, int]) -> dict[str, int]:
    """The watermarks that a step moves, by the latest time it brought to each table."""
    out = {}
    for name, time in newest.items():
        watermark = tables[name].schema.watermark
        assert watermark is not None
        mark = time - watermark.delay.microseconds
        if name not in before or mark > before[name]:
            out[name] = mark
    return out


class Windows:
    """Closes the windows of one engine's views."""

    def __init__(self, store: Store, step_runner: StepRunner) -> None:
        self._store = store
        self._step_runner = step_runner

    def close(
        self, outcome: Outcome, program: Program, tables: Mapping[str, TableLayout], views: Mapping[str, PlannedView]
    ) -> Outcome:
        """Move the watermarks by the rows of a step, and close the windows that are over then."""
        snapshot = self._store.snapshot
        marks = advanced(tables, snapshot.watermarks, outcome.result.newest)
        if marks:
            schemas = {name: layout.schema for name, layout in tables.items()}
            tasks = []
            for name, view in views.items():
                if view.is_final and view.tables[0] in marks:
                    windows = windows_of(name, view, schemas)
                    mark = marks[windows.table]
                    if windows.due(snapshot.watermarks.get(windows.table), mark):
                        tasks.append(_task(name, view, windows, mark, snapshot.step + 1))
            self._run(tasks, program, outcome.result, by_job=outcome.ran == "job")
        return replace(outcome, watermarks=marks)

    def close_filled(
        self, name: str, view: PlannedView, tables: Mapping[str, TableLayout], program: Program, result: BucketResult
    ) -> None:
        """Close the windows that are over in a view that was just filled."""
        snapshot = self._store.snapshot
        if view.is_final:
            windows = windows_of(name, view, {table: layout.schema for table, layout in tables.items()})
            mark = snapshot.watermarks.get(windows.table)
            if mark is not None:
                self._run([_task(name, view, windows, mark, snapshot.step)], program, result, by_job=False)

    def close_flushed(
        self,
        name: str,
        view: PlannedView,
        tables: Mapping[str, TableLayout],
        program: Program,
        result: BucketResult,
        marks: Mapping[str, int],
    ) -> None:
        """Close the windows that are over in a view whose trigger has fired; `marks` are those that the step moved."""
        snapshot = self._store.snapshot
        windows = windows_of(name, view, {table: layout.schema for table, layout in tables.items()})
        mark = marks.get(windows.table, snapshot.watermarks.get(windows.table))
        if mark is not None:
            self._run([_task(name, view, windows, mark, snapshot.step + 1)], program, result, by_job=False)

    def _run(self, tasks: list[ClosingTask], program: Program, result: BucketResult, by_job: bool) -> None:
        for task in tasks:
            written = result.files()
            rings = {view_arrangement(task.view, part): r for part, r in task.closing.layout.arrangements.items()}
            for name, ring in rings.items():  # windows close bucket by bucket
                state = _state(self._store.snapshot, result, [name])
                result.add(moved(replace(program, tables=(), state=state), name, ring))
            written |= result.files()
            state = _state(self._store.snapshot, result, [*rings, final_arrangement(task.view)])
            result.add(self._close_buckets(task, replace(program, tables=(), state=state), [*rings], by_job))
            discard(self._store.location, written - result.files() - self._store.snapshot.files())

    def _close_buckets(self, task: ClosingTask, program: Program, names: list[str], by_job: bool) -> BucketResult:
        work, step_runner = partial(close_bucket, program, task), self._step_runner
        states = [(bucket, own) for name in names for bucket, own in program.state[name].items() if own.runs]
        buckets, entries = sorted({bucket for bucket, _ in states}), sum(run.rows for _, s in states for run in s.runs)
        if buckets and (step_runner.executor == "spark" or (by_job and entries > step_runner.driver_rows)):
            tasks = step_runner.spark.sparkContext.defaultParallelism
            return translating_spark_errors(lambda: run_each(step_runner.spark, program, work, buckets, tasks))
        result = BucketResult()
        for done in each(work, buckets, step_runner.threads):
            result.add(done)
        return result


def _task(name: str, view: PlannedView, windows: WindowsOf, mark: int, step: int) -> ClosingTask:
    assert isinstance(view.answer, SqlAnswer)
    return ClosingTask(name, Closing(view.answer.layout, windows.key), windows.until(mark), step)


def _state(snapshot: Snapshot, result: BucketResult, names: list[str]) -> Arrangements:
    return {name: snapshot.arrangements.get(name, {}) | result.buckets.get(name, {}) for name in names}


def _window(
    table: str, column: str, key: int, sources: Sequence[tuple[str, tuple[Expression, ...]]]
) -> WindowsOf | None:
    """How windows close by one of the keys; None unless it is the same bound of a window in all sources."""
    bounds = [window_bound(keys[key]) for _, keys in sources]
    first = bounds[0]
    if first is None or not all(bound is not None and _is_like(bound, first, column) for bound in bounds):
        return None
    if first.is_end:
        return WindowsOf(table, key, 0, first.slide, first.offset + first.duration)
    # The start of a window does not tell its end, unless each row is in one window only.
    return WindowsOf(table, key, first.slide, first.slide, first.offset) if len(bounds) == 1 else None


def _is_like(bound: WindowBound, other: WindowBound, column: str) -> bool:
    same = (bound.slide, bound.offset, bound.duration) == (other.slide, other.offset, other.duration)
    return same and bound.time.op == "column" and bound.time.value == column


def _not_closable(name: str, why: str) -> SchemaError:
    return SchemaError(
        f"view {name!r}: final=True closes windows of time, but {why}",
        way_out="GROUP BY window(column, '10 minutes') of the watermark column, or leave final out",
    )

"""Running a step: where it runs, what Catalyst evaluates, what happens to bad rows.

The size of the change decides the place. Applying a small batch that the driver already has costs less than starting a
Spark job, so the driver runs the kernels itself; a larger batch becomes a file that tasks share. A small DataFrame
comes to the driver (`small_frames`), a larger one stays in Spark, unless the executor is "inline".
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.engine.inputs import with_catalyst, with_catalyst_here
from headrace.engine.small_frames import collected, few_rows
from headrace.errors import BadRowsError, StepFailedError
from headrace.plan.native import NeedsCatalyst
from headrace.relation import disk
from headrace.relation.change import ChangeBatch
from headrace.relation.product import ProductBatch
from headrace.relation.schema import TableSchema, ddl
from headrace.runtime.aside import Aside, Found, named_once
from headrace.runtime.inline import run_inline
from headrace.runtime.location import writing
from headrace.runtime.one_pass import settled
from headrace.runtime.program import BucketResult, Program, TableTask, ViewTask
from headrace.runtime.spark import frame_of_batch, run_from_files, run_from_frames
from headrace.sql.catalyst import AnalysedView

# On a cluster of two cores, a job of 1M rows took 1.25 to 1.55 s, of 300,000 rows 1.0 to 1.3 s. A driver of two cores
# took 0.7 to 0.8 s for 1M rows.
DRIVER_ROWS = 1_000_000
# On a local master a job would run on the driver's own cores, and copy the batch to get there.
LOCAL_DRIVER_ROWS = 2_000_000

_WHOLE_ATTEMPTS = 4  # as many as Spark gives a task
_ONLY_ALL = "stage with indeterminate output was failed and retried"
# What Spark says when its machines have failed, and not the work.
_MACHINES = (_ONLY_ALL, "No space left on device", "ExecutorLostFailure", "Python worker exited unexpectedly")
MOST_LEFTOVERS = 32  # jobs after which it is worth a look at the folders

NOT_COMMITTED = "the step failed in Spark and was not committed"
Inputs = Mapping[str, ChangeBatch | ProductBatch | DataFrame]
T = TypeVar("T")


@dataclass(frozen=True)
class Outcome:
    """The result of running a program, where it ran, and why there."""

    result: BucketResult
    ran: str
    why: str
    bad: dict[str, Aside]  # the rows of each table that were set aside because they are bad
    late: dict[str, Aside] = field(default_factory=dict)
    watermarks: dict[str, int] = field(default_factory=dict)  # the watermarks that moved


class StepRunner:
    """Runs programs for one engine.

    Attributes
    ----------
    leftovers : jobs that may have left files which no commit names: Spark runs a task again when its worker dies, or a
        copy of it when it is slow. An attempt that was given up counts as many.
    """

    def __init__(self, spark: SparkSession, executor: str, driver_rows: int | None) -> None:
        self.spark = spark
        self.executor = executor
        context = spark.sparkContext
        master = str(context.master)
        self.local = master == "local" or master.startswith("local[")
        self.threads = context.defaultParallelism if self.local else os.cpu_count() or 1
        usual = LOCAL_DRIVER_ROWS if self.local else DRIVER_ROWS
        self.driver_rows = usual if driver_rows is None else driver_rows
        self.leftovers = 0

    @property
    def in_driver(self) -> bool:
        """Whether work of any size may run in the driver: always, or because a job would run on the same cores."""
        return self.executor == "inline" or (self.executor == "auto" and self.local)

    def takes_here(self, rows: int) -> bool:
        """Whether a batch of so many rows, which the driver has, stays in it."""
        return self.executor == "inline" or (
            self.executor == "auto" and rows <= self.driver_rows and bool(self.driver_rows)
        )

    def brought(self, tables: Mapping[str, TableSchema], inputs: Inputs) -> Inputs:
        """The inputs of a step, with those DataFrames as batches that the driver can take."""
        found = {name: self._brought(tables[name], given) for name, given in inputs.items()}
        products = [name for name, given in found.items() if isinstance(given, ProductBatch)]
        frames = [name for name, given in found.items() if isinstance(given, DataFrame)]
        if products and frames:
            raise BadRowsError(
                f"a step with products runs in the driver, and was given a product for {', '.join(products)}, and for "
                f"{', '.join(frames)} a Spark DataFrame that stays in Spark",
                way_out="apply them as two steps, or collect a small DataFrame with toArrow()",
            )
        return found

    def _brought(
        self, table: TableSchema, given: ChangeBatch | ProductBatch | DataFrame
    ) -> ChangeBatch | ProductBatch | DataFrame:
        if not isinstance(given, DataFrame) or self.executor == "spark":
            return given
        if self.executor == "auto" and not self.driver_rows:
            return given
        if self.executor == "inline":
            rows = translating_spark_errors(given.toArrow)
        else:
            found = translating_spark_errors(lambda: few_rows(given, self.driver_rows, self.threads))
            if found is None:
                return given
            rows = found
        return collected(list(table.columns), rows)

    def run(self, program: Program, inputs: Inputs, views: Mapping[str, AnalysedView], on_bad_rows: str) -> Outcome:
        """Run a program; raises BadRowsError or sets bad rows aside, always before a commit."""
        outcome = self._attempt(program, inputs, views)
        if not outcome.result.has_bad or on_bad_rows != "quarantine":
            return _good(program, outcome)
        # Most steps have no bad row, so only a step that has one pays for looking at all of its rows first. Without the
        # bad rows, others may be bad: a row that a bad deletion was to make room for.
        aside: dict[str, Aside] = {}
        while outcome.result.has_bad:
            judged = self._attempt(replace(program, judge_only=True), inputs, views)
            bad = by_table(program, judged.result)
            if not bad:
                break
            excluded = sum(map(_excluded, program.tables))
            program = replace(program, tables=tuple(_without(task, bad.get(task.name)) for task in program.tables))
            assert sum(map(_excluded, program.tables)) > excluded, "a row that is set aside is not judged again"
            for name, found in bad.items():
                before = aside.get(name, Aside(0, ()))
                aside[name] = Aside(before.rows + len(found), (*before.files, *found.files))
            outcome = self._attempt(program, inputs, views)
        return replace(_good(program, outcome), bad=aside)

    def _attempt(self, program: Program, inputs: Inputs, views: Mapping[str, AnalysedView]) -> Outcome:
        try:
            return self._place(program, inputs, views)
        except NeedsCatalyst:
            # Kernels leave some values to Spark (an overflow, say): run the same step again, evaluated by Catalyst.
            self.leftovers += MOST_LEFTOVERS
            return self._place(all_by_catalyst(program), inputs, views)

    def _place(self, program: Program, inputs: Inputs, views: Mapping[str, AnalysedView]) -> Outcome:
        with_frames = any(isinstance(given, DataFrame) for given in inputs.values())
        catalyst = sorted({view.name for task in program.tables for view in task.views if view.prefix is not None})
        rows = sum(len(given) for given in inputs.values() if not isinstance(given, DataFrame))
        # Products are small as long as they are in parts, and these have to be in one place to be multiplied.
        has_products = any(isinstance(given, ProductBatch) for given in inputs.values())
        in_driver = self.executor == "inline" or has_products
        if in_driver or (self.executor == "auto" and not with_frames and rows <= self.driver_rows):
            changed = f"{rows:,} changed {'row is' if rows == 1 else 'rows are'}"
            why = (
                'the executor is "inline"'
                if self.executor == "inline"
                else "the parts of a product are in the driver, and stay there"
                if has_products
                else f"{changed} fewer than a Spark job is worth ({self.driver_rows:,})"
            )
            if catalyst and not with_frames:
                why += f"; Catalyst evaluates expressions of {', '.join(catalyst)} in the driver's JVM, without a job"
            batches = {task.name: self._local(task, inputs[task.name], views) for task in program.tables}
            return Outcome(run_inline(program, batches, self.threads), "driver", why, {})
        self.leftovers += 1
        # Asked of the JVM only for a job, because the answer takes as long as a small step.
        tasks = self.spark.sparkContext.defaultParallelism
        if not with_frames and not catalyst:
            rows_of = {name: given for name, given in inputs.items() if isinstance(given, ChangeBatch)}
            why = f"{rows:,} changed rows as a file, of which {tasks} tasks take a part; one exchange of packed changes"
            return Outcome(
                _settled(program, lambda ready: run_from_files(self.spark, ready, rows_of, tasks)), "job", why, {}
            )
        reason = (
            "a large Spark DataFrame stays in Spark"
            if with_frames
            else f"Catalyst evaluates expressions of {', '.join(catalyst)}"
        )
        written: list[Path] = []
        try:
            frames = {
                task.name: self._frame(program, task, _rows(inputs[task.name]), views, written)
                for task in program.tables
            }
            why = f"{reason}; one exchange of packed changes by bucket"
            return Outcome(
                _settled(program, lambda ready: run_from_frames(self.spark, ready, frames, tasks)), "job", why, {}
            )
        finally:
            disk.tidy(written)

    def _local(
        self, task: TableTask, given: ChangeBatch | ProductBatch | DataFrame, views: Mapping[str, AnalysedView]
    ) -> ChangeBatch | ProductBatch:
        """An input in the driver, with the columns that Catalyst evaluates."""
        if isinstance(given, ProductBatch):
            return given
        if isinstance(given, DataFrame):
            return collected(task.columns(), translating_spark_errors(with_catalyst(task, given, views).toArrow))
        if all(view.prefix is None for view in task.views):
            return given
        return translating_spark_errors(lambda: with_catalyst_here(task, given, views))

    def _frame(
        self,
        program: Program,
        task: TableTask,
        given: ChangeBatch | DataFrame,
        views: Mapping[str, AnalysedView],
        written: list[Path],
    ) -> DataFrame:
        if isinstance(given, ChangeBatch):
            location = program.location
            if location.remote is not None:
                written.append(location.batches / location.new_name(program.version, ".arrow"))
                read_here = frame_of_batch(self.spark, program, task.layout.schema, given, written[-1])
                return translating_spark_errors(lambda: with_catalyst(task, read_here, views))
            path = location.batches / location.new_name(program.version, ".parquet")
            written.append(path)
            row_group = max(1, len(given) // (2 * self.spark.sparkContext.defaultParallelism) + 1)
            with writing(path):
                pq.write_table(
                    given.to_arrow(), path, compression="none", use_dictionary=False, row_group_size=row_group
                )
            given = self.spark.read.schema(ddl(task.layout.schema.change_columns)).parquet(str(path))
        frame = given
        return translating_spark_errors(lambda: with_catalyst(task, frame, views))


def _rows(given: ChangeBatch | ProductBatch | DataFrame) -> ChangeBatch | DataFrame:
    assert not isinstance(given, ProductBatch), "steps with products run in the driver"
    return given


def _settled(program: Program, run: Callable[[Program], BucketResult]) -> BucketResult:
    """Run a program as a job, after the recent runs have moved into the buckets that its tasks change.

    Its tasks merge what is due, all at the same time; the driver would have to do it one after the other.
    """
    result = BucketResult()
    with settled(replace(program, owes=False), result) as ready:
        result.add(translating_spark_errors(lambda: _until_whole(lambda: run(ready))))
    return result


def _until_whole(run: Callable[[], T]) -> T:
    """Run a job; if Spark says that only all of it can be run again, do that.

    An executor that is lost takes what it had packed with it, and its tasks pack the same changes again. If other tasks
    have read what was there before, and Spark does not know that it comes out the same, Spark gives up the job rather
    than mix the two. Nothing of it has been committed, so it is run from the start.
    """
    for _ in range(_WHOLE_ATTEMPTS - 1):
        try:
            return run()
        except (PySparkException, Py4JError) as error:
            if _ONLY_ALL not in str(error):
                raise
    return run()


def by_table(program: Program, result: BucketResult) -> dict[str, Found]:
    """Put the bad rows of each table together; a row that breaks several rules is named once."""
    found = {task.name: [part for part in result.found if part.first.table == task.name] for task in program.tables}
    return {name: named_once(parts) for name, parts in found.items() if parts}


def _good(program: Program, outcome: Outcome) -> Outcome:
    check_good(program, outcome.result)
    return outcome


def check_good(program: Program, result: BucketResult) -> None:
    """Raise BadRowsError if bad rows were found; it is about the first table that has some."""
    for found in by_table(program, result).values():
        raise found.error()


def _without(task: TableTask, bad: Found | None) -> TableTask:
    if bad is None:
        return task
    known = np.zeros(0, np.uint64) if task.excluded is None else task.excluded
    return replace(task, excluded=np.union1d(known, bad.identities))


def _excluded(task: TableTask) -> int:
    """How many kinds of rows of a table go to quarantine."""
    return 0 if task.excluded is None else len(task.excluded)


def all_by_catalyst(program: Program) -> Program:
    """The same program with every expression evaluated by Catalyst."""
    tables = tuple(
        replace(task, views=tuple(_by_catalyst(view, f"__v{i}_") for i, view in enumerate(task.views)))
        for task in program.tables
    )
    followers = {name: kernel.evaluated_by_catalyst() for name, kernel in program.followers.items()}
    return replace(program, tables=tables, followers=followers)


def _by_catalyst(view: ViewTask, prefix: str) -> ViewTask:
    kernel = view.kernel.evaluated_by_catalyst()
    return replace(view, prefix=None if kernel.never_by_catalyst else prefix, kernel=kernel)


def translating_spark_errors(run: Callable[[], T]) -> T:
    """Run something that calls Spark; its errors come back as Headrace's, with Spark's message."""
    try:
        return run()
    except (PySparkException, Py4JError) as error:
        message = _readable(error)
        raise StepFailedError(f"{NOT_COMMITTED}: {message}", way_out=_way_out(message)) from error


def _way_out(message: str) -> str:
    if "No module named 'headrace'" in message:
        # Spark's default is whatever `python3` is on the PATH, which need not be the interpreter of this process.
        return (
            "Spark's workers run a Python that does not have Headrace: set PYSPARK_PYTHON before the session is made "
            f"(here, to {sys.executable}), or let headrace.connect make it"
        )
    if any(said in message for said in _MACHINES):
        return "see to the machines that Spark runs on, and apply the changes again: the rows are not to blame"
    return "correct the rows, or the view whose expression they break, and apply the changes again"


def _readable(error: Exception) -> str:
    """Spark's message without the stack traces that it carries along."""
    lines = []
    for line in str(error).strip().splitlines():
        if line.startswith(("JVM stacktrace", "Driver stacktrace", "\tat ", "Caused by:")):
            break
        lines.append(line)
    return "\n".join(lines).strip()

"""Filling a new view from the rows that its tables have: where that runs, and what of the rows has to be read.

What workers evaluate themselves, they read themselves too, and no row leaves the task that read it. Only a view with
an expression that Catalyst evaluates has its rows go through the JVM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame

from headrace.engine import frames
from headrace.engine.stepper import Inputs, Stepper, all_by_catalyst, by_table, explained
from headrace.errors import BadRowsError
from headrace.plan.native import NeedsCatalyst
from headrace.relation.change import ChangeBatch
from headrace.runtime.filling import Columns, all_columns, columns_read, narrowed
from headrace.runtime.inline import fill_inline
from headrace.runtime.program import BucketResult, Program, table_arrangement
from headrace.runtime.spark import fill_from_state
from headrace.sql.catalyst import AnalysedView

Views = Mapping[str, AnalysedView]


def fill(stepper: Stepper, program: Program, views: Views) -> BucketResult:
    """Run a program over the rows that its tables have; raises BadRowsError if a view cannot take some of them."""
    try:
        return _filled(stepper, program, columns_read(program), views)
    except BadRowsError:
        # Once more, to show the bad rows with all their columns, which is how people know them.
        return _filled(stepper, program, all_columns(program), views)


def _filled(stepper: Stepper, program: Program, columns: Columns, views: Views) -> BucketResult:
    narrow = replace(program, tables=tuple(narrowed(task, columns[task.name]) for task in program.tables))
    if any(view.prefix is not None for task in program.tables for view in task.views):
        return stepper.run(narrow, _inputs(stepper, program, columns), views, "fail").result
    try:
        result = _read_by_workers(stepper, program, columns)
    except NeedsCatalyst:
        return stepper.run(all_by_catalyst(narrow), _inputs(stepper, program, columns), views, "fail").result
    if result.bad:
        raise next(iter(by_table(narrow, result.bad).values())).error()
    return result


def _read_by_workers(stepper: Stepper, program: Program, columns: Columns) -> BucketResult:
    # On a local master a job would run on the driver's own cores, and what it exchanges would go through the JVM.
    here = stepper.executor == "auto" and (stepper.local or _few(stepper, program))
    if here or stepper.executor == "inline":
        return fill_inline(program, columns, stepper.threads)
    tasks = stepper.spark.sparkContext.defaultParallelism
    return explained(lambda: fill_from_state(stepper.spark, program, columns, tasks))


def _inputs(stepper: Stepper, program: Program, columns: Columns) -> Inputs:
    """The rows for Catalyst: in the driver when they are few, else as DataFrames with a task a bucket."""
    few = _few(stepper, program)
    out: dict[str, ChangeBatch | DataFrame] = {}
    for task in program.tables:
        source, names = (program.root, task.layout, program.state), columns[task.name]
        if few:
            parts = [frames.table_bucket(*source, bucket, names) for bucket in range(program.buckets)]
            out[task.name] = ChangeBatch.from_arrow(pa.concat_tables(parts).combine_chunks())
        else:
            out[task.name] = frames.table_frame(stepper.spark, *source, program.buckets, names)
    return out


def _few(stepper: Stepper, program: Program) -> bool:
    stored = (program.state[table_arrangement(task.name)].values() for task in program.tables)
    return sum(state.live for states in stored for state in states) <= stepper.driver_rows

"""Filling a new view from the rows of its tables: where that runs, and which columns have to be read.

Workers read the rows whose expressions they evaluate, and no row leaves the task that read it. Only for a view with an
expression that Catalyst evaluates do rows go through the JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame

from headrace.engine import frames
from headrace.engine.step_runner import Inputs, StepRunner, all_by_catalyst, check_good, translating_spark_errors
from headrace.errors import BadRowsError
from headrace.operators.dropping import rebuild_of, recomputation
from headrace.operators.tree_view import TreeView
from headrace.plan.native import NeedsCatalyst
from headrace.relation.change import ChangeBatch
from headrace.runtime.filling import Columns, all_columns, columns_read, narrowed
from headrace.runtime.inline import fill_inline
from headrace.runtime.program import BucketResult, Program, table_arrangement, why_catalyst
from headrace.runtime.rebuilding import rebuild_inline
from headrace.runtime.spark import fill_from_state
from headrace.runtime.stages import run_later_stages
from headrace.sql.catalyst import AnalysedView

Views = Mapping[str, AnalysedView]


def fill(step_runner: StepRunner, program: Program, views: Views) -> BucketResult:
    """Run a program over all rows of its tables; raises BadRowsError if a view cannot take some of them."""
    try:
        return _filled(step_runner, program, columns_read(program), views)
    except BadRowsError:
        # Run again with all columns, so that the error can show whole rows.
        return _filled(step_runner, program, all_columns(program), views)


def rebuild(
    step_runner: StepRunner,
    name: str,
    kernel: TreeView,
    wanted: Collection[str],
    program_of: Callable[[TreeView], Program],
    views: Views,
) -> BucketResult:
    """Make dropped parts of a view again.

    In the driver, arrangements that are kept stand for what is below them. Tasks of a cluster, and Catalyst, start
    from the rows of the tables.

    Parameters
    ----------
    program_of : the program that runs such a kernel over the tables that it reads.
    """
    whole = replace(kernel.alone, followers=(), unkept=frozenset())
    if step_runner.in_driver:
        here = replace(whole, rebuild=rebuild_of(whole, wanted, kernel.arrangements))
        program = program_of(here)
        if not any(view.prefix is not None for task in program.tables for view in task.views):
            with suppress(NeedsCatalyst):
                return rebuild_inline(program, name, here, step_runner.threads)
    program = program_of(replace(whole, rebuild=rebuild_of(whole, wanted, ())))
    return fill(step_runner, program, views) if program.tables else run_later_stages(program, BucketResult())


def recompute(
    step_runner: StepRunner, name: str, kernel: TreeView, program_of: Callable[[TreeView], Program]
) -> BucketResult:
    """Compute the answer of a view from its tables, as a change of the answer; it keeps no other state.

    Raises NeedsCatalyst where kernels cannot evaluate the view, and BadRowsError if it cannot take some rows.
    """
    whole = replace(kernel, unkept=frozenset())
    here = replace(whole, rebuild=recomputation(whole))
    program = program_of(here)
    result = rebuild_inline(program, name, here, step_runner.threads)
    check_good(program, result)
    return result


def can_recompute(step_runner: StepRunner, kernel: TreeView) -> bool:
    """Whether the driver can compute the answer of a view by kernels alone."""
    routes = kernel.placement.routes.values()
    return (
        step_runner.in_driver
        and not any(map(why_catalyst, kernel.sides))
        and all(route.catalyst is None for route in routes)
    )


def _filled(step_runner: StepRunner, program: Program, columns: Columns, views: Views) -> BucketResult:
    narrow = replace(program, tables=tuple(narrowed(task, columns[task.name]) for task in program.tables))
    if any(view.prefix is not None for task in program.tables for view in task.views):
        return step_runner.run(narrow, _inputs(step_runner, program, columns), views, "fail").result
    try:
        result = _read_by_workers(step_runner, program, columns)
    except NeedsCatalyst:
        return step_runner.run(all_by_catalyst(narrow), _inputs(step_runner, program, columns), views, "fail").result
    check_good(program, result)
    return result


def _read_by_workers(step_runner: StepRunner, program: Program, columns: Columns) -> BucketResult:
    # On a local master a job would run on the driver's own cores, and what it exchanges would go through the JVM.
    if step_runner.in_driver or (step_runner.executor == "auto" and _few(step_runner, program)):
        return fill_inline(program, columns, step_runner.threads)
    tasks = step_runner.spark.sparkContext.defaultParallelism
    by_tasks = replace(program, owes=False)
    return translating_spark_errors(lambda: fill_from_state(step_runner.spark, by_tasks, columns, tasks))


def _inputs(step_runner: StepRunner, program: Program, columns: Columns) -> Inputs:
    """The rows for Catalyst: in the driver when they are few, else as DataFrames with one task per bucket."""
    few = _few(step_runner, program)
    out: dict[str, ChangeBatch | DataFrame] = {}
    for task in program.tables:
        source, names = (program.root, task.layout, program.state), columns[task.name]
        if few:
            parts = [frames.table_bucket(*source, bucket, names) for bucket in range(program.buckets)]
            out[task.name] = ChangeBatch.from_arrow(pa.concat_tables(parts).combine_chunks())
        else:
            out[task.name] = frames.table_frame(step_runner.spark, *source, program.buckets, names)
    return out


def _few(step_runner: StepRunner, program: Program) -> bool:
    stored = (program.state[table_arrangement(task.name)].values() for task in program.tables)
    return sum(state.live for states in stored for state in states) <= step_runner.driver_rows

"""Resolves what users gave by key before a step: from then on it has plain changes only.

Where that happens follows the rule of all steps: a batch of some size in the driver, larger ones and DataFrames that
stay in Spark by tasks. If what comes out of these is small, the step itself runs in the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from headrace.engine.modes import ByKey, wanted_here
from headrace.engine.small_frames import few_rows
from headrace.engine.step_runner import Inputs, StepRunner, by_table, translating_spark_errors
from headrace.relation import disk
from headrace.relation.change import ChangeBatch
from headrace.relation.product import ProductBatch
from headrace.runtime.aside import Aside
from headrace.runtime.by_key import (
    batch_of_files,
    frame_of_files,
    frame_of_rows,
    resolve_by_tasks,
    resolve_here,
)
from headrace.runtime.program import BucketResult, Program

Given = Mapping[str, ChangeBatch | ProductBatch | DataFrame | ByKey]


@dataclass(frozen=True)
class ResolvedInputs:
    """The inputs of a step, all of them plain changes.

    Parameters
    ----------
    bad : the rows that were set aside because they ask for what cannot be.
    by_key : the tables whose changes were found by key.
    """

    inputs: Inputs
    bad: dict[str, Aside] = field(default_factory=dict)
    by_key: frozenset[str] = frozenset()


@contextmanager
def resolved(runner: StepRunner, given: Given, program_of: Callable[[str], Program]) -> Iterator[ResolvedInputs]:
    """Resolve what was given by key.

    Parameters
    ----------
    program_of : a program of one table over the last snapshot; if it only looks for bad rows, they are set aside, and
        otherwise they end the step.
    """
    inputs: dict[str, ChangeBatch | ProductBatch | DataFrame] = {}
    bad: dict[str, Aside] = {}
    written: list[Path] = []
    try:
        for name, one in given.items():
            if not isinstance(one, ByKey):
                inputs[name] = one
                continue
            program = program_of(name)
            inputs[name], told = _resolved(runner, program, one, written)
            if (found := by_table(program, told).get(name)) is not None:
                if not program.judge_only:
                    raise found.error()
                bad[name] = Aside(len(found), found.files)
        yield ResolvedInputs(inputs, bad, frozenset(n for n, one in given.items() if isinstance(one, ByKey)))
    finally:
        disk.tidy(written)


def _resolved(
    runner: StepRunner, program: Program, given: ByKey, written: list[Path]
) -> tuple[ChangeBatch | DataFrame, BucketResult]:
    rows, wanted = _brought(runner, given), given.mode.wanted
    if isinstance(rows, pa.Table) and runner.takes_here(rows.num_rows):
        return resolve_here(program, wanted, rows, runner.threads)
    folder = program.location.batches
    if isinstance(rows, pa.Table):
        written.append(folder / program.location.new_name(program.version, ".arrow"))
        rows = frame_of_rows(runner.spark, program, rows, written[-1])
    frame, tasks = rows, runner.spark.sparkContext.defaultParallelism
    runner.leftovers += 1
    found = translating_spark_errors(lambda: resolve_by_tasks(program, wanted, frame, given.columns, tasks))
    written += [folder / name for name in found.files]
    if not found.files or runner.takes_here(found.rows):
        return batch_of_files(program, found.files), found.told
    return frame_of_files(runner.spark, program, found.files), found.told


def _brought(runner: StepRunner, given: ByKey) -> pa.Table | DataFrame:
    rows = given.rows
    if not isinstance(rows, DataFrame) or not runner.takes_here(0):
        return rows
    frame, most = rows, None if runner.executor == "inline" else runner.driver_rows
    found = translating_spark_errors(lambda: frame.toArrow() if most is None else few_rows(frame, most, runner.threads))
    return rows if found is None else wanted_here(given, found)

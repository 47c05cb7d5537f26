"""TPC-H played in parts into several views of one query, each with its own paces, from the first row to the trigger.

All views are in one engine and see the same steps, so whatever else the machine does meets all of them. The trigger
fires with the last row. The views have the goal FINAL WORK 1.0, under which the engine plans no paces of its own; the
paces are set from outside.

The first view of an engine takes more CPU than others that do the same: a quarter more to hold rows, when this was
written. So two views that nobody measures go first, one that is flushed in every step and one at the trigger only.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.bench.pace.arrival import Arrival, Stream
from headrace.datasets.tpch import TPCH_SCHEMAS
from headrace.engine.engine import Engine
from headrace.engine.handles import View
from headrace.engine.opening import OFF
from headrace.engine.pacing import passes_of
from headrace.errors import HeadraceError
from headrace.operators.tree_view import TreeView
from headrace.plan.tree import Tree
from headrace.runtime.jvm import java_cpu
from headrace.thrifty.goal import EveryRows, FinalWork, Manual
from headrace.thrifty.observed import Base, Flushed
from headrace.thrifty.strategy import OPERATORS
from headrace.thrifty.unit_costs import Passes

Paces = Mapping[str, int] | int
"""How often each path is flushed; one number is for all paths."""


@dataclass(frozen=True)
class Played:
    """What a view did until its trigger gave an answer.

    Parameters
    ----------
    held : CPU seconds of holding rows when they came.
    """

    tree: Tree
    passes: Passes
    base: Base
    flushes: Sequence[Flushed]
    held: float
    answer: pa.Table

    @property
    def rows(self) -> float:
        """Rows that operators took, in all flushes."""
        return sum(flush.rows for flush in self.flushes)

    @property
    def final_rows(self) -> float:
        """Rows that operators took at the trigger."""
        return sum(flush.rows for flush in self.flushes if flush.is_last)

    @property
    def cpu(self) -> float:
        """CPU seconds, those of holding rows included."""
        return self.held + sum(flush.cpu for flush in self.flushes)

    @property
    def final_cpu(self) -> float:
        """CPU seconds of the flush at the trigger."""
        return sum(flush.cpu for flush in self.flushes if flush.is_last)


@dataclass(frozen=True)
class Pass:
    """One pass over the data: all views by name, and the CPU seconds of this process and of Spark's JVM meanwhile.

    Parameters
    ----------
    stream : what came in its steps, and the rows that are there in the end.
    """

    views: Mapping[str, Played]
    stream: Stream
    seconds: float
    python_cpu: float
    java_cpu: float


def middle(passes: Sequence[Pass]) -> Pass:
    """Several passes with the same views as one: rows are the same in all of them, CPU times are medians.

    A flush is a few milliseconds, in which a machine may do something else.
    """
    first, *others = passes
    views = {name: _middle([played, *(other.views[name] for other in others)]) for name, played in first.views.items()}
    times = {name: median(getattr(one, name) for one in passes) for name in ("seconds", "python_cpu", "java_cpu")}
    return replace(first, views=views, **times)


def _middle(played: Sequence[Played]) -> Played:
    flushes = zip(*(one.flushes for one in played), strict=True)
    cpu = [replace(same[0], cpu=median(flush.cpu for flush in same)) for same in flushes]
    return replace(played[0], flushes=cpu, held=median(one.held for one in played))


def play(
    spark: SparkSession,
    folder: Path,
    tables: Mapping[str, pa.Table],
    sql: str,
    arrival: Arrival,
    views: Mapping[str, Paces],
) -> Pass:
    """Play all rows of the tables that a query reads, as they come, into one view per configuration of paces."""
    location = Path(tempfile.mkdtemp(prefix="location-", dir=folder))
    try:
        with Engine(spark, location, sharing=OFF) as engine:  # or one join would do for all of them
            for name, spec in TPCH_SCHEMAS.items():
                engine.table(
                    name,
                    spec.ddl,
                    key=spec.key,
                    references=dict(spec.references),
                    expected_rows=tables[name].num_rows,
                )
            used = _tables_read(engine, sql)
            stream = arrival.stream({name: tables[name] for name in tables if name in used})
            for name, pace in {"first_eager": arrival.parts, "first_batch": 1}.items():
                _view(engine, name, sql, pace, stream.changed)
            handles = {name: _view(engine, name, sql, paces, stream.changed) for name, paces in views.items()}
            start, python, java = time.perf_counter(), time.process_time(), java_cpu(spark)
            for step in stream.steps:
                engine.apply(step)
            seconds = time.perf_counter() - start
            spent = time.process_time() - python, java_cpu(spark) - java
            return Pass({name: _played(engine, view) for name, view in handles.items()}, stream, seconds, *spent)
    finally:
        shutil.rmtree(location, ignore_errors=True)


def _tables_read(engine: Engine, sql: str) -> set[str]:
    """The tables whose rows count for the trigger, known once there is a view."""
    probe = engine.view("probe", sql, strategy=OPERATORS, refresh="incremental", goal=Manual())
    used = set(probe.planned.tables)
    engine.drop("probe")
    return used


def _view(engine: Engine, name: str, sql: str, paces: Paces, total: int) -> View:
    view = engine.view(
        name, sql, strategy=OPERATORS, refresh="incremental", goal=FinalWork(1.0), trigger=EveryRows(total)
    )
    paths = view.planned.kernel.holds
    chosen = dict.fromkeys(paths, paces) if isinstance(paces, int) else {path: paces[path] for path in paths}
    engine._maintenance.goals.set_paces(name, chosen, total)
    return view


def _played(engine: Engine, view: View) -> Played:
    goals, kernel = engine._maintenance.goals, view.planned.kernel
    progress, trigger = goals.progress(view.name), goals.pacing.last.get(view.name)
    if trigger is None or progress.triggers != 1 or not isinstance(kernel, TreeView):
        why = progress.failed or f"{progress.triggers} triggers fired instead of one"
        raise HeadraceError(f"The trigger of view {view.name} gave no answer: {why}.", way_out="Report this as a bug.")
    held = progress.cpu - sum(flush.cpu for flush in trigger.flushes)
    passes = passes_of(kernel, engine._maintenance.goals.pacing.threads)
    return Played(kernel.tree, passes, trigger.base, trigger.flushes, held, view.to_arrow())

"""TPC-H played in parts into many views with goals at once, each with its own paces, until all triggers fire together.

A first share of the rows is there before: then tables have samples, by which views share subplans. The rest comes in
equal parts. The views have the goal FINAL WORK 1.0, under which the engine chooses no paces of its own; the paces of
paths and of shared subplans are set from outside. At the end `refresh()` fires the triggers of all views in one step.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.datasets.tpch import TPCH_SCHEMAS
from headrace.engine.engine import Engine
from headrace.engine.pacing import passes_of
from headrace.engine.seen_trigger import Trigger
from headrace.errors import HeadraceError
from headrace.operators.tree_view import TreeView
from headrace.thrifty.goal import FinalWork, Freshness, OnRefresh
from headrace.thrifty.observed import Flushed
from headrace.thrifty.share.apart import Apart
from headrace.thrifty.share.benefit import Sample
from headrace.thrifty.share.plan import Shared
from headrace.thrifty.strategy import OPERATORS
from headrace.thrifty.unit_costs import Passes

Paces = Mapping[str, Mapping[str, int]] | int
"""By view: the pace of each path, and of each shared subplan that it reads; one number is for all of them."""


@dataclass(frozen=True)
class PlayedPart:
    """What a view by itself, or a shared subplan, did until the triggers.

    Parameters
    ----------
    before : how many of its flushes were before the trigger.
    held : CPU seconds of holding rows when they came.
    """

    kernel: TreeView
    passes: Passes
    trigger: Trigger
    before: int
    held: float

    @property
    def flushes(self) -> Sequence[Flushed]:
        return self.trigger.flushes

    @property
    def rows(self) -> float:
        """Rows that its operators took."""
        return sum(flush.rows for flush in self.flushes)

    @property
    def cpu(self) -> float:
        """CPU seconds, those of holding rows included."""
        return self.held + sum(flush.cpu for flush in self.flushes)

    @property
    def final_cpu(self) -> float:
        """CPU seconds at the trigger."""
        return sum(flush.cpu for flush in self.flushes[self.before :])

    @property
    def final_rows(self) -> float:
        """Rows that its operators took at the trigger."""
        return sum(flush.rows for flush in self.flushes[self.before :])


@dataclass(frozen=True)
class Played:
    """What all views and shared subplans did, and the answers."""

    views: Mapping[str, PlayedPart]
    subplans: Mapping[str, PlayedPart]
    answers: Mapping[str, pa.Table]
    shared: Mapping[str, Shared]
    samples: Mapping[str, Sample]

    @property
    def parts(self) -> list[PlayedPart]:
        """Views and subplans alike."""
        return [*self.views.values(), *self.subplans.values()]

    def latency(self, view: str) -> float:
        """CPU seconds from the trigger to the answer of a view: its own, and those of the subplans that it reads."""
        return self.views[view].final_cpu + sum(self.subplans[name].final_cpu for name in self.read_by(view))

    def read_by(self, view: str) -> list[str]:
        """The shared subplans that a view reads."""
        return list(dict.fromkeys(one.by for one in self.views[view].kernel.given.values()))


def play(
    spark: SparkSession,
    folder: Path,
    tables: Mapping[str, pa.Table],
    queries: Mapping[str, str],
    *,
    sharing: str,
    paces: Paces,
    parts: int,
    there: float,
    apart: Sequence[Apart] = (),
) -> Played:
    """Play all rows into views of some queries.

    Parameters
    ----------
    paces : as long as what is shared is not known, one number.
    there : the share of the rows that is there before.
    apart : what is not to be shared.
    """
    location = Path(tempfile.mkdtemp(prefix="location-", dir=folder))
    try:
        with Engine(spark, location, sharing=sharing, calibrate=False) as engine:
            for name, spec in TPCH_SCHEMAS.items():
                rows = tables[name].num_rows
                engine.table(name, spec.ddl, key=spec.key, references=dict(spec.references), expected_rows=rows)
            goal = Freshness(FinalWork(1.0), OnRefresh())
            for name, sql in queries.items():
                engine.view(name, sql, strategy=OPERATORS, refresh="incremental", goal=goal)
            ends = [there + (1 - there) * number / parts for number in range(parts + 1)]
            engine.apply(_between(tables, 0.0, ends[0]))
            engine.refresh()
            engine.settle()  # what the engine merges beside steps must not change the plan in the middle of the play
            with engine._lock:
                engine._sharing.update()
                engine._sharing.update(fresh=(), apart=apart)
                engine._merging._compared()  # nor may it compare views again until tables have grown tenfold
                _set_paces(engine, tables, paces, ends[0])
            for start, end in pairwise(ends):
                engine.apply(_between(tables, start, end))
            before = {name: _flushes(engine, name) for name in queries}
            held = {name: engine._maintenance.goals.progress(name).held for name in queries}
            engine.refresh()
            return _played(engine, before, held)
    finally:
        shutil.rmtree(location, ignore_errors=True)


def _between(tables: Mapping[str, pa.Table], start: float, end: float) -> dict[str, pa.Table]:
    out = {}
    for name, rows in tables.items():
        # Rounded up: one row short of a k-th of all rows, no flush of pace k is due.
        first, last = math.ceil(rows.num_rows * start), math.ceil(rows.num_rows * end)
        if last > first:
            out[name] = rows.slice(first, last - first)
    return out


def _set_paces(engine: Engine, tables: Mapping[str, pa.Table], paces: Paces, there: float) -> None:
    goals = engine._maintenance.goals
    for name, view in engine._catalogue.views.items():
        places = [*view.kernel.holds, *engine._catalogue.shared_by(name)]
        own = dict.fromkeys(view.kernel.holds, paces) if isinstance(paces, int) else paces[name]
        rows = sum(tables[table].num_rows - math.ceil(tables[table].num_rows * there) for table in view.tables)
        goals.set_paces(name, {place: own[place] for place in places if place in own}, rows)


def _flushes(engine: Engine, name: str) -> dict[str, int]:
    """How often a view, under its own name, and its subplans have been flushed since the last trigger."""
    seen = engine._maintenance.goals.pacing._triggers.get(name)
    return {} if seen is None else {name: len(seen.flushes)} | {s: len(one.flushes) for s, one in seen.below.items()}


def _played(engine: Engine, before: Mapping[str, Mapping[str, int]], held: Mapping[str, float]) -> Played:
    goals, threads = engine._maintenance.goals, engine._maintenance.goals.pacing.threads
    views: dict[str, PlayedPart] = {}
    subplans: dict[str, PlayedPart] = {}
    for name, view in engine._catalogue.views.items():
        progress, trigger = goals.progress(name), goals.pacing.last.get(name)
        if trigger is None or progress.failed or not isinstance(view.kernel, TreeView):
            raise HeadraceError(f"view {name} gave no answer: {progress.failed}", way_out="report this as a bug")
        passes = passes_of(view.kernel, threads)
        views[name] = PlayedPart(view.kernel, passes, trigger, before[name][name], held[name])
        for subplan, one in trigger.below.items():
            if one.kernel is not None and subplan not in subplans:
                passes = passes_of(one.kernel, threads)
                subplans[subplan] = PlayedPart(one.kernel, passes, one, before[name].get(subplan, 0), one.held)
    answers = {name: view.to_arrow() for name, view in engine.views.items()}
    shared = dict(engine._catalogue.shared)
    samples = engine._sharing.samples({name: one.kernel.alone for name, one in views.items()}) if shared else {}
    return Played(views, subplans, answers, shared, samples)

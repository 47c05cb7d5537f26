"""One edge table, one view over copies of it, and a stream of change batches: what each strategy takes for them.

Timed are batches over a graph that is there, from the call to the commit. It gets there in one of two ways. Either the
view is made first, and the graph is loaded in pieces, because a strategy that lists joins would run out of memory over
all of it at once. A strategy for which that takes too long takes the batches over the part that is loaded, a smaller
graph: what they take then is less than over all of it. Or the graph is loaded first, and the view is filled from it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.engine.engine import Engine
from headrace.engine.handles import View
from headrace.explain.report import Report

Tell = Callable[[str], None]
COLUMNS = "a BIGINT, b BIGINT"
_WARM = 3


@dataclass
class Played:
    """The measurements of one strategy."""

    case: str
    load: float = 0.0
    fill: float = 0.0  # seconds to fill the view from a graph that was loaded before
    loaded: float = 1.0  # the share of the graph that was loaded
    seconds: list[float] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    state: int = 0
    views: dict[str, int] = field(default_factory=dict)  # entries of each view that is kept
    order: str = ""
    stopped: str = ""  # why it was not run to the end

    def row(self, rows: int) -> dict[str, Any]:
        """The measurements as a row of results; `rows` is the size of a batch."""
        done, seconds = rows * len(self.seconds), sum(self.seconds)
        out: dict[str, Any] = {
            "system": "headrace",
            "case": self.case,
            "rows": done,
            "batches": len(self.seconds),
            "seconds": seconds,
            "load_seconds": self.load,
            "fill_seconds": self.fill,
            "loaded": self.loaded,
            "state_mb": self.state / 1e6,
            "views": self.views,
        }
        if self.seconds:
            out |= {"rows_per_s": done / seconds, "batch_seconds": float(np.median(self.seconds))}
            out["fastest_batch_seconds"] = min(self.seconds)
        return out | ({"stopped": self.stopped} if self.stopped else {})


@dataclass(frozen=True)
class Workload:
    """A graph to load, and change batches that insert edges and delete others."""

    loaded: pa.Table
    batches: tuple[pa.Table, ...]

    @classmethod
    def of(cls, graph: pa.Table, batch: int, count: int, deletes: bool = True) -> Workload:
        """Take the last edges of a graph for insertions, and delete as many of the first."""
        new = batch // 2 if deletes else batch
        start = graph.num_rows - new * count
        batches = []
        for i in range(count):
            inserted = graph.slice(start + i * new, new)
            deleted = graph.slice(i * new, new if deletes else 0)
            diff = pa.array(np.repeat([1, -1], [inserted.num_rows, deleted.num_rows]))
            batches.append(pa.concat_tables([inserted, deleted]).append_column("__diff", diff))
        return cls(graph.slice(0, start), tuple(batches))


def play(
    spark: SparkSession,
    location: Path,
    case: str,
    sql: str,
    work: Workload,
    pieces: int,
    tell: Tell,
    stop: Callable[[Played], str] = lambda done: "",
    load_limit: float = math.inf,
    **options: Any,
) -> Played:
    """Load the graph, for so many seconds at most, and apply the batches until `stop` says why not to go on."""
    done = Played(case)
    _warm_up(spark, location / "warm", sql, work, options)
    with Engine(spark, location / "state") as engine:
        engine.table("e", COLUMNS)
        view = engine.view("n", sql, **options)
        rows = 0
        for piece in _pieces(work.loaded, pieces):
            start = time.perf_counter()
            engine.apply({"e": piece})
            done.load += time.perf_counter() - start
            tell(f"{case}: loaded for {done.load:.0f} s")
            rows += piece.num_rows
            if done.load > load_limit and rows < work.loaded.num_rows:
                done.loaded = rows / work.loaded.num_rows
                done.stopped = (
                    f"{load_limit:g} s are over with {done.loaded:.0%} of the graph; batches are over that part"
                )
                break
        _batches(engine, view, work, done, tell, stop)
    return done


def play_over_loaded(
    spark: SparkSession,
    location: Path,
    case: str,
    sql: str,
    work: Workload,
    pieces: int,
    tell: Tell,
    stop: Callable[[Played], str] = lambda done: "",
    filling: AbstractContextManager[None] | None = None,
    **options: Any,
) -> Played:
    """Load the graph, fill the view from it, and apply the batches until `stop` says why not to go on.

    Parameters
    ----------
    filling : in which the view is made; it is opened again for the batches.
    """
    done = Played(case)
    _warm_up(spark, location / "warm", sql, work, options)
    with Engine(spark, location / "state") as engine:
        engine.table("e", COLUMNS)
        start = time.perf_counter()
        for piece in _pieces(work.loaded, pieces):
            engine.apply({"e": piece})
        engine.compact()
        done.load = time.perf_counter() - start
        tell(f"{case}: loaded in {done.load:.0f} s; filling the view")
        with filling or nullcontext():
            start = time.perf_counter()
            made = engine.view("n", sql, **options)
            done.fill = time.perf_counter() - start
            done.views = _entries(made.explain())  # before batches: entries of runs that wait to be merged count twice
        tell(f"{case}: filled in {done.fill:.0f} s")
    with Engine(spark, location / "state") as engine:
        view = engine.views["n"]
        assert isinstance(view, View)
        engine.apply({"e": work.loaded.slice(0, 1)})  # opens files, and is taken back
        engine.apply({"e": work.loaded.slice(0, 1).append_column("__diff", pa.array([-1]))})
        _batches(engine, view, work, done, tell, stop)
    return done


def _batches(
    engine: Engine, view: View, work: Workload, done: Played, tell: Tell, stop: Callable[[Played], str]
) -> None:
    for number, batch in enumerate(work.batches):
        if why := stop(done):
            done.stopped = f"{done.stopped}; {why}" if done.stopped else why
            break
        start = time.perf_counter()
        step = engine.apply({"e": batch})
        done.seconds.append(time.perf_counter() - start)
        done.answers.append(answer(view.to_arrow()))
        done.state = step.state_bytes
        tell(f"{done.case}: batch {number + 1} of {len(work.batches)} in {done.seconds[-1]:.3f} s")
    explained: Report = view.explain()
    done.views = done.views or _entries(explained)
    done.order = explained["order"]


def _entries(explained: Report) -> dict[str, int]:
    return {view.name: view.entries for view in explained["views"] if view.kept}


def answer(table: pa.Table) -> int:
    """The number that a view of one count holds."""
    (value,) = table.column(0).to_pylist()
    return int(value)


def _pieces(table: pa.Table, rows: int) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, rows)


def _warm_up(spark: SparkSession, location: Path, sql: str, work: Workload, options: dict[str, Any]) -> None:
    """Compile what will run."""
    edges = work.loaded if work.loaded.num_rows else work.batches[0].drop_columns(["__diff"])
    with Engine(spark, location) as engine:
        engine.table("e", COLUMNS)
        engine.view("n", sql, **options)
        for i in range(_WARM):
            engine.apply({"e": edges.slice(20 * i, 20)})


def disagreement(ours: Played, other: str, theirs: Sequence[int]) -> str:
    """Where two systems that have seen the same batches have different answers, if anywhere."""
    for number, (mine, yours) in enumerate(zip(ours.answers, theirs, strict=False), start=1):
        if mine != yours:
            return f"after batch {number}: {mine:,} by {ours.case}, {yours:,} by {other}"
    return ""

"""What one step does, as a value that any executor can run and any task can be sent.

A program names the tables that get changes, the views that follow them, and the state they start from. It holds no
data and no connection, so the driver, a Spark task and a test run the same program with the same functions (`tasks`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.operators.kernel import Lifted, MapSide, Traffic, ViewChange, ViewKernel
from headrace.plan import native
from headrace.plan.expression import Expression
from headrace.plan.tree import FeedId
from headrace.relation.change import BadRows
from headrace.relation.dependency import Guard, guards
from headrace.relation.layout import TableLayout, hash_rows
from headrace.relation.residence import Residence
from headrace.relation.run import Run
from headrace.relation.runset import AnyRun
from headrace.relation.schema import Column
from headrace.rings import COUNT, Group
from headrace.runtime.aside import AsideWriter, Found, row_identity
from headrace.runtime.location import Location
from headrace.runtime.openruns import OPEN
from headrace.runtime.record import FINAL, PENDING, Arrangements, BucketState, Changes, RunRef
from headrace.runtime.runwriter import RunWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TABLE = "table/"


def table_arrangement(table: str) -> str:
    """Name a table's arrangement in the commit log."""
    return f"{_TABLE}{table}"


def guard_arrangement(guard: Guard) -> str:
    """Name the arrangement of one functional dependency of a table."""
    return f"{_TABLE}{guard.table.schema.name}/fd{guard.number}"


def pending_arrangement(view: str, part: str) -> str:
    """Name the arrangement of the changes that wait at an inlet of a view."""
    return f"{PENDING}{view}/{part}"


def arrangements_kept(view: str, kernel: ViewKernel) -> list[str]:
    """The arrangements of a view's state."""
    return [view_arrangement(view, part) for part in kernel.arrangements]


def arrangements_waiting(view: str, kernel: ViewKernel) -> list[str]:
    """The arrangements of the changes that wait for a view."""
    return [pending_arrangement(view, part) for part in kernel.inlets]


def is_table(arrangement: str) -> bool:
    """Whether an arrangement is a table's."""
    return arrangement.startswith(_TABLE)


def view_arrangement(view: str, part: str) -> str:
    """Name one of a view's arrangements in the commit log."""
    return f"view/{view}/{part}"


def final_arrangement(view: str) -> str:
    """Name the arrangement of a view's final groups in the commit log."""
    return f"{FINAL}{view}"


def renamed(arrangement: str, view: str, to: str) -> str:
    """The name of the same arrangement of a view with another name."""
    if arrangement == final_arrangement(view):
        return final_arrangement(to)
    assert arrangement.startswith(view_arrangement(view, "")), "it is an arrangement of the view"
    return view_arrangement(to, arrangement.removeprefix(view_arrangement(view, "")))


class Between(Protocol):
    """Has Catalyst evaluate feeds between operators, on the rows that `feed_rows` makes and takes back."""

    def values(self, view: str, feed: FeedId, given: pa.Table) -> pa.Table:
        """Evaluate a feed on rows that the driver has."""
        ...

    def frame(self, view: str, feed: FeedId, given: DataFrame) -> DataFrame:
        """Evaluate a feed on the rows of a DataFrame."""
        ...


@dataclass(frozen=True)
class ViewTask:
    """One map side of one view; `prefix` says whether Catalyst or the task evaluates its expressions."""

    name: str
    kernel: ViewKernel
    side: MapSide
    prefix: str | None  # columns evaluated by Catalyst begin with it; None: evaluated natively from the table's columns
    waits: bool = False  # its changes are held at the inlets of the view


@dataclass(frozen=True)
class TableTask:
    """One table with changes, and the views over it."""

    layout: TableLayout
    views: tuple[ViewTask, ...]
    store: bool = True  # False when a new view is filled from rows that are stored already, and for `views_only`
    views_only: bool = False  # another pass of the step takes care of the table itself
    excluded: NDArray[np.uint64] | None = None  # identities of bad rows that go to quarantine
    by_key: bool = False  # the changes were found by key, so with a bad row the row that it replaces stays as well

    @property
    def name(self) -> str:
        return self.layout.schema.name

    @property
    def arrangements(self) -> list[str]:
        """The arrangements of the table: its rows, and one per functional dependency."""
        return [table_arrangement(self.name), *map(guard_arrangement, guards(self.layout))]

    def identities(self, rows: pa.Table, diff: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Words by which rows are known again when the step is run without those that are bad."""
        if self.by_key:
            return hash_rows(
                rows, [self.layout.schema.column(name) for name in self.layout.schema.key], self.layout.seed
            )
        return row_identity(self.layout, rows, diff)

    def columns(self) -> list[Column]:
        """The columns that rows of this table come with: its own, and those that Catalyst evaluated."""
        out = list(self.layout.schema.columns)
        for view in self.views:
            out += catalyst_columns(view)
        return out


@dataclass(frozen=True)
class Waiting:
    """A run that waited at an inlet, or the share of it that one bucket has."""

    root: str
    ref: RunRef
    bucket: int | None = None

    def opened(self) -> AnyRun:
        """Open the run."""
        run = OPEN.one(self.root, self.ref)
        return run if self.bucket is None else run.in_bucket(self.bucket)


@dataclass(frozen=True)
class Spilled:
    """A run that is too large for the driver, in a file of the step."""

    root: str
    name: str

    @property
    def path(self) -> Path:
        """The file, as this process finds it."""
        return Location(self.root).batches / self.name


@dataclass(frozen=True)
class Flush:
    """What a view does with changes that waited: those of some inlets go on, and the others wait further."""

    kernel: ViewKernel
    flushed: frozenset[str]
    waiting: frozenset[str]


@dataclass(frozen=True)
class Program:
    """One step: tables, views, the state before it, and where its files go."""

    version: int
    root: str
    buckets: int
    tables: tuple[TableTask, ...]
    state: Arrangements
    step: int = 0  # its number, which the rows that it sets aside carry
    judge_only: bool = False  # only look for bad rows, and set them aside; write nothing else
    fsync: bool = False
    owes: bool = False  # long runs are merged beside later steps (`merges`), and not by this one
    seeds: Mapping[str, Lifted] = field(default_factory=dict)  # changes that new views get before any row
    between: Between | None = field(default=None, compare=False)
    residences: Mapping[str, Residence] | None = None  # by arrangement: the step changes all buckets in one pass
    flushes: Mapping[str, Flush] = field(default_factory=dict)  # by view, for a program without rows
    followers: Mapping[str, ViewKernel] = field(default_factory=dict)  # views that read a shared subplan
    patient: frozenset[str] = frozenset()  # the followers with goals: what they are given waits at their inlets
    names: set[str] | None = field(default=None, compare=False)  # gets the names of files that this process writes

    def __getstate__(self) -> dict[str, object]:
        """The program as tasks get it: without what only the driver has, such as its session in `between`."""
        return {**self.__dict__, "between": None, "names": None}

    @cached_property
    def location(self) -> Location:
        """The folders that the step reads and writes."""
        return Location(self.root)

    def writer(self) -> RunWriter:
        """Make a writer for the runs that one task adds."""
        return RunWriter(self.location, self.version, fsync=self.fsync, names=self.names, merges_small=self.owes)

    @property
    def aside(self) -> AsideWriter:
        """A writer for the rows that the step sets aside."""
        return AsideWriter(self.root, self.version, self.step, self.fsync)

    @cached_property
    def views(self) -> dict[str, ViewKernel]:
        """The views that the step maintains."""
        others = {**self.followers, **{name: flush.kernel for name, flush in self.flushes.items()}}
        return others | {view.name: view.kernel for task in self.tables for view in task.views}

    @cached_property
    def waiting(self) -> dict[str, frozenset[str]]:
        """The inlets of each view at which changes wait, for the views that have such."""
        own = {v.name: frozenset(v.kernel.inlets) for task in self.tables for v in task.views if v.waits}
        own |= {name: frozenset(kernel.inlets) for name, kernel in self.followers.items() if name in self.patient}
        return own | {name: flush.waiting for name, flush in self.flushes.items()}

    def states(self, arrangement: str) -> Mapping[int, BucketState]:
        """The state of one arrangement before the step, by bucket."""
        return self.state.get(arrangement, {})

    def state_after(self, result: BucketResult) -> Arrangements:
        """The state as some work of this step has changed it."""
        changed = {name: {**self.states(name), **buckets} for name, buckets in result.buckets.items()}
        return {**self.state, **changed}

    @cached_property
    def rings(self) -> dict[str, Group]:
        """The ring of each arrangement that the step may change."""
        rings: dict[str, Group] = {part: COUNT for task in self.tables if task.store for part in task.arrangements}
        for name, kernel in self.views.items():
            rings |= {view_arrangement(name, part): ring for part, ring in kernel.arrangements.items()}
        return rings


@dataclass(frozen=True)
class Parcel:
    """Changes on their way to a bucket of a view's next stage: a run, the file that it is in, or where it waited."""

    stage: int
    bucket: int
    view: str
    part: str
    run: Run | Spilled | Waiting
    rows: int


@dataclass(frozen=True)
class Holding:
    """What it took to hold the changes of a view: CPU seconds, and the rows of each source that were lifted."""

    cpu: float = 0.0
    rows: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: Holding) -> Holding:
        both = {source: self.rows.get(source, 0) + other.rows.get(source, 0) for source in {**self.rows, **other.rows}}
        return Holding(self.cpu + other.cpu, both)


@dataclass
class BucketResult:
    """What a task did: new state of the buckets it changed, bad rows it found, and what views changed."""

    buckets: Arrangements = field(default_factory=dict)
    bad: list[BadRows] = field(default_factory=list)  # as long as the task is at work; then it tells of them in `found`
    found: list[Found] = field(default_factory=list)
    summaries: dict[str, ViewChange] = field(default_factory=dict)
    changes: Changes = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)  # changed rows, by table
    passed: dict[str, tuple[int, int]] = field(default_factory=dict)  # rows and their net number, per table not kept
    newest: dict[str, int] = field(default_factory=dict)  # the latest time per table with a watermark, if any came
    closed: dict[str, int] = field(default_factory=dict)  # groups that became final, by view
    parcels: list[Parcel] = field(default_factory=list)  # changes for later stages
    traffic: dict[str, dict[str, Traffic]] = field(default_factory=dict)  # per operator of each view
    spent: dict[str, float] = field(default_factory=dict)  # CPU seconds of operators and their state, per view
    elsewhere: float = 0.0  # the part of these that other threads and processes than the step's own spent
    held: dict[str, Holding] = field(default_factory=dict)  # what was done to hold changes, per view
    # Entries that were made of products, per view and by what they were made for. EXPLAIN tells of them, since a
    # product is small only as long as nobody multiplies it out.
    multiplied: dict[str, dict[str, int]] = field(default_factory=dict)
    failure: Exception | None = None  # what a task could not do; it travels as a value, so that its kind survives

    @property
    def has_bad(self) -> bool:
        """Whether bad rows were found."""
        return bool(self.bad or self.found)

    def files(self) -> set[str]:
        """The names of the files that the new states and the changes of views are in."""
        states = (state for buckets in self.buckets.values() for state in buckets.values())
        changes = (run for runs in self.changes.values() for run in runs)
        return {run.name for state in states for run in state.runs} | {run.name for run in changes}

    def add(self, other: BucketResult) -> None:
        """Take over what another task did."""
        for name, buckets in other.buckets.items():
            self.buckets.setdefault(name, {}).update(buckets)
        self.bad += other.bad
        self.found += other.found
        self.parcels += other.parcels
        self.failure = self.failure or other.failure
        for name, summary in other.summaries.items():
            self.summaries[name] = self.summaries.get(name, ViewChange()) + summary
        for name, runs in other.changes.items():
            self.changes.setdefault(name, []).extend(runs)
        for name, operators in other.traffic.items():
            own = self.traffic.setdefault(name, {})
            own.update((n, own[n] + more if n in own else more) for n, more in operators.items())
        for name, seconds in other.spent.items():
            self.spent[name] = self.spent.get(name, 0.0) + seconds
        self.elsewhere += other.elsewhere
        for name, made in other.multiplied.items():
            mine = self.multiplied.setdefault(name, {})
            mine.update((what, mine.get(what, 0) + entries) for what, entries in made.items())
        for name, holding in other.held.items():
            self.held[name] = self.held.get(name, Holding()) + holding
        for name, time in other.newest.items():
            self.newest[name] = max(time, self.newest.get(name, time))
        for name, count in other.closed.items():
            self.closed[name] = self.closed.get(name, 0) + count
        for name, count in other.seen.items():
            self.seen[name] = self.seen.get(name, 0) + count
        for name, (rows, net) in other.passed.items():
            before = self.passed.get(name, (0, 0))
            self.passed[name] = (before[0] + rows, before[1] + net)


def why_catalyst(side: MapSide) -> str | None:
    """Say which expression of a map side needs Catalyst; None if workers can evaluate all of them on columns."""
    for expression in side.expressions:
        reason = native.why_not(expression)
        if reason is not None:
            return reason
    return None


def catalyst_columns(view: ViewTask) -> list[Column]:
    """The columns that Catalyst evaluates for a map side: condition, keys and arguments."""
    if view.prefix is None:
        return []
    side = view.side
    out = [] if side.condition is None else [Column(f"{view.prefix}c", side.condition.type)]
    named: list[tuple[str, tuple[Expression, ...]]] = [("k", side.keys), ("v", side.arguments)]
    return out + [Column(f"{view.prefix}{letter}{i}", e.type) for letter, group in named for i, e in enumerate(group)]


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """The Arrow schema of some columns."""
    return pa.schema([pa.field(column.name, column.type.arrow) for column in columns])

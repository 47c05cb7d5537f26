"""What one step does, as a value that any executor can run and any task can be sent.

A program names the tables that get changes, the views that follow them, and the state they start from. It holds no
data and no connection, so the driver, a Spark task and a test run the same program with the same functions (`tasks`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.operators.aggregate import ViewChange
from headrace.operators.layout import ViewLayout
from headrace.plan import native
from headrace.plan.expression import Expression
from headrace.plan.view import ViewPlan
from headrace.relation.change import BadRows
from headrace.relation.layout import TableLayout
from headrace.relation.schema import Column
from headrace.runtime.log import Arrangements, BucketState


def table_arrangement(table: str) -> str:
    """Name a table's arrangement in the commit log."""
    return f"table/{table}"


def view_arrangement(view: str, part: str) -> str:
    """Name one of a view's arrangements in the commit log."""
    return f"view/{view}/{part}"


@dataclass(frozen=True)
class ViewTask:
    """One view to maintain: where its expressions are evaluated decides which columns its rows come with."""

    name: str
    layout: ViewLayout
    prefix: str | None  # columns evaluated by Catalyst begin with it; None: evaluated natively from the table's columns


@dataclass(frozen=True)
class TableTask:
    """One table with changes, and the views over it."""

    layout: TableLayout
    views: tuple[ViewTask, ...]
    store: bool = True  # False when a new view is filled from rows that are stored already
    excluded: NDArray[np.uint64] | None = None  # identities of bad rows that go to quarantine

    @property
    def name(self) -> str:
        return self.layout.schema.name

    def columns(self) -> list[Column]:
        """The columns that rows of this table come with: its own, and those that Catalyst evaluated."""
        out = list(self.layout.schema.columns)
        for view in self.views:
            out += catalyst_columns(view)
        return out


@dataclass(frozen=True)
class Program:
    """One step: tables, views, the state before it, and where its files go."""

    version: int
    root: str
    buckets: int
    tables: tuple[TableTask, ...]
    state: Arrangements
    judge_only: bool = False  # only look for bad rows; write nothing
    fsync: bool = False

    def bucket_state(self, arrangement: str, bucket: int) -> BucketState:
        """The state of one arrangement in one bucket before the step."""
        return self.state.get(arrangement, {}).get(bucket, BucketState())


@dataclass
class BucketResult:
    """What a task did: new state of the buckets it changed, bad rows it found, and what views changed."""

    buckets: Arrangements = field(default_factory=dict)
    bad: list[BadRows] = field(default_factory=list)
    summaries: dict[str, ViewChange] = field(default_factory=dict)
    changes: dict[str, list[str]] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)  # changed rows, by table
    failure: Exception | None = None  # what a task could not do; it travels as a value, so that its kind survives

    def add(self, other: BucketResult) -> None:
        """Take over what another task did."""
        for name, buckets in other.buckets.items():
            self.buckets.setdefault(name, {}).update(buckets)
        self.bad += other.bad
        self.failure = self.failure or other.failure
        for name, summary in other.summaries.items():
            self.summaries[name] = self.summaries.get(name, ViewChange()) + summary
        for name, files in other.changes.items():
            self.changes.setdefault(name, []).extend(files)
        for name, count in other.seen.items():
            self.seen[name] = self.seen.get(name, 0) + count


def why_catalyst(plan: ViewPlan) -> str | None:
    """Say which expression of the map side needs Catalyst; None if workers can evaluate all of them on columns."""
    condition = () if plan.condition is None else (plan.condition,)
    for expression in (*condition, *plan.keys, *plan.arguments):
        reason = native.why_not(expression)
        if reason is not None:
            return reason
    return None


def catalyst_columns(view: ViewTask) -> list[Column]:
    """The columns that Catalyst evaluates for a view: condition, keys and arguments."""
    if view.prefix is None:
        return []
    plan = view.layout.plan
    out = [] if plan.condition is None else [Column(f"{view.prefix}c", plan.condition.type)]
    named: list[tuple[str, tuple[Expression, ...]]] = [("k", plan.keys), ("v", plan.arguments)]
    return out + [Column(f"{view.prefix}{letter}{i}", e.type) for letter, group in named for i, e in enumerate(group)]


def arrow_schema(columns: Iterable[Column]) -> pa.Schema:
    """The Arrow schema of some columns."""
    return pa.schema([pa.field(column.name, column.type.arrow) for column in columns])

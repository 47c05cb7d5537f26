"""Programs: what a step, a flush or a filling runs, over the state of the last commit.

A program is a value: which tables change, which views and shared subplans take their rows, and the state that these
need. Whoever runs a program adds what the step has changed so far; only `Maintenance` commits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from headrace.engine.catalogue import Catalogue
from headrace.engine.catalyst_feeds import BetweenOperators
from headrace.engine.definition import PlannedView
from headrace.engine.store import Store
from headrace.operators.kernel import ViewKernel
from headrace.operators.tree_view import TreeView
from headrace.runtime.program import (
    Flush,
    Program,
    TableTask,
    ViewTask,
    arrangements_kept,
    arrangements_waiting,
    table_arrangement,
    why_catalyst,
)
from headrace.runtime.record import Arrangements


class Programs:
    """Makes the programs of one engine."""

    def __init__(self, catalogue: Catalogue, store: Store) -> None:
        self._catalogue = catalogue
        self._store = store

    def over(
        self, tasks: tuple[TableTask, ...], views: Mapping[str, PlannedView], again: Arrangements | None = None
    ) -> Program:
        """A program over the last snapshot, and over arrangements that were made again for it."""
        snapshot = self._store.snapshot
        running = [view.kernel for task in tasks for view in task.views if not view.waits]
        followers = _followers(kernel for kernel in running if isinstance(kernel, TreeView))
        patient = frozenset(followers.keys() & self._waiting) if followers else frozenset()
        needed = {part for task in tasks for part in task.arrangements} | {
            arrangement
            for task in tasks
            for view in task.views
            for arrangement in (arrangements_waiting if view.waits else arrangements_kept)(view.name, view.kernel)
        }
        needed |= {
            part
            for name, kernel in followers.items()
            for part in (arrangements_waiting if name in patient else arrangements_kept)(name, kernel)
        }
        return Program(
            version=snapshot.version + 1,
            root=self._store.location.path,
            buckets=self._store.settings.buckets,
            tables=tasks,
            state={n: buckets for n, buckets in snapshot.arrangements.items() if n in needed} | (again or {}),
            step=snapshot.step + 1,
            fsync=self._store.fsync,
            owes=True,
            between=BetweenOperators(views),
            followers=followers,
            patient=patient,
        )

    def of_table(self, name: str, quarantines: bool) -> Program:
        """A program over the rows of one table alone, which sets bad rows aside or only tells of them."""
        task = TableTask(self._catalogue.tables[name], ())
        return replace(self.over((task,), {}), judge_only=quarantines)

    def table_task(self, name: str, without: Collection[str] = (), by_key: bool = False) -> TableTask:
        """How a step takes the changes of a table: for the table itself, for shared subplans, and for views.

        Parameters
        ----------
        without : views that take no part.
        by_key : whether the changes were found by key.
        """
        layout, views = self._catalogue.tables[name], self._catalogue.views
        tasks = [
            replace(task, waits=self._catalogue.shared_waits(shared))
            for shared in self._catalogue.subplans
            for task in view_tasks(shared, self._catalogue.shared_kernel(shared), name)
        ]
        tasks += [
            replace(task, waits=planned.definition.freshness is not None)
            for view, planned in views.items()
            if view not in without
            for task in view_tasks(view, self._catalogue.running(view), name)
        ]
        pairs = by_key and bool(layout.schema.key)
        return TableTask(layout, _numbered(tasks), store=layout.schema.kept, by_key=pairs)

    def flush(self, views: Mapping[str, PlannedView], changed: Arrangements) -> Program:
        """A program without rows over views, given what the step has changed so far."""
        snapshot = self._store.snapshot
        names = [
            arrangement
            for name, view in views.items()
            for arrangement in (*arrangements_kept(name, view.kernel), *arrangements_waiting(name, view.kernel))
        ]
        base = self.over((), views)
        return replace(
            base, state={name: snapshot.arrangements.get(name, {}) | changed.get(name, {}) for name in names}
        )

    def shared(self, name: str, changed: Arrangements) -> Program:
        """A program in which a shared subplan takes all that waits for it, and what it gives waits at its readers."""
        snapshot, kernel = self._store.snapshot, self._catalogue.shared_kernel(name)
        followers = _followers([kernel])
        needed = [*arrangements_kept(name, kernel), *arrangements_waiting(name, kernel)]
        needed += [part for view, own in followers.items() for part in arrangements_waiting(view, own)]
        return replace(
            self.over((), {}),
            state={part: snapshot.arrangements.get(part, {}) | changed.get(part, {}) for part in needed},
            flushes={name: Flush(kernel, frozenset(kernel.inlets), frozenset())},
            followers=followers,
            patient=frozenset(followers),
        )

    def rebuilding(self, name: str, kept: Arrangements, state: Arrangements, rebuilt: TreeView) -> Program:
        """A program that makes parts of a view from tables in some state, and from what is kept of the view."""
        layouts = self._catalogue.tables
        tables = dict.fromkeys(side.table for side in rebuilt.sides)
        stored = {table: state.get(table_arrangement(table), {}) for table in tables}
        read = [table for table, buckets in stored.items() if sum(one.live for one in buckets.values())]
        tasks = tuple(TableTask(layouts[t], view_tasks(name, rebuilt, t), store=False) for t in read)
        views = {name: self._catalogue.views[name]} if name in self._catalogue.views else {}
        return replace(
            self.over(tasks, views),
            state=kept | {table_arrangement(table): stored[table] for table in read},
            seeds={name: rebuilt.seeds},
            followers={name: rebuilt},
        )

    @property
    def _waiting(self) -> set[str]:
        """The views that do not follow every step."""
        views = self._catalogue.views.items()
        return {name for name, view in views if view.definition.freshness is not None}


def _followers(kernels: Iterable[TreeView]) -> dict[str, ViewKernel]:
    """The views that read some shared subplans, or the answers of views; and those that read their answers."""
    found: dict[str, ViewKernel] = {}
    for kernel in kernels:
        for one in kernel.followers:
            if one.view not in found:
                found |= {one.view: one.kernel, **_followers([one.kernel])}
    return found


def view_tasks(name: str, kernel: ViewKernel, table: str) -> tuple[ViewTask, ...]:
    """How a view takes the changes of a table."""
    return _numbered([ViewTask(name, kernel, side, None) for side in kernel.sides if side.table == table])


def _numbered(tasks: Sequence[ViewTask]) -> tuple[ViewTask, ...]:
    """Give each task whose expressions Catalyst evaluates its own prefix for column names."""
    return tuple(
        task if why_catalyst(task.side) is None else replace(task, prefix=f"__v{i}_") for i, task in enumerate(tasks)
    )

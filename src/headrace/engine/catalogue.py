"""The catalogue: every table and view of an engine, by name, with everything that follows from its definition.

Definitions live here and nowhere else. Steps, the planner and handles all ask the catalogue, so they cannot disagree
about which tables and views exist. When a location is opened again, the catalogue is rebuilt from the commit log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from headrace.engine.by_name import spelled
from headrace.engine.definition import Definition, PlannedView, SqlAnswer
from headrace.engine.stacking import check_unread, readers_of
from headrace.errors import SchemaError
from headrace.operators.kernel import ViewKernel
from headrace.operators.tree_view import Follower, TreeView
from headrace.relation.dependency import guards
from headrace.relation.layout import TableLayout
from headrace.relation.residence import Residence, first_word
from headrace.relation.schema import TableSchema
from headrace.rings import COUNT
from headrace.runtime.merges import Kind
from headrace.runtime.program import (
    arrangements_kept,
    arrangements_waiting,
    final_arrangement,
    guard_arrangement,
    is_table,
    table_arrangement,
)
from headrace.thrifty.share.plan import Shared, given_to, last_stage, shared_without

if TYPE_CHECKING:
    from headrace.engine.engine import Handle
    from headrace.engine.handles import Table
    from headrace.relation.duration import Duration
    from headrace.thrifty.goal import Freshness


class Entry:
    """A view of the catalogue. Its handle asks for the plan each time, because the first rows may change the plan."""

    def __init__(self, catalogue: Catalogue, name: str, planned: PlannedView) -> None:
        self._catalogue = catalogue
        self._name = name
        self._planned = planned
        self._handle: Handle | None = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def planned(self) -> PlannedView:
        """The definition with all choices made, and how the view is kept."""
        return self._planned

    def check_there(self) -> None:
        """Refuse to read a view that has been dropped, even if a new view has its name."""
        self._catalogue.follow()
        if not self._catalogue.holds(self):
            raise SchemaError(
                f"view {self._name!r} has been dropped", way_out="create it again, as with engine.view(...)"
            )


class Catalogue:
    """The definitions of one engine.

    Parameters
    ----------
    seed : the seed of the hash functions in layouts.
    follow : is called before a view is read: brings the definitions of an engine that only reads up to date.
    """

    def __init__(self, seed: int, follow: Callable[[], None] = lambda: None) -> None:
        self._seed = seed
        self.follow = follow
        self._tables: dict[str, TableLayout] = {}
        self._table_handles: dict[str, Table] = {}
        self._entries: dict[str, Entry] = {}
        self._shared: dict[str, Shared] = {}
        self._shared_kernels: dict[str, TreeView] = {}  # with the views that follow them
        self._running: dict[str, ViewKernel] = {}  # the kernels of views, with the views that read their answers
        self._unkept: dict[str, frozenset[str]] = {}  # the parts of each view and subplan that are dropped for now

    # -- what there is ------------------------------------------------------------------------------------------

    @property
    def tables(self) -> Mapping[str, TableLayout]:
        """The layout of each table."""
        return MappingProxyType(self._tables)

    @property
    def schemas(self) -> dict[str, TableSchema]:
        """The schema of each table."""
        return {name: layout.schema for name, layout in self._tables.items()}

    @property
    def views(self) -> dict[str, PlannedView]:
        """How each view is kept."""
        # A copy, because the scheduler looks at views while others are made.
        return {name: entry.planned for name, entry in self._entries.copy().items()}

    @property
    def kernels(self) -> dict[str, ViewKernel]:
        """The kernel of each view."""
        return {name: entry.planned.kernel for name, entry in self._entries.items()}

    @property
    def shared(self) -> Mapping[str, Shared]:
        """The subplans that views share, and the views whose answers others read."""
        return MappingProxyType(self._shared)

    @property
    def subplans(self) -> dict[str, Shared]:
        """The subplans that views share."""
        return {name: one for name, one in self._shared.items() if not one.is_answer}

    @property
    def answering(self) -> dict[str, Shared]:
        """The views whose answers stand for operators of others."""
        return {name: one for name, one in self._shared.items() if one.is_answer}

    @property
    def holders(self) -> set[str]:
        """The names of whatever has arrangements of its own: views and shared subplans."""
        return {*self._entries, *self._shared}

    def shared_without(self, view: str) -> dict[str, Shared]:
        """What views share, after a view is gone."""
        return shared_without(self._shared, [view])

    def shared_by(self, view: str) -> list[str]:
        """The subplans that a view reads."""
        return [name for name, one in self.subplans.items() if view in one.views]

    def running(self, name: str) -> ViewKernel:
        """The kernel of a view, with the views that follow its answer."""
        if name not in self._running:
            kernel = self._entries[name].planned.kernel
            if isinstance(kernel, TreeView) and name in self._shared:
                kernel = replace(kernel, followers=tuple(self._followers(name)))
            self._running[name] = kernel
        return self._running[name]

    def _followers(self, name: str) -> Iterator[Follower]:
        for member in self._shared[name].members:
            kernel = self.running(member.view)
            assert isinstance(kernel, TreeView), "only views that are kept by operators read what others give"
            yield Follower(member.view, kernel, member.number)

    def shared_kernel(self, name: str) -> TreeView:
        """The kernel of a shared subplan, with the views that follow it as they are planned now."""
        # A kernel finds out much about itself when it first runs, so it is made once: only `share` changes followers.
        if name not in self._shared_kernels:
            followers = list(self._followers(name))
            kernel = replace(self._shared[name].kernel, unkept=self._unkept.get(name, frozenset()))
            self._shared_kernels[name] = replace(kernel, followers=tuple(followers))
        return self._shared_kernels[name]

    def shared_waits(self, name: str) -> bool:
        """Whether the changes of a shared subplan wait, because no view that reads it follows every step."""
        views = self._shared[name].views
        return (
            not self._shared[name].is_answer
            and bool(views)
            and all(self._entries[v].planned.definition.freshness is not None for v in views)
        )

    @property
    def table_handles(self) -> dict[str, Table]:
        """The handle of each table."""
        return dict(self._table_handles)

    @property
    def handles(self) -> dict[str, Handle]:
        """The handle of each view; made once, so that a fitted model stays fitted."""
        return {name: entry._handle for name, entry in self._entries.items() if entry._handle is not None}

    def table(self, name: str) -> Table:
        """The handle of a table; raises if there is no such table."""
        name = spelled(name, self._tables)
        if name not in self._tables:
            raise SchemaError(f"there is no table {name!r}", way_out=self._known())
        return self._table_handles[name]

    def view(self, name: str) -> Handle:
        """The handle of a view; raises if there is no such view."""
        name = spelled(name, self._entries)
        if name not in self.handles:
            raise SchemaError(f"there is no view {name!r}", way_out=self._known())
        return self.handles[name]

    def holds(self, entry: Entry) -> bool:
        """Whether a view is still in the catalogue."""
        return self._entries.get(entry.name) is entry

    def reading(self, table: str) -> list[str]:
        """The views that read a table."""
        return [name for name, entry in self._entries.items() if table in entry.planned.tables]

    def using_ring(self, name: str) -> list[str]:
        """The views that sum in a ring of the user."""
        return [view for view, planned in self.views.items() if name in planned.definition.rings]

    def arrangements_of(self, name: str) -> tuple[str, ...]:
        """The arrangements that belong to a table or a view."""
        if name in self._tables:
            return (table_arrangement(name), *map(guard_arrangement, guards(self._tables[name])))
        kernel = self._entries[name].planned.kernel
        return (*arrangements_kept(name, kernel), *arrangements_waiting(name, kernel), final_arrangement(name))

    def kind_of(self, arrangement: str, buckets: int) -> Kind | None:
        """What merges must know of an arrangement; None if there is no such table or view."""
        _, name, *part = arrangement.split("/", 2)
        if is_table(arrangement):
            return Kind(COUNT, Residence(buckets, first_word)) if name in self._tables else None
        if not part:  # of final groups
            answer = self._entries[name].planned.answer if name in self._entries else None
            return Kind(answer.layout.ring) if isinstance(answer, SqlAnswer) else None
        kernel = (self.kernels | {shared: one.kernel for shared, one in self.subplans.items()}).get(name)
        if kernel is None or part[0] not in kernel.arrangements:  # gone, or a shared subplan has taken its place
            return None
        in_one_pass = kernel.in_one_pass
        residences = {} if in_one_pass is None else in_one_pass.residences
        return Kind(kernel.arrangements[part[0]], residences.get(part[0]))

    # -- what may be made ---------------------------------------------------------------------------------------

    def same_table(self, schema: TableSchema) -> bool:
        """Whether the same table exists already; raises if the name has another definition, or belongs to a view."""
        if schema.name not in self._tables:
            self._check_free(schema.name)
            return False
        if self._tables[schema.name].schema != schema:
            raise _exists("table", schema.name)
        return True

    def same_view(self, name: str, definition: Definition) -> bool:
        """Whether the same view exists already; raises if the name has another definition, or belongs to a table."""
        if name not in self._entries:
            self._check_free(name)
            return False
        known = self._entries[name].planned.definition
        if known.request != definition.request:
            raise _exists("view", name)
        if known.freshness != definition.freshness:
            raise SchemaError(
                f"view {name!r} exists with {_goal(known.freshness)}, not with {_goal(definition.freshness)}",
                way_out=f"change it: engine.views[{name!r}].goal = ...",
            )
        if known.idle_after != definition.idle_after:
            raise SchemaError(
                f"view {name!r} exists with idle_after={_text(known.idle_after)}, not {_text(definition.idle_after)}",
                way_out=f"change it: engine.views[{name!r}].idle_after = ...",
            )
        return True

    def check_unused(self, name: str) -> None:
        """Refuse to drop a table or view that does not exist, or that something else needs."""
        if name in self._entries:
            check_unread(name, readers_of(name, self.views))
            return
        if name not in self._tables:
            raise SchemaError(f"there is no table or view {name!r}", way_out=self._known())
        users = self.reading(name)
        users += [t.schema.name for t in self._tables.values() if name in dict(t.schema.references).values()]
        if users:
            raise SchemaError(f"table {name!r} is used by {', '.join(users)}", way_out="drop these first")

    def check_changeable(self, names: Iterable[str]) -> None:
        """Refuse changes to static tables that views rely on."""
        for name in names:
            if name in self._tables and self._tables[name].schema.static and (users := self.reading(name)):
                raise SchemaError(
                    f"table {name!r} is static, and {', '.join(users)} relies on that",
                    way_out="register it without static=True, or load it before its views are created",
                )

    # -- changes ------------------------------------------------------------------------------------------------

    def add_table(self, schema: TableSchema, make_handle: Callable[[TableLayout], Table]) -> None:
        """Add a table, with its handle."""
        self._tables[schema.name] = layout = TableLayout(schema, self._seed)
        self._table_handles[schema.name] = make_handle(layout)

    def add_view(self, name: str, planned: PlannedView, make_handle: Callable[[Entry], Handle]) -> Handle:
        """Add a view, with its handle."""
        entry = Entry(self, name, planned)
        entry._handle = handle = make_handle(entry)
        self._entries[name] = entry
        self._change_kernels()
        return handle

    def share(self, shared: Mapping[str, Shared]) -> None:
        """Let views share these subplans and answers, and no others."""
        self._shared = dict(shared)
        self._change_kernels()
        stages: dict[str, int] = {}
        for name in self._answering_first():
            entry = self._entries[name]
            kernel, given = entry.planned.kernel, given_to(name, shared, stages)
            if isinstance(kernel, TreeView) and kernel.given != given:
                kernel = replace(kernel, given=given)
                entry._planned = replace(entry.planned, kernel=kernel)
            if isinstance(kernel, TreeView) and name in shared:
                stages[name] = last_stage(kernel)

    def _answering_first(self) -> list[str]:
        """All views, each after those whose answers it reads."""
        found: dict[str, None] = {}

        def visit(name: str) -> None:
            if name not in found and name in self._entries:
                for giver, one in self.answering.items():
                    if name in one.views:
                        visit(giver)
                found[name] = None

        for name in self._entries:
            visit(name)
        return list(found)

    def _change_kernels(self) -> None:
        """Forget the kernels that hold others in them."""
        self._shared_kernels, self._running = {}, {}

    @property
    def unkept(self) -> Mapping[str, frozenset[str]]:
        """The parts of each view and shared subplan that are dropped for now."""
        return MappingProxyType(self._unkept)

    def leave_out(self, unkept: Mapping[str, Collection[str]]) -> None:
        """Let views and shared subplans do without these parts, and keep all others."""
        changed = {name: frozenset(parts) for name, parts in unkept.items() if parts}
        if changed != self._unkept:
            self._unkept = changed
            self._change_kernels()
        for name, entry in self._entries.items():
            kernel, parts = entry.planned.kernel, changed.get(name, frozenset())
            if isinstance(kernel, TreeView) and kernel.unkept != parts:
                entry._planned = replace(entry.planned, kernel=replace(kernel, unkept=parts))
                self._change_kernels()

    def replan(self, views: Mapping[str, PlannedView]) -> dict[str, PlannedView]:
        """Replace the plans of some views; returns their old plans."""
        self._change_kernels()
        before = {name: self._entries[name].planned for name in views}
        for name, planned in views.items():
            self._entries[name]._planned = planned
        return before

    def remove(self, name: str) -> None:
        """Remove a table or a view."""
        self._tables.pop(name, None)
        self._table_handles.pop(name, None)
        self._entries.pop(name, None)
        self._unkept.pop(name, None)
        self.share(self.shared_without(name))

    def _check_free(self, name: str) -> None:
        taken = {other.lower(): other for other in (*self._tables, *self._entries)}
        if name.lower() in taken:
            raise SchemaError(f"the name {name!r} is taken by {taken[name.lower()]!r}", way_out="choose another name")

    def _known(self) -> str:
        names = ", ".join([*self._tables, *self._entries])
        return f"known are: {names or 'none yet; register one with engine.table(...)'}"


def _goal(freshness: Freshness | None) -> str:
    return "no goal" if freshness is None else f"the goal {freshness}"


def _text(idle_after: Duration | None) -> str:
    return "None" if idle_after is None else repr(str(idle_after))


def _exists(what: str, name: str) -> SchemaError:
    return SchemaError(
        f"{what} {name!r} exists with another definition", way_out="drop it first, or choose another name"
    )

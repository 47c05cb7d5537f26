"""The tables and views of a location in one engine: opened, followed and forgotten, all by what the commit log says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.engine import stored_plans
from headrace.engine.access import Access
from headrace.engine.catalogue import Catalogue
from headrace.engine.definition import Definition, PlannedView
from headrace.engine.failed import FailedViews, check_fillable_again, is_stale, stale_while_reading
from headrace.engine.handles import Table
from headrace.engine.kinds import handle_class
from headrace.engine.planning import Planner
from headrace.engine.sharing import shared_from_json, shared_to_json
from headrace.engine.stacking import check_open, in_order, offer
from headrace.engine.store import Store
from headrace.engine.stored_definitions import table_of, view_of
from headrace.errors import HeadraceError
from headrace.relation.schema import TableSchema
from headrace.runtime.log import Snapshot
from headrace.runtime.record import Record
from headrace.sql.session import SqlSession
from headrace.thrifty.share.plan import shared_without

if TYPE_CHECKING:
    from headrace.engine.engine import Handle


class Definitions:
    """Has the catalogue say what the log says, as far as this engine can open it.

    Parameters
    ----------
    access : what handles get from the engine.
    """

    def __init__(self, catalogue: Catalogue, store: Store, sql: SqlSession, planner: Planner, access: Access) -> None:
        self._catalogue = catalogue
        self._store = store
        self._sql = sql
        self._planner = planner
        self._access = access
        self.failed = FailedViews()

    def open(self) -> dict[str, PlannedView]:
        """Open everything that the location has; returns the views that have to be filled again before they answer."""
        snapshot = self._store.snapshot
        for name, said in snapshot.tables.items():
            self.add_table(table_of(name, said))
        stale = self._open_views(snapshot.views)
        self._keep(snapshot)
        return stale

    def follow(self, before: Snapshot, after: Snapshot) -> None:
        """Take over what the engine that writes has defined since."""
        buckets = self._store.settings.buckets
        is_rebucketed, self._planner.buckets = self._planner.buckets != buckets, buckets
        if after.defines_what(before) and not is_rebucketed:
            return
        for name in before.views.keys() - after.views.keys() | before.tables.keys() - after.tables.keys():
            self.forget(name)
        for name, said in after.tables.items():
            if said != before.tables.get(name):
                self.add_table(table_of(name, said))
        for name, said in in_order(after.views):
            if said == before.views.get(name) and not is_rebucketed:
                continue
            is_same = name in before.views and said["request"] == before.views[name]["request"]
            if is_same and name not in self.failed and not is_stale(said):
                self._catalogue.replan({name: self.plan(name, view_of(name, said))})
            else:
                self.forget(name)
                self._open_views({name: said})
        self._keep(after)

    def marked(self, record: Record, before: Snapshot) -> Record:
        """A record that says of the views which could not be opened that it does not follow them."""
        return self.failed.out_of_date(record, before, lambda: shared_to_json(self._catalogue.shared))

    def plan(self, name: str, definition: Definition) -> PlannedView:
        """Plan a view by what is known of the tables now."""
        return self._planner.plan(name, definition, self._access.statistics())

    def add_table(self, schema: TableSchema) -> None:
        """Add a table, for Spark too."""
        self._sql.register(schema.name, [(c.name, c.type, c.nullable) for c in schema.columns])
        self._catalogue.add_table(schema, lambda layout: Table(self._access, layout))

    def add_view(self, name: str, planned: PlannedView) -> Handle:
        """Add a view that has been planned."""
        if not self._store.read_only:
            stored_plans.write(self._store, name, planned)
        offer(self._sql, name, planned)
        kind = handle_class(planned.definition.kind)
        return self._catalogue.add_view(name, planned, lambda entry: kind(self._access, entry))

    def forget(self, name: str) -> None:
        """Remove a table or a view that is gone."""
        self.failed.remove(name)
        self._catalogue.remove(name)
        self._sql.unregister(name)

    def _open_views(self, definitions: Mapping[str, Any]) -> dict[str, PlannedView]:
        stale = {}
        for name, said in in_order(definitions):
            try:
                definition = view_of(name, said)
                check_open(definition, self.failed)
                planned = self.plan(name, definition)
                if not is_stale(said):
                    self.add_view(name, planned)
                elif self._store.read_only:
                    raise stale_while_reading()
                else:
                    check_fillable_again(name, planned, self._catalogue.schemas)
                    offer(self._sql, name, planned)
                    stale[name] = planned
            except HeadraceError as error:
                self.failed.add(name, said, error)
        return stale

    def _keep(self, snapshot: Snapshot) -> None:
        """Let views share and leave out what a snapshot says, without those that could not be opened."""
        self._catalogue.share(shared_without(shared_from_json(snapshot.shared), self.failed.handles))
        there = self._catalogue.holders
        self._catalogue.leave_out({name: parts for name, parts in snapshot.unkept.items() if name in there})
